package nats

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// sourceStream is a stream that a source reads.
type sourceStream struct {
	testStream
	proxy *faultproxy.Proxy
}

func newSourceStream(t *testing.T) *sourceStream {
	t.Helper()
	return newSourceStreamOn(t, broker.Address())
}

func newSourceStreamOn(t *testing.T, address string) *sourceStream {
	t.Helper()
	return &sourceStream{proxy: faultproxy.Start(t, address, nil), testStream: newTestStream(t, "nats://"+address, func(c *jetstream.StreamConfig) {
		c.Storage, c.Duplicates = jetstream.FileStorage, 100*time.Millisecond
	})}
}

func (p *sourceStream) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	return brokertest.OpenSource(t, NewSource, ledger, SourceConfig{Config: c, URL: URL("nats://" + p.proxy.Address()), Stream: p.name}, change)
}

// parsed returns the broker of a source with the consumer "posthaste".
func (p *sourceStream) parsed(t *testing.T) *sourceBroker {
	t.Helper()
	b, err := parseSource(SourceConfig{URL: URL(broker.URL()), Stream: p.name, Consumer: "posthaste", DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send publishes empty messages to the stream.
func (p *sourceStream) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := p.js.Publish(t.Context(), p.name+".in", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// fixture returns the stream for the suites of sources.
func (p *sourceStream) fixture() brokertest.SourceFixture {
	return brokertest.SourceFixture{
		Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
			return p.source(t, ledger, c, nil)
		},
		Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse,
		Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
			return sinktest.Open(t, NewSink, SinkConfig{URL: URL(broker.URL()), Subject: p.name + ".in", Mapping: m}, nil)
		},
	}
}

func (p *sourceStream) publish(t *testing.T, messages ...relay.Incoming) {
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

func (p *sourceStream) left(t *testing.T) int {
	t.Helper()
	c, err := p.js.Consumer(t.Context(), p.name, "posthaste")
	if err != nil {
		t.Fatal(err)
	}
	return int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending
}

func (p *sourceStream) refused(t *testing.T) (all []relay.Incoming) {
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

func TestSource(t *testing.T) { brokertest.RunSource(t, brokertest.Postgres, sourceFixture) }

func TestSourceOnRedis(t *testing.T) {
	testrun.Nightly(t, "sources treat all engines alike; that of Redis Streams runs on both")
	brokertest.RunSource(t, brokertest.Redis, sourceFixture)
}

func sourceFixture(t *testing.T) brokertest.SourceFixture {
	return newSourceStream(t).fixture()
}

// The dedupe key of a message without an id is its sequence in the stream and the creation
// time of the stream.
func TestForeignMessage(t *testing.T) {
	t.Parallel()
	p := newSourceStream(t)
	if _, err := p.js.Publish(t.Context(), p.name+".placed", []byte("x")); err != nil {
		t.Fatal(err)
	}
	s := brokertest.OpenSession(t.Context(), t, p.parsed(t))
	defer s.Close()
	all, err := s.Read(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("nats/%s/%d/1", p.name, s.(*session).created)
	if m := all[0].Message; len(all) != 1 || m.DedupeKey != want || m.Kind != p.name+".placed" || m.ContentType != posthaste.ContentTypeBytes {
		t.Errorf("%+v", all)
	}
}

// If a message fills the server's limit, the reason does not fit: the message is put aside
// unchanged, and the reason after it.
func TestRefusedWithoutRoom(t *testing.T) {
	t.Parallel()
	p, e := newSourceStream(t), brokertest.Postgres(t)
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
		t.Fatalf("the message does not fill the limit: %v", err)
	}
	stop := testrun.Background(t, p.source(t, e, source.Config{Queue: "orders"}, nil).Run)
	testrun.Until(t, time.Minute, "the good message is in the ledger", func() bool {
		found, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 10, Lease: time.Hour})
		return err != nil || len(found.Deliveries) > 0
	})
	var aside []relay.Incoming
	testrun.Until(t, time.Minute, "message and reason are put aside", func() bool {
		aside = p.refused(t)
		return len(aside) >= 2
	})
	stop()
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

// Late messages are in the result of the next request, and the server is told that held
// messages are in progress.
func TestLateAndHeld(t *testing.T) {
	t.Parallel()
	p := newSourceStream(t)
	if _, err := p.js.CreateConsumer(t.Context(), p.name, jetstream.ConsumerConfig{Durable: "posthaste", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}); err != nil {
		t.Fatal(err)
	}
	opened := brokertest.OpenSession(t.Context(), t, p.parsed(t))
	defer opened.Close()
	s := opened.(*session)
	// A request whose response is not awaited.
	if err := s.conn.PublishRequest(s.pull.request, s.pull.inbox+"0", []byte(`{"batch": 2, "expires": 60000000000}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	p.send(t, 3)
	all := brokertest.ReadSession(t.Context(), t, s, 3)
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

// Messages that arrived before the connection was lost are read, or returned by the next
// session.
func TestCameBeforeTheEnd(t *testing.T) {
	t.Parallel()
	p := newSourceStream(t)
	b := p.parsed(t)
	s := brokertest.OpenSession(t.Context(), t, b).(*session)
	p.send(t, 3)
	if err := s.conn.PublishRequest(s.pull.request, s.pull.inbox+"0", []byte(`{"batch": 3}`)); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "three messages have arrived", func() bool { return len(s.pull.received) >= 3 })
	s.conn.Close()
	<-s.pull.gone
	m, err := s.pull.take(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.held[m.Reply] = m
	s.Close()
	if len(b.unreturned) != 3 {
		t.Errorf("%d are to be returned", len(b.unreturned))
	}
	opened := brokertest.OpenSession(t.Context(), t, b)
	defer opened.Close()
	brokertest.ReadSession(t.Context(), t, opened, 3) // otherwise the test waits for the consumer's AckWait
}

func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartNATS)
	brokertest.RunSourceKilled(t, brokertest.Postgres, newSourceStreamOn(t, own.Address()).fixture(), own)
}

func TestSourceCheck(t *testing.T) {
	t.Parallel()
	p, e := newSourceStream(t), brokertest.Orders(t)
	for _, c := range []jetstream.ConsumerConfig{{Durable: "giving-up", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5}, {Durable: "silent", AckPolicy: jetstream.AckNonePolicy}} {
		if _, err := p.js.CreateConsumer(t.Context(), p.name, c); err != nil {
			t.Fatal(err)
		}
	}
	open := func(change func(*SourceConfig)) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, change)
	}
	configtest.Checks(t, "wrong", open,
		configtest.Invalid("password", "url", func(c *SourceConfig) { c.URL = URL("nats://all:wrong@" + broker.Address()) }),
		configtest.Invalid("no stream", "stream", func(c *SourceConfig) { c.Stream = "nowhere" }),
		configtest.Invalid("another consumer", "consumer", func(c *SourceConfig) { c.Consumer = "silent" }),
		configtest.Invalid("a consumer that gives up", "consumer", func(c *SourceConfig) { c.Consumer = "giving-up" }),
		configtest.Invalid("no stream for refused messages", "refused", func(c *SourceConfig) { c.Refused = "missing.subject" }),
		configtest.Invalid("refused messages in the same stream", "refused", func(c *SourceConfig) { c.Refused = p.name + ".refused" }),
		configtest.Invalid("queue", "queue", func(c *SourceConfig) { c.Queue = "nowhere" }),
		configtest.Unavailable("away", func(c *SourceConfig) { c.URL = "nats://127.0.0.1:1" }))
}

func TestSourceTLS(t *testing.T) {
	t.Parallel()
	stream, certificates := newSecureStream(t)
	e := brokertest.Orders(t)
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		return brokertest.OpenSource(t, NewSource, e, SourceConfig{Config: source.Config{Queue: "orders"}, URL: URL("tls://" + certificates.Address(host)), Stream: stream.name, TLS: trust}, nil)
	})
}

func TestSourceConfig(t *testing.T) {
	open := func(c SourceConfig) (*source.Source, error) { return NewSource(nil, c) }
	configtest.Fields(t, open, SourceConfig{URL: "nats://localhost", Stream: "in", Config: source.Config{Queue: "orders"}}, map[string]func(*SourceConfig){
		"url":         func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":       func(c *SourceConfig) { c.Queue = "No" },
		"stream":      func(c *SourceConfig) { c.Stream = "" },
		"consumer":    func(c *SourceConfig) { c.Consumer = "a.b" },
		"refused":     func(c *SourceConfig) { c.Refused = "a.>" },
		"credentials": func(c *SourceConfig) { c.Credentials = "/nowhere" },
	})
}
