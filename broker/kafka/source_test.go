package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
	"github.com/posthaste-mq/posthaste/source"
)

// sourceTopic is a topic that a source reads.
type sourceTopic struct {
	name   string
	client *kgo.Client
	proxy  *faultproxy.Proxy
}

func newSourceTopic(t *testing.T, partitions int) *sourceTopic {
	t.Helper()
	return newSourceTopicOn(t, broker, partitions)
}

func newSourceTopicOn(t *testing.T, broker *devbroker.Kafka, partitions int) *sourceTopic {
	t.Helper()
	p := &sourceTopic{name: fmt.Sprint("t", names.Add(1)), proxy: faultproxy.Start(t, broker.Address(), nil)}
	var err error
	if p.client, err = kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	createTopic(t, p.client, p.name, partitions)
	return p
}

func (p *sourceTopic) config() SourceConfig {
	return SourceConfig{URL: URL("kafka://" + p.proxy.Address()), Topic: p.name, Group: p.name, dial: dialing(p.proxy)}
}

func (p *sourceTopic) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	config := p.config()
	config.Config = c
	return brokertest.OpenSource(t, NewSource, ledger, config, change)
}

// open opens a session of a source.
func (p *sourceTopic) open(ctx context.Context, t *testing.T) source.Session {
	t.Helper()
	c := p.config()
	c.Queue = "orders"
	b, err := parseSource(c)
	if err != nil {
		t.Fatal(err)
	}
	return brokertest.OpenSession(ctx, t, b)
}

// fixture returns the topic for the suites of sources.
func (p *sourceTopic) fixture() brokertest.SourceFixture {
	return brokertest.SourceFixture{
		Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
			return p.source(t, ledger, c, nil)
		},
		Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse, Reconnects: true,
		Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
			return sinktest.Open(t, NewSink, SinkConfig{URL: URL("kafka://" + broker.Address()), Topic: p.name, Mapping: m}, nil)
		},
	}
}

func (p *sourceTopic) publish(t *testing.T, messages ...relay.Incoming) {
	t.Helper()
	var records []*kgo.Record
	for _, m := range messages {
		r := &kgo.Record{Topic: p.name, Key: []byte(m.Key), Value: m.Payload, Headers: []kgo.RecordHeader{{Key: HeaderMessageID, Value: []byte(m.MessageID)}, {Key: HeaderContentType, Value: []byte(m.ContentType)},
			{Key: relay.HeaderKind, Value: []byte(m.Kind)}}}
		for name, value := range m.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		records = append(records, r)
	}
	if err := p.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (p *sourceTopic) left(t *testing.T) int {
	t.Helper()
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = p.name
	request.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: p.name, Partitions: []int32{0}}}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = p.name
	group.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: p.name, Partitions: []int32{0}}}
	request.Groups = append(request.Groups, group)
	answer, err := request.RequestWith(t.Context(), p.client)
	if err != nil {
		t.Fatal(err)
	}
	committed := int64(0)
	for _, g := range answer.Groups {
		for _, one := range g.Topics {
			committed = max(committed, one.Partitions[0].Offset)
		}
	}
	return int(endOffset(t.Context(), t, p.client, p.name, 0) - committed)
}

func (p *sourceTopic) refused(t *testing.T) (all []relay.Incoming) {
	t.Helper()
	topic := p.name + ".refused"
	end := endOffset(t.Context(), t, p.client, topic, 0)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for int64(len(all)) < end {
		fetched := client.PollFetches(t.Context())
		if t.Context().Err() != nil {
			t.Fatal("reading the refused records timed out")
		}
		fetched.EachRecord(func(r *kgo.Record) {
			m := read(r)
			all = append(all, relay.Incoming{MessageID: m.ID, ContentType: m.ContentType, Payload: m.Payload, Headers: m.Headers})
		})
	}
	return all
}

func TestSource(t *testing.T) { brokertest.RunSource(t, brokertest.Postgres, sourceFixture) }

func TestSourceOnRedis(t *testing.T) {
	testrun.Nightly(t, "sources treat all engines alike; that of Redis Streams runs on both")
	brokertest.RunSource(t, brokertest.Redis, sourceFixture)
}

func sourceFixture(t *testing.T) brokertest.SourceFixture {
	return newSourceTopic(t, 1).fixture()
}

// Records that were read and not committed are read again, with the same ids. An offset is
// not committed before the ones below it.
func TestCommittedWithoutGap(t *testing.T) {
	t.Parallel()
	p := newSourceTopic(t, 1)
	for range 6 {
		p.publish(t, relay.Incoming{Payload: []byte("x")})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	one := p.open(ctx, t)
	first := brokertest.ReadSession(ctx, t, one, 4)
	acknowledge := func(s source.Session, all ...source.Arrival) {
		t.Helper()
		if err := s.Acknowledge(ctx, all); err != nil {
			t.Fatal(err)
		}
	}
	acknowledge(one, first[0], first[2], first[3])
	if left := p.left(t); left != 5 {
		t.Errorf("%d are left after a gap, want 5", left)
	}
	one.Close()
	two := p.open(ctx, t)
	again := brokertest.ReadSession(ctx, t, two, 5)
	if again[0].Message.DedupeKey != first[1].Message.DedupeKey || !strings.HasPrefix(first[1].Message.DedupeKey, "kafka/"+p.name+"/") {
		t.Errorf("%q was read again as %q", first[1].Message.DedupeKey, again[0].Message.DedupeKey)
	}
	acknowledge(two, again[1:]...)
	acknowledge(two, again[0])
	if left := p.left(t); left != 0 {
		t.Errorf("%d are left", left)
	}
	two.Close()
}

// The records of an aborted transaction are never sent, and do not hold up the records
// behind them.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	p := newSourceTopic(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.TransactionalID(p.name), kgo.DefaultProduceTopic(p.name))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for n, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if err := producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(n, "-", i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	opened := p.open(ctx, t)
	defer opened.Close()
	got := brokertest.ReadSession(ctx, t, opened, 4)
	var payloads []string
	for _, a := range got {
		payloads = append(payloads, string(a.Message.Payload.([]byte)))
	}
	if all := strings.Join(payloads, " "); all != "0-0 0-1 2-0 2-1" {
		t.Errorf("got %s", all)
	}
	if err := opened.Acknowledge(ctx, got); err != nil {
		t.Fatal(err)
	}
	// A transaction ends with a record of its own, behind which nothing waits.
	if left := p.left(t); left > 1 {
		t.Errorf("%d are left", left)
	}
}

