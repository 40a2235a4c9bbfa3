// Package brokertest is the test suite that every relay and every source of a broker must
// pass, with the real broker and a real database.
package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// SourceFixture is a queue, topic or stream of a broker that belongs to one test.
type SourceFixture struct {
	// Source returns a source that takes messages from it.
	Source func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source
	// Publish publishes messages to it, in order.
	Publish func(t *testing.T, messages ...relay.Incoming)
	// Sink returns a sink that publishes to it.
	Sink func(t *testing.T, m relay.Mapping) posthaste.Sink
	// Left returns how many messages the broker keeps for the source while none runs.
	Left func(t *testing.T) int
	// Refused returns the refused messages.
	Refused func(t *testing.T) []relay.Incoming
	// Cut closes the connections of sources. Refuse rejects new ones while on.
	Cut    func()
	Refuse func(on bool)
	// Reconnects says that a session survives Cut and reads no message again.
	Reconnects bool
}

// RunSource runs the tests of a source. engine returns an empty ledger.
func RunSource(t *testing.T, engine func(t *testing.T) posthaste.Store, fixture func(t *testing.T) SourceFixture) {
	for _, test := range []struct {
		name string
		run  func(b *sourceTest)
	}{
		{"stores once", storesOnce}, {"acknowledgment lost", ackLost}, {"database away", databaseAway}, {"broker away", brokerAway},
		{"refused beside good ones", refusedBeside}, {"room", limitsWaiting}, {"chunks", chunks}, {"round trip", roundTrip},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := engine(t)
			b := &sourceTest{T: t, SourceFixture: fixture(t), ledger: &ledger{Store: e}}
			b.must(e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{MaxPayload: 100_000}))
			test.run(b)
		})
	}
}

// RunSourceKilled tests a source whose broker is killed twice, each time after a commit and
// before its acknowledgment. No message is lost or in the ledger twice. server is the
// broker of the fixture and of no other test.
func RunSourceKilled(t *testing.T, engine func(t *testing.T) posthaste.Store, fixture SourceFixture, server Server) {
	const n = 3000
	e := engine(t)
	b := &sourceTest{T: t, SourceFixture: fixture, ledger: &ledger{Store: e}}
	b.must(e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}))
	b.Publish(b.T, messages(0, n)...)
	killed := make(chan struct{}, 1)
	var starting sync.Mutex // because a source reads before start returns
	strike := func() {
		starting.Lock()
		defer starting.Unlock()
		server.Kill()
		killed <- struct{}{}
	}
	b.ledger.after = strike
	stop := b.start(func(c *source.Config) { c.Batch = 50 })
	for round := range 2 {
		select {
		case <-killed:
		case <-time.After(3 * time.Minute):
			b.Fatal("nothing was stored")
		}
		if sent := b.ledger.sent.Load(); sent >= n {
			b.Fatalf("all messages were stored before the broker was killed: the test is ineffective")
		}
		b.until("the source reports that the broker is away", func() bool { return b.latest.Away() })
		if round == 0 {
			b.ledger.set(func() { b.ledger.after = strike })
		}
		starting.Lock()
		err := server.Start(t.Context())
		starting.Unlock()
		b.must(err)
	}
	all := numbers(b.taken(n))
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != n {
		b.Errorf("%d of %d messages are in the ledger", got, n)
	}
	b.until("the source reports that the broker is back", func() bool { return !b.latest.Away() })
	b.left(0) // redelivery may take some time
	stop()
	b.left(0)
}

// sourceTest is the fixture of one test with its ledger.
type sourceTest struct {
	*testing.T
	SourceFixture
	ledger *ledger
	latest *source.Source // the one started last
}

// ledger is an engine with faults.
type ledger struct {
	posthaste.Store
	sends, looks, sent atomic.Int64
	mu                 sync.Mutex
	away               bool
	after              func() // called once, after a commit
}

func (l *ledger) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Send implements [source.Ledger].
func (l *ledger) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	l.sends.Add(1)
	l.mu.Lock()
	away, after := l.away, l.after
	if l.after = nil; away {
		l.after = after
	}
	l.mu.Unlock()
	if away {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the ledger is away"}
	}
	sent, err := l.Store.Send(ctx, messages...)
	if err == nil {
		l.sent.Add(int64(len(messages)))
		if after != nil {
			after()
		}
	}
	return sent, err
}

// Queues implements [source.Ledger].
func (l *ledger) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	l.looks.Add(1)
	return l.Store.Queues(ctx, names...)
}

