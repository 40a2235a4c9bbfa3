package rabbitmq

import (
	"cmp"
	"crypto/tls"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// SourceConfig configures a source. Queue, URL and FromQueue are required. The fields with
// a key can be set in a file of relays.
type SourceConfig struct {
	source.Config `yaml:",inline"`

	URL URL `yaml:"-"`
	// FromQueue is the broker's queue, which must exist.
	FromQueue string `yaml:"from_queue"`
	// Prefetch is the maximum number of unacknowledged messages, 1 to 65,535 (default
	// 1,000). They are held in memory.
	Prefetch int `yaml:"prefetch"`
	// Refused is the broker's queue for messages that the queue of Posthaste rejects
	// (default: FromQueue with the suffix ".refused"). If it does not exist, it is
	// created durable.
	Refused string `yaml:"refused"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// Heartbeat is the interval of heartbeats (default 10 s).
	Heartbeat time.Duration `yaml:"-"`
	// TLS is used with amqps://; ServerName and MinVersion get defaults. Nil trusts the
	// system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the name of the connections that the broker shows (default "posthaste
	// source").
	Name string `yaml:"-"`
}

// NewSource checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects when it runs. Errors are *posthaste.Error with the
// field, and hold no password.
func NewSource(ledger source.Ledger, c SourceConfig) (*source.Source, error) {
	b := &sourceBroker{SourceConfig: c, endpoint: endpoint{URL: c.URL, TLS: c.TLS, DialTimeout: c.DialTimeout, Heartbeat: c.Heartbeat, Name: cmp.Or(c.Name, "posthaste source")}}
	if err := b.endpoint.check(); err != nil {
		return nil, err
	}
	b.Refused = cmp.Or(c.Refused, c.FromQueue+".refused")
	for _, f := range [...]struct{ name, text string }{{"from_queue", c.FromQueue}, {"refused", b.Refused}} {
		if f.text == "" || len(f.text) > 255 {
			return nil, posthaste.Invalidf(f.name, "%s must name a queue of the broker with 1 to 255 bytes, got %d", f.name, len(f.text))
		}
	}
	if b.Refused == c.FromQueue {
		return nil, posthaste.Invalidf("refused", "refused is the queue that the source reads, so refused messages would be read again")
	}
	if err := relay.Bounded("prefetch", &b.Prefetch, 1000, 65_535); err != nil {
		return nil, err
	}
	return source.New(ledger, c.Config, b)
}
