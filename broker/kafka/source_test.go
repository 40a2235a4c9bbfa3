package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// places numbers the topics of tests.
var places atomic.Int64

// place is a topic.
type place struct {
	name   string
	client *kgo.Client
	proxy  *faultproxy.Proxy
}

func newPlace(t *testing.T, partitions int32) *place {
	t.Helper()
	return placeOf(t, broker, partitions)
}

func placeOf(t *testing.T, broker *devbroker.Kafka, partitions int32) *place {
	t.Helper()
	p := &place{name: fmt.Sprint("t", places.Add(1))}
	var err error
	if p.client, err = kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = p.name, partitions, 1
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), p.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The broker hears of it from the controller.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		known := kmsg.NewPtrMetadataRequest()
		known.Topics = []kmsg.MetadataRequestTopic{{Topic: &p.name}}
		if answer, err := known.RequestWith(t.Context(), p.client); err == nil && answer.Topics[0].ErrorCode == 0 && len(answer.Topics[0].Partitions) == int(partitions) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the topic is not there")
		}
	}
	if p.proxy, err = faultproxy.New(broker.Address(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Close)
	return p
}

func (p *place) config() SourceConfig {
	return SourceConfig{URL: URL("kafka://" + p.proxy.Address()), Topic: p.name, Group: p.name,
		// The broker tells clients its own address.
		dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.proxy.Address())
		}}
}

func (p *place) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	config := p.config()
	if config.Config = c; change != nil {
		change(&config)
	}
	s, err := NewSource(ledger, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) publish(t *testing.T, messages ...relay.Incoming) {
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

// end is behind the last record of the first partition.
func (p *place) end(t *testing.T) int64 {
	t.Helper()
	list := kmsg.NewPtrListOffsetsRequest()
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: p.name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{partition}}}
	answer, err := list.RequestWith(t.Context(), p.client)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[0].Partitions[0].Offset
}

func (p *place) left(t *testing.T) int {
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
	return int(p.end(t) - committed)
}

func (p *place) refused(t *testing.T) (all []relay.Incoming) {
	t.Helper()
	aside := &place{name: p.name + ".refused", client: p.client}
	end := aside.end(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.ConsumeTopics(aside.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for int64(len(all)) < end {
		fetched := client.PollFetches(t.Context())
		if t.Context().Err() != nil {
			t.Fatal("what was put aside cannot be read")
		}
		fetched.EachRecord(func(r *kgo.Record) {
			m := relay.Incoming{Payload: r.Value, Headers: map[string]string{}}
			for _, h := range r.Headers {
				switch h.Key {
				case HeaderMessageID:
					m.MessageID = string(h.Value)
				case HeaderContentType:
					m.ContentType = string(h.Value)
				}
				m.Headers[h.Key] = string(h.Value)
			}
			all = append(all, m)
		})
	}
	return all
}

func TestSourceOnRedis(t *testing.T) {
	testrun.Nightly(t, "a source takes messages in on every engine alike; that of Redis Streams runs on both")
	testSource(t, brokertest.Redis)
}

func TestSource(t *testing.T) { testSource(t, brokertest.Postgres) }

func testSource(t *testing.T, ledger func(*testing.T) posthaste.Store) {
	brokertest.RunSource(t, ledger, func(t *testing.T) brokertest.SourceFixture {
		p := newPlace(t, 1)
		return brokertest.SourceFixture{
			Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
				return p.source(t, ledger, c, nil)
			},
			Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse, Reconnects: true,
			Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
				s, err := NewSink(SinkConfig{URL: URL("kafka://" + broker.Address()), Topic: p.name, Mapping: m})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			},
		}
	})
}

// What was read and not committed is read again, with the same ids; an offset is not
// committed before those that are below it.
func TestCommittedWithoutGap(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1)
	for range 6 {
		p.publish(t, relay.Incoming{Payload: []byte("x")})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	open := func() *session {
		t.Helper()
		c := p.config()
		c.Queue = "orders"
		b, err := parseSource(c)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.(*session)
	}
	read := func(s *session, n int) (got []source.Arrival) {
		t.Helper()
		for len(got) < n {
			more, err := s.Read(ctx, n-len(got))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, more...)
		}
		return got
	}
	one := open()
	first := read(one, 4)
	acknowledge := func(s *session, all ...source.Arrival) {
		t.Helper()
		if err := s.Acknowledge(ctx, all); err != nil {
			t.Fatal(err)
		}
	}
	acknowledge(one, first[0], first[2], first[3])
	if left := p.left(t); left != 5 {
		t.Errorf("%d are left beside a gap, want 5", left)
	}
	one.Close()
	two := open()
	again := read(two, 5)
	if again[0].Message.DedupeKey != first[1].Message.DedupeKey || !strings.HasPrefix(first[1].Message.DedupeKey, "kafka/"+p.name+"/") {
		t.Errorf("%q came as %q again", first[1].Message.DedupeKey, again[0].Message.DedupeKey)
	}
	acknowledge(two, again[1:]...)
	acknowledge(two, again[0])
	if left := p.left(t); left != 0 {
		t.Errorf("%d are left", left)
	}
	two.Close()
}