func (b *sourceTest) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// until waits for a condition.
func (b *sourceTest) until(what string, met func() bool) {
	b.Helper()
	testrun.Until(b, 3*time.Minute, what, met)
}

// start runs a source until stop is called.
func (b *sourceTest) start(change func(*source.Config)) (stop func()) {
	b.Helper()
	c := source.Config{Queue: "orders"}
	if change != nil {
		change(&c)
	}
	s := b.Source(b.T, b.ledger, c)
	b.latest = s
	return testrun.Background(b, s.Run)
}

// taken receives and settles messages of the ledger until there are n, and checks that
// there are no more.
func (b *sourceTest) taken(n int) (all []posthaste.RawDelivery) {
	b.Helper()
	receive := func() bool {
		r, err := b.ledger.Receive(b.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1000, Lease: time.Hour})
		b.must(err)
		var settle []posthaste.Settlement
		for _, d := range r.Deliveries {
			settle = append(settle, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
		}
		if len(settle) > 0 {
			_, err = b.ledger.Settle(b.Context(), settle)
			b.must(err)
		}
		all = append(all, r.Deliveries...)
		return len(all) >= n
	}
	b.until(fmt.Sprintf("%d messages are in the ledger", n), receive)
	if receive(); len(all) != n {
		b.Errorf("the ledger has %d messages, want %d", len(all), n)
	}
	return all
}

// left waits until the broker keeps n messages.
func (b *sourceTest) left(n int) {
	b.Helper()
	got := 0
	b.until(fmt.Sprintf("the broker keeps %d messages", n), func() bool { got = b.Left(b.T); return got == n })
}

// counts counts the stored messages and the duplicates.
type counts struct{ taken, known atomic.Int64 }

// Event implements [posthaste.Telemetry].
func (c *counts) Event(_ context.Context, e posthaste.Event) {
	c.taken.Add(int64(e.Count))
	c.known.Add(int64(e.Known))
}

func message(n int) relay.Incoming {
	return relay.Incoming{MessageID: fmt.Sprint("m-", n), ContentType: "application/octet-stream", Kind: "order.placed", Key: fmt.Sprint("customer-", n%7),
		Payload: []byte(fmt.Sprint(n)), Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "acme"}}
}

func messages(from, n int) (all []relay.Incoming) {
	for i := range n {
		all = append(all, message(from+i))
	}
	return all
}

// numbers returns the payloads, which are numbers.
func numbers(all []posthaste.RawDelivery) (list []string) {
	for _, d := range all {
		list = append(list, string(d.Payload))
	}
	return list
}

func storesOnce(b *sourceTest) {
	const n = 300
	b.Publish(b.T, messages(0, n)...)
	s := b.Source(b.T, b.ledger, source.Config{Queue: "orders"})
	b.must(s.Check(b.Context()))
	recorded := &counts{}
	stop := b.start(func(c *source.Config) { c.Batch, c.Telemetry = 100, recorded })
	for i, d := range b.taken(n) {
		want := message(i)
		if string(d.Payload) != string(want.Payload) || d.Kind != want.Kind || d.Key != want.Key || d.ContentType != want.ContentType || !maps.Equal(d.Headers, want.Headers) {
			b.Fatalf("message %d is %+v", i, d)
		}
	}
	b.Publish(b.T, append(messages(n, 10), messages(0, 10)...)...) // the last ten are duplicates
	b.taken(10)
	b.until("the last ten are reported as duplicates", func() bool { return recorded.known.Load() >= 10 })
	stop()
	b.left(0)
	if sent := recorded.taken.Load() - recorded.known.Load(); sent != n+10 {
		b.Errorf("%d messages are reported as new, want %d", sent, n+10)
	}
	if sends := b.ledger.sends.Load(); sends > n+20 {
		b.Errorf("%d sends", sends)
	}
}

// The connection is lost between the commit and the acknowledgment. The messages are
// redelivered, and are in the ledger once.
func ackLost(b *sourceTest) {
	const n = 50
	b.Publish(b.T, messages(0, n)...)
	b.ledger.after = b.Cut
	stop := b.start(nil)
	if !b.Reconnects {
		b.until("they were redelivered", func() bool { return b.ledger.sent.Load() > n })
	}
	b.taken(n)
	stop()
	b.left(0)
}

