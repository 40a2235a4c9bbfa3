package amqp1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.RabbitMQ

// certificates are those of the broker where it listens with TLS.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.RabbitMQ, error) {
		return devbroker.StartRabbitMQ(ctx, dir, append(c.RabbitMQ(), "max_message_size = 300000")...)
	})
}

// sinkQueue is a queue of one test and the messages in it, which are read by AMQP 0-9-1.
type sinkQueue struct {
	t        *testing.T
	name     string
	ch       *amqp091.Channel
	mu       sync.Mutex
	received []*amqp.Message
	proxy    *faultproxy.Proxy
}

// isTransfer reports whether a piece of a connection holds a transfer frame.
func isTransfer(piece []byte) bool { return bytes.Contains(piece, []byte{0, 0x53, 0x14}) }

// newSinkQueue creates a queue in a broker.
func newSinkQueue(t *testing.T, in *devbroker.RabbitMQ) *sinkQueue {
	t.Helper()
	o := &sinkQueue{t: t, name: strings.ReplaceAll(t.Name(), "/", "-"), proxy: faultproxy.Start(t, in.Address(), isTransfer)}
	o.open(in)
	if _, err := o.ch.QueueDeclare(o.name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	return o
}

// open connects to the broker, even again after it was killed.
func (o *sinkQueue) open(in *devbroker.RabbitMQ) {
	o.t.Helper()
	conn, err := amqp091.Dial(in.URL())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	if o.ch, err = conn.Channel(); err != nil {
		o.t.Fatal(err)
	}
}

func (o *sinkQueue) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	return sinktest.Open(o.t, NewSink, SinkConfig{URL: URL("amqp1://guest:guest@" + o.proxy.Address()), Address: "/amq/queue/" + o.name}, change)
}

// decoded returns a message as AMQP 1.0 has it. RabbitMQ 3 keeps its sections in headers.
func decoded(t *testing.T, d amqp091.Delivery) *amqp.Message {
	t.Helper()
	m := amqp.NewMessage(d.Body)
	for _, section := range []string{"x-amqp-1.0-properties", "x-amqp-1.0-app-properties"} {
		text, _ := d.Headers[section].(string)
		if err := m.UnmarshalBinary([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if d.MessageId != m.Properties.MessageID || d.ContentType != *m.Properties.ContentType || d.DeliveryMode != amqp091.Persistent {
		t.Errorf("AMQP 0-9-1 reads id %q, content type %q, delivery mode %d of %+v", d.MessageId, d.ContentType, d.DeliveryMode, m.Properties)
	}
	return m
}

// all returns the messages that have arrived so far.
func (o *sinkQueue) all() []*amqp.Message {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		d, ok, err := o.ch.Get(o.name, true)
		if err != nil {
			o.t.Fatal(err)
		}
		if !ok {
			return o.received
		}
		o.received = append(o.received, decoded(o.t, d))
	}
}

func (o *sinkQueue) count(n int) int {
	return brokertest.Count(o.all(), n, func(m *amqp.Message) string { return m.Properties.MessageID.(string) })
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newSinkQueue(t, broker)
		s := o.sink(func(c *SinkConfig) {
			c.Address += `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`
		})
		delivery, failForGood := sinktest.LargeFirst(400_000)
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: delivery, FailForGood: failForGood,
			Bad: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				if d.Kind = "bad"; n%4 == 0 {
					d.Kind, d.ContentType = "good", "text/größe"
				}
				return d
			},
			FailTemporarily: func() { o.proxy.CutBefore() },
			Hang:            o.proxy.Hang,
			BreakConnections: func() {
				o.proxy.CutAll()
				for _, c := range s.connections.Current() {
					<-c.conn.Done()
				}
			},
		}
	})
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	s := o.sink(func(c *SinkConfig) {
		c.Mapping.MessageID = "shop-{{.MessageID}}"
		c.Mapping.Headers = map[string]string{"tenant": `{{index .Headers "t"}}`}
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/shop"}
	})
	d := sinktest.Delivery(7)
	d.Attempt, d.Reference, d.ContentType, d.Payload, d.Headers = 2, "A-7", "application/octet-stream", []byte{0, 1, 255}, map[string]string{"t": "acme"}
	bare := sinktest.Delivery(8)
	bare.Kind, bare.Key = "", ""
	if r := sinktest.Deliver(t, s, d, bare); r[0].Err != nil || posthaste.CodeOf(r[1].Err) != posthaste.CodeInvalid {
		t.Fatal(r)
	}
	m := o.all()[0]
	want := map[string]any{"t": "acme", "tenant": "acme", "posthaste-queue": "orders", "posthaste-kind": "order.placed", "posthaste-key": "customer-0", "posthaste-reference": "A-7",
		"posthaste-attempt": "2", "cloudEvents:specversion": "1.0", "cloudEvents:id": "shop-7", "cloudEvents:source": "/shop", "cloudEvents:type": "order.placed",
		"cloudEvents:subject": "customer-0", "cloudEvents:time": "2001-09-09T01:46:40Z"}
	if fmt.Sprint(m.ApplicationProperties) != fmt.Sprint(want) {
		t.Errorf("application properties %v, want %v", m.ApplicationProperties, want)
	}
	p := m.Properties
	if p.MessageID != "shop-7" || *p.ContentType != d.ContentType || *p.Subject != d.Kind || *p.GroupID != d.Key || !p.CreationTime.Equal(d.CreatedAt) || !bytes.Equal(m.GetData(), d.Payload) {
		t.Errorf("properties %+v, data %v", p, m.GetData())
	}
}

