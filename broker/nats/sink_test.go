package nats

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.NATS

func TestMain(m *testing.M) {
	devbroker.Main(m, &broker, func(ctx context.Context, dir string) (*devbroker.NATS, error) {
		return devbroker.StartNATS(ctx, dir, "max_payload: 300000", "no_auth_user: all", `authorization: {users: [
			{user: all, password: secret}
			{user: little, password: secret, permissions: {publish: {allow: ["*.allowed"]}}}
			{user: deaf, password: secret, permissions: {subscribe: {allow: ["nothing"]}}}
		]}`)
	})
}

// outside is a stream of the test's own, which takes subjects that begin with its name.
type outside struct {
	t     *testing.T
	name  string
	conn  *natsgo.Conn
	js    jetstream.JetStream
	proxy *faultproxy.Proxy
}

func newOutside(t *testing.T, change func(*jetstream.StreamConfig)) *outside {
	t.Helper()
	return outsideOf(t, broker.Address(), change)
}

func outsideOf(t *testing.T, address string, change func(*jetstream.StreamConfig)) *outside {
	t.Helper()
	conn, err := natsgo.Connect("nats://"+address, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{t: t, name: fmt.Sprint("s", places.Add(1)), conn: conn, js: js}
	c := jetstream.StreamConfig{Name: o.name, Subjects: []string{o.name + ".>"}, Storage: jetstream.MemoryStorage}
	if change != nil {
		change(&c)
	}
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if o.proxy, err = faultproxy.New(address, func(piece []byte) bool { return bytes.Contains(piece, []byte("HPUB ")) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.proxy.Close)
	return o
}

func (o *outside) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	c := SinkConfig{URL: URL("nats://" + o.proxy.Address()), Subject: o.name + ".orders", Logger: slog.New(slog.DiscardHandler)}
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

// all returns the contents of the stream.
func (o *outside) all() (came []*jetstream.RawStreamMsg) {
	o.t.Helper()
	s, err := o.js.Stream(context.Background(), o.name)
	if err != nil {
		o.t.Fatal(err)
	}
	for n := max(1, s.CachedInfo().State.FirstSeq); n <= s.CachedInfo().State.LastSeq; n++ {
		m, err := s.GetMsg(context.Background(), n)
		if err != nil {
			o.t.Fatal(err)
		}
		came = append(came, m)
	}
	return came
}

func (o *outside) count(n int) (count int) {
	for _, m := range o.all() {
		if m.Header.Get("Nats-Msg-Id") == fmt.Sprint(n) {
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		o := newOutside(t, nil)
		s := o.sink(func(c *SinkConfig) {
			c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`}
		})
		refused := false
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if refused && n == 1 {
					d.Payload = bytes.Repeat([]byte("x"), 400_000)
				}
				return d
			},
			FailForGood: func() { refused = true },
			Bad: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if n%4 == 0 { // the template names a header that it does not have
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
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.Subject, c.Stream = o.name+".{{.Kind}}", o.name
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro 1"}
	})
	d := delivery(7)
	d.Attempt, d.ContentType, d.Payload = 2, "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "Zürich", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if r := deliver(t, s, d); r[0].Err != nil {
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

// What can never be published is dead, names its field, and harms no neighbour.
func TestImpossible(t *testing.T) {
	t.Parallel()
	o := newOutside(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 200_000 })
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
		{"administration", "subject", "administered", func(d *posthaste.RawDelivery) { d.Reference = "$JS.API.STREAM.DELETE." + o.name }},
		{"order", "headers", "Nats-Rollup", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"Nats-Rollup": "all"} }},
		{"order in small letters", "headers", "nats-rollup", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"nats-rollup": "all"} }},
		{"line break", "headers", "line break", func(d *posthaste.RawDelivery) { d.Headers = map[string]string{"a": "b\r\nc: d"} }},
		{"larger than the server takes", "payload", "max_payload", func(d *posthaste.RawDelivery) { d.Payload = bytes.Repeat([]byte("x"), 299_950) }},
		{"larger than the stream takes", "payload", "message size exceeds maximum", func(d *posthaste.RawDelivery) { d.Payload = bytes.Repeat([]byte("x"), 200_000) }},
	} {
		bad := delivery(2)
		test.change(&bad)
		before := len(o.all())
		r := deliver(t, s, delivery(before+10), bad, delivery(before+11))
		var e *posthaste.Error
		if !posthaste.IsPermanent(r[1].Err) || !errors.As(r[1].Err, &e) || e.Field != test.field || !strings.Contains(r[1].Err.Error(), test.words) {
			t.Errorf("%s: %v", test.name, r[1].Err)
		}
		if got := len(o.all()) - before; r[0].Err != nil || r[2].Err != nil || got != 2 {
			t.Errorf("%s: the neighbours: %v, %v, %d in the stream", test.name, r[0].Err, r[2].Err, got)
		}
	}
}

// A subject that no stream takes, or that the user may not publish to, fails its
// own messages alone.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	for user, words := range map[string]string{"all": "no responders", "little": "Permissions Violation"} {
		o := newOutside(t, nil)
		s := o.sink(func(c *SinkConfig) {
			c.URL = URL("nats://" + user + ":secret@" + o.proxy.Address())
			c.Subject = "{{.Reference}}"
		})
		var batch []posthaste.RawDelivery
		for n := 1; n <= 1000; n++ {
			d := delivery(n)
			if d.Reference = o.name + ".allowed"; n%3 != 0 {
				d.Reference = fmt.Sprint(o.name, "-none.", n%2)
			}
			batch = append(batch, d)
		}
		for i, r := range deliver(t, s, batch...) {
			if (i+1)%3 != 0 {
				wantRetried(t, r, words)
			} else if r.Err != nil {
				t.Fatalf("message %d: %v", i+1, r.Err)
			}
		}
		if got := len(o.all()); got != 333 {
			t.Errorf("the stream has %d", got)
		}
	}
}

// Denials are never acknowledged, and must not use up the window of unacknowledged messages.
func TestDeniedForLong(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.URL = URL("nats://little:secret@" + o.proxy.Address())
		c.Subject, c.Outstanding, c.Connections = "{{.Reference}}", 4, 1
	})
	denied, allowed := delivery(1), delivery(2)
	denied.Reference, allowed.Reference = o.name+"-none.1", o.name+".allowed"
	for n := range 20 {
		allowed.MessageID = posthaste.MessageID(100 + n)
		r := deliver(t, s, denied, allowed)
		wantRetried(t, r[0], "Permissions Violation")
		if r[1].Err != nil {
			t.Fatalf("beside denied message %d: %v", n+1, r[1].Err)
		}
	}
	if got := len(o.all()); got != 20 {
		t.Errorf("the stream has %d", got)
	}
}

// The same where many batches wait for their turn on one connection: those that had it
// before it was full of denials go on by the next one.
func TestDeniedBesideMany(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.URL = URL("nats://little:secret@" + o.proxy.Address())
		c.Subject, c.Outstanding, c.Connections = "{{.Reference}}", 4, 1
	})
	const batches, rounds = 40, 5
	var all sync.WaitGroup
	for b := range batches {
		all.Go(func() {
			for n := range rounds {
				denied, allowed := delivery(1), delivery(100+b*rounds+n)
				denied.Reference, allowed.Reference = o.name+"-none.1", o.name+".allowed"
				r := deliver(t, s, denied, allowed)
				wantRetried(t, r[0], "Permissions Violation")
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
	o := newOutside(t, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew })
	r := deliver(t, o.sink(nil), delivery(1), delivery(2), delivery(3))
	if r[0].Err != nil || r[1].Err != nil {
		t.Error(r)
	}
	wantRetried(t, r[2], "maximum messages exceeded")
	r = deliver(t, o.sink(func(c *SinkConfig) { c.Stream = "other" }), delivery(4))
	wantRetried(t, r[0], "expected stream")
}

// Where somebody listens who is no stream, nobody acknowledges: that message waits
// until the time is up, and others, also of other batches, are delivered.
func TestNoAck(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	sub, err := o.conn.SubscribeSync(o.name + "-plain")
	if err != nil || o.conn.Flush() != nil {
		t.Fatal(err)
	}
	s := o.sink(func(c *SinkConfig) { c.Subject, c.Connections = "{{.Reference}}", 1 })
	plain, good, late := delivery(1), delivery(2), delivery(3)
	plain.Reference, good.Reference, late.Reference = o.name+"-plain", o.name+".a", o.name+".b"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []posthaste.SinkResult, 1)
	go func() { done <- s.Deliver(ctx, []posthaste.RawDelivery{plain, good}) }()
	if _, err := sub.NextMsg(time.Minute); err != nil {
		t.Fatal(err)
	}
	for o.count(2) == 0 {
		time.Sleep(time.Millisecond)
	}
	if r := deliver(t, s, late); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	other := make(chan error, 1)
	go func() { other <- deliver(t, s, plain)[0].Err }()
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	r := <-done
	if err := errors.Join(m.Respond([]byte(`{"stream": "plain", "seq": 1}`)), <-other); err != nil {
		t.Errorf("the connection was used by another batch: %v", err)
	}
	wantRetried(t, r[0], "does a stream take subject")
	if !errors.Is(r[0].Err, context.Canceled) || r[1].Err != nil {
		t.Error(r)
	}
}

// The stream has the message and its ack is lost: it is published again, with the
// same id, by which the stream knows it again.
func TestAckLost(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(nil)
	cut := o.proxy.CutAfter()
	r := deliver(t, s, delivery(1))
	wantRetried(t, r[0], "before the ack")
	<-cut
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if got := o.count(1); got != 1 {
		t.Errorf("it came %d times, want once", got)
	}
}

// A first attempt that the stream drops for its id is told.
func TestTakenForRepetition(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	var log bytes.Buffer
	s := o.sink(func(c *SinkConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	again := delivery(1)
	again.Attempt = 2
	for _, d := range []posthaste.RawDelivery{delivery(1), again} {
		if r := deliver(t, s, d); r[0].Err != nil || log.Len() > 0 {
			t.Error(r[0].Err, log.String())
		}
	}
	if deliver(t, s, delivery(1)); !strings.Contains(log.String(), "message_id") {
		t.Errorf("logged: %s", log.String())
	}
}

// A server that is away holds the messages in hand, and has them once it is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	away, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { away.Stop() }()
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
	s, err := NewSink(SinkConfig{URL: URL("nats://127.0.0.1:1," + away.URL())})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	away.Stop()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := s.Deliver(short, []posthaste.RawDelivery{delivery(2)}); !errors.Is(r[0].Err, context.DeadlineExceeded) {
		// What was lost with the connection is told at once.
		wantRetried(t, r[0], away.Address())
	}
	done := make(chan error)
	go func() {
		for n := 3; n <= 5; n++ {
			if err := deliver(t, s, delivery(n))[0].Err; err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for !s.links.Away() {
		time.Sleep(time.Millisecond)
	}
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

// A server that has stopped reading lets writes hang: Deliver returns all the same.
func TestWriteHangs(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(nil)
	reached, release := o.proxy.Hang()
	defer release()
	var batch []posthaste.RawDelivery
	for n := 1; n <= 200; n++ {
		d := delivery(n)
		d.Payload = bytes.Repeat([]byte("x"), 250_000)
		batch = append(batch, d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []posthaste.SinkResult)
	go func() { done <- s.Deliver(ctx, batch) }()
	<-reached
	cancel()
	select {
	case results := <-done:
		for _, r := range results {
			if !errors.Is(r.Err, context.Canceled) {
				t.Fatal(r.Err)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("Deliver does not return")
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o, other := newOutside(t, nil), newOutside(t, nil)
	plain, err := devbroker.StartNATS(t.Context(), t.TempDir(), "jetstream: disabled")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Stop()
	as := func(user string) func(*SinkConfig) {
		return func(c *SinkConfig) { c.URL = URL("nats://" + user + "@" + broker.Address()) }
	}
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SinkConfig)
	}{
		{"as it is", "", "", nil},
		{"with its stream", "", "", func(c *SinkConfig) { c.Stream = o.name }},
		{"password", "url", posthaste.CodeInvalid, as("all:wrong")},
		{"one who may not ask", "", "", as("little:secret")},
		{"one who hears no acks", "inbox_prefix", posthaste.CodeInvalid, as("deaf:secret")},
		{"stream", "stream", posthaste.CodeInvalid, func(c *SinkConfig) { c.Stream = "nowhere" }},
		{"subject", "subject", posthaste.CodeInvalid, func(c *SinkConfig) { c.Subject = "nobody" }},
		{"subject of another", "subject", posthaste.CodeInvalid, func(c *SinkConfig) { c.Stream = other.name }},
		{"no JetStream", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(plain.URL()) }},
		{"no TLS", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(strings.Replace(broker.URL(), "nats:", "tls:", 1)) }},
		{"away", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.URL = "nats://127.0.0.1:1" }},
		{"subject by template", "", "", func(c *SinkConfig) { c.Subject = "{{.Kind}}" }},
	} {
		configtest.Check(t, test.name, o.sink(test.change), test.code, test.field, "wrong")
	}
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	certificates, err := devbroker.NewCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	secure, err := devbroker.StartNATSTLS(t.Context(), t.TempDir(), certificates)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secure.Stop)
	conn, err := natsgo.Connect("tls://"+certificates.Address("localhost"), natsgo.Secure(certificates.Trust()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "in", Subjects: []string{"orders"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	at := func(host string, trust *tls.Config) *Sink {
		s, err := NewSink(SinkConfig{URL: URL("tls://" + certificates.Address(host)), Subject: "orders", TLS: trust})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	configtest.TLS(t, certificates.Trust(), at)
	if r := deliver(t, at("localhost", certificates.Trust()), delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 1 {
		t.Errorf("the stream is %+v, %v", info, err)
	}
}

func TestSinkConfig(t *testing.T) {
	for field, change := range map[string]func(*SinkConfig){
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
	} {
		c := SinkConfig{URL: "nats://localhost"}
		change(&c)
		_, err := NewSink(c)
		configtest.Refused(t, field, err)
	}
	for _, url := range []string{"nats://a:se%cret@x", "nats://secret:x@[", "", "tls://"} {
		if _, err := NewSink(SinkConfig{URL: URL(url)}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := NewSink(SinkConfig{URL: "nats://x", Subject: "a b"}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Error(err)
	}
}