func databaseAway(b *sourceTest) {
	const n = 20
	b.ledger.away = true
	b.Publish(b.T, messages(0, n)...)
	stop := b.start(nil)
	b.until("sending is retried", func() bool { return b.ledger.sends.Load() >= 3 })
	stop()
	b.left(n) // all messages were returned
	b.start(nil)
	tried := b.ledger.sends.Load()
	b.until("sending is retried", func() bool { return b.ledger.sends.Load() >= tried+2 })
	b.ledger.set(func() { b.ledger.away = false })
	b.taken(n)
}

func brokerAway(b *sourceTest) {
	away := func(want bool) {
		b.until(fmt.Sprint("the source reports that the broker is away: ", want), func() bool { return b.latest.Away() == want })
	}
	b.Refuse(true)
	stop := b.start(nil)
	b.Publish(b.T, messages(0, 10)...)
	away(true)
	b.Refuse(false)
	b.taken(10)
	away(false)
	b.Refuse(true)
	b.Cut()
	b.Publish(b.T, messages(10, 10)...)
	away(true)
	b.Refuse(false)
	b.taken(10)
	away(false)
	stop()
	b.left(0)
}

// Messages that the ledger rejects are put aside unchanged, with the reason. The messages
// around them are stored once.
func refusedBeside(b *sourceTest) {
	all := messages(0, 20)
	all[7].Key = strings.Repeat("k", 300)
	all[13].Payload = bytes.Repeat([]byte("x"), 150_000)
	all[14].ContentType, all[14].Payload = posthaste.ContentTypeJSON, []byte("{")
	b.Publish(b.T, all...)
	stop := b.start(nil)
	var want []string
	for i := range all {
		if i != 7 && i != 13 && i != 14 {
			want = append(want, fmt.Sprint(i))
		}
	}
	if got := numbers(b.taken(17)); !slices.Equal(got, want) {
		b.Errorf("the ledger has %v", got)
	}
	var aside []relay.Incoming
	b.until("three are put aside", func() bool { aside = b.Refused(b.T); return len(aside) >= 3 })
	for i, of := range []int{7, 13, 14} {
		got, code, word := aside[i], []string{"too_large", "too_large", "invalid"}[i], []string{"key", "payload", "JSON"}[i]
		if got.MessageID != all[of].MessageID || !bytes.Equal(got.Payload, all[of].Payload) || got.Headers["tenant"] != "acme" || got.ContentType != all[of].ContentType ||
			got.Headers[source.HeaderRefusedCode] != code || !strings.Contains(got.Headers[source.HeaderRefused], word) {
			b.Errorf("put aside %d: id %q, %d bytes, headers %v", of, got.MessageID, len(got.Payload), got.Headers)
		}
	}
	stop()
	b.left(0)
}

// No more messages wait in the ledger than allowed, and reading resumes when some are done.
func limitsWaiting(b *sourceTest) {
	const n, most = 300, 50
	b.Publish(b.T, messages(0, n)...)
	stop := b.start(func(c *source.Config) { c.MaxWaiting, c.Batch = most, 20 })
	b.until("the queue is full", func() bool { return b.ledger.sent.Load() >= most })
	looks := b.ledger.looks.Load()
	b.until("it looks at the queue again", func() bool { return b.ledger.looks.Load() > looks+3 })
	if sent := b.ledger.sent.Load(); sent > most {
		b.Errorf("%d messages wait, %d may", sent, most)
	}
	got := 0
	for got < n {
		b.until("the next messages are in the ledger", func() bool {
			r, err := b.ledger.Receive(b.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 30, Lease: time.Hour})
			b.must(err)
			got += len(r.Deliveries)
			return len(r.Deliveries) > 0
		})
		if sent := b.ledger.sent.Load(); sent > int64(got+most) {
			b.Fatalf("%d are stored, of which %d were claimed: %d may wait", sent, got, most)
		}
	}
	stop()
	b.left(0)
}

