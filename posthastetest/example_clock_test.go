package posthastetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// The program under test sends a reminder each morning, and again after an hour if that fails.
func TestReminder(t *testing.T) {
	clock := posthastetest.NewClock(time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC))
	engine := posthastetest.Memory(clock)
	if err := engine.CreateQueue(t.Context(), "reminders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := engine.PutSchedule(t.Context(), posthaste.Schedule{Name: "morning", Spec: "0 9 * * *",
		Message: posthaste.Message{Queue: "reminders", Payload: "water the plants"}})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	run := func() { // handles all due messages
		w := worker.New(engine, worker.Config{})
		worker.Handle(w, "reminders", func(context.Context, posthaste.Delivery[string]) error {
			if calls++; calls == 1 {
				return posthaste.RetryAfter(errors.New("the server is down"), time.Hour)
			}
			return nil
		})
		posthastetest.Drain(t, engine, w)
	}

	for i, step := range []struct {
		advance time.Duration
		calls   int
	}{
		{20 * time.Hour, 0}, // 8 h
		{time.Hour, 1},      // 9 h, and it fails
		{time.Hour - 1, 1},  // just before 10 h
		{1, 2},              // 10 h
		{48 * time.Hour, 4}, // two more mornings
	} {
		clock.Advance(step.advance)
		run()
		if calls != step.calls {
			t.Errorf("after step %d the handler was called %d times, want %d", i, calls, step.calls)
		}
	}
}
