package sharedbell

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// oneSleep is a doorbell that breaks the test when two sleep on one queue.
type oneSleep struct {
	t      *testing.T
	asleep atomic.Int32
	rings  chan struct{}
	sleeps atomic.Int32
}

func (o *oneSleep) Sleep(ctx context.Context, _ string, look func(context.Context) (posthaste.LookReply, error)) error {
	if o.asleep.Add(1) > 1 {
		o.t.Error("two sleep on one queue at the same time")
	}
	defer o.asleep.Add(-1)
	o.sleeps.Add(1)
	select {
	case <-o.rings: // of the time before
	default:
	}
	reply, err := look(ctx)
	if err != nil || reply.Found {
		return err
	}
	var due <-chan time.Time
	if reply.NextDue >= 0 {
		due = time.After(reply.NextDue)
	}
	select {
	case <-o.rings:
	case <-due:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (o *oneSleep) Wake(string) {
	select {
	case o.rings <- struct{}{}:
	default:
	}
}

func (o *oneSleep) Close() {}

// bellFixture is a shared bell whose waiters are known by number.
type bellFixture struct {
	*testing.T
	inner  *oneSleep
	bell   posthaste.Doorbell
	cancel func()
	ctx    context.Context
}

// inBubble runs a test on a shared bell in a bubble of testing/synctest, which fails it
// if anything is still asleep at its end.
func inBubble(t *testing.T, test func(f *bellFixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		inner := &oneSleep{t: t, rings: make(chan struct{}, 1)}
		test(&bellFixture{T: t, inner: inner, bell: New(ctx, inner), cancel: cancel, ctx: ctx})
	})
}

// sleep lets one sleep whose looks are told and answered by the test.
func (f *bellFixture) sleep() (looks chan chan posthaste.LookReply, ended chan error) {
	looks, ended = make(chan chan posthaste.LookReply), make(chan error, 1)
	go func() {
		ended <- f.bell.Sleep(f.ctx, "q", func(ctx context.Context) (posthaste.LookReply, error) {
			answer := make(chan posthaste.LookReply)
			select {
			case looks <- answer:
				return <-answer, nil
			case <-ctx.Done():
				return posthaste.LookReply{}, ctx.Err()
			}
		})
	}()
	return looks, ended
}

// answer answers a look that is made without any time passing.
func (f *bellFixture) answer(looks chan chan posthaste.LookReply, found bool, due time.Duration) {
	f.Helper()
	synctest.Wait()
	select {
	case a := <-looks:
		a <- posthaste.LookReply{Found: found, NextDue: due}
	default:
		f.Fatal("nothing looks")
	}
}

// rises checks that a sleep has ended without any time passing.
func (f *bellFixture) rises(ended chan error, want error) {
	f.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		if !errors.Is(err, want) {
			f.Errorf("the sleep ended with %v, want %v", err, want)
		}
	default:
		f.Fatal("the sleep does not end")
	}
}

// sleepsOn checks that a sleep goes on.
func (f *bellFixture) sleepsOn(ended chan error) {
	f.Helper()
	synctest.Wait()
	if len(ended) > 0 {
		f.Fatalf("the sleep ended with %v", <-ended)
	}
}

// A later sleeper looks after the bell was armed, a sleeper that finds something gets up
// alone, and a ring wakes all.
func TestSharedSleep(t *testing.T) {
	inBubble(t, func(f *bellFixture) {
		first, firstEnds := f.sleep()
		f.answer(first, false, -1)
		second, secondEnds := f.sleep()
		f.answer(first, false, -1) // the bell is armed again, for both
		f.answer(second, true, -1)
		f.rises(secondEnds, nil)
		f.sleepsOn(firstEnds) // what the second one found is not for the first one
		second, secondEnds = f.sleep()
		f.answer(first, false, -1)
		f.answer(second, false, -1)
		if n := f.inner.asleep.Load(); n != 1 {
			f.Fatalf("%d sleep", n)
		}
		f.bell.Wake("q")
		f.rises(firstEnds, nil)
		f.rises(secondEnds, nil)
	})
}

// All are woken when the first of them has something due.
func TestSharedSleepEndsAtTheFirstDueTime(t *testing.T) {
	inBubble(t, func(f *bellFixture) {
		first, firstEnds := f.sleep()
		f.answer(first, false, time.Hour)
		second, secondEnds := f.sleep()
		f.answer(first, false, time.Hour)
		f.answer(second, false, time.Minute)
		time.Sleep(time.Minute - 1)
		f.sleepsOn(firstEnds)
		f.sleepsOn(secondEnds)
		time.Sleep(time.Nanosecond)
		f.rises(firstEnds, nil)
		f.rises(secondEnds, nil)
	})
}

func TestSharedSleepEndsWithItsContext(t *testing.T) {
	inBubble(t, func(f *bellFixture) {
		first, firstEnds := f.sleep()
		f.answer(first, false, -1)
		second, secondEnds := f.sleep()
		f.answer(first, false, -1)
		f.answer(second, false, -1)
		f.cancel()
		f.rises(firstEnds, context.Canceled)
		f.rises(secondEnds, context.Canceled)
	})
}

// A look that fails ends one sleep.
func TestSharedSleepLookFails(t *testing.T) {
	inBubble(t, func(f *bellFixture) {
		first, firstEnds := f.sleep()
		f.answer(first, false, -1)
		broken := errors.New("the look failed")
		ended := make(chan error, 1)
		go func() {
			ended <- f.bell.Sleep(f.ctx, "q", func(context.Context) (posthaste.LookReply, error) { return posthaste.LookReply{}, broken })
		}()
		f.answer(first, false, -1)
		f.rises(ended, broken)
		f.sleepsOn(firstEnds)
	})
}
