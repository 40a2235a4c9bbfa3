// Package redisstream is the source that takes entries of a Redis Stream into a queue
// of the ledger, as a consumer of a group. See package source for what is promised.
//
// An entry that was read and not acknowledged stays with the consumer that read it.
// One that stops gives its own back; those of one that died are taken over after
// [Config.ClaimAfter]. An entry is known again by its field message_id, or else by its
// id in the stream.
//
// What the ledger refuses for good is added to another stream, by default that of the
// same name with ".refused" behind it, with its fields and the reason; it is
// acknowledged once Redis has replied.
//
// What Redis has acknowledged is what its persistence keeps.
//
// In a Redis Cluster it reads from the master that has the stream, and from another
// once that has it. What a replica had not heard of when it took its place is as if it
// had not been: an acknowledgement, and the entry is read again and found by its id.
package redisstream

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
	servers "github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/source"
)

// Fields of an entry; all others are headers. An entry without a payload has all its
// fields as a JSON object for one.
const (
	FieldMessageID   = "message_id"
	FieldContentType = "content_type"
	FieldPayload     = "payload"
)

// Config says which messages are taken from where. Queue, URL and Stream are required.
type Config struct {
	source.Config
	// URL names the server: redis://user:password@host:6379/0 or rediss://, with the
	// number of the database; of a Redis Cluster several, separated by commas. User and password are percent-encoded. Unencrypted it
	// is meant for the same machine or a trusted network.
	URL string
	// Stream is the stream's key. It has to be there.
	Stream string
	// Group is the consumer group (default "posthaste"). It is made if there is none,
	// and begins with the oldest entry then.
	Group string
	// Consumer is this consumer's name, which no other may have at the same time
	// (default: one of its own each time).
	Consumer string
	// ClaimAfter is how long an entry lies with another consumer before it is taken
	// over (default 5 min, at least 2 min: a consumer holds what it read for one while
	// the database is away, and for longer while that takes nothing).
	ClaimAfter time.Duration
	// Refused is the stream for what the ledger refuses (default: Stream with
	// ".refused").
	Refused string
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// TLS is used for rediss://; ServerName and MinVersion get defaults. Nil trusts
	// the system's authorities.
	TLS *tls.Config
}

// eventPrefix goes before a CloudEvent's attributes among the fields.
const eventPrefix = "ce_"

// New checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects to nobody yet. Errors are *posthaste.Error with the
// field, and hold no password.
func New(ledger source.Ledger, c Config) (*source.Source, error) {
	var options *redis.Options
	first, addresses, err := servers.Servers(c.URL)
	if err == nil {
		if options, err = redis.ParseURL(first); err != nil {
			err = errors.New("it cannot be read") // the library's words may be of the password
		}
	}
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "the server's URL cannot be used: " + err.Error(),
			Hint: "redis://user:password@host:6379/0 or rediss://, with special characters percent-encoded, such as / as %2F"}
	}
	if options.TLSConfig != nil {
		if c.TLS != nil {
			host := options.TLSConfig.ServerName
			options.TLSConfig = c.TLS.Clone()
			options.TLSConfig.ServerName = cmp.Or(options.TLSConfig.ServerName, host)
		}
		options.TLSConfig.MinVersion = max(options.TLSConfig.MinVersion, tls.VersionTLS12)
	}
	if c.Stream == "" {
		return nil, posthaste.Invalidf("stream", "stream is missing: the key of the stream that messages are taken from")
	}
	c.Group = cmp.Or(c.Group, "posthaste")
	if c.Refused = cmp.Or(c.Refused, c.Stream+".refused"); c.Refused == c.Stream {
		return nil, posthaste.Invalidf("refused", "refused is the stream that messages are taken from: what is put aside there would come again")
	}
	if c.Consumer == "" {
		name := make([]byte, 8)
		rand.Read(name)
		c.Consumer = "posthaste-" + hex.EncodeToString(name)
	}
	if c.ClaimAfter = cmp.Or(c.ClaimAfter, 5*time.Minute); c.ClaimAfter < 2*time.Minute {
		return nil, posthaste.Invalidf("claim_after", "claim_after must be at least 2m, and is %s: a consumer that lives holds what it read for a minute while the database is away", c.ClaimAfter)
	}
	options.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	options.ReadTimeout, options.WriteTimeout = 10*time.Second, 10*time.Second
	// Dialed once: another try is refused, and what was wrong would not be told.
	options.PoolSize, options.MaxRetries, options.DialerRetries = 1, -1, 1
	options.ClientName, options.DisableIdentity = "posthaste-source", true
	return source.New(ledger, c.Config, newBroker(c, options, addresses))
}
