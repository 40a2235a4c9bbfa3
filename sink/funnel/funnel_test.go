package funnel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// target is an engine in memory that can fail.
type target struct {
	posthaste.Store
	fails atomic.Bool                     // once, with a temporary error
	fault atomic.Pointer[posthaste.Error] // once, if it is not nil
	hangs atomic.Pointer[hang]
	sends atomic.Int64
}

type hang struct{ reached, release chan struct{} }

func (f *target) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	f.sends.Add(1)
	if f.fails.CompareAndSwap(true, false) {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
	}
	if e := f.fault.Swap(nil); e != nil {
		return nil, e
	}
	if h := f.hangs.Swap(nil); h != nil {
		close(h.reached)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-h.release:
		}
	}
	return f.Store.Send(ctx, messages...)
}

// newTarget returns a target with the queue "orders".
func newTarget(t *testing.T) *target {
	t.Helper()
	f := &target{Store: posthastetest.Memory()}
	if err := f.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// into returns a sink that sends to a target.
func into(t *testing.T, f Target, change func(c *Config)) *Sink {
	t.Helper()
	return sinktest.Open(t, New, Config{Target: f, Name: "memory", Origin: "shop"}, change)
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		f := newTarget(t)
		tooLarge := false
		return sinktest.Fixture{
			Sink: into(t, f, nil),
			Delivery: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				if tooLarge && n == 1 {
					d.Key = strings.Repeat("k", 1000)
				}
				return d
			},
			Delivered: func(n int) (times int) {
				for _, m := range posthastetest.Sent(t, f, "orders") {
					if strings.Contains(string(m.Payload), fmt.Sprintf(`"n": %d}`, n)) {
						times++
					}
				}
				return times
			},
			Bad: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				d.Payload = []byte("{")
				return d
			},
			FailForGood:     func() { tooLarge = true },
			FailTemporarily: func() { f.fails.Store(true) },
			Hang: func() (<-chan struct{}, func()) {
				h := &hang{make(chan struct{}), make(chan struct{})}
				f.hangs.Store(h)
				return h.reached, sync.OnceFunc(func() { close(h.release) })
			},
		}
	})
}

// What the target gets of a message.
func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, func(c *Config) { c.Queue = "{{.Headers.to}}" })
	d := sinktest.Delivery(7)
	d.Reference, d.ContentType, d.Payload = "r-7", "text/plain", []byte{0, 1, 255}
	d.Headers = map[string]string{"to": "orders", posthaste.HeaderTraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", HeaderPath: "till/sales"}
	for range 2 { // stored once
		if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	if d.Headers[posthaste.HeaderMessageID] != "" {
		t.Error("the delivery's own headers were changed")
	}
	all := posthastetest.Sent(t, f, "orders")
	if len(all) != 1 {
		t.Fatalf("%d messages arrived", len(all))
	}
	m := all[0]
	if m.Key != d.Key || m.Kind != d.Kind || m.Reference != d.Reference || m.ContentType != d.ContentType || string(m.Payload) != string(d.Payload) {
		t.Errorf("%+v", m)
	}
	want := map[string]string{"to": "orders", posthaste.HeaderTraceParent: d.Headers[posthaste.HeaderTraceParent], posthaste.HeaderMessageID: "shop-7", HeaderPath: "till/sales shop/orders"}
	if fmt.Sprint(m.Headers) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", m.Headers, want)
	}

	// An id that the message has already stays.
	d = sinktest.Delivery(8)
	d.Headers = map[string]string{"to": "orders", posthaste.HeaderMessageID: "till-3"}
	if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if got := posthastetest.Sent(t, f, "orders")[1].Headers[posthaste.HeaderMessageID]; got != "till-3" {
		t.Errorf("the id is %q", got)
	}
}

// Databases with the same ids do not replace each other's messages.
func TestOriginsDiffer(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	for _, origin := range []string{"shop", "till"} {
		if r := sinktest.Deliver(t, into(t, f, func(c *Config) { c.Origin = origin }), sinktest.Delivery(1)); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	if n := len(posthastetest.Sent(t, f, "orders")); n != 2 {
		t.Errorf("%d messages arrived, want 2", n)
	}
}

// A message that was relayed from here before is not relayed again.
func TestCircleEnds(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, nil)
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	back := sinktest.Delivery(2)
	back.Headers = posthastetest.Sent(t, f, "orders")[0].Headers
	if r := sinktest.Deliver(t, s, back); !posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), "shop/orders") {
		t.Errorf("got %v", r[0].Err)
	}
	// From another queue it is no circle.
	back.Queue = "returns"
	if r := sinktest.Deliver(t, into(t, f, func(c *Config) { c.Queue = "orders" }), back); r[0].Err != nil {
		t.Error(r[0].Err)
	}
}