// An address that cannot be attached fails its own messages alone, and more addresses than
// a connection has room for all get theirs.
func TestAddresses(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	s := o.sink(func(c *SinkConfig) { c.Address, c.Connections = "{{.Reference}}", 1 })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 300; n++ {
		d := sinktest.Delivery(n)
		switch n % 3 {
		case 0:
			d.Reference = "/exchange/nowhere-" + o.name + "/key"
		case 1:
			d.Reference = "/amq/queue/" + o.name
		default: // to the same queue, by another exchange address each
			d.Reference = fmt.Sprintf("/exchange/amq.topic/%s.%d", o.name, n)
		}
		batch = append(batch, d)
	}
	if err := o.ch.QueueBind(o.name, o.name+".*", "amq.topic", false, nil); err != nil {
		t.Fatal(err)
	}
	for i, r := range sinktest.Deliver(t, s, batch...) {
		if (i+1)%3 == 0 {
			sinktest.WantRetried(t, r, "amqp:not-found")
		} else if r.Err != nil {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
	if got := len(o.all()); got != 200 {
		t.Errorf("the queue has %d messages, want 200", got)
	}
	empty := sinktest.Delivery(301)
	if r := sinktest.Deliver(t, s, empty); !posthaste.IsPermanent(r[0].Err) {
		t.Errorf("an empty address: %v", r[0].Err)
	}
}

// A message that is too large for the broker ends the session of its neighbors. It is
// dead-lettered once it is alone, and they are sent again at most once.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	small := devbroker.Own(t, devbroker.StartRabbitMQ, "max_message_size = 1000")
	o := newSinkQueue(t, small)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	big := sinktest.Delivery(2)
	big.Payload = bytes.Repeat([]byte("x"), 2000)
	batch := []posthaste.RawDelivery{sinktest.Delivery(1), big, sinktest.Delivery(3)}
	results := sinktest.Deliver(t, s, batch...)
	sinktest.WantRetried(t, results[1], "amqp:precondition-failed")
	if string(results[1].Receipt) != `{"link_closed":"amqp:precondition-failed"}` {
		t.Errorf("receipt %s", results[1].Receipt)
	}
	for i, r := range results {
		if r.Err != nil {
			batch[i] = sinktest.Next(batch[i], r)
		}
	}
	if r := sinktest.Deliver(t, s, sinktest.Delivery(4)); r[0].Err != nil {
		t.Errorf("a message after the link ended: %v", r[0].Err)
	}
	results = sinktest.Deliver(t, s, batch...)
	if results[0].Err != nil || results[2].Err != nil || !posthaste.IsPermanent(results[1].Err) || !strings.Contains(results[1].Err.Error(), "amqp:precondition-failed") {
		t.Errorf("alone: %v", results)
	}
	for _, n := range []int{1, 3} {
		if got := o.count(n); got < 1 || got > 2 {
			t.Errorf("message %d came %d times", n, got)
		}
	}
}

// The broker has the message and its outcome is lost: it is sent again with the same id,
// and never taken for delivered.
func TestOutcomeLost(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	brokertest.RunAnswerLost(t, o.sink(nil), o.proxy.CutAfter, "may be sent twice", o.count, 2)
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	brokertest.RunSinkAway(t, o.sink(nil), o.proxy.Address(), o.proxy.Refuse, o.count)
}

// writeHangs reports whether a connection waits in a write.
func writeHangs() bool {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return slices.ContainsFunc(strings.Split(string(stacks), "\n\n"), func(stack string) bool {
		return strings.Contains(stack, "[IO wait") && strings.Contains(stack, "go-amqp.(*Conn).writeFrame")
	})
}

// An attempt ends in time even if the broker stops reading in the middle of a message.
func TestWriteHangs(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	s := o.sink(nil)
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	huge := sinktest.Delivery(2)
	huge.Payload = make([]byte, 32<<20)
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan posthaste.SinkResult, 1)
	go func() { done <- s.Deliver(ctx, []posthaste.RawDelivery{huge})[0] }()
	<-reached
	testrun.Until(t, time.Minute, "the write hangs", writeHangs)
	cancel()
	select {
	case r := <-done:
		if sinktest.WantRetried(t, r, ""); !errors.Is(r.Err, context.Canceled) {
			t.Errorf("the error does not tell that the context ended: %v", r.Err)
		}
	case <-time.After(20 * time.Second): // the library gives up after 30 s
		t.Error("Deliver does not return though its context ended")
	}
}

