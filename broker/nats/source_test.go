package nats

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// places numbers the streams of tests.
var places atomic.Int64

// place is a stream, which takes subjects that begin with its name.
type place struct {
	name  string
	conn  *natsgo.Conn
	js    jetstream.JetStream
	proxy *faultproxy.Proxy
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return placeOf(t, broker.Address())
}

func placeOf(t *testing.T, address string) *place {
	t.Helper()
	conn, err := natsgo.Connect("nats://"+address, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	p := &place{name: fmt.Sprint("s", places.Add(1)), conn: conn}
	if p.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.name, Subjects: []string{p.name + ".>"}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if p.proxy, err = faultproxy.New(address, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Close)
	return p
}

func (p *place) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	config := SourceConfig{Config: c, URL: URL("nats://" + p.proxy.Address()), Stream: p.name}
	if change != nil {
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
	for _, m := range messages {
		out := &natsgo.Msg{Subject: p.name + ".in", Data: m.Payload, Header: natsgo.Header{HeaderContentType: {m.ContentType}, relay.HeaderKey: {m.Key}, relay.HeaderKind: {m.Kind}}}
		for name, value := range m.Headers {
			out.Header[name] = []string{value}
		}
		// A stream drops recent duplicates.
		for more := true; more; {
			out.Header[natsgo.MsgIdHdr] = []string{m.MessageID}
			ack, err := p.js.PublishMsg(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			more = ack.Duplicate
		}
	}
}

func (p *place) left(t *testing.T) int {
	t.Helper()
	c, err := p.js.Consumer(t.Context(), p.name, "posthaste")
	if err != nil {
		t.Fatal(err)
	}
	return int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending
}

func (p *place) refused(t *testing.T) (all []relay.Incoming) {
	t.Helper()
	s, err := p.js.Stream(t.Context(), p.name+"-refused")
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= s.CachedInfo().State.LastSeq; n++ {
		r, err := s.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		m := relay.Incoming{MessageID: r.Header.Get(natsgo.MsgIdHdr), ContentType: r.Header.Get(HeaderContentType), Payload: r.Data, Headers: map[string]string{}}
		for name := range r.Header {
			m.Headers[name] = r.Header.Get(name)
		}
		all = append(all, m)
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
		p := newPlace(t)
		return brokertest.SourceFixture{
			Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
				return p.source(t, ledger, c, nil)
			},
			Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse,
			Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
				s, err := NewSink(SinkConfig{URL: URL(broker.URL()), Subject: p.name + ".in", Mapping: m})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			},
		}
	})
}

