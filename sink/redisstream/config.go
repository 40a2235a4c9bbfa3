// Package redisstream is the sink that adds messages to Redis Streams and answers
// only what the server has replied.
//
// An entry has the fields message_id, content_type and payload, and one for each
// header. A stream does not look for repetitions: receivers know them by
// message_id, which is the same in each.
//
// # What an attempt ends with
//
//   - The reply to XADD, and with Replicas that to WAIT: delivered. What that is
//     worth is up to the server: with "appendfsync always" it is on disk, with
//     "everysec" a crash loses a second, without appendonly all. A server whose
//     maxmemory-policy evicts keys evicts streams, too: use noeviction.
//   - An error in reply (OOM, READONLY, MISCONF, WRONGTYPE, NOPERM), fewer replicas
//     than asked for: tried again with backoff, with the server's words, and dead
//     after max_attempts. Each message has a reply of its own.
//   - A connection lost before the reply: unknown whether the stream has it, so it
//     is added again, with the same message id.
//   - A template that names a missing header, a message above the server's limit
//     (proto-max-bulk-len): dead at once.
//
// While the server cannot be reached, loads its data or refuses the login, what is
// in hand waits as long as the queue's timeout allows before the attempt fails, and no
// more is taken meanwhile than a worker's batches hold.
//
// # Redis Cluster
//
// The servers of a cluster tell who has which stream, and that may change: each
// message goes to the master that has its stream, and one that was told to go
// elsewhere goes there within its attempt. While a master is away, what is in hand for
// it waits until it is back or a replica has taken its place. A message that it had
// confirmed and no replica had is lost with it: ask for as many Replicas as masters have.
package redisstream

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/relay"
)

// The fields of an entry beside the headers. A message with a header of such a name is dead
// at once.
const (
	FieldMessageID   = "message_id"
	FieldContentType = "content_type"
	FieldPayload     = "payload"
)

// Config says which server gets the messages and how. Only URL is required.
type Config struct {
	// URL names the server: redis://user:password@host:6379/0 or rediss://, with the
	// number of the database; of a Redis Cluster several, separated by commas, of which
	// one has to answer at first. User and password are percent-encoded. Unencrypted it
	// is meant for the same machine or a trusted network.
	URL string
	// Stream is the template of the stream's key (default "{{.Queue}}").
	Stream string
	// Existing leaves it at streams that are there: a message for another one is
	// tried again, and dead in the end. By default the first message makes a stream.
	Existing bool
	// MaxLen, if above 0, lets a stream forget its oldest entries when it has about
	// that many, whether they were read or not.
	MaxLen int64
	// Replicas is how many replicas must have a message before it counts as
	// delivered (WAIT; default 0).
	Replicas int
	// ReplicaTimeout is how long that may take (default 5 s).
	ReplicaTimeout time.Duration
	// Mapping is what goes along.
	Mapping relay.Mapping
	// Connections is how many add side by side (default 2; 1 to 100).
	Connections int
	// Outstanding is how many messages of a connection may be without a reply
	// (default 4096; 1 to 65536).
	Outstanding int
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// TLS is used for rediss://; ServerName and MinVersion get defaults. Nil trusts
	// the system's authorities. The certificate of each server is to be for the first
	// name in the URL.
	TLS *tls.Config
	// Name is what the server shows of the connections, without spaces (default
	// "posthaste-relay").
	Name string
	// Logger is told when the server was lost and when it is back (nil: nobody).
	Logger *slog.Logger
}

// target is a checked Config.
type target struct {
	Config
	addresses      []string // host:port of each server in the URL
	address        string   // all of them, for words
	user, password string
	database       int
	stream         *relay.Template
	mapper         *relay.Mapper
	takeovers      *redis.Takeovers
}

// eventPrefix goes before a CloudEvent's attributes in fields. There is no binding
// to Redis; this is Kafka's.
const eventPrefix = "ce_"

// parse checks the config and fills in defaults. Errors never hold a part of the URL, for
// each may be one of the password.
func parse(c Config) (*target, error) {
	t := &target{}
	u, err := t.server(c.URL)
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "the server's URL cannot be used: " + err.Error(),
			Hint: "redis://user:password@host:6379/0 or rediss://, with special characters percent-encoded, such as / as %2F"}
	}
	if err := relay.Bounded("connections", &c.Connections, 2, 100); err != nil {
		return nil, err
	}
	if err := relay.Bounded("outstanding", &c.Outstanding, 4096, 1<<16); err != nil {
		return nil, err
	}
	if c.MaxLen < 0 {
		return nil, posthaste.Invalidf("max_len", "max_len must be 0 (no limit) or more, and is %d", c.MaxLen)
	}
	if c.Replicas < 0 {
		return nil, posthaste.Invalidf("replicas", "replicas must be 0 or more, and is %d", c.Replicas)
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = 5 * time.Second
	}
	if c.ReplicaTimeout < time.Millisecond {
		return nil, posthaste.Invalidf("replica_timeout", "replica_timeout must be at least 1ms, and is %s", c.ReplicaTimeout)
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 10 * time.Second
	}
	if c.Stream == "" {
		c.Stream = "{{.Queue}}"
	}
	if c.Name == "" {
		c.Name = "posthaste-relay"
	}
	if strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, posthaste.Invalidf("name", "name %q must be printable ASCII without spaces for Redis", c.Name)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if u.Scheme == "rediss" {
		if c.TLS = c.TLS.Clone(); c.TLS == nil {
			c.TLS = &tls.Config{}
		}
		if c.TLS.ServerName == "" {
			c.TLS.ServerName = u.Hostname()
		}
		c.TLS.MinVersion = max(c.TLS.MinVersion, tls.VersionTLS12)
	} else {
		c.TLS = nil
	}
	t.Config = c
	t.takeovers = redis.WatchTakeovers(t.connect, goredis.Options{Username: t.user, Password: t.password, TLSConfig: t.TLS, ClientName: c.Name}, t.addresses...)
	if t.stream, err = relay.Compile("stream", c.Stream); err != nil {
		return nil, err
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	for name := range c.Mapping.Headers {
		if reserved(name) {
			return nil, posthaste.Invalidf("headers."+name, "a header cannot be called %s: that is a field of every entry", name)
		}
	}
	return t, nil
}

// server takes apart the URL.
func (t *target) server(text string) (*url.URL, error) {
	first, addresses, err := redis.Servers(text)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(first)
	if err != nil {
		return nil, errors.New("it cannot be read") // package url's words may be of the password
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it can have no options behind ? or #")
	}
	t.addresses, t.address = addresses, strings.Join(addresses, ",")
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	if path := strings.Trim(u.Path, "/"); path != "" {
		if t.database, err = strconv.Atoi(path); err != nil || t.database < 0 {
			return nil, errors.New("its path must be the number of a database")
		}
	}
	return u, nil
}

// reserved says whether an entry's field of that name is not for headers.
func reserved(name string) bool {
	return name == FieldMessageID || name == FieldContentType || name == FieldPayload
}
