package kafka

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newSinkTopic(t, 1, "max.message.bytes", "50000")
		delivery, failForGood := sinktest.LargeFirst(60_000)
		return sinktest.Fixture{
			Sink: o.sink(func(c *SinkConfig) {
				c.Topic += "{{if eq .Kind `bad`}} bad{{end}}"
				c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "headless"}}{{.Headers.none}}{{end}}`}
			}), Delivered: o.count,
			Delivery: delivery, FailForGood: failForGood,
			Bad: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				if d.Kind = "bad"; n%4 == 0 { // the template uses a missing header
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
	o := newSinkTopic(t, 5)
	s := o.sink(func(c *SinkConfig) {
		c.Compression = "zstd"
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro"}
	})
	d := sinktest.Delivery(7)
	d.Key, d.Attempt, d.ContentType, d.Payload = "foobar", 2, "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "Zürich\n", "message-id": "another"}
	if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0]
	for name, want := range map[string]string{"message-id": "db-7", "content-type": d.ContentType, "t": "Zürich\n", "posthaste-queue": "orders",
		"posthaste-kind": "order.placed", "posthaste-key": "foobar", "posthaste-attempt": "2", "ce_id": "db-7", "ce_source": "/büro", "ce_type": "order.placed", "ce_specversion": "1.0"} {
		if v := header(got, name); v != want {
			t.Errorf("header %s is %q, want %q", name, v, want)
		}
	}
	// Java's clients hash this key to -790332482, which selects the second of 5 partitions.
	if string(got.Key) != "foobar" || !bytes.Equal(got.Value, d.Payload) || got.Partition != 1 {
		t.Errorf("got key %q, value %q, partition %d", got.Key, got.Value, got.Partition)
	}
}

// The messages of a key arrive in order and once, however many connections are cut, because
// the broker knows the producer's sequence numbers.
func TestOrderAndOnceThroughCuts(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 3)
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
			batch = append(batch, sinktest.Delivery(50*round+i))
		}
		for _, r := range sinktest.Deliver(t, s, batch...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	last := map[string]int{}
	all := o.all()
	for _, r := range all {
		n, err := strconv.Atoi(header(r, HeaderMessageID))
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := last[string(r.Key)]; ok && n <= before {
			t.Fatalf("of key %s, %d came after %d", r.Key, n, before)
		}
		last[string(r.Key)] = n
	}
	if len(all) != 1000 {
		t.Errorf("%d records", len(all))
	}
}

// A missing topic fails only its own messages, and gets them once it exists.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	o, missing := newSinkTopic(t, 1), newSinkTopic(t, 0)
	s := o.sink(func(c *SinkConfig) { c.Topic = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 100; n++ {
		d := sinktest.Delivery(n)
		if d.Reference = o.name; n%2 == 0 {
			d.Reference = missing.name
		}
		batch = append(batch, d)
	}
	for i, r := range sinktest.Deliver(t, s, batch...) {
		if i%2 == 1 {
			sinktest.WantRetried(t, r, "UNKNOWN_TOPIC_OR_PARTITION")
		} else if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if got := len(o.all()); got != 50 {
		t.Errorf("the topic has %d", got)
	}
	createTopic(t, missing.client, missing.name, 1)
	if r := sinktest.Deliver(t, s, batch[1]); r[0].Err != nil || missing.count(2) != 1 {
		t.Errorf("%v, arrived %d times", r[0].Err, missing.count(2))
	}
}

// A record above the topic's limit is dead-lettered, and neither fails nor repeats the
// others of its batch. A batch that is too large only as a whole is no error.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1, "max.message.bytes", "50000")
	s := o.sink(func(c *SinkConfig) { c.MaxMessageBytes = 500_000 })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 30; n++ {
		d := sinktest.Delivery(n)
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
	for i, r := range sinktest.Deliver(t, s, batch...) {
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
			t.Errorf("message %d arrived %d times", n, got)
		}
	}
}

// A compacted topic refuses records without a key, which does not delay the others.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1, "cleanup.policy", "compact")
	s := o.sink(func(c *SinkConfig) { c.Key = "{{.Reference}}" })
	with, without := sinktest.Delivery(1), sinktest.Delivery(2)
	with.Reference = "key"
	r := sinktest.Deliver(t, s, with, without, with)
	sinktest.WantRetried(t, r[1], "INVALID_RECORD")
	if r[0].Err != nil || r[2].Err != nil || o.count(1) != 2 || o.count(2) != 0 {
		t.Errorf("got %v, %d records", r, len(o.all()))
	}
}

// A record that was not produced in time does not stay in a client that would produce it
// beside the next attempt.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1)
	s := o.sink(nil)
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	o.proxy.Refuse(true)
	o.proxy.CutAll()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := s.Deliver(ctx, []posthaste.RawDelivery{sinktest.Delivery(2)})
		cancel()
		sinktest.WantRetried(t, r[0], o.proxy.Address())
		if !errors.Is(r[0].Err, context.DeadlineExceeded) {
			t.Error(r[0].Err)
		}
	}
	o.proxy.Refuse(false)
	for n := 2; n <= 3; n++ {
		if r := sinktest.Deliver(t, s, sinktest.Delivery(n)); r[0].Err != nil || o.count(n) != 1 {
			t.Errorf("message %d: %v, arrived %d times", n, r[0].Err, o.count(n))
		}
	}
}

// A batch that times out does not affect batches that still wait, whether its records were
// written before theirs or not.
func TestTimeIsUpForOne(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{true, false} {
		o := newSinkTopic(t, 1)
		s := o.sink(nil)
		if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		p := s.producers.Current()[together]
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		deliverFirst := func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{sinktest.Delivery(2)})[0].Err }
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
			until(t, "the connection fails", func() bool { return p.why() != nil })
		}
		go func() { second <- sinktest.Deliver(t, s, sinktest.Delivery(3))[0].Err }()
		until(t, "both records are buffered", func() bool { return p.client.BufferedProduceRecords() >= 2 })
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), words) {
			t.Error(err)
		}
		release()
		if err := <-second; err != nil || o.count(3) != 1 {
			t.Errorf("another batch: %v, arrived %d times", err, o.count(3))
		}
	}
}

// While the brokers are down, messages wait; they are delivered once the brokers are back.
func TestBrokersAway(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1)
	s := o.sink(nil)
	brokertest.RunSinkAway(t, s, o.proxy.Address(), o.proxy.Refuse, o.count)

	// The same for an open producer.
	o.proxy.Refuse(true)
	o.proxy.CutAll()
	done := make(chan error)
	go func() { done <- sinktest.Deliver(t, s, sinktest.Delivery(3))[0].Err }()
	until(t, "the connection fails", func() bool { return s.producers.Current()[together].why() != nil })
	o.proxy.Refuse(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if o.count(3) != 1 {
		t.Errorf("%d records", len(o.all()))
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1)
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
	configtest.Checks(t, "wrong", o.sink,
		configtest.Valid("user", as(devbroker.KafkaUser+":"+devbroker.KafkaPassword, "plain")),
		configtest.Valid("user by SCRAM", as("scrambled:s%20e:cret", "")),
		configtest.Invalid("password", "url", as(devbroker.KafkaUser+":wrong", "plain")),
		configtest.Invalid("password by SCRAM", "url", as("scrambled:wrong", "")),
		configtest.Invalid("mechanism", "mechanism", as("scrambled:wrong", "scram-sha-256")),
		configtest.Invalid("topic", "topic", func(c *SinkConfig) { c.Topic = "nowhere" }),
		configtest.Valid("topic by template", func(c *SinkConfig) { c.Topic = "{{.Kind}}" }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL, c.dial = "kafka://127.0.0.1:1", nil }),
		configtest.Unavailable("no TLS", func(c *SinkConfig) {
			c.URL, c.dial, c.DialTimeout = URL(strings.Replace(broker.URL(), "kafka:", "kafkas:", 1)), nil, time.Second
		}))
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS, c.dial = URL("kafkas://"+certificates.Address(host)), trust, nil })
	}
	brokertest.RunSinkTLS(t, certificates.Trust(), at, o.count)
}

func TestSinkConfig(t *testing.T) {
	configtest.Fields(t, NewSink, SinkConfig{URL: "kafka://localhost"}, map[string]func(*SinkConfig){
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
	})
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
