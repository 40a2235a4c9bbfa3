//go:build unix

package posthastetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// onMemory runs a test on the engine in memory, in virtual time.
func onMemory(t *testing.T, test func(t *testing.T, engine posthaste.Store)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, Memory()) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() worker.Config { return worker.Config{Logger: slog.New(slog.DiscardHandler)} }

func TestDrain(t *testing.T) {
	onMemory(t, func(t *testing.T, engine posthaste.Store) {
		drained(t, engine)
		for i, payload := range Payloads[int](t, engine, "first") {
			if payload != i {
				t.Fatalf("message %d of more than one page has the payload %d", i, payload)
			}
		}
	})
}

// drained checks that Drain handles waiting messages, those that their handlers send and those
// that fail, but none that is scheduled for later.
func drained(t *testing.T, engine posthaste.Store) {
	ctx := t.Context()
	quick := posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}
	for _, q := range []string{"first", "second"} {
		must(t, engine.CreateQueue(ctx, q, quick))
	}
	messages := make([]posthaste.Message, 1200) // more than one page
	for i := range messages {
		messages[i] = posthaste.Message{Queue: "first", Payload: i}
	}
	messages[7].Delay = time.Hour
	_, err := engine.Send(ctx, messages...)
	must(t, err)
	var follow, failed, others atomic.Int32
	ended := make(chan struct{})
	end := func() {
		if others.Add(1) == 1198 { // all but the delayed one and the last one
			close(ended)
		}
	}
	w := worker.New(engine, quiet())
	worker.Handle(w, "first", func(ctx context.Context, d posthaste.Delivery[int]) error {
		switch d.Payload {
		case 3:
			if failed.Add(1) == 3 {
				end()
			}
			return errors.New("always")
		case 5:
			end()
			return posthaste.Snooze(time.Hour)
		case 1199:
			<-ended
			_, err := engine.Send(ctx, posthaste.Message{Queue: "second", Payload: 3})
			return err
		}
		end()
		return nil
	})
	worker.Handle(w, "second", func(ctx context.Context, d posthaste.Delivery[int]) error {
		follow.Add(1)
		if d.Payload == 0 {
			return nil
		}
		_, err := engine.Send(ctx, posthaste.Message{Queue: "second", Payload: d.Payload - 1})
		return err
	})
	Drain(t, engine, w)
	if failed.Load() != 3 || follow.Load() != 4 {
		t.Errorf("%d attempts at what fails, %d messages that follow, want 3 and 4", failed.Load(), follow.Load())
	}
	states := map[posthaste.State]int{}
	for _, m := range list(t, engine, "first") {
		states[m.Subscriptions[0].State]++
	}
	if want := (map[posthaste.State]int{posthaste.StateDone: 1197, posthaste.StateDead: 1, posthaste.StateScheduled: 2}); fmt.Sprint(states) != fmt.Sprint(want) {
		t.Errorf("the messages are %v, want %v", states, want)
	}
	if got := Payloads[int](t, engine, "second"); !slices.Equal(got, []int{3, 2, 1, 0}) {
		t.Errorf("what followed is %v", got)
	}
}

func TestSentTellsEverything(t *testing.T) { onMemory(t, sentTold) }

func sentTold(t *testing.T, engine posthaste.Store) {
	must(t, engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{}))
	if sent := Sent(t, engine, "q"); len(sent) != 0 {
		t.Errorf("sent are %v", sent)
	}
	_, err := engine.Send(t.Context(), posthaste.Message{Queue: "q", Key: "k", Kind: "x", Reference: "r", Headers: map[string]string{"a": "b"}, Payload: []byte("one")},
		posthaste.Message{Queue: "q", Payload: "two", ContentType: "text/plain"})
	must(t, err)
	sent := Sent(t, engine, "q")
	if len(sent) != 2 || sent[0].Key != "k" || sent[0].Kind != "x" || sent[0].Reference != "r" || sent[0].Headers["a"] != "b" || string(sent[0].Payload) != "one" ||
		sent[1].ContentType != "text/plain" {
		t.Errorf("sent are %+v", sent)
	}
	if got := Payloads[string](t, engine, "q"); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the payloads are %q", got)
	}
}

