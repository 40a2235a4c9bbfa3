package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/kafka"
	"github.com/posthaste-mq/posthaste/sink/nats"
	"github.com/posthaste-mq/posthaste/sink/rabbitmq"
	"github.com/posthaste-mq/posthaste/sink/redisstream"
	"github.com/posthaste-mq/posthaste/source"
	fromkafka "github.com/posthaste-mq/posthaste/source/kafka"
	fromnats "github.com/posthaste-mq/posthaste/source/nats"
	fromrabbitmq "github.com/posthaste-mq/posthaste/source/rabbitmq"
	fromredis "github.com/posthaste-mq/posthaste/source/redisstream"
)

// brokerSink is a sink for a broker.
type brokerSink interface {
	posthaste.Sink
	// Check finds what is wrong with the configuration, by asking the broker.
	Check(ctx context.Context) error
	// Broker is its address, without secrets.
	Broker() string
	// Away says whether it could not be used when it was tried last.
	Away() bool
}

// brokerKind is a kind of broker: options is what can be said about it, which open
// gets filled in.
type brokerKind struct {
	name    string
	options func() any
	open    func(url string, options any, log *slog.Logger) (brokerSink, error)
	// sourceOptions and source are the same of a source, which goes into ledger.
	sourceOptions func() any
	source        func(ledger source.Ledger, url string, c source.Config, options any) (*source.Source, error)
	// easy is what `up` uses, so that nothing has to be set up.
	easy map[string]string
}

// rabbitmqOptions are those of a relay to RabbitMQ.
type rabbitmqOptions struct {
	relay.Mapping `yaml:",inline"`
	Exchange      string `yaml:"exchange"`
	RoutingKey    string `yaml:"routing_key"`
	Declare       string `yaml:"declare"`
	Unroutable    bool   `yaml:"accept_unroutable"`
	Unsafe        bool   `yaml:"unsafe"`
	Connections   int    `yaml:"connections"`
	Outstanding   int    `yaml:"outstanding"`
}

// rabbitmqSource are the options of a source from RabbitMQ.
type rabbitmqSource struct {
	FromQueue string `yaml:"from_queue"`
	Prefetch  int    `yaml:"prefetch"`
	Refused   string `yaml:"refused"`
}

var rabbitmqKind = &brokerKind{
	name:    "RabbitMQ",
	options: func() any { return &rabbitmqOptions{} },
	open: func(url string, options any, log *slog.Logger) (brokerSink, error) {
		o := options.(*rabbitmqOptions)
		return opened(rabbitmq.New(rabbitmq.Config{URL: url, Exchange: o.Exchange, RoutingKey: o.RoutingKey, Mapping: o.Mapping, Declare: o.Declare,
			Unroutable: o.Unroutable, Unsafe: o.Unsafe, Connections: o.Connections, Outstanding: o.Outstanding, Logger: log}))
	},
	sourceOptions: func() any { return &rabbitmqSource{} },
	source: func(ledger source.Ledger, url string, c source.Config, options any) (*source.Source, error) {
		o := options.(*rabbitmqSource)
		return fromrabbitmq.New(ledger, fromrabbitmq.Config{Config: c, URL: url, FromQueue: o.FromQueue, Prefetch: o.Prefetch, Refused: o.Refused})
	},
	easy: map[string]string{"declare": "classic", "routing_key": relayQueue},
}

// opened keeps a nil sink from being one that is there.
func opened[S brokerSink](sink S, err error) (brokerSink, error) {
	if err != nil {
		return nil, err
	}
	return sink, nil
}

// natsOptions are those of a relay to NATS JetStream.
type natsOptions struct {
	relay.Mapping `yaml:",inline"`
	Subject       string `yaml:"subject"`
	Stream        string `yaml:"stream"`
	Credentials   string `yaml:"credentials"`
	InboxPrefix   string `yaml:"inbox_prefix"`
	Connections   int    `yaml:"connections"`
	Outstanding   int    `yaml:"outstanding"`
}

var natsKind = &brokerKind{
	name:    "NATS",
	options: func() any { return &natsOptions{} },
	open: func(url string, options any, log *slog.Logger) (brokerSink, error) {
		o := options.(*natsOptions)
		return opened(nats.New(nats.Config{URL: url, Subject: o.Subject, Stream: o.Stream, Credentials: o.Credentials, InboxPrefix: o.InboxPrefix,
			Mapping: o.Mapping, Connections: o.Connections, Outstanding: o.Outstanding, Logger: log}))
	},
	sourceOptions: func() any { return &natsSource{} },
	source: func(ledger source.Ledger, url string, c source.Config, options any) (*source.Source, error) {
		o := options.(*natsSource)
		return fromnats.New(ledger, fromnats.Config{Config: c, URL: url, Stream: o.Stream, Consumer: o.Consumer, Subject: o.Subject, Refused: o.Refused,
			Credentials: o.Credentials, InboxPrefix: o.InboxPrefix})
	},
}

