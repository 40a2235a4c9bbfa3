package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// SinkConfig configures a sink. Only URL is required. The fields with a key can be set in
// a file of relays.
type SinkConfig struct {
	URL URL `yaml:"-"`
	// Mechanism is how the user logs in: scram-sha-512 (default), scram-sha-256 or
	// plain.
	Mechanism string `yaml:"mechanism"`
	// Topic is the template of the topic (default "{{.Queue}}").
	Topic string `yaml:"topic"`
	// Key is the template of the record's key (default "{{.Key}}"). If the result is
	// empty, the record has no key.
	Key string `yaml:"key"`
	// Create lets the brokers create missing topics, if they are configured to
	// (auto.create.topics.enable).
	Create bool `yaml:"create"`
	// MaxMessageBytes is the size limit of a record (default 1000012, the default of
	// Kafka). A topic refuses more than its own max.message.bytes.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// Compression is the compression of batches: none (default), gzip, snappy, lz4 or
	// zstd.
	Compression string `yaml:"compression"`
	// Mapping configures the id, the headers and the format of messages.
	Mapping relay.Mapping `yaml:",inline"`
	// Outstanding is the maximum number of unacknowledged messages (default 10000; 1 to
	// 1000000).
	Outstanding int `yaml:"outstanding"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with kafkas://; MinVersion gets a default. Nil trusts the system's
	// certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the client id that the brokers show (default "posthaste-relay").
	Name string `yaml:"-"`
	// Logger logs when the brokers become unreachable and when they are back. Nil
	// disables logging.
	Logger *slog.Logger `yaml:"-"`

	// dial opens connections in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// target is a checked SinkConfig.
type target struct {
	SinkConfig
	address    string // host:port of the brokers
	topic, key *relay.Template
	mapper     *relay.Mapper
	options    []kgo.Opt
}

// parseSink checks the configuration and fills in defaults. Errors never hold the URL,
// because it may hold a password.
func parseSink(c SinkConfig) (*target, error) {
	t := &target{}
	if err := relay.Bounded("outstanding", &c.Outstanding, 10_000, 1_000_000); err != nil {
		return nil, err
	}
	if err := relay.Bounded("max_message_bytes", &c.MaxMessageBytes, 1_000_012, 64<<20); err != nil {
		return nil, err
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Topic = cmp.Or(c.Topic, "{{.Queue}}")
	c.Key = cmp.Or(c.Key, "{{.Key}}")
	c.Name = cmp.Or(c.Name, "posthaste-relay")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	codec, ok := map[string]kgo.CompressionCodec{"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[c.Compression]
	if !ok {
		return nil, posthaste.Invalidf("compression", "compression must be none, gzip, snappy, lz4 or zstd, got %q", c.Compression)
	}
	endpoint := endpoint{URL: c.URL, Mechanism: c.Mechanism, DialTimeout: c.DialTimeout, TLS: c.TLS, Name: c.Name, Dial: c.dial}
	var err error
	if t.options, t.address, err = endpoint.options(); err != nil {
		return nil, err
	}
	t.SinkConfig = c
	if t.topic, err = relay.Compile("topic", c.Topic); err != nil {
		return nil, err
	}
	if topic, static := t.topic.Static(); static {
		if err := checkTopic(topic); err != nil {
			return nil, err
		}
	}
	if t.key, err = relay.Compile("key", c.Key); err != nil {
		return nil, err
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	for name := range c.Mapping.Headers {
		if reserved(name) {
			return nil, posthaste.Invalidf("headers."+name, "the relay sets the header %s: use message_id", name)
		}
	}
	t.options = append(t.options, c.producing(codec)...)
	return t, nil
}

// producing returns the options of a client that produces.
func (c *SinkConfig) producing(codec kgo.CompressionCodec) []kgo.Opt {
	options := []kgo.Opt{kgo.SoftwareNameAndVersion("posthaste", "relay"),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)), kgo.BrokerMaxWriteBytes(int32(max(100<<20, c.MaxMessageBytes+1<<20))),
		kgo.MaxBufferedRecords(c.Outstanding + 1), // never reached, because the library blocks at its own bound
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// A missing topic delays the whole batch.
		kgo.UnknownTopicRetries(2), kgo.MetadataMinAge(250 * time.Millisecond)}
	if c.Create {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	return options
}