// Two sources share a topic's partitions while one of them stops and restarts.
func TestShared(t *testing.T) {
	t.Parallel()
	const n = 400
	p, e := newSourceTopic(t, 4), brokertest.Orders(t)
	start := func() (stop func()) {
		return testrun.Background(t, p.source(t, e, source.Config{Queue: "orders", Batch: 10}, nil).Run)
	}
	start()
	produce := func(from, to int) {
		for i := from; i < to; i++ {
			r := &kgo.Record{Topic: p.name, Partition: int32(i % 4), Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: HeaderMessageID, Value: []byte(fmt.Sprint(i))}}}
			if err := p.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[posthaste.MessageID]bool{}
	wait := func(want int) {
		t.Helper()
		testrun.Until(t, 3*time.Minute, fmt.Sprintf("%d messages are in the ledger", want), func() bool {
			r, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1000, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range r.Deliveries {
				got[d.MessageID] = true
			}
			return len(got) >= want
		})
		if len(got) != want {
			t.Errorf("%d messages arrived, want %d", len(got), want)
		}
	}
	produce(0, n/4)
	stop := start()
	produce(n/4, n/2)
	wait(n / 2)
	produce(n/2, 3*n/4)
	stop()
	produce(3*n/4, n)
	wait(n)
}

// A record may have a key and headers that are not text, and no value.
func TestForeignRecord(t *testing.T) {
	t.Parallel()
	s := &session{sourceBroker: &sourceBroker{}, id: "aa"}
	m := s.arrival(&kgo.Record{Topic: "events", Partition: 3, Offset: 17, Key: []byte{255}, Headers: []kgo.RecordHeader{{Key: "raw", Value: []byte{255}}}}).Message
	if m.DedupeKey != "kafka/events/aa/3/17" || m.Key != "/w==" || m.Headers["raw"] != "/w==" || m.ContentType != posthaste.ContentTypeBytes || m.Payload.([]byte) == nil || m.Check() == nil {
		t.Errorf("%+v", m)
	}
}

func TestBrokerKilled(t *testing.T) {
	testrun.Nightly(t, "it kills and restarts a broker; the suite of sources refuses connections on each change")
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartKafka, "group.initial.rebalance.delay.ms=0")
	brokertest.RunSourceKilled(t, brokertest.Postgres, newSourceTopicOn(t, own, 1).fixture(), own)
}

func TestSourceCheck(t *testing.T) {
	t.Parallel()
	p, e := newSourceTopic(t, 1), brokertest.Orders(t)
	open := func(change func(*SourceConfig)) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, change)
	}
	configtest.Checks(t, "wrong", open,
		configtest.Invalid("password", "url", func(c *SourceConfig) {
			c.URL, c.Mechanism, c.dial = URL("kafka://me:wrong@"+broker.LoginAddress()), "plain", nil
		}),
		configtest.Invalid("no topic", "topic", func(c *SourceConfig) { c.Topic = "nowhere" }),
		configtest.Invalid("missing topic for refused records", "refused", func(c *SourceConfig) { c.Refused = "missing" }),
		configtest.Invalid("queue", "queue", func(c *SourceConfig) { c.Queue = "nowhere" }),
		configtest.Unavailable("away", func(c *SourceConfig) { c.URL, c.dial, c.DialTimeout = "kafka://127.0.0.1:1", nil, time.Second }))
}

func TestSourceTLS(t *testing.T) {
	t.Parallel()
	p, e := newSourceTopic(t, 1), brokertest.Orders(t)
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, func(c *SourceConfig) { c.URL, c.TLS, c.dial = URL("kafkas://"+certificates.Address(host)), trust, nil })
	})
}

func TestSourceConfig(t *testing.T) {
	open := func(c SourceConfig) (*source.Source, error) { return NewSource(nil, c) }
	configtest.Fields(t, open, SourceConfig{URL: "kafka://localhost", Topic: "in", Config: source.Config{Queue: "orders"}}, map[string]func(*SourceConfig){
		"url":       func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":     func(c *SourceConfig) { c.Queue = "No" },
		"topic":     func(c *SourceConfig) { c.Topic = "" },
		"refused":   func(c *SourceConfig) { c.Refused = c.Topic },
		"mechanism": func(c *SourceConfig) { c.Mechanism = "none" },
	})
}
