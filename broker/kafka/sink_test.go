package kafka

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use topics of their own in it and do not stop it.
var broker *devbroker.Kafka

// certificates are those of the broker where it listens with TLS.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.Kafka, error) {
		return devbroker.StartKafkaTLS(ctx, dir, c, "group.initial.rebalance.delay.ms=0")
	})
}

// outside is a topic of the test's own and the records in it.
type outside struct {
	t      *testing.T
	broker *devbroker.Kafka
	name   string
	client *kgo.Client
	proxy  *faultproxy.Proxy

	mu   sync.Mutex
	came []*kgo.Record
}

// isProduce says whether a piece of a connection begins with a request to produce.
func isProduce(piece []byte) bool {
	return len(piece) > 8 && piece[4] == 0 && piece[5] == 0 && piece[6] == 0
}

// newOutside makes a topic with that many partitions.
func newOutside(t *testing.T, partitions int, settings ...string) *outside {
	t.Helper()
	return outsideOf(t, broker, partitions, settings...)
}

func outsideOf(t *testing.T, broker *devbroker.Kafka, partitions int, settings ...string) *outside {
	t.Helper()
	o := &outside{t: t, broker: broker, name: fmt.Sprint("t", places.Add(1))}
	var err error
	if o.client, err = kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.ConsumeTopics(o.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.client.Close)
	if partitions > 0 {
		o.create(partitions, settings...)
	}
	if o.proxy, err = faultproxy.New(broker.Address(), isProduce); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.proxy.Close)
	return o
}

func (o *outside) create(partitions int, settings ...string) {
	o.t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = o.name, int32(partitions), 1
	for i := 0; i < len(settings); i += 2 {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: settings[i], Value: &settings[i+1]})
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(o.t.Context(), o.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	// The broker hears of it from the controller.
	until(o.t, "the topic", func() bool {
		known := kmsg.NewPtrMetadataRequest()
		known.Topics = []kmsg.MetadataRequestTopic{{Topic: &o.name}}
		answer, err := known.RequestWith(o.t.Context(), o.client)
		return err == nil && answer.Topics[0].ErrorCode == 0 && len(answer.Topics[0].Partitions) == partitions &&
			!slices.ContainsFunc(answer.Topics[0].Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 })
	})
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	testrun.Until(t, time.Minute, what, done)
}

func (o *outside) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	c := SinkConfig{URL: URL("kafka://" + o.proxy.Address()), Topic: o.name, Logger: slog.New(slog.DiscardHandler),
		// The broker tells clients its own address.
		dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, o.proxy.Address())
		}}
	if change != nil {
		change(&c)
	}
	s, err := NewSink(c)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { s.Close() })
	return s
}

// all returns the records that have arrived so far.
func (o *outside) all() []*kgo.Record {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &o.name}}
	known, err := request.RequestWith(ctx, o.client)
	if err != nil {
		o.t.Fatal(err)
	}
	var end int64
	for _, p := range known.Topics[0].Partitions {
		list := kmsg.NewPtrListOffsetsRequest()
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p.Partition, -1
		list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: o.name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{partition}}}
		answer, err := list.RequestWith(ctx, o.client)
		if err != nil {
			o.t.Fatal(err)
		}
		end += answer.Topics[0].Partitions[0].Offset
	}
	for int64(len(o.came)) < end {
		fetched := o.client.PollFetches(ctx)
		if ctx.Err() != nil {
			o.t.Fatalf("%d of %d records came", len(o.came), end)
		}
		o.came = append(o.came, fetched.Records()...)
	}
	return o.came
}

func header(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value += string(h.Value)
		}
	}
	return value
}

func (o *outside) count(n int) (count int) {
	for _, r := range o.all() {
		if header(r, HeaderMessageID) == fmt.Sprint(n) {
			count++
		}
	}
	return count
}

func delivery(n int) posthaste.RawDelivery {
	return posthaste.RawDelivery{MessageID: posthaste.MessageID(n), Queue: "orders", Attempt: 1, Kind: "order.placed",
		Key: fmt.Sprint("customer-", n%7), Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n)), CreatedAt: time.Unix(1e9, 0)}
}

func deliver(t *testing.T, s *Sink, batch ...posthaste.RawDelivery) []posthaste.SinkResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return s.Deliver(ctx, batch)
}

