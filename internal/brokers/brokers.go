// Package brokers lists the brokers that relays and sources support. The command line, the
// benchmarks and the tests of the documents use this list, so that a broker is named in one
// place.
package brokers

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/amqp1"
	"github.com/posthaste-mq/posthaste/broker/kafka"
	"github.com/posthaste-mq/posthaste/broker/nats"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/broker/redisstream"
	"github.com/posthaste-mq/posthaste/source"
)

// Kind is a kind of broker.
type Kind struct {
	// Name is the name in messages and documents.
	Name string
	// Schemes are the schemes of its URLs. The first one is the usual one.
	Schemes []string
	// Word is the name on the command line of the benchmarks, and Install says how to
	// install it for them. Both are empty if they do not measure at it.
	Word, Install string
	// Sink returns an empty configuration of a sink for the broker at a URL, and a
	// function that opens the sink once the configuration is filled in.
	Sink func(url string) (config any, open OpenSink)
	// Source is the same for a source. Its configuration includes the fields of
	// [source.Config], which OpenSource replaces. Nil if no source reads from it.
	Source func(url string) (config any, open OpenSource)
	// Easy returns the settings with which a relay of a queue works without any setup at
	// the broker. Nil if none are needed.
	Easy func(queue string) map[string]string
}

// OpenSink opens a sink, which logs to log.
type OpenSink func(log *slog.Logger) (Sink, error)

// OpenSource opens a source into a ledger.
type OpenSource func(ledger source.Ledger, shared source.Config) (*source.Source, error)

// Sink is a sink for a broker.
type Sink interface {
	posthaste.Sink
	// Check connects to the broker and returns an error if the configuration is wrong.
	Check(ctx context.Context) error
	// Broker returns the broker's address, without secrets.
	Broker() string
	// Away reports whether the last attempt to use the broker failed.
	Away() bool
}

// The kinds of brokers.
var (
	RabbitMQ = &Kind{
		Name: "RabbitMQ", Word: "rabbitmq", Schemes: []string{"amqp", "amqps"}, Install: "Debian: apt-get install rabbitmq-server",
		Sink: func(url string) (any, OpenSink) {
			c := &rabbitmq.SinkConfig{URL: rabbitmq.URL(url)}
			return c, func(log *slog.Logger) (Sink, error) { c.Logger = log; return opened(rabbitmq.NewSink(*c)) }
		},
		Source: func(url string) (any, OpenSource) {
			c := &rabbitmq.SourceConfig{URL: rabbitmq.URL(url)}
			return c, func(ledger source.Ledger, shared source.Config) (*source.Source, error) {
				c.Config = shared
				return rabbitmq.NewSource(ledger, *c)
			}
		},
		Easy: func(queue string) map[string]string {
			return map[string]string{"declare": "classic", "routing_key": queue}
		},
	}
	Kafka = &Kind{
		Name: "Kafka", Word: "kafka", Schemes: []string{"kafka", "kafkas"}, Install: "Java, and its jars: make needs downloads them",
		Sink: func(url string) (any, OpenSink) {
			c := &kafka.SinkConfig{URL: kafka.URL(url)}
			return c, func(log *slog.Logger) (Sink, error) { c.Logger = log; return opened(kafka.NewSink(*c)) }
		},
		Source: func(url string) (any, OpenSource) {
			c := &kafka.SourceConfig{URL: kafka.URL(url)}
			return c, func(ledger source.Ledger, shared source.Config) (*source.Source, error) {
				c.Config = shared
				return kafka.NewSource(ledger, *c)
			}
		},
	}
	NATS = &Kind{
		Name: "NATS JetStream", Word: "nats", Schemes: []string{"nats", "tls"}, Install: "go install github.com/nats-io/nats-server/v2@latest",
		Sink: func(url string) (any, OpenSink) {
			c := &nats.SinkConfig{URL: nats.URL(url)}
			return c, func(log *slog.Logger) (Sink, error) { c.Logger = log; return opened(nats.NewSink(*c)) }
		},
		Source: func(url string) (any, OpenSource) {
			c := &nats.SourceConfig{URL: nats.URL(url)}
			return c, func(ledger source.Ledger, shared source.Config) (*source.Source, error) {
				c.Config = shared
				return nats.NewSource(ledger, *c)
			}
		},
	}
	Redis = &Kind{
		Name: "Redis Streams", Word: "redis", Schemes: []string{"redis", "rediss"}, Install: "Debian: apt-get install redis-server",
		Sink: func(url string) (any, OpenSink) {
			c := &redisstream.SinkConfig{URL: redisstream.URL(url)}
			return c, func(log *slog.Logger) (Sink, error) { c.Logger = log; return opened(redisstream.NewSink(*c)) }
		},
		Source: func(url string) (any, OpenSource) {
			c := &redisstream.SourceConfig{URL: redisstream.URL(url)}
			return c, func(ledger source.Ledger, shared source.Config) (*source.Source, error) {
				c.Config = shared
				return redisstream.NewSource(ledger, *c)
			}
		},
	}
	AMQP1 = &Kind{
		Name: "AMQP 1.0", Schemes: []string{"amqp1", "amqp1s"},
		Sink: func(url string) (any, OpenSink) {
			c := &amqp1.SinkConfig{URL: amqp1.URL(url)}
			return c, func(log *slog.Logger) (Sink, error) { c.Logger = log; return opened(amqp1.NewSink(*c)) }
		},
	}
)

// All lists all kinds in the order of the documents. The first one is the default of the
// benchmarks.
var All = []*Kind{RabbitMQ, Kafka, NATS, Redis, AMQP1}

// opened turns the result of a constructor into a [Sink], without a nil pointer in it.
func opened[S Sink](sink S, err error) (Sink, error) {
	if err != nil {
		return nil, err
	}
	return sink, nil
}

// OfScheme returns the kind with URLs of a scheme, or nil.
func OfScheme(scheme string) *Kind {
	for _, k := range All {
		if slices.Contains(k.Schemes, scheme) {
			return k
		}
	}
	return nil
}

// Schemes returns the schemes of all kinds, sorted.
func Schemes() (all []string) {
	for _, k := range All {
		all = append(all, k.Schemes...)
	}
	slices.Sort(all)
	return all
}

// List returns a text of each kind that the benchmarks measure, as "a, b or c".
func List(text func(k *Kind) string) string {
	var texts []string
	for _, k := range All {
		if k.Word != "" {
			texts = append(texts, text(k))
		}
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
