// Package kafka is the source that takes records of a Kafka topic into a queue of the
// ledger, as a member of a consumer group. See package source for what is promised.
//
// Offsets are committed after the commit of the send, per partition, and only up to
// the first record that is not taken in. A record is known again by its header
// message-id, or else by its partition and offset in the topic. Records of a partition
// are taken in in their order.
//
// What the ledger refuses for good is produced to another topic, by default that of
// the same name with ".refused" behind it, with its key, its headers and the reason;
// its offset is committed once all replicas in sync have it.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/kafka"
	"github.com/posthaste-mq/posthaste/source"
)

// The record headers that are no headers of the message.
const (
	HeaderMessageID   = "message-id"
	HeaderContentType = "content-type"
)

// Config says which messages are taken from where. Queue, URL and Topic are required.
type Config struct {
	source.Config
	// URL names brokers of a cluster, separated by commas:
	// kafka://user:password@host:9092,host2:9092, or kafkas:// with TLS. User and
	// password are percent-encoded. Unencrypted it is meant for the same machine or
	// a trusted network.
	URL string
	// Mechanism is how a user logs in: scram-sha-512 (default), scram-sha-256 or
	// plain.
	Mechanism string
	// Topic is the topic. It has to be there.
	Topic string
	// Group is the consumer group (default "posthaste"). A new one begins with the
	// oldest record.
	Group string
	// Refused is the topic for what the ledger refuses (default: Topic with
	// ".refused", which is made if there is none).
	Refused string
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// TLS is used for kafkas://; MinVersion gets a default. Nil trusts the system's
	// authorities.
	TLS *tls.Config
	// Name is what brokers show of the consumer (default "posthaste-source").
	Name string

	// dial opens connections in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the standard's
// binding to Kafka.
const eventPrefix = "ce_"

// largest is how large a record may be that is put aside.
const largest = 64 << 20

// New checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects to nobody yet. Errors are *posthaste.Error with the
// field, and hold no password.
func New(ledger source.Ledger, c Config) (*source.Source, error) {
	b, err := parse(c)
	if err != nil {
		return nil, err
	}
	return source.New(ledger, c.Config, b)
}

// parse checks the config and fills in defaults.
func parse(c Config) (*broker, error) {
	b := &broker{makes: c.Refused == ""}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Group = cmp.Or(c.Group, "posthaste")
	c.Refused = cmp.Or(c.Refused, c.Topic+".refused")
	reach := kafka.Brokers{URL: c.URL, Mechanism: c.Mechanism, DialTimeout: c.DialTimeout, TLS: c.TLS, Name: cmp.Or(c.Name, "posthaste-source"), Dial: c.dial}
	var err error
	if b.options, b.address, err = reach.Options(); err != nil {
		return nil, err
	}
	if err := kafka.CheckTopic(c.Topic); err != nil {
		return nil, err
	}
	if kafka.CheckTopic(c.Refused) != nil || c.Refused == c.Topic {
		return nil, posthaste.Invalidf("refused", "refused must be another topic than the one that messages are taken from, of up to 249 letters, digits, dots, dashes and underscores, and is %q", c.Refused)
	}
	b.Config = c
	b.options = append(b.options, kgo.SoftwareNameAndVersion("posthaste", "source"), kgo.WithHooks(&b.connections),
		// What is put aside.
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(largest), kgo.BrokerMaxWriteBytes(largest+(36<<20)), kgo.UnknownTopicRetries(2))
	b.consuming = []kgo.Opt{kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		// What a producer's transaction took back was never sent.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Partitions stay while what was read of them is being taken in, for as long as a
		// source holds it. What is read ahead is bounded.
		kgo.BlockRebalanceOnPoll(), kgo.RebalanceTimeout(2 * time.Minute), kgo.SessionTimeout(15 * time.Second), kgo.MaxConcurrentFetches(1), kgo.FetchMaxBytes(4 << 20), kgo.FetchMaxPartitionBytes(1 << 20)}
	return b, nil
}