// wantRetried checks that a result is an error for another attempt, with these words.
func wantRetried(t *testing.T, r posthaste.SinkResult, words string) {
	t.Helper()
	if r.Err == nil || posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), words) {
		t.Errorf("got %v, want an error that is retried, with %q", r.Err, words)
	}
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newOutside(t, 1, "max.message.bytes", "50000")
		refused := false
		return sinktest.Fixture{
			Sink: o.sink(func(c *SinkConfig) {
				c.Topic += "{{if eq .Kind `bad`}} bad{{end}}"
				c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "headless"}}{{.Headers.none}}{{end}}`}
			}), Delivered: o.count,
			Delivery: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if refused && n == 1 {
					d.Payload = bytes.Repeat([]byte("x"), 60_000)
				}
				return d
			},
			FailForGood: func() { refused = true },
			Bad: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if d.Kind = "bad"; n%4 == 0 { // the template names a header that it does not have
					d.Kind = "headless"
				}
				return d
			},
			Hang:             o.proxy.Hang,
			BreakConnections: o.proxy.CutAll,
		}
	})
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 5)
	s := o.sink(func(c *SinkConfig) {
		c.Compression = "zstd"
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro"}
	})
	d := delivery(7)
	d.Key, d.Attempt, d.ContentType, d.Payload = "foobar", 2, "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "Zürich\n", "message-id": "another"}
	if r := deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0]
	for name, want := range map[string]string{"message-id": "db-7", "content-type": d.ContentType, "t": "Zürich\n", "posthaste-queue": "orders",
		"posthaste-kind": "order.placed", "posthaste-key": "foobar", "posthaste-attempt": "2", "ce_id": "db-7", "ce_source": "/büro", "ce_type": "order.placed", "ce_specversion": "1.0"} {
		if v := header(got, name); v != want {
			t.Errorf("header %s is %q, want %q", name, v, want)
		}
	}
	// Java's clients hash this key to -790332482, and so choose the second of 5.
	if string(got.Key) != "foobar" || !bytes.Equal(got.Value, d.Payload) || got.Partition != 1 {
		t.Errorf("got key %q, value %q, partition %d", got.Key, got.Value, got.Partition)
	}
}

// The messages of a key come in their order, however many connections were cut, and
// once: the broker knows what it has got.
func TestOrderAndOnceThroughCuts(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 3)
	s := o.sink(nil)
	for round := range 20 {
		switch round % 4 {
		case 1:
			o.proxy.CutBefore()
		case 2:
			o.proxy.CutAfter()
		}
		var batch []posthaste.RawDelivery
		for i := range 50 {
			batch = append(batch, delivery(50*round+i))
		}
		for _, r := range deliver(t, s, batch...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	last := map[string]int{}
	all := o.all()
	for _, r := range all {
		var n int
		fmt.Sscan(header(r, HeaderMessageID), &n)
		if before, ok := last[string(r.Key)]; ok && n <= before {
			t.Fatalf("of key %s, %d came after %d", r.Key, n, before)
		}
		last[string(r.Key)] = n
	}
	if len(all) != 1000 {
		t.Errorf("%d records", len(all))
	}
}

// A topic that is not there fails its own messages alone, and gets them once it is.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	o, missing := newOutside(t, 1), newOutside(t, 0)
	s := o.sink(func(c *SinkConfig) { c.Topic = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 100; n++ {
		d := delivery(n)
		if d.Reference = o.name; n%2 == 0 {
			d.Reference = missing.name
		}
		batch = append(batch, d)
	}
	for i, r := range deliver(t, s, batch...) {
		if i%2 == 1 {
			wantRetried(t, r, "UNKNOWN_TOPIC_OR_PARTITION")
		} else if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if got := len(o.all()); got != 50 {
		t.Errorf("the topic has %d", got)
	}
	missing.create(1)
	if r := deliver(t, s, batch[1]); r[0].Err != nil || missing.count(2) != 1 {
		t.Errorf("%v, came %d times", r[0].Err, missing.count(2))
	}
}

// What is larger than the topic takes is dead, and neither fails nor repeats those
// that were in a batch with it; a batch that only as such is too large is no error.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1, "max.message.bytes", "50000")
	s := o.sink(func(c *SinkConfig) { c.MaxMessageBytes = 500_000 })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 30; n++ {
		d := delivery(n)
		size := 10_000
		switch n {
		case 7, 8:
			size = 60_000
		case 9:
			size = 600_000
		}
		d.Payload = bytes.Repeat([]byte("x"), size)
		batch = append(batch, d)
	}
	for i, r := range deliver(t, s, batch...) {
		n := i + 1
		if tooLarge := n >= 7 && n <= 9; tooLarge != posthaste.IsPermanent(r.Err) || tooLarge == (r.Err == nil) ||
			tooLarge && (posthaste.CodeOf(r.Err) != posthaste.CodeTooLarge || !strings.Contains(r.Err.Error(), "MESSAGE_TOO_LARGE")) {
			t.Errorf("message %d: %v", n, r.Err)
		}
		want := 1
		if n >= 7 && n <= 9 {
			want = 0
		}
		if got := o.count(n); got != want {
			t.Errorf("message %d came %d times", n, got)
		}
	}
}

// A compacted topic takes no record without a key; those with one are not held up.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1, "cleanup.policy", "compact")
	s := o.sink(func(c *SinkConfig) { c.Key = "{{.Reference}}" })
	with, without := delivery(1), delivery(2)
	with.Reference = "key"
	r := deliver(t, s, with, without, with)
	wantRetried(t, r[1], "INVALID_RECORD")
	if r[0].Err != nil || r[2].Err != nil || o.count(1) != 2 || o.count(2) != 0 {
		t.Errorf("got %v, %d records", r, len(o.all()))
	}
}

// What could not be produced in its time is not left behind, to be produced beside
// the next attempt.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1)
	s := o.sink(nil)
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	o.proxy.Refuse(true)
	o.proxy.CutAll()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := s.Deliver(ctx, []posthaste.RawDelivery{delivery(2)})
		cancel()
		wantRetried(t, r[0], o.proxy.Address())
		if !errors.Is(r[0].Err, context.DeadlineExceeded) {
			t.Error(r[0].Err)
		}
	}
	o.proxy.Refuse(false)
	for n := 2; n <= 3; n++ {
		if r := deliver(t, s, delivery(n)); r[0].Err != nil || o.count(n) != 1 {
			t.Errorf("message %d: %v, came %d times", n, r[0].Err, o.count(n))
		}
	}
}

// A batch whose time is up leaves those alone who still wait, whether its records
// are on their way or before theirs.
func TestTimeIsUpForOne(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{true, false} {
		o := newOutside(t, 1)
		s := o.sink(nil)
		if r := deliver(t, s, delivery(1)); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		p := s.producers.Current()[together]
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		deliverFirst := func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{delivery(2)})[0].Err }
		release := func() { o.proxy.Refuse(false) }
		words := "not acknowledged"
		if sent {
			var reached <-chan struct{}
			reached, release = o.proxy.Hang()
			go deliverFirst()
			<-reached
			words = "min.insync.replicas"
		} else {
			o.proxy.Refuse(true)
			o.proxy.CutAll()
			go deliverFirst()
			for p.why() == nil {
				time.Sleep(time.Millisecond)
			}
		}
		go func() { second <- deliver(t, s, delivery(3))[0].Err }()
		for p.client.BufferedProduceRecords() < 2 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), words) {
			t.Error(err)
		}
		release()
		if err := <-second; err != nil || o.count(3) != 1 {
			t.Errorf("another batch: %v, came %d times", err, o.count(3))
		}
	}
}

// Brokers that are away hold the messages in hand, and have them once they are back.
func TestBrokersAway(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1)
	s := o.sink(nil)
	o.proxy.Refuse(true)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := s.Deliver(short, []posthaste.RawDelivery{delivery(1)}); !errors.Is(r[0].Err, context.DeadlineExceeded) || !strings.Contains(r[0].Err.Error(), o.proxy.Address()) {
		t.Errorf("got %v", r[0].Err)
	}
	done := make(chan error)
	go func() { done <- deliver(t, s, delivery(2))[0].Err }()
	for !s.producers.Away() {
		time.Sleep(time.Millisecond)
	}
	o.proxy.Refuse(false)
	if err := <-done; err != nil {
		t.Error(err)
	}

	// The same for a producer that had them.
	o.proxy.Refuse(true)
	o.proxy.CutAll()
	go func() { done <- deliver(t, s, delivery(3))[0].Err }()
	for s.producers.Current()[together].why() == nil {
		time.Sleep(time.Millisecond)
	}
	o.proxy.Refuse(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if o.count(1) != 0 || o.count(2) != 1 || o.count(3) != 1 {
		t.Errorf("%d records", len(o.all()))
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1)
	salt := []byte("salt of the user")
	salted, err := pbkdf2.Key(sha512.New, "s e:cret", salt, 4096, sha512.Size)
	if err != nil {
		t.Fatal(err)
	}
	add := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	add.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "scrambled", Mechanism: 2, Iterations: 4096, Salt: salt, SaltedPassword: salted}}
	if answer, err := add.RequestWith(t.Context(), o.client); err != nil || answer.Results[0].ErrorCode != 0 {
		t.Fatal(answer, err)
	}
	as := func(user, mechanism string) func(*SinkConfig) {
		return func(c *SinkConfig) {
			c.URL, c.Mechanism, c.dial = URL("kafka://"+user+"@"+broker.LoginAddress()), mechanism, nil
		}
	}
	until(t, "the user", func() bool { return o.sink(as("scrambled:s%20e:cret", "")).Check(t.Context()) == nil })
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SinkConfig)
	}{
		{"as it is", "", "", nil},
		{"user", "", "", as(devbroker.KafkaUser+":"+devbroker.KafkaPassword, "plain")},
		{"user by SCRAM", "", "", as("scrambled:s%20e:cret", "")},
		{"password", "url", posthaste.CodeInvalid, as(devbroker.KafkaUser+":wrong", "plain")},
		{"password by SCRAM", "url", posthaste.CodeInvalid, as("scrambled:wrong", "")},
		{"mechanism", "mechanism", posthaste.CodeInvalid, as("scrambled:wrong", "scram-sha-256")},
		{"topic", "topic", posthaste.CodeInvalid, func(c *SinkConfig) { c.Topic = "nowhere" }},
		{"topic by template", "", "", func(c *SinkConfig) { c.Topic = "{{.Kind}}" }},
		{"away", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.URL, c.dial = "kafka://127.0.0.1:1", nil }},
		{"no TLS", "", posthaste.CodeUnavailable, func(c *SinkConfig) {
			c.URL, c.dial, c.DialTimeout = URL(strings.Replace(broker.URL(), "kafka:", "kafkas:", 1)), nil, time.Second
		}},
	} {
		configtest.Check(t, test.name, o.sink(test.change), test.code, test.field, "wrong")
	}
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newOutside(t, 1)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS, c.dial = URL("kafkas://"+certificates.Address(host)), trust, nil })
	}
	configtest.TLS(t, certificates.Trust(), at)
	if r := deliver(t, at("localhost", certificates.Trust()), delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if n := o.count(1); n != 1 {
		t.Errorf("it came %d times", n)
	}
}

func TestSinkConfig(t *testing.T) {
	for field, change := range map[string]func(*SinkConfig){
		"url":                func(c *SinkConfig) { c.URL = "http://secret@x" },
		"mechanism":          func(c *SinkConfig) { c.Mechanism = "md5" },
		"compression":        func(c *SinkConfig) { c.Compression = "rar" },
		"outstanding":        func(c *SinkConfig) { c.Outstanding = -1 },
		"max_message_bytes":  func(c *SinkConfig) { c.MaxMessageBytes = 1 << 40 },
		"topic":              func(c *SinkConfig) { c.Topic = "{{.Nothing}}" },
		"key":                func(c *SinkConfig) { c.Key = "{{.Nothing}}" },
		"message_id":         func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.message-id": func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"message-id": "x"} },
		"cloudevents.source": func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
	} {
		c := SinkConfig{URL: "kafka://localhost"}
		change(&c)
		_, err := NewSink(c)
		configtest.Refused(t, field, err)
	}
	for _, url := range []string{"kafka://a:se%cret@x", "kafka://secret:x@", "", "kafkas://", "kafka://x/secret", "kafka://x,,y", "kafka://x:9092?secret=1"} {
		if _, err := NewSink(SinkConfig{URL: URL(url)}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for url, want := range map[string]string{"kafka://a:b%40c@x,y:1/": "x:9092,y:1", "kafkas://[::1],[::2]:7": "[::1]:9092,[::2]:7"} {
		if s, err := NewSink(SinkConfig{URL: URL(url)}); err != nil || s.Broker() != want {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, topic := range []string{"a b", "..", strings.Repeat("x", 250)} {
		if _, err := NewSink(SinkConfig{URL: "kafka://x", Topic: topic}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%q: %v", topic, err)
		}
	}
}
