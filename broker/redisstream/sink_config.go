package redisstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/relay"
)

// SinkConfig configures a sink. Only URL is required. The fields with a key can be set in
// a file of relays.
type SinkConfig struct {
	URL URL `yaml:"-"`
	// Stream is the template of the stream's key (default "{{.Queue}}").
	Stream string `yaml:"stream"`
	// Existing adds only to existing streams. A message for another stream is retried,
	// and dead-lettered in the end. By default the first message creates a stream.
	Existing bool `yaml:"existing"`
	// MaxLen, if above 0, is about the number of entries that a stream keeps. It deletes
	// the oldest ones, even if they were not read.
	MaxLen int64 `yaml:"max_len"`
	// Replicas is the number of replicas that must have a message before it counts as
	// delivered (WAIT; default 0).
	Replicas int `yaml:"replicas"`
	// ReplicaTimeout bounds the wait for them (default 5 s).
	ReplicaTimeout time.Duration `yaml:"replica_timeout"`
	// Mapping configures the id, the headers and the format of messages.
	Mapping relay.Mapping `yaml:",inline"`
	// Connections is the number of connections that add in parallel (default 2; 1 to
	// 100).
	Connections int `yaml:"connections"`
	// Outstanding is the maximum number of messages of a connection without a reply
	// (default 4096; 1 to 65536).
	Outstanding int `yaml:"outstanding"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with rediss://; ServerName and MinVersion get defaults. Nil trusts the
	// system's certificate authorities. The certificate of each server must be valid for
	// the first name in the URL.
	TLS *tls.Config `yaml:"-"`
	// Name is the name of the connections that the server shows, without spaces (default
	// "posthaste-relay").
	Name string `yaml:"-"`
	// Logger logs when the server becomes unreachable and when it is back. Nil disables
	// logging.
	Logger *slog.Logger `yaml:"-"`
}

// target is a checked SinkConfig.
type target struct {
	SinkConfig
	addresses      []string // host:port of each server in the URL
	address        string   // all of them, for errors
	user, password string
	database       int
	stream         *relay.Template
	mapper         *relay.Mapper
	takeovers      *redis.Takeovers
}

// parseSink checks the configuration and fills in defaults. Errors never hold a part of the
// URL, because any part may belong to a password that is not encoded.
func parseSink(c SinkConfig) (*target, error) {
	t := &target{}
	u, err := t.server(c.URL)
	if err != nil {
		return nil, invalidURL(err)
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	if u.Scheme == "rediss" {
		c.TLS = relay.ClientTLS(c.TLS, u.Hostname())
	} else {
		c.TLS = nil
	}
	t.SinkConfig = c
	t.takeovers = redis.WatchTakeovers(t.connect, goredis.Options{Username: t.user, Password: t.password, TLSConfig: t.TLS, ClientName: c.Name}, t.addresses...)
	if t.stream, err = relay.Compile("stream", c.Stream); err != nil {
		return nil, err
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	for name := range c.Mapping.Headers {
		if reserved(name) {
			return nil, posthaste.Invalidf("headers."+name, "a header cannot have the name %s, which is a field of every entry", name)
		}
	}
	return t, nil
}

// fill checks the settings beside URL, TLS and templates, and fills in their defaults.
func (c *SinkConfig) fill() error {
	if err := relay.BoundedLoad(&c.Connections, &c.Outstanding); err != nil {
		return err
	}
	if c.MaxLen < 0 {
		return posthaste.Invalidf("max_len", "max_len must be 0 (no limit) or more, got %d", c.MaxLen)
	}
	if c.Replicas < 0 {
		return posthaste.Invalidf("replicas", "replicas must be 0 or more, got %d", c.Replicas)
	}
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, 5*time.Second)
	if c.ReplicaTimeout < time.Millisecond {
		return posthaste.Invalidf("replica_timeout", "replica_timeout must be at least 1ms, got %s", c.ReplicaTimeout)
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Stream = cmp.Or(c.Stream, "{{.Queue}}")
	c.Name = cmp.Or(c.Name, "posthaste-relay")
	if strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return posthaste.Invalidf("name", "name %q must be printable ASCII without spaces for Redis", c.Name)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// server parses the URL.
func (t *target) server(text URL) (*url.URL, error) {
	first, addresses, err := redis.Servers(string(text))
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(first)
	if err != nil {
		return nil, errors.New("it cannot be parsed") // the error of package url may quote the password
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it must not have options after ? or #")
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
