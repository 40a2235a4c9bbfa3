//go:build unix

package posthastetest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

var someday = time.Date(2031, 3, 29, 22, 0, 0, 0, time.UTC)

// onClock runs a test on an engine in memory with a clock, beside a worker that calls handle.
func onClock(t *testing.T, options posthaste.QueueOptions, handle func(d posthaste.Delivery[string]) error, test func(t *testing.T, engine posthaste.Store, clock *Clock)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := NewClock(someday)
		engine := Memory(clock)
		must(t, engine.CreateQueue(t.Context(), "q", options))
		ctx, stop := context.WithCancel(t.Context())
		w := worker.New(engine, quiet())
		worker.Handle(w, "q", func(_ context.Context, d posthaste.Delivery[string]) error { return handle(d) })
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		test(t, engine, clock)
		stop()
		must(t, <-ended)
	})
}

func send(t *testing.T, engine posthaste.Store, m posthaste.Message) posthaste.MessageID {
	t.Helper()
	m.Queue = "q"
	sent, err := engine.Send(t.Context(), m)
	must(t, err)
	return sent[0].ID
}

func TestClockDecidesWhenMessagesAreDue(t *testing.T) {
	var at []time.Time
	var clock *Clock
	handle := func(d posthaste.Delivery[string]) error {
		at = append(at, clock.Now())
		switch d.Attempt {
		case 1:
			if len(at) == 1 {
				return posthaste.Snooze(3 * time.Hour)
			}
			return posthaste.RetryAfter(errors.New("not yet"), time.Hour)
		}
		return nil
	}
	onClock(t, posthaste.QueueOptions{}, handle, func(t *testing.T, engine posthaste.Store, c *Clock) {
		clock = c
		id := send(t, engine, posthaste.Message{Payload: "a", SendAt: someday.Add(time.Hour)})
		for range 10 {
			c.Advance(30 * time.Minute)
			synctest.Wait()
		}
		if want := []time.Time{someday.Add(time.Hour), someday.Add(4 * time.Hour), someday.Add(5 * time.Hour)}; !slices.Equal(at, want) {
			t.Errorf("it was handled at %v, want %v", at, want)
		}
		m, err := engine.Message(t.Context(), id)
		must(t, err)
		if last := m.Subscriptions[0]; last.State != posthaste.StateDone || !m.CreatedAt.Equal(someday) || !last.Attempts[len(last.Attempts)-1].EndedAt.Equal(someday.Add(5*time.Hour)) {
			t.Errorf("the engine shows other times: %+v", m)
		}
		time.Sleep(time.Hour) // however much real time passes
		if now := c.Now(); !now.Equal(someday.Add(5 * time.Hour)) {
			t.Errorf("the clock moved by itself to %s", now)
		}
	})
}

func TestClockEndsLeasesOfReceiversOnly(t *testing.T) {
	var begun, release chan struct{} // made in the bubble
	handle := func(posthaste.Delivery[string]) error { close(begun); <-release; return nil }
	onClock(t, posthaste.QueueOptions{Timeout: time.Hour}, handle, func(t *testing.T, engine posthaste.Store, c *Clock) {
		begun, release = make(chan struct{}), make(chan struct{})
		held := send(t, engine, posthaste.Message{Payload: "held by the worker"})
		<-begun
		must(t, engine.CreateQueue(t.Context(), "other", posthaste.QueueOptions{}))
		_, err := engine.Send(t.Context(), posthaste.Message{Queue: "other"})
		must(t, err)
		receive := func() int {
			reply, err := engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "other"}, Max: 1, Lease: time.Minute})
			must(t, err)
			return len(reply.Deliveries)
		}
		for i, step := range []struct {
			advance time.Duration
			want    int
		}{{0, 1}, {59 * time.Second, 0}, {2 * time.Second, 1}} {
			c.Advance(step.advance)
			if got := receive(); got != step.want {
				t.Errorf("receive %d got %d messages, want %d", i, got, step.want)
			}
		}
		c.Advance(1000 * time.Hour)
		time.Sleep(time.Minute) // for rescuers
		close(release)
		synctest.Wait()
		time.Sleep(time.Second) // for the acknowledgment
		m, err := engine.Message(t.Context(), held)
		must(t, err)
		if s := m.Subscriptions[0]; s.State != posthaste.StateDone || len(s.Attempts) != 1 {
			t.Errorf("the worker lost its message: %+v", s)
		}
	})
}

