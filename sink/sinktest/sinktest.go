// Package sinktest is the test suite that every [posthaste.Sink] must pass. The tests of a sink
// call [Run] with a fixture that connects the sink to a destination that they control.
package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// patience bounds the wait for events. It does not affect the results.
const patience = 30 * time.Second

// Fixture is a sink and its destination. Sink, Delivery and Delivered are required. A hook that
// is nil says that the destination cannot do that, and its tests are skipped.
type Fixture struct {
	// Sink is the sink under test. The suite closes it.
	Sink posthaste.Sink
	// Delivery returns the n-th delivery, n ≥ 1, which the destination accepts, with
	// content that identifies n. Equal n are the same message.
	Delivery func(n int) posthaste.RawDelivery
	// Delivered returns how often the destination has accepted the n-th delivery.
	Delivered func(n int) int

	// Bad returns a delivery that no attempt can deliver, because its content is
	// invalid. Nil if the sink accepts any content.
	Bad func(n int) posthaste.RawDelivery
	// FailTemporarily makes the destination fail once, with a temporary error.
	FailTemporarily func()
	// FailForGood makes the destination refuse the first message for good, for example by
	// changing what Delivery returns.
	FailForGood func()
	// Hang makes the destination never answer the next delivery. reached is closed when a
	// delivery hangs; release ends it.
	Hang func() (reached <-chan struct{}, release func())
	// BreakConnections closes the sink's connections while nothing is being delivered. New
	// connections work.
	BreakConnections func()
}

// Run runs the suite. It calls newFixture for every test, even concurrently; newFixture cleans
// up with t.Cleanup.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, f Fixture)
	}{
		{"OneResultEachInOrder", oneResultEach},
		{"NothingToDo", nothingToDo},
		{"BadAmongGood", badAmongGood},
		{"TemporaryFailureIsRetried", temporaryFailure},
		{"RefusalIsPermanent", refusal},
		{"ContextEnds", contextEnds},
		{"ContextHasEnded", contextHasEnded},
		{"BrokenConnection", brokenConnection},
		{"Concurrent", concurrent},
		{"CloseTwice", closeTwice},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			t.Cleanup(func() {
				if err := f.Sink.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(t, f)
		})
	}
}

// deliver calls Deliver and checks the rules for every result.
func deliver(t *testing.T, f Fixture, ctx context.Context, batch ...posthaste.RawDelivery) []posthaste.SinkResult {
	t.Helper()
	before := make([]posthaste.RawDelivery, len(batch))
	for i, d := range batch {
		before[i] = d
		before[i].Payload = append([]byte(nil), d.Payload...)
	}
	results := f.Sink.Deliver(ctx, batch)
	if len(results) != len(batch) {
		t.Fatalf("%d results for %d deliveries", len(results), len(batch))
	}
	if len(batch) > 0 && !reflect.DeepEqual(batch, before) {
		t.Error("Deliver changed its deliveries")
	}
	for i, r := range results {
		if r.Err != nil && r.Err.Error() == "" {
			t.Errorf("result %d: an error without text", i)
		}
		if r.Receipt != nil && !json.Valid(r.Receipt) {
			t.Errorf("result %d: the receipt is not JSON: %q", i, r.Receipt)
		}
		if err := (&posthaste.Message{Queue: "any", Terms: r.Terms}).Check(); err != nil || len(r.Terms) > 1000 {
			t.Errorf("result %d: %d terms that no message may have: %v", i, len(r.Terms), err)
		}
	}
	return results
}

func wantDelivered(t *testing.T, f Fixture, n, times int) {
	t.Helper()
	if got := f.Delivered(n); got != times {
		t.Errorf("message %d was delivered %d times, want %d", n, got, times)
	}
}

func wantOK(t *testing.T, results ...posthaste.SinkResult) {
	t.Helper()
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("result %d: %v", i, r.Err)
		}
	}
}

func wantRetry(t *testing.T, r posthaste.SinkResult) {
	t.Helper()
	if r.Err == nil || posthaste.IsPermanent(r.Err) {
		t.Errorf("got error %v, want one that is retried", r.Err)
	}
}

func oneResultEach(t *testing.T, f Fixture) {
	const count = 20
	var batch []posthaste.RawDelivery
	for n := 1; n <= count; n++ {
		batch = append(batch, f.Delivery(n))
	}
	wantOK(t, deliver(t, f, t.Context(), batch...)...)
	for n := 1; n <= count; n++ {
		wantDelivered(t, f, n, 1)
	}
}