// A message is unpacked into several. They are in the ledger together, each with an id of
// its own. A message that cannot be unpacked affects no other.
func chunks(b *sourceTest) {
	c := relay.Incoming{MessageID: "chunk-1", ContentType: "text/plain", Payload: []byte("a b c")}
	bad, worse, none, large := c, c, c, c
	bad.MessageID, bad.Payload = "chunk-2", []byte("error")
	worse.MessageID, worse.Payload = "chunk-3", []byte("panic")
	none.MessageID, none.Payload = "chunk-4", []byte("")
	large.MessageID, large.Payload = "chunk-5", []byte("d LARGE e")
	last := c
	last.MessageID, last.Payload = "chunk-6", []byte("f g")
	b.Publish(b.T, c, bad, worse, none, large, c, last)
	stop := b.start(func(c *source.Config) {
		c.Batch = 4
		c.Unpack = func(_ context.Context, m posthaste.Message) (all []posthaste.Message, err error) {
			text := string(m.Payload.([]byte))
			switch text {
			case "error":
				return nil, errors.New("this is not a chunk")
			case "panic":
				panic(text)
			}
			for _, field := range strings.Fields(text) {
				one := m
				if one.Payload = []byte(field); field == "LARGE" {
					one.Payload = bytes.Repeat([]byte("x"), 150_000)
				}
				all = append(all, one)
			}
			return all, nil
		}
	})
	if got := numbers(b.taken(5)); !slices.Equal(got, []string{"a", "b", "c", "f", "g"}) {
		b.Errorf("the ledger has %v", got)
	}
	var aside []relay.Incoming
	b.until("three are put aside", func() bool { aside = b.Refused(b.T); return len(aside) >= 3 })
	reasons := map[string]string{}
	for _, a := range aside {
		reasons[a.MessageID] = a.Headers[source.HeaderRefused]
	}
	for id, word := range map[string]string{"chunk-2": "this is not a chunk", "chunk-3": "panic", "chunk-5": "payload"} {
		if !strings.Contains(reasons[id], word) {
			b.Errorf("%s was put aside for %q", id, reasons[id])
		}
	}
	stop()
	b.left(0)
}

// A message that is relayed and read back is unchanged. A CloudEvent has its attributes in
// addition.
func roundTrip(b *sourceTest) {
	stop := b.start(nil)
	for i, m := range []relay.Mapping{{}, {CloudEvents: &relay.CloudEvents{Source: "/shop", Mode: relay.Binary}}, {CloudEvents: &relay.CloudEvents{Source: "/shop", Mode: relay.Structured}}} {
		m.MessageID = fmt.Sprint("shop-", i, "-{{.MessageID}}")
		sink := b.Sink(b.T, m)
		sent := []posthaste.RawDelivery{
			{MessageID: 1, Queue: "outbox", Attempt: 1, Kind: "order.placed", Key: "customer-7", Reference: "A-7", ContentType: "application/octet-stream", Payload: []byte{0, 1, 255},
				Headers: map[string]string{"tenant": "acme", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "size": "größe"}, CreatedAt: time.Unix(1e9, 0)},
			{MessageID: 2, Queue: "outbox", Attempt: 3, Kind: "order.placed", ContentType: posthaste.ContentTypeJSON, Payload: []byte(`{"n": [1, null]}`), CreatedAt: time.Unix(1e9, 0)},
			{MessageID: 3, Queue: "outbox", Attempt: 1, Kind: strings.Repeat("ü", 100), Key: strings.Repeat("k", 255), ContentType: "text/plain", Payload: []byte("ä"), CreatedAt: time.Unix(1e9, 0)},
		}
		for n := range sent { // one by one, for their order
			if r := sink.Deliver(b.Context(), sent[n:n+1]); r[0].Err != nil {
				b.Fatal(r[0].Err)
			}
		}
		for n, d := range b.taken(len(sent)) {
			want := sent[n]
			event := map[string]string{}
			maps.DeleteFunc(d.Headers, func(name, value string) bool {
				if attribute, ok := strings.CutPrefix(name, relay.HeaderEvent); ok {
					event[attribute] = value
				}
				return strings.HasPrefix(name, relay.HeaderEvent)
			})
			if len(event) > 0 != (i > 0) || i > 0 && (event["source"] != "/shop" || event["type"] != want.Kind || event["specversion"] != "1.0") {
				b.Errorf("message %d, mapping %d: the event is %v", n, i, event)
			}
			if d.Kind != want.Kind || d.Key != want.Key || d.Reference != want.Reference || d.ContentType != want.ContentType || !bytes.Equal(compact(d), compact(want)) || !maps.Equal(d.Headers, want.Headers) {
				b.Errorf("message %d, mapping %d: got %+v, want %+v", n, i, d, want)
			}
		}
	}
	stop()
}

// compact returns a payload without the spaces that JSON may lose.
func compact(d posthaste.RawDelivery) []byte {
	if d.ContentType == posthaste.ContentTypeJSON {
		return bytes.ReplaceAll(d.Payload, []byte(" "), nil)
	}
	return d.Payload
}
