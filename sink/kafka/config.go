// Package kafka is the sink that produces messages to Kafka and answers only what
// all replicas in sync have acknowledged (acks=all), by an idempotent producer.
//
// The message id goes along as the record header message-id, the content type as
// content-type. The record's key is the message's, and by it the partition is
// chosen as Java's clients do; records without a key are spread.
//
// # What an attempt ends with
//
//   - The acknowledgement: delivered. A connection lost before it is repaired by
//     the producer, and what the broker has got already is not stored twice.
//   - A topic that is not there, that the user may not write to, or that refuses:
//     tried again with backoff, with the broker's words, and dead after
//     max_attempts.
//   - The time is up: unknown whether the topic has it, so it is produced again,
//     with the same message id.
//   - A name that no topic can have, a template that names a missing header, a
//     message above MaxMessageBytes or the topic's limit: dead at once.
//
// While brokers cannot be reached, refuse the login, or have fewer replicas in sync
// than a topic asks for (min.insync.replicas), what is in hand waits as long as the
// queue's timeout allows before the attempt fails. Meanwhile a worker takes
// no more than its batches hold.
//
// A broker refuses records by the batch, in which those of several messages may be.
// So what was refused in a batch is produced once more alone, and each message gets
// the answer that is its own.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/kafka"
	"github.com/posthaste-mq/posthaste/relay"
)

// The record headers beside those of the message and its mapping, which cannot
// replace them.
const (
	HeaderMessageID   = "message-id"
	HeaderContentType = "content-type"
)

// Config says which brokers get the messages and how. Only URL is required.
type Config struct {
	// URL names brokers of a cluster, separated by commas:
	// kafka://user:password@host:9092,host2:9092, or kafkas:// with TLS. User and
	// password are percent-encoded. Unencrypted it is meant for the same machine or
	// a trusted network.
	URL string
	// Mechanism is how a user logs in: scram-sha-512 (default), scram-sha-256 or
	// plain.
	Mechanism string
	// Topic is the template of the topic (default "{{.Queue}}").
	Topic string
	// Key is the template of the record's key (default "{{.Key}}"). Where it comes
	// out empty the record has none.
	Key string
	// Create lets brokers make topics that are not there, if they do so
	// (auto.create.topics.enable).
	Create bool
	// MaxMessageBytes is how large a record may be (default 1000012, as Kafka's).
	// More than a topic's max.message.bytes is refused there.
	MaxMessageBytes int
	// Compression of batches: none (default), gzip, snappy, lz4 or zstd.
	Compression string
	// Mapping is what goes along.
	Mapping relay.Mapping
	// Outstanding is how many messages may be without an acknowledgement (default
	// 10000; 1 to 1000000).
	Outstanding int
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// TLS is used for kafkas://; MinVersion gets a default. Nil trusts the system's
	// authorities.
	TLS *tls.Config
	// Name is what brokers show of the producer (default "posthaste-relay").
	Name string
	// Logger is told when the brokers were lost and when they are back (nil: nobody).
	Logger *slog.Logger

	// dial opens connections in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// target is a checked Config.
type target struct {
	Config
	address    string // host:port of the brokers
	topic, key *relay.Template
	mapper     *relay.Mapper
	options    []kgo.Opt
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the
// standard's binding to Kafka.
const eventPrefix = "ce_"

// parse checks the config and fills in defaults. Errors never hold the URL, for it
// may hold a password.
func parse(c Config) (*target, error) {
	t := &target{}
	if err := relay.Bounded("outstanding", &c.Outstanding, 10_000, 1_000_000); err != nil {
		return nil, err
	}
	if err := relay.Bounded("max_message_bytes", &c.MaxMessageBytes, 1_000_012, 64<<20); err != nil {
		return nil, err
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	if c.Topic == "" {
		c.Topic = "{{.Queue}}"
	}
	if c.Key == "" {
		c.Key = "{{.Key}}"
	}
	if c.Name == "" {
		c.Name = "posthaste-relay"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	codec, ok := map[string]kgo.CompressionCodec{"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[c.Compression]
	if !ok {
		return nil, posthaste.Invalidf("compression", "compression must be none, gzip, snappy, lz4 or zstd, and is %q", c.Compression)
	}
	reach := kafka.Brokers{URL: c.URL, Mechanism: c.Mechanism, DialTimeout: c.DialTimeout, TLS: c.TLS, Name: c.Name, Dial: c.dial}
	var err error
	if t.options, t.address, err = reach.Options(); err != nil {
		return nil, err
	}
	t.Config = c
	if t.topic, err = relay.Compile("topic", c.Topic); err != nil {
		return nil, err
	}
	if topic, static := t.topic.Static(); static {
		if err := kafka.CheckTopic(topic); err != nil {
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
			return nil, posthaste.Invalidf("headers."+name, "the header %s is set by the relay: use message_id", name)
		}
	}
	t.options = append(t.options, kgo.SoftwareNameAndVersion("posthaste", "relay"),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)), kgo.BrokerMaxWriteBytes(int32(max(100<<20, c.MaxMessageBytes+1<<20))),
		kgo.MaxBufferedRecords(c.Outstanding+1), // its own bound shall never be reached, for it blocks there
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// What a missing topic keeps waiting is the whole batch.
		kgo.UnknownTopicRetries(2), kgo.MetadataMinAge(250*time.Millisecond))
	if c.Create {
		t.options = append(t.options, kgo.AllowAutoTopicCreation())
	}
	return t, nil
}

// reserved says whether a record header of that name is the relay's.
func reserved(name string) bool { return name == HeaderMessageID || name == HeaderContentType }