// natsSource are the options of a source from NATS JetStream.
type natsSource struct {
	Stream      string `yaml:"stream"`
	Consumer    string `yaml:"consumer"`
	Subject     string `yaml:"subject"`
	Refused     string `yaml:"refused"`
	Credentials string `yaml:"credentials"`
	InboxPrefix string `yaml:"inbox_prefix"`
}

// redisOptions are those of a relay to Redis Streams.
type redisOptions struct {
	relay.Mapping  `yaml:",inline"`
	Stream         string        `yaml:"stream"`
	Existing       bool          `yaml:"existing"`
	MaxLen         int64         `yaml:"max_len"`
	Replicas       int           `yaml:"replicas"`
	ReplicaTimeout time.Duration `yaml:"replica_timeout"`
	Connections    int           `yaml:"connections"`
	Outstanding    int           `yaml:"outstanding"`
}

var redisKind = &brokerKind{
	name:    "Redis Streams",
	options: func() any { return &redisOptions{} },
	open: func(url string, options any, log *slog.Logger) (brokerSink, error) {
		o := options.(*redisOptions)
		return opened(redisstream.New(redisstream.Config{URL: url, Stream: o.Stream, Existing: o.Existing, MaxLen: o.MaxLen, Replicas: o.Replicas, ReplicaTimeout: o.ReplicaTimeout,
			Mapping: o.Mapping, Connections: o.Connections, Outstanding: o.Outstanding, Logger: log}))
	},
	sourceOptions: func() any { return &redisSource{} },
	source: func(ledger source.Ledger, url string, c source.Config, options any) (*source.Source, error) {
		o := options.(*redisSource)
		return fromredis.New(ledger, fromredis.Config{Config: c, URL: url, Stream: o.Stream, Group: o.Group, Consumer: o.Consumer, ClaimAfter: o.ClaimAfter, Refused: o.Refused})
	},
}

// redisSource are the options of a source from Redis Streams.
type redisSource struct {
	Stream     string        `yaml:"stream"`
	Group      string        `yaml:"group"`
	Consumer   string        `yaml:"consumer"`
	ClaimAfter time.Duration `yaml:"claim_after"`
	Refused    string        `yaml:"refused"`
}

// kafkaOptions are those of a relay to Kafka.
type kafkaOptions struct {
	relay.Mapping   `yaml:",inline"`
	Topic           string `yaml:"topic"`
	Key             string `yaml:"key"`
	Mechanism       string `yaml:"mechanism"`
	Create          bool   `yaml:"create"`
	MaxMessageBytes int    `yaml:"max_message_bytes"`
	Compression     string `yaml:"compression"`
	Outstanding     int    `yaml:"outstanding"`
}

var kafkaKind = &brokerKind{
	name:    "Kafka",
	options: func() any { return &kafkaOptions{} },
	open: func(url string, options any, log *slog.Logger) (brokerSink, error) {
		o := options.(*kafkaOptions)
		return opened(kafka.New(kafka.Config{URL: url, Topic: o.Topic, Key: o.Key, Mechanism: o.Mechanism, Create: o.Create, MaxMessageBytes: o.MaxMessageBytes,
			Compression: o.Compression, Mapping: o.Mapping, Outstanding: o.Outstanding, Logger: log}))
	},
	sourceOptions: func() any { return &kafkaSource{} },
	source: func(ledger source.Ledger, url string, c source.Config, options any) (*source.Source, error) {
		o := options.(*kafkaSource)
		return fromkafka.New(ledger, fromkafka.Config{Config: c, URL: url, Mechanism: o.Mechanism, Topic: o.Topic, Group: o.Group, Refused: o.Refused})
	},
}

// kafkaSource are the options of a source from Kafka.
type kafkaSource struct {
	Mechanism string `yaml:"mechanism"`
	Topic     string `yaml:"topic"`
	Group     string `yaml:"group"`
	Refused   string `yaml:"refused"`
}

// brokerKinds are those that are built in, by the scheme of their URLs.
var brokerKinds = map[string]*brokerKind{
	"amqp": rabbitmqKind, "amqps": rabbitmqKind,
	"kafka": kafkaKind, "kafkas": kafkaKind,
	"nats": natsKind, "tls": natsKind,
	"redis": redisKind, "rediss": redisKind,
}