// listener is a test whose failure does not fail this one.
type listener struct {
	testing.TB
	said chan string
}

func (l *listener) Helper() {}
func (l *listener) Errorf(format string, args ...any) {
	l.said <- fmt.Sprintf(format, args...)
}

func (l *listener) Fatalf(format string, args ...any) {
	l.said <- fmt.Sprintf(format, args...)
	panic(l)
}

// fails runs f and returns the message with which it failed its test.
func fails(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	l := &listener{TB: t, said: make(chan string, 10)}
	func() {
		defer func() {
			if v := recover(); v != nil && v != l {
				panic(v)
			}
		}()
		f(l)
	}()
	select {
	case said := <-l.said:
		return said
	default:
		t.Fatal("the test did not fail")
		return ""
	}
}

func TestDrainTellsWhatIsLeft(t *testing.T) {
	onMemory(t, func(t *testing.T, engine posthaste.Store) {
		must(t, engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{}))
		_, err := engine.Send(t.Context(), posthaste.Message{Queue: "q", Payload: 1})
		must(t, err)
		w := worker.New(engine, quiet())
		worker.Handle(w, "q", func(context.Context, posthaste.Delivery[int]) error {
			return posthaste.RetryAfter(errors.New("not today"), time.Hour)
		})
		began := time.Now()
		said := fails(t, func(l testing.TB) { Drain(l, engine, w) })
		if took := time.Since(began); took <= 30*time.Second || took > 30*time.Second+100*time.Millisecond {
			t.Errorf("it gave up after %s, want 30 s and the time between two looks", took)
		}
		for _, want := range []string{"queue q (default) is retrying until ", "after attempt 1: not today"} {
			if !strings.Contains(said, want) {
				t.Errorf("it said %q, want it to tell %q", said, want)
			}
		}
	})
}

func TestWhatCannotRunIsTold(t *testing.T) {
	t.Parallel()
	engine := Memory()
	must(t, engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{}))
	_, err := engine.Send(t.Context(), posthaste.Message{Queue: "q", Payload: "x"})
	must(t, err)
	w := worker.New(engine, worker.Config{Concurrency: -1})
	worker.HandleRaw(w, "q", func(context.Context, posthaste.RawDelivery) error { return nil })
	if said := fails(t, func(l testing.TB) { Drain(l, engine, w) }); !strings.Contains(said, "Concurrency") {
		t.Errorf("a worker that cannot run: %s", said)
	}
	if said := fails(t, func(l testing.TB) { Payloads[int](l, engine, "q") }); !strings.Contains(said, "cannot be decoded") {
		t.Errorf("a payload that cannot be decoded: %s", said)
	}
	for _, url := range []string{"", "postgres://127.0.0.1:1/x?connect_timeout=1", "host=x"} {
		if said := fails(t, func(l testing.TB) { Database(l, url) }); !strings.Contains(said, "no database for the test") || strings.Contains(said, "secret") {
			t.Errorf("%q: %s", url, said)
		}
	}
}

// The helpers work on a database, which is dropped with the test that created it.
func TestDatabase(t *testing.T) {
	t.Parallel()
	server := testpg.Superuser(t)
	var url string
	t.Run("one test", func(t *testing.T) {
		url = Database(t, server)
		engine, err := postgres.Open(t.Context(), url) // and is never closed
		must(t, err)
		t.Run("Drain", func(t *testing.T) { drained(t, engine) })
		t.Run("Sent", func(t *testing.T) { sentTold(t, engine) })
	})
	if engine, err := postgres.Open(t.Context(), url); err == nil {
		engine.Close()
		t.Error("the database is still there")
	}
}
