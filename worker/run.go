package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// epoch is the moment from which [now] counts. Such times are monotonic, and are used only
// for timeouts and durations. The epoch lies a century back because a time of zero means
// never, and testing/synctest sets the clock to the year 2000.
var epoch = time.Now().Add(-100 * 365 * 24 * time.Hour)

func now() time.Duration { return time.Since(epoch) }

// run is one call of a handler or sink, and the context that it gets. It creates a context
// of the standard library, with its timer, only when Done is called, because most handlers
// never call it.
type run struct {
	parent context.Context
	part
	began    time.Duration
	deadline time.Duration // 0: none
	state    atomic.Int32
	call     *call // for a sink or batch handler, else nil
	idle     bool  // no handler was called
	// traces follow the deliveries, in order; nil if none is traced.
	traces []posthaste.Trace
	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
	// desk is nil until it is needed, which most runs never do. It is set under mu, which guards
	// its content.
	desk atomic.Pointer[desk]
}

// part is consecutive items of one segment: from low to before high.
type part struct {
	seg       *segment
	low, high int64
}

func (p part) items() []posthaste.RawDelivery { return p.seg.items[p.low:p.high:p.high] }

// call is what a run of several messages needs in addition.
type call struct {
	more []part // messages of later segments
	mu   sync.Mutex
	// answers of single messages, which count whatever the call returns.
	answers map[int]error
}

// answer notes the answer of the i-th message.
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

// answer returns the i-th message's answer, of a run whose result is known.
func (r *run) answer(i int, result func(i int) posthaste.SinkResult) posthaste.SinkResult {
	if r.call != nil {
		if err, ok := r.call.answered(i); ok {
			return posthaste.SinkResult{Err: err}
		}
	}
	return result(i)
}

const (
	runActive  int32 = iota
	runClosing       // its handler returned, and its last log lines are being recorded
	runReturned
	runAbandoned // it overran its timeout and was counted as failed
)

// end says that the run returned or, with runAbandoned, that the pool no longer waits for it.
// Only the first call counts; later ones return false.
func (r *run) end(as int32) bool {
	if !r.state.CompareAndSwap(runActive, as) {
		return false
	}
	r.endContext()
	return true
}

// finish ends a run whose handler has returned, after it recorded the handler's last log lines. It
// returns false if the run was abandoned; from now on it cannot be.
func (r *run) finish() bool {
	if !r.state.CompareAndSwap(runActive, runClosing) {
		return false
	}
	r.closeDesk()
	r.state.Store(runReturned)
	r.endContext()
	return true
}

// ended reports whether the run's context is over because of the run's end.
func (r *run) ended() bool { return r.state.Load() > runClosing }

func (r *run) endContext() {
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
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
		if r.ended() {
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
	case r.ended():
		return context.Canceled
	}
	return nil
}

// Value implements [context.Context]. An inner context answers if there is one, so that
// package context attaches children to it without a goroutine of their own.
func (r *run) Value(key any) any {
	if key == (posthaste.ResultsKey{}) {
		return func(delivery posthaste.DeliveryID) json.RawMessage { return r.result(delivery) }
	}
	r.mu.Lock()
	value := cmp.Or(r.inner, r.parent).Value
	if d := r.desk.Load(); d != nil && d.refused != nil {
		value = d.refused
	}
	r.mu.Unlock()
	return value(key)
}
