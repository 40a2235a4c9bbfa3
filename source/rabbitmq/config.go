// Package rabbitmq is the source that takes messages of a RabbitMQ queue (AMQP
// 0-9-1) into a queue of the ledger. See package source for what is promised.
//
// A message is known again by its message-id. What has none may be in the ledger
// twice after a lost connection: let publishers set one.
//
// What the ledger refuses for good goes to a durable queue of the broker, by default
// that of the same name with ".refused" behind it, as it came and with the reason in
// headers; it is acknowledged once the broker has confirmed that.
package rabbitmq

import (
	"cmp"
	"crypto/tls"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/rabbit"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// Config says which messages are taken from where. Queue, URL and FromQueue are
// required.
type Config struct {
	source.Config
	// URL names the broker: amqp://user:password@host:5672/vhost or amqps://. User,
	// password and vhost are percent-encoded; without a path the vhost is "/".
	// Unencrypted it is meant for the same machine or a trusted network.
	URL string
	// FromQueue is the broker's queue. It has to be there.
	FromQueue string
	// Prefetch is how many messages the broker hands over without an
	// acknowledgement, 1 to 65,535 (default 1,000). They are held in memory.
	Prefetch int
	// Refused is the broker's queue for what the ledger refuses (default: FromQueue
	// with ".refused"). It is made durable, if there is none.
	Refused string
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// Heartbeat is how often connections show that they live (default 10 s).
	Heartbeat time.Duration
	// TLS is used for amqps://; ServerName and MinVersion get defaults. Nil trusts
	// the system's authorities.
	TLS *tls.Config
	// Name is what the broker shows of the connections (default "posthaste source").
	Name string
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the
// standard's binding to AMQP.
const eventPrefix = "cloudEvents:"

// New checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects to nobody yet. Errors are *posthaste.Error with the
// field, and hold no password.
func New(ledger source.Ledger, c Config) (*source.Source, error) {
	b := &broker{Config: c, rabbit: rabbit.Broker{URL: c.URL, TLS: c.TLS, DialTimeout: c.DialTimeout, Heartbeat: c.Heartbeat, Name: cmp.Or(c.Name, "posthaste source")}}
	if err := b.rabbit.Check(); err != nil {
		return nil, err
	}
	b.Refused = cmp.Or(c.Refused, c.FromQueue+".refused")
	for _, f := range [...]struct{ name, text string }{{"from_queue", c.FromQueue}, {"refused", b.Refused}} {
		if f.text == "" || len(f.text) > 255 {
			return nil, posthaste.Invalidf(f.name, "%s must name a queue of the broker in 1 to 255 bytes, and has %d", f.name, len(f.text))
		}
	}
	if b.Refused == c.FromQueue {
		return nil, posthaste.Invalidf("refused", "refused is the queue that messages are taken from: what is put aside there would come again")
	}
	if err := relay.Bounded("prefetch", &b.Prefetch, 1000, 65_535); err != nil {
		return nil, err
	}
	return source.New(ledger, c.Config, b)
}
