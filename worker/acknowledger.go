package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	settleTimeout = 10 * time.Second
	// settleMost bounds one Settle.
	settleMost = 4096
)

// acknowledger records outcomes. It sends at once when none is on its way, and
// otherwise all that gathered meanwhile in one call: no timer, group speed, and
// a crash window of one round trip. What fails is sent again for as long as the
// worker lives, since settling twice is safe.
type acknowledger struct {
	rt *runtime
	// idle says that the loop waits for a ring.
	idle atomic.Bool
	bell chan struct{}
	// extra has what must be settled in the order in which it was put: outcomes of
	// ordered keys, and what is handed back.
	extra   slot
	flushes chan chan struct{}
	retry   backoff

	slots       []*slot
	batch       []outcome
	settlements []posthaste.Settlement
	tally       tally
}

func newAcknowledger(rt *runtime) *acknowledger {
	return &acknowledger{rt: rt, bell: make(chan struct{}, 1), flushes: make(chan chan struct{}), retry: backoff{rt: rt, task: "settle"}}
}

// ring says that there is something to settle. It costs next to nothing while
// a settle is on its way.
func (a *acknowledger) ring() {
	if a.idle.Load() && a.idle.CompareAndSwap(true, false) {
		a.bell <- struct{}{}
	}
}

// put adds outcomes that are settled in this order.
func (a *acknowledger) put(outcomes []outcome) {
	a.extra.mu.Lock()
	a.extra.out = append(a.extra.out, outcomes...)
	a.extra.mu.Unlock()
	a.ring()
}

