package rabbitmq

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

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

// certificates are the certificates of broker.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.RabbitMQ, error) {
		return devbroker.StartRabbitMQ(ctx, dir, append(c.RabbitMQ(), "max_message_size = 300000")...)
	})
}

// sinkQueue is a queue of one test and the messages in it.
type sinkQueue struct {
	t        *testing.T
	name     string
	ch       *amqp.Channel
	mu       sync.Mutex
	received []amqp.Delivery
	proxy    *faultproxy.Proxy
}

// isPublish reports whether data of an AMQP connection holds basic.publish.
func isPublish(piece []byte) bool { return bytes.Contains(piece, []byte{0, 60, 0, 40}) }

// openChannel opens a channel to a broker until the test ends.
func openChannel(t *testing.T, broker *devbroker.RabbitMQ) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// newSinkQueue creates a queue.
func newSinkQueue(t *testing.T, args amqp.Table) *sinkQueue {
	t.Helper()
	ch := openChannel(t, broker)
	name, lasts := "", args["x-queue-type"] == "quorum" // quorum queues have a name and are durable
	if lasts {
		name = strings.ReplaceAll(t.Name(), "/", "-")
	}
	q, err := ch.QueueDeclare(name, lasts, !lasts, !lasts, false, args)
	if err != nil {
		t.Fatal(err)
	}
	return &sinkQueue{t: t, name: q.Name, ch: ch, proxy: faultproxy.Start(t, broker.Address(), isPublish)}
}

func (o *sinkQueue) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	return sinktest.Open(o.t, NewSink, SinkConfig{URL: URL("amqp://guest:guest@" + o.proxy.Address() + "/"), RoutingKey: o.name}, change)
}

// all returns the messages that have arrived so far.
func (o *sinkQueue) all() []amqp.Delivery {
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
		o.received = append(o.received, d)
	}
}

func (o *sinkQueue) count(n int) int {
	return brokertest.Count(o.all(), n, func(d amqp.Delivery) string { return d.MessageId })
}

func TestSink(t *testing.T) { testSink(t, nil) }

func TestSinkIntoQuorumQueue(t *testing.T) { testSink(t, amqp.Table{"x-queue-type": "quorum"}) }