// What a producer's transaction took back was never sent, and leaves a gap that holds
// nobody up.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1)
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
	c := p.config()
	c.Queue = "orders"
	b, err := parseSource(c)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := b.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var got []source.Arrival
	for len(got) < 4 {
		more, err := opened.Read(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
	}
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
	// Transactions end with a record of their own, behind which nothing waits.
	if left := p.left(t); left > 1 {
		t.Errorf("%d are left", left)
	}
}

// Two sources share a topic's partitions, while one of them comes and goes.
func TestShared(t *testing.T) {
	t.Parallel()
	const n = 400
	p, e := newPlace(t, 4), brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		s := p.source(t, e, source.Config{Queue: "orders", Batch: 10}, nil)
		go func() { done <- s.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	defer start()()
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
		for end := time.Now().Add(3 * time.Minute); len(got) < want; {
			r, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1000, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range r.Deliveries {
				got[d.MessageID] = true
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d messages came", len(got), want)
			}
			if len(r.Deliveries) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if len(got) != want {
			t.Errorf("%d messages came, want %d", len(got), want)
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

// A key and headers that are no text, and a record without a value.
func TestForeignRecord(t *testing.T) {
	t.Parallel()
	s := &session{sourceBroker: &sourceBroker{}, id: "aa"}
	m := s.arrival(&kgo.Record{Topic: "events", Partition: 3, Offset: 17, Key: []byte{255}, Headers: []kgo.RecordHeader{{Key: "raw", Value: []byte{255}}}}).Message
	if m.DedupeKey != "kafka/events/aa/3/17" || m.Key != "/w==" || m.Headers["raw"] != "/w==" || m.ContentType != posthaste.ContentTypeBytes || m.Payload.([]byte) == nil || m.Check() == nil {
		t.Errorf("%+v", m)
	}
}

func TestBrokerKilled(t *testing.T) {
	testrun.Nightly(t, "it kills and restarts a broker; the suite of sources takes the broker away on each change")
	t.Parallel()
	own, err := devbroker.StartKafka(t.Context(), t.TempDir(), "group.initial.rebalance.delay.ms=0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	p := placeOf(t, own, 1)
	brokertest.RunSourceKilled(t, brokertest.Postgres, brokertest.SourceFixture{
		Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
			return p.source(t, ledger, c, nil)
		},
		Publish: p.publish, Left: p.left,
	}, own.Kill, func() {
		if err := own.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSourceCheck(t *testing.T) {
	t.Parallel()
	p, e := newPlace(t, 1), brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SourceConfig)
	}{
		{"as it is", "", "", nil},
		{"password", "url", posthaste.CodeInvalid, func(c *SourceConfig) {
			c.URL, c.Mechanism, c.dial = URL("kafka://me:wrong@"+broker.LoginAddress()), "plain", nil
		}},
		{"no topic", "topic", posthaste.CodeInvalid, func(c *SourceConfig) { c.Topic = "nowhere" }},
		{"refused by nobody", "refused", posthaste.CodeInvalid, func(c *SourceConfig) { c.Refused = "nobody" }},
		{"queue", "queue", posthaste.CodeInvalid, func(c *SourceConfig) { c.Queue = "nowhere" }},
		{"away", "", posthaste.CodeUnavailable, func(c *SourceConfig) { c.URL, c.dial, c.DialTimeout = "kafka://127.0.0.1:1", nil, time.Second }},
	} {
		configtest.Check(t, test.name, p.source(t, e, source.Config{Queue: "orders"}, test.change), test.code, test.field, "wrong")
	}
}

func TestSourceTLS(t *testing.T) {
	t.Parallel()
	p, e := newPlace(t, 1), brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, func(c *SourceConfig) { c.URL, c.TLS, c.dial = URL("kafkas://"+certificates.Address(host)), trust, nil })
	})
}

func TestSourceConfig(t *testing.T) {
	for field, change := range map[string]func(*SourceConfig){
		"url":       func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":     func(c *SourceConfig) { c.Queue = "No" },
		"topic":     func(c *SourceConfig) { c.Topic = "" },
		"refused":   func(c *SourceConfig) { c.Refused = c.Topic },
		"mechanism": func(c *SourceConfig) { c.Mechanism = "none" },
	} {
		c := SourceConfig{URL: "kafka://localhost", Topic: "in", Config: source.Config{Queue: "orders"}}
		change(&c)
		_, err := NewSource(nil, c)
		configtest.Refused(t, field, err)
	}
}
