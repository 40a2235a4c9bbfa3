package posthastetest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// Result is the outcome of one call of a handler.
type Result struct {
	// Outcome is done, retried (it failed), dead (it failed with [posthaste.Permanent]) or
	// released (it was snoozed).
	Outcome posthaste.Outcome
	// Err is the error that the handler returned; of a panic and of a handler that overran
	// its timeout, an error with the recorded text.
	Err error
	// Wait is the time until the next attempt; zero without one.
	Wait time.Duration
	// Result is the value that the handler passed to SetResult, as JSON.
	Result json.RawMessage
	// Checkpoint is the last checkpoint, as JSON.
	Checkpoint json.RawMessage
	// Progress and ProgressText are the last ones.
	Progress     float64
	ProgressText string
	// Log has the lines that the handler logged with [posthaste.RawDelivery.Logger].
	Log string
}

// Work calls a handler once, as the first attempt of a message with a payload, and returns its
// outcome. A worker calls it, on an engine in memory: the payload is encoded and decoded, the
// context ends at the timeout, and panics are failures. A handler that acknowledges in its own
// transaction fails, because its database does not have the delivery: test it with a worker on a [Database].
func Work[T any](t testing.TB, handler func(context.Context, posthaste.Delivery[T]) error, payload T) Result {
	t.Helper()
	const queue = "work"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clock := NewClock(time.Now())
	engine := Memory(clock)
	if err := engine.CreateQueue(ctx, queue, posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	sent, err := engine.Send(ctx, posthaste.Message{Queue: queue, Payload: payload})
	if err != nil {
		t.Fatalf("the payload: %v", err)
	}
	if due := state(t, engine, sent[0].ID).DueAt; !due.IsZero() { // by the defaults of its type
		clock.Advance(due.Sub(clock.Now()))
	}
	var returned error
	w := worker.New(engine, worker.Config{Logger: slog.New(slog.DiscardHandler), Telemetry: settled(stop)})
	worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[T]) error {
		if err := engine.Pause(ctx, posthaste.OfQueue(queue), posthaste.PauseOptions{}); err != nil { // no second attempt
			return err
		}
		returned = handler(ctx, d)
		return returned
	})
	if err := w.Run(ctx); err != nil {
		t.Fatalf("the worker: %v", err)
	}
	after := state(t, engine, sent[0].ID)
	if len(after.Attempts) == 0 {
		t.Fatal("the test ended before the handler")
	}
	a := after.Attempts[0]
	if returned == nil && a.Error != "" {
		returned = errors.New(a.Error)
	}
	result := Result{Outcome: a.Outcome, Err: returned, Result: a.Receipt, Checkpoint: a.Checkpoint, Progress: a.Progress, ProgressText: a.ProgressText, Log: a.Log}
	if !after.DueAt.IsZero() {
		result.Wait = after.DueAt.Sub(clock.Now())
	}
	return result
}

func state(t testing.TB, engine posthaste.Store, id posthaste.MessageID) posthaste.MessageState {
	t.Helper()
	// The test's context may have ended.
	m, err := engine.Message(context.WithoutCancel(t.Context()), id)
	if err != nil {
		t.Fatal(err)
	}
	return m.Subscriptions[0]
}

// settled is called when a delivery is settled.
type settled func()

// Event implements [posthaste.Telemetry].
func (s settled) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventSettled {
		s()
	}
}