func testSink(t *testing.T, args amqp.Table) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newSinkQueue(t, args)
		s := o.sink(func(c *SinkConfig) {
			c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`}
		})
		delivery, failForGood := sinktest.LargeFirst(400_000)
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: delivery, FailForGood: failForGood,
			Bad: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				if n%4 == 0 { // the template uses a missing header
					d.Kind = "bad"
					return d
				}
				d.Kind = strings.Repeat("x", 300)
				return d
			},
			FailTemporarily: func() { o.proxy.CutBefore() },
			Hang:            o.proxy.Hang,
			BreakConnections: func() {
				o.proxy.CutAll()
				for _, l := range s.links.Current() {
					testrun.Until(t, time.Minute, "the loss is noticed", func() bool { return l.lost() != nil })
				}
			},
		}
	})
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.Mapping.Headers = map[string]string{"tenant": `{{index .Headers "t"}}`, "none": ""}
	})
	d := sinktest.Delivery(7)
	d.Attempt, d.Reference, d.ContentType, d.Payload = 2, "A-7", "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "acme", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0]
	want := amqp.Table{"t": "acme", "tenant": "acme", "traceparent": d.Headers["traceparent"], "posthaste-queue": "orders", "posthaste-kind": "order.placed",
		"posthaste-key": "customer-0", "posthaste-reference": "A-7", "posthaste-attempt": "2"}
	if fmt.Sprint(got.Headers) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", got.Headers, want)
	}
	if got.MessageId != "7" || got.ContentType != d.ContentType || got.Type != d.Kind || !bytes.Equal(got.Body, d.Payload) || !got.Timestamp.Equal(d.CreatedAt) || got.DeliveryMode != amqp.Persistent {
		t.Errorf("got %+v", got)
	}
}

// A message that no queue gets is not delivered, in whatever order the return and the
// confirm are seen. Its neighbors are delivered.
func TestUnroutableIsNoSuccess(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	s := o.sink(func(c *SinkConfig) { c.RoutingKey = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 2000; n++ {
		d := sinktest.Delivery(n)
		if d.Reference = o.name; n%3 != 0 {
			d.Reference = "missing-" + o.name
		}
		batch = append(batch, d)
	}
	results := sinktest.Deliver(t, s, batch...)
	for i, r := range results {
		lost := (i+1)%3 != 0
		if lost != (r.Err != nil) || lost && (!strings.Contains(r.Err.Error(), "NO_ROUTE") || posthaste.IsPermanent(r.Err)) {
			t.Fatalf("message %d: %v", i+1, r.Err)
		}
	}
	if got := len(o.all()); got != 666 {
		t.Errorf("the queue has %d", got)
	}
}

func TestNackIsTriedAgain(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	results := sinktest.Deliver(t, o.sink(nil), sinktest.Delivery(1), sinktest.Delivery(2), sinktest.Delivery(3), sinktest.Delivery(4))
	var failed int
	for _, r := range results {
		if r.Err != nil {
			failed++
			if posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), "basic.nack") {
				t.Error(r.Err)
			}
		}
	}
	if got := len(o.all()); failed != 4-got || failed == 0 {
		t.Errorf("%d failed, %d in the queue", failed, got)
	}
}

// A missing exchange fails only its own messages, whether it never existed or was deleted.
func TestMissingExchange(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	exchange := "x-" + o.name
	s := o.sink(func(c *SinkConfig) { c.Exchange = "{{.Reference}}" })
	batch := func(from int) (all []posthaste.RawDelivery) {
		for n := from; n < from+10; n++ {
			d := sinktest.Delivery(n)
			if n%2 == 0 {
				d.Reference = exchange
			}
			all = append(all, d)
		}
		return all
	}
	if err := o.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := o.ch.QueueBind(o.name, "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	for i, r := range sinktest.Deliver(t, s, batch(1)...) {
		if r.Err != nil {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
	if err := o.ch.ExchangeDelete(exchange, false, false); err != nil {
		t.Fatal(err)
	}
	sinktest.Deliver(t, s, batch(11)...) // notices the deletion
	for i, r := range sinktest.Deliver(t, s, batch(21)...) {
		if missing := i%2 == 1; missing != (r.Err != nil) || missing && (posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), "404 NOT_FOUND")) {
			t.Errorf("message %d: %v", i+21, r.Err)
		}
	}
	for n := 21; n <= 30; n++ {
		if got := o.count(n); got != n%2 {
			t.Errorf("message %d arrived %d times", n, got)
		}
	}
}

// If the confirm is lost, the message is published again with the same id, and the attempt
// does not count as delivered.
func TestConfirmLost(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	brokertest.RunAnswerLost(t, o.sink(nil), o.proxy.CutAfter, "before the confirm", o.count, 2)
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	brokertest.RunSinkAway(t, o.sink(nil), o.proxy.Address(), o.proxy.Refuse, o.count)
}

// brokenConn is a connection on which writes fail once it is broken.
type brokenConn struct {
	net.Conn
	broken atomic.Bool
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("the connection is broken")
	}
	return c.Conn.Write(p)
}

// Messages that were held back when the connection broke are not delivered, with and without
// confirms, wherever in the batch the failure is noticed.
func TestHeldBackIsNotDelivered(t *testing.T) {
	t.Parallel()
	for _, unsafe := range []bool{false, true} {
		for name, spoil := range map[string]func(jobs []job){
			"at the end":       func([]job) {},
			"in the middle":    func(jobs []job) { jobs[30].msg.Body = make([]byte, 2*maxHeld) },
			"before its write": func(jobs []job) { jobs[30].msg.Headers = amqp.Table{"no": struct{}{}} },
		} {
			o := newSinkQueue(t, nil)
			s := o.sink(func(c *SinkConfig) { c.Unsafe = unsafe })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cable := &brokenConn{}
			l, err := s.target.dialBy(ctx, func(c net.Conn) net.Conn { cable.Conn = c; return cable })
			if err != nil {
				t.Fatal(err)
			}
			var jobs []job
			for n := range 40 {
				d := sinktest.Delivery(n + 1)
				j, err := s.target.prepare(&d)
				if err != nil {
					t.Fatal(err)
				}
				j.Index = n
				jobs = append(jobs, j)
			}
			spoil(jobs)
			cable.broken.Store(true)
			results := make([]posthaste.SinkResult, len(jobs))
			if err := s.write(ctx, l, jobs, results); err == nil {
				t.Errorf("unsafe %v, %s: the link counts as usable", unsafe, name)
			}
			l.Close()
			delivered := 0
			for _, r := range results {
				if r.Err == nil {
					delivered++
				}
			}
			if received := len(o.all()); received != 0 || delivered != 0 {
				t.Errorf("unsafe %v, %s: %d messages count as delivered, and %d arrived", unsafe, name, delivered, received)
			}
		}
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	at := func(user, path string) func(*SinkConfig) {
		return func(c *SinkConfig) { c.URL = URL("amqp://" + user + "@" + broker.Address() + path) }
	}
	configtest.Checks(t, "wrong", o.sink,
		configtest.Invalid("password", "url", at("guest:wrong", "/")),
		configtest.Invalid("vhost", "url", at("guest:guest", "/nowhere")),
		configtest.Invalid("exchange", "exchange", func(c *SinkConfig) { c.Exchange = "nowhere" }),
		configtest.Invalid("queue", "routing_key", func(c *SinkConfig) { c.RoutingKey = "missing" }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL = "amqp://127.0.0.1:1/" }),
		configtest.Valid("exchange by template", func(c *SinkConfig) { c.Exchange = "{{.Kind}}" }))
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS = URL("amqps://guest:guest@"+certificates.Address(host)+"/"), trust })
	}
	brokertest.RunSinkTLS(t, certificates.Trust(), at, o.count)
}

func TestSinkConfig(t *testing.T) {
	configtest.Fields(t, NewSink, SinkConfig{URL: "amqp://localhost"}, map[string]func(*SinkConfig){
		"url":                func(c *SinkConfig) { c.URL = "http://secret@x" },
		"connections":        func(c *SinkConfig) { c.Connections = -1 },
		"outstanding":        func(c *SinkConfig) { c.Outstanding = 1 << 20 },
		"exchange":           func(c *SinkConfig) { c.Exchange = "{{.Nothing}}" },
		"routing_key":        func(c *SinkConfig) { c.RoutingKey = "{{" },
		"message_id":         func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.a":          func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"a": "{{.X}}"} },
		"headers.CC":         func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"CC": "x"} },
		"cloudevents.source": func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
		"declare":            func(c *SinkConfig) { c.Declare = "classic" },
	})
}
