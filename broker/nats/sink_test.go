package nats

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newSinkStream(t, nil)
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
				d.Headers = map[string]string{"a b": "c"}
				return d
			},
			FailTemporarily: func() { o.proxy.CutBefore() },
			Hang:            o.proxy.Hang,
			BreakConnections: func() {
				o.proxy.CutAll()
				for _, l := range s.links.Current() {
					<-l.ended
				}
			},
		}
	})
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.Subject, c.Stream = o.name+".{{.Kind}}", o.name
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro 1"}
	})
	d := sinktest.Delivery(7)
	d.Attempt, d.ContentType, d.Payload = 2, "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "Zürich", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0]
	for name, want := range map[string]string{"Nats-Msg-Id": "db-7", "Nats-Expected-Stream": o.name, "content-type": d.ContentType, "t": "Zürich", "traceparent": d.Headers["traceparent"],
		"posthaste-queue": "orders", "posthaste-kind": "order.placed", "posthaste-key": "customer-0", "posthaste-attempt": "2",
		"ce-id": "db-7", "ce-source": "/b%C3%BCro%201", "ce-type": "order.placed", "ce-datacontenttype": d.ContentType, "ce-specversion": "1.0"} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("header %s is %q, want %q", name, v, want)
		}
	}
	if got.Subject != o.name+".order.placed" || !bytes.Equal(got.Data, d.Payload) {
		t.Errorf("got %+v", got)
	}
}

// A message that can never be published is dead-lettered with the field, and does not affect
// its neighbors.
func TestImpossible(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 200_000 })
	s := o.sink(func(c *SinkConfig) {
		c.Subject = `{{or .Reference "` + o.name + `.x"}}`
		c.Mapping.Headers = map[string]string{"Nats-TTL": `{{index .Headers "ttl"}}`}
	})
	for _, test := range []struct {
		name, field, words string
		change             func(*posthaste.RawDelivery)
	}{
		{"space", "subject", "spaces", func(d *posthaste.RawDelivery) { d.Reference = "a b" }},
		{"wildcard", "subject", "*", func(d *posthaste.RawDelivery) { d.Reference = "a.*" }},
		{"administration", "subject", "administration", func(d *posthaste.RawDelivery) { d.Reference = "$JS.API.STREAM.DELETE." + o.name }},
		{"command", "headers", "Nats-Rollup", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"Nats-Rollup": "all"} }},
		{"command in lower case", "headers", "nats-rollup", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"nats-rollup": "all"} }},
		{"line break", "headers", "line break", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"a": "b\r\nc: d"} }},
		{"larger than the server takes", "payload", "max_payload", func(d *posthaste.RawDelivery) { d.Payload = bytes.Repeat([]byte("x"), 299_950) }},
		{"larger than the stream takes", "payload", "message size exceeds maximum", func(d *posthaste.RawDelivery) { d.Payload = bytes.Repeat([]byte("x"), 200_000) }},
	} {
		bad := sinktest.Delivery(2)
		test.change(&bad)
		before := len(o.all())
		r := sinktest.Deliver(t, s, sinktest.Delivery(before+10), bad, sinktest.Delivery(before+11))
		var e *posthaste.Error
		if !posthaste.IsPermanent(r[1].Err) || !errors.As(r[1].Err, &e) || e.Field != test.field || !strings.Contains(r[1].Err.Error(), test.words) {
			t.Errorf("%s: %v", test.name, r[1].Err)
		}
		if got := len(o.all()) - before; r[0].Err != nil || r[2].Err != nil || got != 2 {
			t.Errorf("%s: the neighbors: %v, %v, %d in the stream", test.name, r[0].Err, r[2].Err, got)
		}
	}
}

// A subject that no stream takes, or that the user may not publish to, fails only its own
// messages.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	for user, words := range map[string]string{"all": "no responders", "little": "Permissions Violation"} {
		o := newSinkStream(t, nil)
		s := o.sink(func(c *SinkConfig) {
			c.URL = URL("nats://" + user + ":secret@" + o.proxy.Address())
			c.Subject = "{{.Reference}}"
		})
		var batch []posthaste.RawDelivery
		for n := 1; n <= 1000; n++ {
			d := sinktest.Delivery(n)
			if d.Reference = o.name + ".allowed"; n%3 != 0 {
				d.Reference = fmt.Sprint(o.name, "-none.", n%2)
			}
			batch = append(batch, d)
		}
		for i, r := range sinktest.Deliver(t, s, batch...) {
			if (i+1)%3 != 0 {
				sinktest.WantRetried(t, r, words)
			} else if r.Err != nil {
				t.Fatalf("message %d: %v", i+1, r.Err)
			}
		}
		if got := len(o.all()); got != 333 {
			t.Errorf("the stream has %d", got)
		}
	}
}

