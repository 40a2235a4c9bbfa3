package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// epoch is what times inside the process are measured from. They are monotonic
// and decide nothing but timeouts and durations.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }

// run is one call of a handler or sink, and the context that it gets. A
// context of the standard library (with its timer) is made only when somebody
// asks for Done, since most handlers never do.
type run struct {
	parent   context.Context
	seg      *segment
	low, hi  int64
	began    time.Duration
	deadline time.Duration // 0: none
	state    atomic.Int32
	mu       sync.Mutex
	inner    context.Context
	cancel   context.CancelFunc
}

const (
	runActive int32 = iota
	runReturned
	runAbandoned // it overran its timeout and was counted as failed
)

// end says that the run returned or, with runAbandoned, that nobody waits for
// it any more. Only the first of both counts.
func (r *run) end(as int32) bool {
	if !r.state.CompareAndSwap(runActive, as) {
		return false
	}
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	return true
}

// Deadline implements [context.Context].
func (r *run) Deadline() (time.Time, bool) {
	if r.deadline == 0 {
		return r.parent.Deadline()
	}
	return epoch.Add(r.deadline), true
}

// Done implements [context.Context].
func (r *run) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		if r.deadline == 0 {
			r.inner, r.cancel = context.WithCancel(r.parent)
		} else {
			r.inner, r.cancel = context.WithDeadline(r.parent, epoch.Add(r.deadline))
		}
		if r.state.Load() != runActive {
			r.cancel()
		}
	}
	return r.inner.Done()
}

func (r *run) made() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inner
}

// Err implements [context.Context].
func (r *run) Err() error {
	if inner := r.made(); inner != nil {
		return inner.Err()
	}
	switch {
	case r.parent.Err() != nil:
		return r.parent.Err()
	case r.deadline != 0 && now() >= r.deadline:
		return context.DeadlineExceeded
	case r.state.Load() != runActive:
		return context.Canceled
	}
	return nil
}

// Value implements [context.Context]. Once there is an inner context it
// answers, so that children are attached to it without a goroutine of their own.
func (r *run) Value(key any) any {
	if inner := r.made(); inner != nil {
		return inner.Value(key)
	}
	return r.parent.Value(key)
}

// panicError is a failed attempt of a handler that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.value) }

// errExit is a failed attempt of a handler that ended its goroutine.
type errExit struct{}

func (errExit) Error() string { return "the handler ended its goroutine (runtime.Goexit)" }

// protect calls f and turns a panic into an error. exited tells what happened
// where f ends the goroutine, since nothing is returned then.
func protect(f func() error, exited func(error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
			return
		}
		exited(errExit{})
	}()
	err = f()
	returned = true
	return err
}

// deliver calls the sink and makes sure that each delivery has an answer.
func deliver(sink posthaste.Sink, ctx context.Context, batch []posthaste.RawDelivery, exited func(error)) []posthaste.SinkResult {
	var results []posthaste.SinkResult
	err := protect(func() error {
		results = sink.Deliver(ctx, batch)
		return nil
	}, exited)
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("the sink answered %d of %d deliveries, so none of its answers can be trusted", len(results), len(batch))
	}
	if err != nil {
		results = make([]posthaste.SinkResult, len(batch))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}
