package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
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
	"github.com/posthaste-mq/posthaste/source"
)

// names numbers the queues of tests.
var names atomic.Int64

// sourceQueue is a queue that a source reads.
type sourceQueue struct {
	name  string
	ch    *amqp.Channel
	proxy *faultproxy.Proxy
	aside []relay.Incoming
}

func newSourceQueue(t *testing.T) *sourceQueue {
	t.Helper()
	return newSourceQueueOn(t, broker, nil)
}

func newSourceQueueOn(t *testing.T, broker *devbroker.RabbitMQ, args amqp.Table) *sourceQueue {
	t.Helper()
	p := &sourceQueue{name: fmt.Sprint(strings.ReplaceAll(t.Name(), "/", "-"), names.Add(1)), ch: openChannel(t, broker), proxy: faultproxy.Start(t, broker.Address(), nil)}
	if _, err := p.ch.QueueDeclare(p.name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := p.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *sourceQueue) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	return brokertest.OpenSource(t, NewSource, ledger, SourceConfig{Config: c, URL: URL("amqp://guest:guest@" + p.proxy.Address() + "/"), FromQueue: p.name}, change)
}

// fixture returns the queue for the suites of sources.
func (p *sourceQueue) fixture() brokertest.SourceFixture {
	return brokertest.SourceFixture{
		Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
			return p.source(t, ledger, c, nil)
		},
		Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse,
		Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
			return sinktest.Open(t, NewSink, SinkConfig{URL: URL(broker.URL()), RoutingKey: p.name, Mapping: m}, nil)
		},
	}
}

// publish publishes messages, and waits for the confirms.
func (p *sourceQueue) publish(t *testing.T, messages ...relay.Incoming) {
	t.Helper()
	var confirms []*amqp.DeferredConfirmation
	for _, m := range messages {
		headers := amqp.Table{"posthaste-key": m.Key}
		for name, value := range m.Headers {
			headers[name] = value
		}
		confirm, err := p.ch.PublishWithDeferredConfirm("", p.name, true, false, amqp.Publishing{MessageId: m.MessageID, ContentType: m.ContentType, Type: m.Kind, Body: m.Payload, Headers: headers, DeliveryMode: amqp.Persistent})
		if err != nil {
			t.Fatal(err)
		}
		confirms = append(confirms, confirm)
	}
	for _, c := range confirms {
		if !c.Wait() {
			t.Fatal("not confirmed")
		}
	}
}