// deniesSome configures a sink whose user may publish only to the subject "allowed".
func (o *sinkStream) deniesSome(c *SinkConfig) {
	c.URL = URL("nats://little:secret@" + o.proxy.Address())
	c.Subject, c.Outstanding, c.Connections = "{{.Reference}}", 4, 1
}

// Denials are never acknowledged, and must not use up the window of unacknowledged messages.
func TestDeniedForLong(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	s := o.sink(o.deniesSome)
	denied, allowed := sinktest.Delivery(1), sinktest.Delivery(2)
	denied.Reference, allowed.Reference = o.name+"-none.1", o.name+".allowed"
	for n := range 20 {
		allowed.MessageID = posthaste.MessageID(100 + n)
		r := sinktest.Deliver(t, s, denied, allowed)
		sinktest.WantRetried(t, r[0], "Permissions Violation")
		if r[1].Err != nil {
			t.Fatalf("beside denied message %d: %v", n+1, r[1].Err)
		}
	}
	if got := len(o.all()); got != 20 {
		t.Errorf("the stream has %d", got)
	}
}

// The same if many batches wait for their turn on one connection: batches that acquired the
// connection before it was full of denials continue on the next one.
func TestDeniedBesideMany(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	s := o.sink(o.deniesSome)
	const batches, rounds = 40, 5
	var all sync.WaitGroup
	for b := range batches {
		all.Go(func() {
			for n := range rounds {
				denied, allowed := sinktest.Delivery(1), sinktest.Delivery(100+b*rounds+n)
				denied.Reference, allowed.Reference = o.name+"-none.1", o.name+".allowed"
				r := sinktest.Deliver(t, s, denied, allowed)
				sinktest.WantRetried(t, r[0], "Permissions Violation")
				if r[1].Err != nil {
					t.Errorf("batch %d, round %d: %v", b, n, r[1].Err)
				}
			}
		})
	}
	all.Wait()
	if got := len(o.all()); got != batches*rounds {
		t.Errorf("the stream has %d", got)
	}
}

func TestFullStream(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew })
	r := sinktest.Deliver(t, o.sink(nil), sinktest.Delivery(1), sinktest.Delivery(2), sinktest.Delivery(3))
	if r[0].Err != nil || r[1].Err != nil {
		t.Error(r)
	}
	sinktest.WantRetried(t, r[2], "maximum messages exceeded")
	r = sinktest.Deliver(t, o.sink(func(c *SinkConfig) { c.Stream = "other" }), sinktest.Delivery(4))
	sinktest.WantRetried(t, r[0], "expected stream")
}

// A subscriber that is not a stream acknowledges nothing. Its message waits until the
// timeout, and other messages are delivered, even of other batches.
func TestNoAck(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	sub, err := o.conn.SubscribeSync(o.name + "-plain")
	if err != nil || o.conn.Flush() != nil {
		t.Fatal(err)
	}
	s := o.sink(func(c *SinkConfig) { c.Subject, c.Connections = "{{.Reference}}", 1 })
	plain, good, late := sinktest.Delivery(1), sinktest.Delivery(2), sinktest.Delivery(3)
	plain.Reference, good.Reference, late.Reference = o.name+"-plain", o.name+".a", o.name+".b"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []posthaste.SinkResult, 1)
	go func() { done <- s.Deliver(ctx, []posthaste.RawDelivery{plain, good}) }()
	if _, err := sub.NextMsg(time.Minute); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "the good message is stored", func() bool { return o.count(2) > 0 })
	if r := sinktest.Deliver(t, s, late); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	other := make(chan error, 1)
	go func() { other <- sinktest.Deliver(t, s, plain)[0].Err }()
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	r := <-done
	if err := errors.Join(m.Respond([]byte(`{"stream": "plain", "seq": 1}`)), <-other); err != nil {
		t.Errorf("the connection was used by another batch: %v", err)
	}
	sinktest.WantRetried(t, r[0], "does a stream take subject")
	if !errors.Is(r[0].Err, context.Canceled) || r[1].Err != nil {
		t.Error(r)
	}
}

// If the acknowledgment is lost, the message is published again with the same id, and the
// stream drops it.
func TestAckLost(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	brokertest.RunAnswerLost(t, o.sink(nil), o.proxy.CutAfter, "before the acknowledgment", o.count, 1)
}