// A message of somebody else is known by its place in the stream, and a stream that
// was made anew has other ones.
func TestForeignMessage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b, err := parseSource(SourceConfig{URL: URL(broker.URL()), Stream: p.name, Consumer: "posthaste", DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.js.Publish(t.Context(), p.name+".placed", []byte("x")); err != nil {
		t.Fatal(err)
	}
	s, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Read(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("nats/%s/%d/1", p.name, s.(*session).made)
	if m := all[0].Message; len(all) != 1 || m.DedupeKey != want || m.Kind != p.name+".placed" || m.ContentType != posthaste.ContentTypeBytes {
		t.Errorf("%+v", all)
	}
}

// A message that fills what the server takes has no room for the reason: it is put aside
// as it came, and the reason behind it.
func TestRefusedWithoutRoom(t *testing.T) {
	t.Parallel()
	p, e := newPlace(t), brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{MaxPayload: 1000}); err != nil {
		t.Fatal(err)
	}
	full := &natsgo.Msg{Subject: p.name + ".in", Header: natsgo.Header{natsgo.MsgIdHdr: {"m-1"}}}
	room := p.conn.MaxPayload() - int64(len("NATS/1.0\r\n"+natsgo.MsgIdHdr+": m-1\r\n\r\n"))
	full.Data = bytes.Repeat([]byte("x"), int(room))
	for _, m := range []*natsgo.Msg{full, {Subject: full.Subject, Data: []byte("good")}} {
		if _, err := p.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	full.Data = append(full.Data, 'x')
	if _, err := p.js.PublishMsg(t.Context(), full); !errors.Is(err, natsgo.ErrMaxPayload) {
		t.Fatalf("it did not fill the room: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := p.source(t, e, source.Config{Queue: "orders"}, nil)
	go func() { done <- s.Run(ctx) }()
	for taken := 0; taken == 0; time.Sleep(10 * time.Millisecond) {
		found, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 10, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		taken = len(found.Deliveries)
	}
	var aside []relay.Incoming
	for len(aside) < 2 {
		time.Sleep(10 * time.Millisecond)
		aside = p.refused(t)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if m := aside[0]; m.MessageID != "m-1" || len(m.Payload) != int(room) {
		t.Errorf("put aside with %d bytes, %v", len(m.Payload), m.Headers)
	}
	if m := aside[1]; len(m.Payload) != 0 || m.Headers[source.HeaderRefusedCode] != "too_large" || m.Headers[HeaderRefusedAt] != p.name+"-refused/1" || !strings.Contains(m.Headers[source.HeaderRefused], "payload") {
		t.Errorf("the reason: %v", m.Headers)
	}
	if left := p.left(t); left != 0 || len(aside) != 2 {
		t.Errorf("%d are left, %d put aside", left, len(aside))
	}
}

// What comes later than it was waited for is there with the next request, and of what is
// held the server is told that it is.
func TestLateAndHeld(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, err := p.js.CreateConsumer(t.Context(), p.name, jetstream.ConsumerConfig{Durable: "posthaste", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b, err := parseSource(SourceConfig{URL: URL(broker.URL()), Stream: p.name, Consumer: "posthaste", DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	s := opened.(*session)
	// A request whose answer is not awaited.
	if err := s.conn.PublishRequest(s.pull.request, s.pull.inbox+"0", []byte(`{"batch": 2, "expires": 60000000000}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, err := p.js.Publish(t.Context(), p.name+".in", []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
	}
	var all []source.Arrival
	for len(all) < 3 {
		got, err := s.Read(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	if len(all) != 3 {
		t.Errorf("%d came", len(all))
	}
	signs, err := p.conn.SubscribeSync("$JS.ACK." + p.name + ".>")
	if err != nil {
		t.Fatal(err)
	}
	s.beat.Reset(time.Millisecond)
	for seen := map[string]bool{}; len(seen) < 3; {
		m, err := signs.NextMsg(time.Minute)
		if err != nil || string(m.Data) != "+WPI" {
			t.Fatalf("%v, %v", m, err)
		}
		seen[m.Subject] = true
	}
	s.beat.Stop()
	if err := s.Acknowledge(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if left := p.left(t); left != 0 {
		t.Errorf("%d are left", left)
	}
}

// What has come when the connection is lost is read, or given back by the next session.
func TestCameBeforeTheEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b, err := parseSource(SourceConfig{URL: URL(broker.URL()), Stream: p.name, Consumer: "posthaste", DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*session)
	for n := range 3 {
		if _, err := p.js.Publish(t.Context(), p.name+".in", []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.conn.PublishRequest(s.pull.request, s.pull.inbox+"0", []byte(`{"batch": 3}`)); err != nil {
		t.Fatal(err)
	}
	for len(s.pull.came) < 3 {
		time.Sleep(time.Millisecond)
	}
	s.conn.Close()
	<-s.pull.gone
	m, err := s.pull.take(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.held[m.Reply] = m
	s.Close()
	if len(b.left) != 3 {
		t.Errorf("%d are to be given back", len(b.left))
	}
	if opened, err = b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for got := 0; got < 3; { // long before the consumer's AckWait, or the test waits for that
		all, err := opened.Read(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		got += len(all)
	}
}

func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	own, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	p := placeOf(t, own.Address())
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
	p, e := newPlace(t), brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.js.CreateConsumer(t.Context(), p.name, jetstream.ConsumerConfig{Durable: "giving-up", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.js.CreateConsumer(t.Context(), p.name, jetstream.ConsumerConfig{Durable: "silent", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SourceConfig)
	}{
		{"as it is", "", "", nil},
		{"password", "url", posthaste.CodeInvalid, func(c *SourceConfig) { c.URL = URL("nats://all:wrong@" + broker.Address()) }},
		{"no stream", "stream", posthaste.CodeInvalid, func(c *SourceConfig) { c.Stream = "nowhere" }},
		{"another consumer", "consumer", posthaste.CodeInvalid, func(c *SourceConfig) { c.Consumer = "silent" }},
		{"a consumer that gives up", "consumer", posthaste.CodeInvalid, func(c *SourceConfig) { c.Consumer = "giving-up" }},
		{"refused by nobody", "refused", posthaste.CodeInvalid, func(c *SourceConfig) { c.Refused = "nobody.takes.this" }},
		{"refused into itself", "refused", posthaste.CodeInvalid, func(c *SourceConfig) { c.Refused = p.name + ".refused" }},
		{"queue", "queue", posthaste.CodeInvalid, func(c *SourceConfig) { c.Queue = "nowhere" }},
		{"away", "", posthaste.CodeUnavailable, func(c *SourceConfig) { c.URL = "nats://127.0.0.1:1" }},
	} {
		configtest.Check(t, test.name, p.source(t, e, source.Config{Queue: "orders"}, test.change), test.code, test.field, "wrong")
	}
}

func TestSourceTLS(t *testing.T) {
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
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "in", Subjects: []string{"orders"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	e := brokertest.Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		s, err := NewSource(e, SourceConfig{Config: source.Config{Queue: "orders"}, URL: URL("tls://" + certificates.Address(host)), Stream: "in", TLS: trust})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestSourceConfig(t *testing.T) {
	for field, change := range map[string]func(*SourceConfig){
		"url":         func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":       func(c *SourceConfig) { c.Queue = "No" },
		"stream":      func(c *SourceConfig) { c.Stream = "" },
		"consumer":    func(c *SourceConfig) { c.Consumer = "a.b" },
		"refused":     func(c *SourceConfig) { c.Refused = "a.>" },
		"credentials": func(c *SourceConfig) { c.Credentials = "/nowhere" },
	} {
		c := SourceConfig{URL: "nats://localhost", Stream: "in", Config: source.Config{Queue: "orders"}}
		change(&c)
		_, err := NewSource(nil, c)
		configtest.Refused(t, field, err)
	}
}
