package sinktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Open returns the sink of a configuration, changed by change if that is not nil. It closes the
// sink when the test ends.
func Open[C any, S posthaste.Sink](t testing.TB, open func(C) (S, error), c C, change func(*C)) S {
	t.Helper()
	if change != nil {
		change(&c)
	}
	s, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Delivery returns the n-th of deliveries that any broker accepts. Equal n are the same
// message.
func Delivery(n int) posthaste.RawDelivery {
	return posthaste.RawDelivery{MessageID: posthaste.MessageID(n), Queue: "orders", Attempt: 1, Kind: "order.placed",
		Key: fmt.Sprint("customer-", n%7), Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n)), CreatedAt: time.Unix(1e9, 0)}
}

// LargeFirst returns functions for a [Fixture] whose destination refuses payloads of a size:
// after failForGood, the first delivery has such a payload.
func LargeFirst(size int) (delivery func(n int) posthaste.RawDelivery, failForGood func()) {
	large := false
	return func(n int) posthaste.RawDelivery {
		d := Delivery(n)
		if large && n == 1 {
			d.Payload = bytes.Repeat([]byte("x"), size)
		}
		return d
	}, func() { large = true }
}

// Deliver delivers a batch, which takes at most two minutes.
func Deliver(t testing.TB, s posthaste.Sink, batch ...posthaste.RawDelivery) []posthaste.SinkResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return s.Deliver(ctx, batch)
}

// Next returns the next attempt after one with the result r.
func Next(d posthaste.RawDelivery, r posthaste.SinkResult) posthaste.RawDelivery {
	d.Story = append(slices.Clone(d.Story), posthaste.Attempt{Attempt: d.Attempt, Outcome: posthaste.OutcomeRetried, Error: r.Err.Error(), Receipt: r.Receipt})
	d.Attempt++
	return d
}

// WantRetried checks that a result is an error that is retried and contains a text.
func WantRetried(t testing.TB, r posthaste.SinkResult, text string) {
	t.Helper()
	if r.Err == nil || posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), text) {
		t.Errorf("got %v, want an error that is retried, with %q", r.Err, text)
	}
}

// RunWriteHangs tests that Deliver returns when its context ends even if a write hangs, because
// the broker has stopped reading after hang. It delivers count messages of a size in bytes,
// which must exceed the buffers of a connection.
func RunWriteHangs(t *testing.T, s posthaste.Sink, hang func() (reached <-chan struct{}, release func()), count, size int) {
	reached, release := hang()
	defer release()
	var batch []posthaste.RawDelivery
	for n := 1; n <= count; n++ {
		d := Delivery(n)
		d.Payload = bytes.Repeat([]byte("x"), size)
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
