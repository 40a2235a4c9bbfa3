package redisstream

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/source"
)

// SourceConfig configures a source. Queue, URL and Stream are required. The fields with a
// key can be set in a file of relays.
type SourceConfig struct {
	source.Config `yaml:",inline"`

	URL URL `yaml:"-"`
	// Stream is the stream's key, which must exist.
	Stream string `yaml:"stream"`
	// Group is the consumer group (default "posthaste"). If it does not exist, it is
	// created and begins with the oldest entry.
	Group string `yaml:"group"`
	// Consumer is this consumer's name, which must be unique at any time (default: a new
	// one each time).
	Consumer string `yaml:"consumer"`
	// ClaimAfter is how long an entry stays with another consumer before it is claimed
	// (default 5 min, at least 2 min: a consumer holds its entries for a minute while the
	// database is away, and for longer while the queue is full).
	ClaimAfter time.Duration `yaml:"claim_after"`
	// Refused is the stream for entries that the queue rejects (default: Stream with the
	// suffix ".refused").
	Refused string `yaml:"refused"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with rediss://; ServerName and MinVersion get defaults. Nil trusts the
	// system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
}

// NewSource checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects when it runs. Errors are *posthaste.Error with the
// field, and hold no password.
func NewSource(ledger source.Ledger, c SourceConfig) (*source.Source, error) {
	var options *goredis.Options
	first, addresses, err := redis.Servers(string(c.URL))
	if err == nil {
		if options, err = goredis.ParseURL(first); err != nil {
			err = errors.New("it cannot be parsed") // the error of the library may quote the password
		}
	}
	if err != nil {
		return nil, invalidURL(err)
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
		return nil, posthaste.Invalidf("stream", "stream is missing: set it to the key of the stream to read")
	}
	c.Group = cmp.Or(c.Group, "posthaste")
	if c.Refused = cmp.Or(c.Refused, c.Stream+".refused"); c.Refused == c.Stream {
		return nil, posthaste.Invalidf("refused", "refused is the stream that the source reads, so refused messages would be read again")
	}
	if c.Consumer == "" {
		name := make([]byte, 8)
		rand.Read(name)
		c.Consumer = "posthaste-" + hex.EncodeToString(name)
	}
	if c.ClaimAfter = cmp.Or(c.ClaimAfter, 5*time.Minute); c.ClaimAfter < 2*time.Minute {
		return nil, posthaste.Invalidf("claim_after", "claim_after must be at least 2m, got %s: a consumer holds its entries for a minute while the database is away", c.ClaimAfter)
	}
	options.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	options.ReadTimeout, options.WriteTimeout = 10*time.Second, 10*time.Second
	// Dialed once, because the dialer refuses a second call and its error would hide the first.
	options.PoolSize, options.MaxRetries, options.DialerRetries = 1, -1, 1
	options.ClientName, options.DisableIdentity = "posthaste-source", true
	return source.New(ledger, c.Config, newBroker(c, options, addresses))
}
