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
// and decide nothing but timeouts and durations. The epoch lies a century back because
// a time of zero means never, and testing/synctest sets the clock to the year 2000.
var epoch = time.Now().Add(-100 * 365 * 24 * time.Hour)

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
	call     *call // of a call for many
	idle     bool  // no handler was called
	// traces follow the deliveries, in order; nil where nothing is followed.
	traces []posthaste.Trace
	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
}

// part is items of one segment that follow each other.
type part struct {
	seg       *segment
	low, high int64
}

// call is what a run of several messages needs beside.
type call struct {
	more []part // messages of further segments
	mu   sync.Mutex
	// answers are what is known of single messages, whatever becomes of the rest.
	answers map[int]error
}

// answer notes what became of the i-th message.
func (c *call) answer(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[int]error{}
	}
	c.answers[i] = err
}

func (c *call) answered(i int) (err error, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err, ok = c.answers[i]
	return err, ok
}

// answer is what became of the i-th message of a run whose result is known.
func (r *run) answer(i int, result func(i int) posthaste.SinkResult) posthaste.SinkResult {
	if r.call != nil {
		if err, ok := r.call.answered(i); ok {
			return posthaste.SinkResult{Err: err}
		}
	}
	return result(i)
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
	told  bool // the stack is in the log; known to the acknowledger alone
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
			err = &panicError{value: value, stack: debug.Stack()}
			return
		}
		exited(errExit{})
	}()
	err = f()
	returned = true
	return err
}

// deliver makes a call for many and makes sure that each delivery has an answer.
func deliver(to many, r *run, batch []posthaste.RawDelivery, exited func(error)) []posthaste.SinkResult {
	var results []posthaste.SinkResult
	err := protect(func() error {
		results = to.deliver(r, batch)
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