func nothingToDo(t *testing.T, f Fixture) { deliver(t, f, t.Context()) }

func badAmongGood(t *testing.T, f Fixture) {
	if f.Bad == nil {
		t.Skip("this sink accepts any content")
	}
	results := deliver(t, f, t.Context(), f.Delivery(1), f.Bad(2), f.Delivery(3), f.Bad(4))
	wantOK(t, results[0], results[2])
	for _, i := range []int{1, 3} {
		if !posthaste.IsPermanent(results[i].Err) {
			t.Errorf("result %d: %v, want a permanent error", i, results[i].Err)
		}
	}
	wantDelivered(t, f, 1, 1)
	wantDelivered(t, f, 3, 1)
}

func temporaryFailure(t *testing.T, f Fixture) {
	if f.FailTemporarily == nil {
		t.Skip("this destination cannot fail temporarily")
	}
	d := f.Delivery(1)
	f.FailTemporarily()
	results := deliver(t, f, t.Context(), d)
	wantRetry(t, results[0])
	wantDelivered(t, f, 1, 0)
	if t.Failed() {
		return
	}
	wantOK(t, deliver(t, f, t.Context(), Next(d, results[0]))...)
	wantDelivered(t, f, 1, 1)
}

func refusal(t *testing.T, f Fixture) {
	if f.FailForGood == nil {
		t.Skip("this destination cannot refuse a message for good")
	}
	f.FailForGood()
	if r := deliver(t, f, t.Context(), f.Delivery(1))[0]; !posthaste.IsPermanent(r.Err) {
		t.Errorf("got error %v, want a permanent one", r.Err)
	}
	wantDelivered(t, f, 1, 0)
	wantOK(t, deliver(t, f, t.Context(), f.Delivery(2))...)
}

func contextEnds(t *testing.T, f Fixture) {
	if f.Hang == nil {
		t.Skip("this destination cannot hang")
	}
	reached, release := f.Hang()
	t.Cleanup(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan []posthaste.SinkResult, 1)
	go func() { done <- f.Sink.Deliver(ctx, []posthaste.RawDelivery{f.Delivery(1)}) }()
	wait(t, "the delivery to hang", reached)
	cancel()
	select {
	case results := <-done:
		if len(results) != 1 {
			t.Fatalf("%d results", len(results))
		}
		wantRetry(t, results[0])
		if !errors.Is(results[0].Err, context.Canceled) {
			t.Errorf("the error does not wrap that of the context: %v", results[0].Err)
		}
	case <-time.After(patience):
		t.Fatal("Deliver does not return after its context ended")
	}
	wantDelivered(t, f, 1, 0)
	release()
	wantOK(t, deliver(t, f, t.Context(), f.Delivery(2))...)
}

func contextHasEnded(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range deliver(t, f, ctx, f.Delivery(1), f.Delivery(2)) {
		wantRetry(t, r)
	}
	wantDelivered(t, f, 1, 0)
}

func brokenConnection(t *testing.T, f Fixture) {
	if f.BreakConnections == nil {
		t.Skip("this sink keeps no connections")
	}
	for n := 1; n <= 3; n++ {
		wantOK(t, deliver(t, f, t.Context(), f.Delivery(n))...)
		wantDelivered(t, f, n, 1)
		f.BreakConnections()
	}
}

func concurrent(t *testing.T, f Fixture) {
	const callers, each = 8, 5
	var wg sync.WaitGroup
	errs := make(chan error, callers*each)
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				d := f.Delivery(caller*each + i + 1)
				for _, r := range f.Sink.Deliver(t.Context(), []posthaste.RawDelivery{d}) {
					if r.Err != nil {
						errs <- fmt.Errorf("message %d: %w", caller*each+i+1, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	for n := 1; n <= callers*each; n++ {
		wantDelivered(t, f, n, 1)
	}
}

func closeTwice(t *testing.T, f Fixture) {
	wantOK(t, deliver(t, f, t.Context(), f.Delivery(1))...)
	if err := errors.Join(f.Sink.Close(), f.Sink.Close()); err != nil {
		t.Error(err)
	}
	wantRetry(t, deliver(t, f, t.Context(), f.Delivery(2))[0])
	wantDelivered(t, f, 2, 0)
}

// wait waits for a signal.
func wait(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, what)
	}
}