// batchOf returns that many deliveries.
func batchOf(count int) (batch []posthaste.RawDelivery) {
	for n := 1; n <= count; n++ {
		batch = append(batch, sinktest.Delivery(n))
	}
	return batch
}

// One bad message costs its neighbors some more sends, not one each.
func TestBadMessageIsFoundByHalves(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, nil)
	batch := batchOf(500)
	batch[100].Payload = []byte("{")
	for i, r := range sinktest.Deliver(t, s, batch...) {
		if (i == 100) != posthaste.IsPermanent(r.Err) || i != 100 && r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	if n := f.sends.Load(); n > 20 {
		t.Errorf("%d sends", n)
	}
	if n := len(posthastetest.Sent(t, f, "orders")); n != 499 {
		t.Errorf("%d messages arrived", n)
	}
}

// A batch above the bounds of one send is divided.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, nil)
	batch := batchOf(maxMessages + 1)
	deliver := func(sends int64, batch ...posthaste.RawDelivery) {
		t.Helper()
		f.sends.Store(0)
		for i, r := range sinktest.Deliver(t, s, batch...) {
			if r.Err != nil {
				t.Fatalf("message %d: %v", i, r.Err)
			}
		}
		if n := f.sends.Load(); n != sends {
			t.Errorf("%d sends, want %d", n, sends)
		}
	}
	deliver(2, batch...)
	large := []byte(`"` + strings.Repeat("x", 900_000) + `"`)
	batch = batch[:20]
	for i := range batch {
		batch[i].MessageID += 10_000
		batch[i].Payload = large
	}
	deliver(2, batch...)
}

// A missing queue is retried, because it can be created.
func TestMissingQueue(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, func(c *Config) { c.Queue = "elsewhere" })
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], "elsewhere")
	var e *posthaste.Error
	if err := s.Check(t.Context()); !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != "to_queue" {
		t.Errorf("Check: %v", err)
	}
	if err := f.CreateQueue(t.Context(), "elsewhere", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// An error about the address of the target does not cost a message, and says that it is away.
func TestWrongAddressIsRetried(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, nil)
	for _, field := range []string{"server-url", "database_url", "url"} {
		f.fault.Store(&posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: "it answered 404 Not Found"})
		f.sends.Store(0)
		results := sinktest.Deliver(t, s, sinktest.Delivery(1), sinktest.Delivery(2))
		sinktest.WantRetried(t, results[0], "404")
		sinktest.WantRetried(t, results[1], "404")
		if n := f.sends.Load(); n != 1 || !s.Away() {
			t.Errorf("%s: %d sends, away: %t", field, n, s.Away())
		}
	}
	f.fault.Store(&posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the response was lost"})
	if sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], "lost"); !s.Away() {
		t.Error("not away after a lost response")
	}
}

// silent is a target that does not answer.
type silent struct{ posthaste.Store }

func (silent) Ready(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A target that does not answer in time is unavailable, so that a relay starts and waits for it.
func TestCheckOfASilentTarget(t *testing.T) {
	t.Parallel()
	s := into(t, silent{posthastetest.Memory()}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Check(ctx); posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "in time") {
		t.Errorf("got %v", err)
	}
}

// The sink is away while its target is unavailable.
func TestAway(t *testing.T) {
	t.Parallel()
	f := newTarget(t)
	s := into(t, f, nil)
	f.fails.Store(true)
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], "memory: away")
	if !s.Away() {
		t.Error("not away")
	}
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil || s.Away() {
		t.Errorf("%v, away: %t", r[0].Err, s.Away())
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(c *Config){
		"target":        func(c *Config) { c.Target = nil },
		"origin":        func(c *Config) { c.Origin = "" },
		"origin ":       func(c *Config) { c.Origin = "Shop" },
		"to_queue":      func(c *Config) { c.Queue = "Orders" },
		"to_queue ":     func(c *Config) { c.Queue = "{{.Quue}}" },
		"dedupe_window": func(c *Config) { c.DedupeWindow = -1 },
	} {
		c := Config{Target: newTarget(t), Origin: "shop"}
		change(&c)
		var e *posthaste.Error
		if _, err := New(c); !errors.As(err, &e) || e.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