// The sink logs when a stream drops a first attempt as a duplicate.
func TestTakenForRepetition(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	var log bytes.Buffer
	s := o.sink(func(c *SinkConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	again := sinktest.Delivery(1)
	again.Attempt = 2
	for _, d := range []posthaste.RawDelivery{sinktest.Delivery(1), again} {
		if r := sinktest.Deliver(t, s, d); r[0].Err != nil || log.Len() > 0 {
			t.Error(r[0].Err, log.String())
		}
	}
	if sinktest.Deliver(t, s, sinktest.Delivery(1)); !strings.Contains(log.String(), "message_id") {
		t.Errorf("logged: %s", log.String())
	}
}

// While a server is down, messages wait; they are delivered once it is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	away := devbroker.Own(t, devbroker.StartNATS)
	conn, err := natsgo.Connect(away.URL(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders"}}); err != nil {
		t.Fatal(err)
	}
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL("nats://127.0.0.1:1," + away.URL())}, nil)
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	away.Stop()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := s.Deliver(short, []posthaste.RawDelivery{sinktest.Delivery(2)}); !errors.Is(r[0].Err, context.DeadlineExceeded) {
		// The loss of the connection may be reported at once.
		sinktest.WantRetried(t, r[0], away.Address())
	}
	done := make(chan error)
	go func() {
		for n := 3; n <= 5; n++ {
			if err := sinktest.Deliver(t, s, sinktest.Delivery(n))[0].Err; err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	testrun.Until(t, time.Minute, "the sink reports that the server is away", s.Away)
	if err := away.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	stream, err := js.Stream(t.Context(), "orders")
	if err != nil || stream.CachedInfo().State.Msgs != 4 {
		t.Errorf("%+v, %v", stream, err)
	}
}

func TestWriteHangs(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	sinktest.RunWriteHangs(t, o.sink(nil), o.proxy.Hang, 200, 250_000)
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o, other := newSinkStream(t, nil), newSinkStream(t, nil)
	plain := devbroker.Own(t, devbroker.StartNATS, "jetstream: disabled")
	as := func(user string) func(*SinkConfig) {
		return func(c *SinkConfig) { c.URL = URL("nats://" + user + "@" + broker.Address()) }
	}
	configtest.Checks(t, "wrong", o.sink,
		configtest.Valid("with its stream", func(c *SinkConfig) { c.Stream = o.name }),
		configtest.Invalid("password", "url", as("all:wrong")),
		configtest.Valid("a user who may not ask", as("little:secret")),
		configtest.Invalid("a user who may not subscribe to acknowledgments", "inbox_prefix", as("deaf:secret")),
		configtest.Invalid("stream", "stream", func(c *SinkConfig) { c.Stream = "nowhere" }),
		configtest.Invalid("subject", "subject", func(c *SinkConfig) { c.Subject = "missing" }),
		configtest.Invalid("subject of another stream", "subject", func(c *SinkConfig) { c.Stream = other.name }),
		configtest.Invalid("no JetStream", "url", func(c *SinkConfig) { c.URL = URL(plain.URL()) }),
		configtest.Invalid("no TLS", "url", func(c *SinkConfig) { c.URL = URL(strings.Replace(broker.URL(), "nats:", "tls:", 1)) }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL = "nats://127.0.0.1:1" }),
		configtest.Valid("subject by template", func(c *SinkConfig) { c.Subject = "{{.Kind}}" }))
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	stream, certificates := newSecureStream(t)
	at := func(host string, trust *tls.Config) *Sink {
		return sinktest.Open(t, NewSink, SinkConfig{URL: URL("tls://" + certificates.Address(host)), Subject: stream.name + ".orders", TLS: trust}, nil)
	}
	o := &sinkStream{testStream: stream, t: t}
	brokertest.RunSinkTLS(t, certificates.Trust(), at, o.count)
}

func TestSinkConfig(t *testing.T) {
	configtest.Fields(t, NewSink, SinkConfig{URL: "nats://localhost"}, map[string]func(*SinkConfig){
		"url":                  func(c *SinkConfig) { c.URL = "http://secret@x" },
		"credentials":          func(c *SinkConfig) { c.Credentials = "/nowhere" },
		"stream":               func(c *SinkConfig) { c.Stream = "a.b" },
		"inbox_prefix":         func(c *SinkConfig) { c.InboxPrefix = "a.*" },
		"connections":          func(c *SinkConfig) { c.Connections = -1 },
		"outstanding":          func(c *SinkConfig) { c.Outstanding = 1 << 20 },
		"subject":              func(c *SinkConfig) { c.Subject = "{{.Nothing}}" },
		"message_id":           func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.Content-Type": func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"Content-Type": "x"} },
		"headers.Nats-Msg-Id":  func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"Nats-Msg-Id": "x"} },
		"headers.a b":          func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"a b": "x"} },
		"cloudevents.source":   func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
	})
	for _, url := range []string{"nats://a:se%cret@x", "nats://secret:x@[", "", "tls://"} {
		if _, err := NewSink(SinkConfig{URL: URL(url)}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := NewSink(SinkConfig{URL: "nats://x", Subject: "a b"}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Error(err)
	}
}
