package worker

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

func newRun(parent context.Context, timeout time.Duration) *run {
	return &run{parent: parent, began: now(), deadline: now() + timeout}
}

func TestRunContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		parent, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "v"))
		defer cancel()

		r := newRun(parent, time.Hour)
		if d, ok := r.Deadline(); !ok || time.Until(d) != time.Hour || r.Value(key{}) != "v" || r.Err() != nil {
			t.Errorf("a new context: deadline %v %v, value %v, error %v", d, ok, r.Value(key{}), r.Err())
		}
		child, cancelChild := context.WithCancel(r)
		defer cancelChild()
		if !r.end(runReturned) || r.end(runAbandoned) {
			t.Error("a run can end once")
		}
		<-child.Done()
		if !errors.Is(r.Err(), context.Canceled) {
			t.Errorf("after its handler returned: %v", r.Err())
		}

		r = newRun(parent, time.Minute)
		time.Sleep(time.Minute - 1)
		if r.Err() != nil {
			t.Errorf("before its deadline: %v", r.Err())
		}
		time.Sleep(time.Nanosecond)
		if !errors.Is(r.Err(), context.DeadlineExceeded) {
			t.Errorf("at its deadline, before Done is called: %v", r.Err())
		}
		<-r.Done()
		if !errors.Is(r.Err(), context.DeadlineExceeded) {
			t.Errorf("after its deadline: %v", r.Err())
		}

		r = newRun(parent, time.Hour)
		r.end(runReturned)
		<-r.Done() // created only after the end

		r = newRun(parent, time.Hour)
		done := r.Done()
		lazy := newRun(parent, time.Hour)
		cancel()
		<-done
		if !errors.Is(r.Err(), context.Canceled) || !errors.Is(lazy.Err(), context.Canceled) {
			t.Errorf("after the parent ended: %v, %v", r.Err(), lazy.Err())
		}
	})
}

// Setting the system's clock must not end or extend the run of a handler.
func TestEpochIsMonotonic(t *testing.T) {
	t.Parallel()
	if !strings.Contains(epoch.String(), " m=") {
		t.Errorf("the epoch %s has no monotonic clock reading", epoch)
	}
	if now() <= 0 {
		t.Errorf("it is %s, which is not after the zero time", now())
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	d := &posthaste.RawDelivery{Timeout: time.Second}
	for _, err := range []error{
		errors.New(""), errors.New(" \n"), errors.New("a\x00b"), errors.New("\xff\xfe"),
		errors.New(strings.Repeat("ü", 3000)), &panicError{value: nil},
	} {
		text := judge(d, &segment{route: &route{}}, err, 0).Error
		if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > posthaste.MaxErrorChars || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Errorf("error %q became %q", err, text)
		}
	}
	if o := judge(d, &segment{route: &route{}}, posthaste.RetryAfter(errors.New("x"), 0), 0); o.RetryAfter <= 0 || o.Outcome != posthaste.OutcomeRetried {
		t.Errorf("retry at once became %+v", o)
	}
	if o := judge(d, &segment{route: &route{}}, context.DeadlineExceeded, 2*time.Second); !strings.Contains(o.Error, "timed out after 1s") {
		t.Errorf("a timeout became %q", o.Error)
	}
}

func TestServiceIsSafeTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s service
		runs := make(chan struct{}, 10)
		f := func(ctx context.Context) { runs <- struct{}{}; <-ctx.Done() }
		s.start(context.Background(), f)
		s.start(context.Background(), f)
		synctest.Wait()
		s.stop()
		s.stop()
		s.start(context.Background(), f)
		synctest.Wait()
		if len(runs) != 1 {
			t.Errorf("it ran %d times, want once", len(runs))
		}
		var never service
		never.stop()
		never.start(context.Background(), f)
		synctest.Wait()
		if len(runs) != 1 {
			t.Error("it ran after it was stopped")
		}
	})
}

func assemble(t *testing.T, w *Worker) *runtime {
	return newRuntime(t.Context(), nil, &w.config, w.routes, w.wall)
}