// flush waits until everything put before is settled. It returns false if ctx
// ended first.
func (a *acknowledger) flush(ctx context.Context) bool {
	done := make(chan struct{})
	select {
	case a.flushes <- done:
	case <-ctx.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *acknowledger) run(ctx context.Context) {
	for {
		if !a.collect() {
			a.idle.Store(true)
			if !a.collect() {
				select {
				case <-a.bell:
				case done := <-a.flushes:
					a.awake()
					if a.collect() {
						a.settleAll(ctx)
					}
					close(done)
				case <-ctx.Done():
					return
				}
				continue
			}
			a.awake()
		}
		a.settleAll(ctx)
	}
}

// awake ends idleness without a ring.
func (a *acknowledger) awake() {
	if !a.idle.CompareAndSwap(true, false) {
		<-a.bell // somebody rang meanwhile, or is about to
	}
}

// collect gathers what the goroutines of the pool have recorded.
func (a *acknowledger) collect() bool {
	a.batch = a.batch[:0]
	a.slots = append(a.rt.pool.all(a.slots), &a.extra)
	for _, s := range a.slots {
		s.mu.Lock()
		if len(s.out) > 0 {
			a.batch = append(a.batch, s.out...)
			clear(s.out)
			s.out = s.out[:0]
		}
		s.mu.Unlock()
	}
	for i := range a.batch {
		a.batch[i].seg.sub.completed.Add(1)
	}
	return len(a.batch) > 0
}

func (a *acknowledger) settleAll(ctx context.Context) {
	for rest := a.closedBefore(a.batch); len(rest) > 0; {
		n := min(len(rest), settleMost)
		next, later := inTurn(rest[:n])
		a.settle(ctx, next, false)
		rest = rest[n:]
		if len(later) > 0 {
			rest = append(later, rest...)
		}
	}
	clear(a.batch)
	a.tally.tell(a.rt)
	for _, sub := range a.rt.subs {
		if sub.throttled.Load() && sub.throttled.Swap(false) {
			sub.want()
		}
	}
}

// inTurn splits off what must be settled by a later call: what the store refuses for
// its content is sent again without that, and what follows of its ordered key must not
// be on record before, or a crash in between would have the first handled after them.
func inTurn(batch []outcome) (next, later []outcome) {
	first := 0
	for first < len(batch) && !batch[first].holdsUp() {
		first++
	}
	if first == len(batch) {
		return batch, nil
	}
	type line struct {
		sub *subscription
		key string
	}
	unsure := map[line]bool{}
	next = slices.Clone(batch[:first])
	for i := first; i < len(batch); i++ {
		o := &batch[i]
		l := line{o.seg.sub, o.key}
		if o.key != "" && unsure[l] {
			later = append(later, *o)
			continue
		}
		if o.holdsUp() {
			unsure[l] = true
		}
		next = append(next, *o)
	}
	return next, later
}

// closedBefore tells of the outcomes that nobody records, for handing the
// messages out has settled them, and returns the others.
func (a *acknowledger) closedBefore(batch []outcome) []outcome {
	if !slices.ContainsFunc(batch, func(o outcome) bool { return o.once }) {
		return batch
	}
	var rest []outcome
	for i := range batch {
		o := &batch[i]
		if !o.once {
			rest = append(rest, *o)
			continue
		}
		a.rt.held.settled(o.seg, 1)
		became := posthaste.Done
		if o.cause != nil {
			became = posthaste.Failed
			if o.Error == "" { // snoozed, which it cannot be
				o.Error = errorText(o.cause)
			}
			o.Outcome = became
		}
		a.tally.settled(a.rt, o, became)
		o.batch.settled(a.rt, became == posthaste.Done)
	}
	return rest
}

// settle records outcomes until the store has answered for each. last says
// that they were refused for their content before and changed since.
func (a *acknowledger) settle(ctx context.Context, batch []outcome, last bool) {
	unsure, began := false, time.Now()
	for {
		results, err := a.call(ctx, batch)
		switch {
		case err == nil:
			a.retry.worked()
			a.answered(ctx, batch, results, began, unsure, last)
			return
		case !uncertain(err) && len(batch) > 1:
			// One of them spoils the call: find out which.
			half := len(batch) / 2
			a.settle(ctx, batch[:half], last)
			a.settle(ctx, batch[half:], last)
			return
		case !uncertain(err):
			a.answered(ctx, batch, []posthaste.SettleResult{{Delivery: batch[0].Delivery, Err: err}}, began, unsure, last)
			return
		}
		unsure = true
		a.rt.reconcile.poke()
		if !a.retry.failed(ctx, err) {
			return // the worker ends; what it held is rescued
		}
	}
}

func (a *acknowledger) call(ctx context.Context, batch []outcome) (results []posthaste.SettleResult, err error) {
	a.settlements = a.settlements[:0]
	for i := range batch {
		s := batch[i].Settlement
		if s.Outcome == posthaste.Done && !batch[i].refusable() {
			s.Duration = 0 // a plain success has nothing to say: it is one bit
		}
		a.settlements = append(a.settlements, s)
	}
	err = bounded(ctx, settleTimeout, func(ctx context.Context) (err error) {
		results, err = a.rt.engine.Settle(ctx, a.settlements)
		return err
	})
	if err == nil && len(results) != len(batch) {
		err = errors.New("the engine answered another number of settlements than it was given")
	}
	return results, err
}

// answered acts on the store's answers.
func (a *acknowledger) answered(ctx context.Context, batch []outcome, results []posthaste.SettleResult, began time.Time, unsure, last bool) {
	var again []outcome
	from := 0 // outcomes of one segment usually follow each other
	for i := range batch {
		o := &batch[i]
		if o.seg != batch[from].seg {
			a.closed(batch[from:i], last)
			from = i
		}
		if o.closes && (results[i].Err == nil || last) {
			a.rt.held.restart(o.seg, o.key)
		}
		if results[i].Err == nil || last {
			o.batch.settled(a.rt, results[i].Err == nil && o.Outcome == posthaste.Done)
		}
		switch r := &results[i]; {
		case r.Err != nil && !last:
			again = append(again, a.mended(o, r.Err))
		case r.Err != nil:
			o.followed(began, "", r.Err)
			a.rt.log.Error("the store refuses this outcome; the message runs again once the worker has ended",
				append(o.attrs(), slog.Any("error", r.Err))...)
			a.rt.tell(posthaste.Event{Kind: posthaste.EventError, Task: a.retry.task, Err: r.Err, Queue: o.seg.sub.ref.Queue, Message: o.message, Delivery: o.Delivery})
		case r.Settled:
			o.followed(began, cmp.Or(r.Outcome, o.Outcome), nil)
			a.tally.settled(a.rt, o, r.Outcome)
		case unsure && a.rt.held.lives(o.seg):
			// The first try had its effect and lost its answer.
			o.followed(began, o.Outcome, nil)
			a.tally.settled(a.rt, o, o.Outcome)
		case o.Outcome == posthaste.Released && o.cause == nil, o.Outcome == posthaste.Done && o.seg.sub.single:
			// It never started here, or the handler settled it itself.
		default:
			o.followed(began, "", nil)
			a.duplicate(o)
		}
	}
	a.closed(batch[from:], last)
	if len(again) > 0 {
		a.settle(ctx, again, true)
	}
}

// closed notes outcomes of one segment as settled. Those that are tried once
// more are no longer known meanwhile; should they be released before that, the
// later settle is refused and tells.
func (a *acknowledger) closed(batch []outcome, last bool) {
	if len(batch) == 0 {
		return
	}
	if !last {
		a.rt.held.settled(batch[0].seg, len(batch))
	}
	if sub := batch[0].seg.sub; sub.full.Load() && sub.full.Swap(false) {
		a.rt.bell.Wake(sub.ref.Queue)
	}
}

// mended is o without what the store may have disliked.
func (a *acknowledger) mended(o *outcome, cause error) outcome {
	a.rt.log.Error("the store refused an outcome for its content; recording it without its receipt and terms",
		append(o.attrs(), slog.Any("error", cause))...)
	m := *o
	m.Receipt, m.Terms = nil, nil
	if m.Outcome != posthaste.Done && m.Outcome != posthaste.Released {
		m.Error = posthaste.ErrorText("(the store refused the original outcome: " + errorText(cause) + ") " + m.Error)
	}
	return m
}

// duplicate tells of an outcome that came too late.
func (a *acknowledger) duplicate(o *outcome) {
	attrs := o.attrs()
	if o.Error != "" { // the store has refused it, so that the log is the only place for it
		attrs = append(attrs, slog.String("error", o.Error))
	}
	a.rt.log.Warn("a delivery was no longer ours when it ended: the message may have been handled twice", attrs...)
	a.rt.tell(posthaste.Event{Kind: posthaste.EventDuplicate, Queue: o.seg.sub.ref.Queue, Subscription: o.seg.sub.ref.Subscription,
		Message: o.message, Delivery: o.Delivery, Attempt: o.attempt, Outcome: o.Outcome, Count: 1, Duration: o.Duration, Err: o.cause})
}

// followed tells who follows the delivery how its settling, sent at began, ended.
func (o *outcome) followed(began time.Time, became posthaste.Outcome, err error) {
	if o.trace != nil {
		o.trace.Settled(began, became, err)
	}
}

func (o *outcome) attrs() []any {
	return []any{slog.String("queue", o.seg.sub.ref.Queue), slog.Any("message", o.message), slog.Any("delivery", o.Delivery),
		slog.Int("attempt", o.attempt), slog.String("outcome", string(o.Outcome))}
}