// A connection that was unused for long is replaced before a message is sent on it.
func TestIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	idle := s.connections.Current()[0]
	idle.used.Store(time.Now().Add(-maxIdle).UnixNano())
	if r := sinktest.Deliver(t, s, sinktest.Delivery(2)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if _, err := idle.conn.NewSession(t.Context(), nil); err == nil || s.connections.Current()[0] == idle {
		t.Error("the connection is still used, or open")
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	at := func(user, path string) func(*SinkConfig) {
		return func(c *SinkConfig) { c.URL = URL("amqp1://" + user + "@" + broker.Address() + path) }
	}
	configtest.Checks(t, "wrong", o.sink,
		configtest.Valid("virtual host", at("guest:guest", "/%2F")),
		configtest.Valid("anonymous", func(c *SinkConfig) { c.URL = URL("amqp1://" + broker.Address()) }),
		configtest.Invalid("password", "url", at("guest:wrong", "")),
		configtest.Invalid("missing virtual host", "url", at("guest:guest", "/nowhere")),
		configtest.Invalid("address", "address", func(c *SinkConfig) { c.Address = "/exchange/nowhere/key" }),
		configtest.Valid("address by template", func(c *SinkConfig) { c.Address = "{{.Kind}}" }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL = "amqp1://127.0.0.1:1/" }),
		configtest.Unavailable("no TLS", func(c *SinkConfig) { c.URL = URL("amqp1s://" + broker.Address()) }))
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS = URL("amqp1s://guest:guest@"+certificates.Address(host)), trust })
	}
	brokertest.RunSinkTLS(t, certificates.Trust(), at, o.count)
}

func TestSinkConfig(t *testing.T) {
	t.Parallel()
	configtest.Fields(t, NewSink, SinkConfig{URL: "amqp1://localhost"}, map[string]func(*SinkConfig){
		"url":                func(c *SinkConfig) { c.URL = "amqp://secret@x" },
		"connections":        func(c *SinkConfig) { c.Connections = -1 },
		"outstanding":        func(c *SinkConfig) { c.Outstanding = 1 << 20 },
		"address":            func(c *SinkConfig) { c.Address = "{{.Nothing}}" },
		"group_id":           func(c *SinkConfig) { c.GroupID = "{{" },
		"message_id":         func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.a":          func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"a": "{{.X}}"} },
		"cloudevents.source": func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
	})
}