// TestClockTicks: each tick on the way sends a message, also the one of the hour that summer time
// skips.
func TestClockTicks(t *testing.T) {
	var handled atomic.Int32
	handle := func(posthaste.Delivery[string]) error { handled.Add(1); return nil }
	onClock(t, posthaste.QueueOptions{}, handle, func(t *testing.T, engine posthaste.Store, c *Clock) {
		_, err := engine.PutSchedule(t.Context(), posthaste.Schedule{Name: "nightly", Spec: "30 1 * * *", TimeZone: "Europe/Berlin", Message: posthaste.Message{Queue: "q", Payload: "x"}})
		must(t, err)
		c.Advance(72 * time.Hour)
		var ticks []string
		for _, m := range Sent(t, engine, "q") {
			ticks = append(ticks, m.Headers[posthaste.HeaderTick], m.CreatedAt.UTC().Format(time.RFC3339))
		}
		want := []string{"2031-03-30T00:30:00Z", "2031-03-30T00:30:00Z", "2031-03-30T23:30:00Z", "2031-03-30T23:30:00Z", "2031-03-31T23:30:00Z", "2031-03-31T23:30:00Z"}
		if !slices.Equal(ticks, want) {
			t.Errorf("ticks and times of sending are %v, want %v", ticks, want)
		}
		synctest.Wait()
		if handled.Load() != 3 {
			t.Errorf("%d ticks were handled", handled.Load())
		}
	})
}

func TestClockExpires(t *testing.T) {
	var handled atomic.Int32
	handle := func(posthaste.Delivery[string]) error { handled.Add(1); return nil }
	onClock(t, posthaste.QueueOptions{MaxAge: time.Hour}, handle, func(t *testing.T, engine posthaste.Store, c *Clock) {
		must(t, engine.Pause(t.Context(), posthaste.OfQueue("q"), posthaste.PauseOptions{}))
		id := send(t, engine, posthaste.Message{Payload: "a", DedupeKey: "k", DedupeWindow: 2 * time.Hour})
		c.Advance(61 * time.Minute)
		if again := send(t, engine, posthaste.Message{Payload: "a", DedupeKey: "k"}); again != id {
			t.Errorf("within the window message %d was sent, beside %d", again, id)
		}
		c.Advance(time.Hour)
		if again := send(t, engine, posthaste.Message{Payload: "a", DedupeKey: "k"}); again == id {
			t.Error("after the window nothing was sent")
		}
		must(t, engine.Resume(t.Context(), posthaste.OfQueue("q")))
		time.Sleep(10 * time.Second) // the heartbeat finds it
		m, err := engine.Message(t.Context(), id)
		must(t, err)
		if m.Subscriptions[0].State != posthaste.StateExpired || handled.Load() != 1 {
			t.Errorf("the old message is %s, and %d were handled", m.Subscriptions[0].State, handled.Load())
		}
	})
}

// TestDrainEndsWhereTheClockStands: Drain does not wait for what the clock has not reached.
func TestDrainEndsWhereTheClockStands(t *testing.T) {
	t.Parallel()
	clock := NewClock(someday)
	engine := Memory(clock)
	must(t, engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{}))
	id := send(t, engine, posthaste.Message{Payload: "a"})
	for _, want := range []posthaste.State{posthaste.StateRetrying, posthaste.StateDone} {
		w := worker.New(engine, quiet())
		worker.Handle(w, "q", func(_ context.Context, d posthaste.Delivery[string]) error {
			if d.Attempt == 1 {
				return posthaste.RetryAfter(errors.New("not yet"), time.Hour)
			}
			return nil
		})
		Drain(t, engine, w)
		m, err := engine.Message(t.Context(), id)
		must(t, err)
		if m.Subscriptions[0].State != want {
			t.Errorf("it is %s, want %s", m.Subscriptions[0].State, want)
		}
		clock.Advance(time.Hour)
	}
	if said := recovered(func() { clock.Advance(-time.Second) }); said == nil {
		t.Error("the clock went back")
	}
}

func recovered(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}