// TestFetcherAsksForWhatCanStartSoon checks that the fetcher prefetches few messages for slow
// handlers and full batches for fast ones.
func TestFetcherAsksForWhatCanStartSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ready := func() *fetcher {
			w := New(nil, Config{Concurrency: 10})
			HandleRaw(w, "q", func(context.Context, posthaste.RawDelivery) error { return nil })
			f := assemble(t, w).newFetcher(w.routes[0])
			f.payload = 200
			f.limited = false // as after a claim of a queue without limits
			return f
		}
		// pass simulates that n messages were completed in a time.
		pass := func(f *fetcher, n int64, took time.Duration) {
			f.route.starved.Store(true)
			f.route.completed.Add(n)
			f.at = now() - took
			f.adapt()
		}
		slow := ready()
		for range 20 {
			pass(slow, 10, time.Second) // ten at a time, a second each
		}
		if want := slow.want(); want != 12 {
			t.Errorf("with slow handlers it asks for %d, want the 10 free places and the 2 of the next quarter of a second", want)
		}
		fast := ready()
		for range 20 {
			pass(fast, 4_000, 100*time.Millisecond)
		}
		if want := fast.want(); want != 1000 {
			t.Errorf("with fast handlers it asks for %d, want 1000", want)
		}
		for range 20 {
			pass(fast, 20_000, 100*time.Millisecond)
		}
		if want := fast.want(); want < 3500 || want > 4000 {
			t.Errorf("with handlers that do nothing it asks for %d, want a full batch", want)
		}
		fast.route.inOrder.Store(true)
		if want := fast.want(); want != 1000 {
			t.Errorf("of an ordered queue it asks for %d, want 1000", want)
		}
		fast.route.inOrder.Store(false)
		fast.limited = true
		if want := fast.want(); want != 10 {
			t.Errorf("of a queue with limits it asks for %d, want the 10 that can start at once", want)
		}
		// Other teams have all goroutines, and a team with an empty backlog gets none.
		pool := fast.pool
		pool.active = pool.limit
		if want := fast.want(); want != 1 {
			t.Errorf("of a queue with limits that others crowd out it asks for %d, want 1", want)
		}
		fast.team.active = 1
		if want := fast.want(); want != 0 {
			t.Errorf("of a queue with limits that has a goroutine it asks for %d beyond what can start", want)
		}
		pool.active, fast.team.active = 0, 0
		fast.limited = false
		fast.payload = 8 << 20
		if want := fast.want(); want != prefetchBytes/(8<<20) {
			t.Errorf("with large payloads it asks for %d", want)
		}
		fast.payload = math.MaxInt32
		if want := fast.want(); want != 1 {
			t.Errorf("with the largest payloads it asks for %d, want 1", want)
		}
	})
}

// A queue whose messages are so rare that none is prefetched asks for a message although
// other teams have the whole pool: nothing would wake its fetcher after they have ended.
func TestQuietQueueIsNotCrowdedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(nil, Config{Concurrency: 2})
		HandleRaw(w, "busy", func(context.Context, posthaste.RawDelivery) error { return nil })
		HandleRaw(w, "quiet", func(context.Context, posthaste.RawDelivery) error { return nil })
		rt := assemble(t, w)
		f := rt.newFetcher(w.routes[1])
		busy, quiet := rt.pool.teams[0], rt.pool.teams[1]
		f.limited, f.rate, f.target, f.at = false, 1, 0, now() // one message a second
		if n := f.want(); n != 2 {
			t.Errorf("with an idle pool it wants %d", n)
		}
		rt.pool.active, busy.active = 2, 2
		if n := f.want(); n != 1 {
			t.Errorf("while others have the whole pool it wants %d", n)
		}
		rt.pool.active, busy.active, quiet.active = 2, 1, 1
		if n := f.want(); n != 0 {
			t.Errorf("with a running handler, whose end wakes the fetcher, it wants %d", n)
		}
	})
}

// A line that a goroutine of a handler logs while the handler's last lines are stored is dropped, as
// later ones are: it does not wait for a call that never comes.
func TestLinesAfterTheHandlerReturned(t *testing.T) {
	t.Parallel()
	r := newRun(context.Background(), time.Hour)
	r.seg = &segment{route: &route{}}
	r.state.Store(runClosing)
	r.keepLines(1, "", "late\n")
	if lines := r.takeLines(1); lines != "" {
		t.Errorf("it waits: %q", lines)
	}
	r.keepLines(1, "failed\n", "")
	if lines := r.takeLines(1); lines != "failed\n" {
		t.Errorf("lines that could not be stored are lost: %q", lines)
	}
}