func (p *sourceQueue) left(t *testing.T) int {
	t.Helper()
	q, err := p.ch.QueueDeclarePassive(p.name, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// refused returns the messages that were put aside so far.
func (p *sourceQueue) refused(t *testing.T) []relay.Incoming {
	t.Helper()
	for {
		d, ok, err := p.ch.Get(p.name+".refused", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return p.aside
		}
		m := relay.Incoming{MessageID: d.MessageId, ContentType: d.ContentType, Payload: d.Body, Headers: map[string]string{}}
		for name, value := range d.Headers {
			m.Headers[name] = text(value)
		}
		p.aside = append(p.aside, m)
	}
}

func TestSourceOnRedis(t *testing.T) {
	testrun.Nightly(t, "sources treat all engines alike; that of Redis Streams runs on both")
	testSource(t, brokertest.Redis, nil)
}

func TestSource(t *testing.T) { testSource(t, brokertest.Postgres, nil) }

func TestSourceFromQuorumQueue(t *testing.T) {
	testrun.Nightly(t, "another type of the same broker's queues")
	testSource(t, brokertest.Postgres, amqp.Table{"x-queue-type": "quorum"})
}

func testSource(t *testing.T, ledger func(*testing.T) posthaste.Store, args amqp.Table) {
	brokertest.RunSource(t, ledger, func(t *testing.T) brokertest.SourceFixture {
		return newSourceQueueOn(t, broker, args).fixture()
	})
}

// The broker delivers at most Prefetch unacknowledged messages.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	p := newSourceQueue(t)
	for n := range 50 {
		p.publish(t, relay.Incoming{MessageID: fmt.Sprint(n)})
	}
	b := &sourceBroker{SourceConfig: SourceConfig{FromQueue: p.name, Prefetch: 7, Refused: p.name + ".refused"}}
	b.endpoint.URL = URL(broker.URL())
	if err := b.endpoint.check(); err != nil {
		t.Fatal(err)
	}
	s := brokertest.OpenSession(t.Context(), t, b)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := brokertest.ReadSession(ctx, t, s, 7)
	if left := p.left(t); left != 43 || len(got) != 7 {
		t.Errorf("%d were delivered, %d are left", len(got), left)
	}
	// One by one, as next to refused messages, and then all of them.
	if err := s.Acknowledge(ctx, got[1:3]); err != nil {
		t.Fatal(err)
	}
	got = append(got, brokertest.ReadSession(ctx, t, s, 2)...)
	if err := s.Acknowledge(ctx, append(got[:1:1], got[3:]...)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	testrun.Until(t, time.Minute, "the broker has the unacknowledged messages back", func() bool { return p.left(t) == 50-9 })
}

// Messages of other publishers than relays.
func TestForeignMessage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("i", 300)
	a := arrival(amqp.Delivery{MessageId: long, Exchange: "events", RoutingKey: "order.placed", CorrelationId: "c-1", Body: []byte("x"),
		Headers: amqp.Table{"n": int32(7), "b": true, "t": time.Unix(1e9, 0), "l": []any{"a", int64(1)}, "raw": []byte{255}, "nil": nil}})
	m := a.Message
	if a.Err != nil || m.Kind != "order.placed" || m.ContentType != posthaste.ContentTypeBytes || !strings.HasPrefix(m.DedupeKey, "sha256:") || len(m.DedupeKey) != 71 {
		t.Errorf("%v, %+v", a.Err, m)
	}
	want := map[string]string{"n": "7", "b": "true", "t": "2001-09-09T01:46:40Z", "l": `["a",1]`, "raw": "/w==", "nil": "", "correlation-id": "c-1"}
	if fmt.Sprint(m.Headers) != fmt.Sprint(want) {
		t.Errorf("headers %v", m.Headers)
	}
	if a := arrival(amqp.Delivery{ContentType: "application/cloudevents+json", Body: []byte("no")}); posthaste.CodeOf(a.Err) != posthaste.CodeInvalid {
		t.Errorf("not an event: %v", a.Err)
	}
}

func TestNP5_BrokerKilled(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartRabbitMQ)
	p := newSourceQueueOn(t, own, nil)
	// A crash must not lose the queue's declaration.
	if err := own.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	fixture := p.fixture()
	fixture.Left = func(t *testing.T) int {
		if p.ch.IsClosed() {
			p.ch = openChannel(t, own)
		}
		return p.left(t)
	}
	brokertest.RunSourceKilled(t, brokertest.Postgres, fixture, own)
}

func TestSourceCheck(t *testing.T) {
	t.Parallel()
	p, e := newSourceQueue(t), brokertest.Orders(t)
	at := func(user, path string) func(*SourceConfig) {
		return func(c *SourceConfig) { c.URL = URL("amqp://" + user + "@" + broker.Address() + path) }
	}
	open := func(change func(*SourceConfig)) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, change)
	}
	configtest.Checks(t, "wrong", open,
		configtest.Invalid("password", "url", at("guest:wrong", "/")),
		configtest.Invalid("vhost", "url", at("guest:guest", "/nowhere")),
		configtest.Invalid("queue of the broker", "from_queue", func(c *SourceConfig) { c.FromQueue = "nowhere" }),
		configtest.Invalid("queue of the ledger", "queue", func(c *SourceConfig) { c.Queue = "nowhere" }),
		configtest.Invalid("refused", "refused", func(c *SourceConfig) { c.Refused = "amq.refused" }),
		configtest.Unavailable("away", func(c *SourceConfig) { c.URL = "amqp://127.0.0.1:1/" }))
}

func TestSourceTLS(t *testing.T) {
	t.Parallel()
	p, e := newSourceQueue(t), brokertest.Orders(t)
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, func(c *SourceConfig) {
			c.URL, c.TLS = URL("amqps://guest:guest@"+certificates.Address(host)+"/"), trust
		})
	})
}

func TestSourceConfig(t *testing.T) {
	open := func(c SourceConfig) (*source.Source, error) { return NewSource(nil, c) }
	configtest.Fields(t, open, SourceConfig{URL: "amqp://localhost", FromQueue: "in", Config: source.Config{Queue: "orders"}}, map[string]func(*SourceConfig){
		"url":           func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":         func(c *SourceConfig) { c.Queue = "No" },
		"from_queue":    func(c *SourceConfig) { c.FromQueue = "" },
		"refused":       func(c *SourceConfig) { c.Refused = c.FromQueue },
		"prefetch":      func(c *SourceConfig) { c.Prefetch = 70_000 },
		"batch":         func(c *SourceConfig) { c.Batch = -1 },
		"dedupe_window": func(c *SourceConfig) { c.DedupeWindow = -1 },
		"grace":         func(c *SourceConfig) { c.Grace = -1 },
	})
}
