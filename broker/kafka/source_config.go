package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/source"
)

// SourceConfig configures a source. Queue, URL and Topic are required. The fields with a
// key can be set in a file of relays.
type SourceConfig struct {
	source.Config `yaml:",inline"`

	URL URL `yaml:"-"`
	// Mechanism is how the user logs in: scram-sha-512 (default), scram-sha-256 or
	// plain.
	Mechanism string `yaml:"mechanism"`
	// Topic is the topic, which must exist.
	Topic string `yaml:"topic"`
	// Group is the consumer group (default "posthaste"). A new group begins with the
	// oldest record.
	Group string `yaml:"group"`
	// Refused is the topic for records that the queue rejects (default: Topic with the
	// suffix ".refused", created if it does not exist).
	Refused string `yaml:"refused"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with kafkas://; MinVersion gets a default. Nil trusts the system's
	// certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the client id that the brokers show (default "posthaste-source").
	Name string `yaml:"-"`

	// dial opens connections in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// maxRefusedBytes is the size limit of a refused record, in bytes.
const maxRefusedBytes = 64 << 20

// NewSource checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects when it runs. Errors are *posthaste.Error with the
// field, and hold no password.
func NewSource(ledger source.Ledger, c SourceConfig) (*source.Source, error) {
	b, err := parseSource(c)
	if err != nil {
		return nil, err
	}
	return source.New(ledger, c.Config, b)
}

// parseSource checks the configuration and fills in defaults.
func parseSource(c SourceConfig) (*sourceBroker, error) {
	b := &sourceBroker{createRefused: c.Refused == ""}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Group = cmp.Or(c.Group, "posthaste")
	c.Refused = cmp.Or(c.Refused, c.Topic+".refused")
	endpoint := endpoint{URL: c.URL, Mechanism: c.Mechanism, DialTimeout: c.DialTimeout, TLS: c.TLS, Name: cmp.Or(c.Name, "posthaste-source"), Dial: c.dial}
	var err error
	if b.options, b.address, err = endpoint.options(); err != nil {
		return nil, err
	}
	if err := checkTopic(c.Topic); err != nil {
		return nil, err
	}
	if checkTopic(c.Refused) != nil || c.Refused == c.Topic {
		return nil, posthaste.Invalidf("refused", "refused must be another topic than topic, with 1 to 249 letters, digits, dots, dashes and underscores, got %q", c.Refused)
	}
	b.SourceConfig = c
	b.options = append(b.options, kgo.SoftwareNameAndVersion("posthaste", "source"), kgo.WithHooks(&b.connections),
		// For refused records.
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(maxRefusedBytes), kgo.BrokerMaxWriteBytes(maxRefusedBytes+(36<<20)), kgo.UnknownTopicRetries(2))
	b.consuming = []kgo.Opt{kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		// Skip the records of aborted transactions.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Keep the partitions while their records are being stored, and bound the records
		// that are read ahead.
		kgo.BlockRebalanceOnPoll(), kgo.RebalanceTimeout(2 * time.Minute), kgo.SessionTimeout(15 * time.Second), kgo.MaxConcurrentFetches(1), kgo.FetchMaxBytes(4 << 20), kgo.FetchMaxPartitionBytes(1 << 20)}
	return b, nil
}
