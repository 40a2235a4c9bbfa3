package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const settleTimeout = 10 * time.Second

// acknowledger records outcomes in the store. It settles at once while no settle is in
// flight, and otherwise settles in one call what the outbox has got meanwhile: without a
// timer, at the speed of a group commit, and with a crash window of one round trip. It
// retries for as long as the worker lives, because settling is idempotent.
type acknowledger struct {
	engine    posthaste.Engine
	report    *reporter
	routes    []*route
	bell      posthaste.Doorbell
	outbox    *outbox
	held      *holdings
	reconcile *reconciler
	flushes   chan chan struct{}
	retry     backoff

	batch       []outcome
	settlements []posthaste.Settlement
	tally       tally
}

// flush waits until all outcomes that were put before are settled. It returns false if ctx
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
			a.outbox.idle.Store(true)
			if !a.collect() {
				select {
				case <-a.outbox.bell:
				case done := <-a.flushes:
					a.outbox.awake()
					if a.collect() {
						a.settleAll(ctx)
					}
					close(done)
				case <-ctx.Done():
					return
				}
				continue
			}
			a.outbox.awake()
		}
		a.settleAll(ctx)
	}
}

// collect reads the outbox. It returns false if it is empty.
func (a *acknowledger) collect() bool {
	a.batch = a.outbox.collect(a.batch[:0])
	for i := range a.batch {
		a.batch[i].seg.route.completed.Add(1)
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
	a.tally.flush()
	for _, r := range a.routes {
		if r.throttled.Load() && r.throttled.Swap(false) {
			r.want()
		}
	}
}

// inTurn splits off outcomes that must be settled by a later call. If the store refuses an
// outcome for its content, it is settled again without that, and later outcomes of its
// ordered key must not be on record before: after a crash in between, its message would be
// handled after theirs.
func inTurn(batch []outcome) (next, later []outcome) {
	first := 0
	for first < len(batch) && !batch[first].holdsUp() {
		first++
	}
	if first == len(batch) {
		return batch, nil
	}
	type line struct {
		route *route
		key   string
	}
	unsure := map[line]bool{}
	next = slices.Clone(batch[:first])
	for i := first; i < len(batch); i++ {
		o := &batch[i]
		l := line{o.seg.route, o.key}
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

// closedBefore reports the outcomes of at-most-once queues, whose claims have settled them,
// and returns the others.
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
		a.held.settled(o.seg, 1)
		became := posthaste.OutcomeDone
		if o.cause != nil {
			became = posthaste.OutcomeFailed
			if o.Error == "" { // the handler snoozed it, which an at-most-once queue cannot do
				o.Error = errorText(o.cause)
			}
			o.Outcome = became
		}
		a.tally.settled(o, became)
		o.batch.settled(a.report, became == posthaste.OutcomeDone)
	}
	return rest
}

// settle records outcomes until the store has answered for each. last says that the store
// has refused them for their content, and that they are without it now.
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
			// One of them makes the call fail: find out which.
			half := len(batch) / 2
			a.settle(ctx, batch[:half], last)
			a.settle(ctx, batch[half:], last)
			return
		case !uncertain(err):
			a.answered(ctx, batch, []posthaste.SettleResult{{Delivery: batch[0].Delivery, Err: err}}, began, unsure, last)
			return
		}
		unsure = true
		a.reconcile.poke()
		if !a.retry.failed(ctx, err) {
			return // the worker ends, and its deliveries are rescued
		}
	}
}

func (a *acknowledger) call(ctx context.Context, batch []outcome) (results []posthaste.SettleResult, err error) {
	a.settlements = a.settlements[:0]
	for i := range batch {
		s := batch[i].Settlement
		if s.Outcome == posthaste.OutcomeDone && !batch[i].refusable() {
			s.Duration = 0 // the store keeps one bit for a plain success
		}
		a.settlements = append(a.settlements, s)
	}
	err = bounded(ctx, settleTimeout, func(ctx context.Context) (err error) {
		results, err = a.engine.Settle(ctx, a.settlements)
		return err
	})
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("the engine answered %d of %d settlements", len(results), len(batch))
	}
	return results, err
}

// answered acts on the store's answers to a settle that was sent at began. unsure says that
// the answer to an earlier try was lost.
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
			a.held.restart(o.seg, o.key)
		}
		if results[i].Err == nil || last {
			o.batch.settled(a.report, results[i].Err == nil && o.Outcome == posthaste.OutcomeDone)
		}
		switch r := &results[i]; {
		case r.Err != nil && !last:
			again = append(again, a.stripped(o, r.Err))
		case r.Err != nil:
			o.traced(began, "", r.Err)
			a.report.log.Error("the store refuses this outcome; the message is redelivered after the worker has ended",
				append(o.attrs(), slog.Any("error", r.Err))...)
			a.report.tell(posthaste.Event{Kind: posthaste.EventError, Task: a.retry.task, Err: r.Err, Queue: o.seg.route.ref.Queue, Message: o.message, Delivery: o.Delivery})
		case r.Settled:
			o.traced(began, cmp.Or(r.Outcome, o.Outcome), nil)
			a.tally.settled(o, r.Outcome)
		case unsure && a.held.lives(o.seg):
			// An earlier try took effect, and its answer was lost.
			o.traced(began, o.Outcome, nil)
			a.tally.settled(o, o.Outcome)
		case o.returned() && o.cause == nil:
			// It did not start here.
		case o.Outcome == posthaste.OutcomeDone && o.seg.route.single: // the handler settled it itself
			a.tally.stats.settled(o, posthaste.OutcomeDone)
		default:
			o.traced(began, "", nil)
			a.duplicate(o)
		}
	}
	a.closed(batch[from:], last)
	if len(again) > 0 {
		a.settle(ctx, again, true)
	}
}

// closed notes outcomes of one segment as settled. Those that are settled once more are not
// known meanwhile. If the reconciler releases one of them first, the store refuses the later
// settle, which is reported.
func (a *acknowledger) closed(batch []outcome, last bool) {
	if len(batch) == 0 {
		return
	}
	if !last {
		a.held.settled(batch[0].seg, len(batch))
	}
	if r := batch[0].seg.route; r.full.Load() && r.full.Swap(false) {
		a.bell.Wake(r.ref.Queue)
	}
}

// stripped returns o without the content that the store may have refused.
func (a *acknowledger) stripped(o *outcome, cause error) outcome {
	a.report.log.Error("the store refused an outcome for its content; recording it without its receipt and terms",
		append(o.attrs(), slog.Any("error", cause))...)
	m := *o
	m.Receipt, m.Terms = nil, nil
	if m.Outcome != posthaste.OutcomeDone && !m.returned() {
		m.Error = posthaste.ErrorText("(the store refused the original outcome: " + errorText(cause) + ") " + m.Error)
	}
	return m
}

// duplicate reports an outcome that came too late.
func (a *acknowledger) duplicate(o *outcome) {
	attrs := o.attrs()
	if o.Error != "" { // the store does not keep it, so that it would be lost without the log
		attrs = append(attrs, slog.String("error", o.Error))
	}
	a.report.log.Warn("a delivery was no longer ours when it ended: the message may have been handled twice", attrs...)
	a.report.tell(posthaste.Event{Kind: posthaste.EventDuplicate, Queue: o.seg.route.ref.Queue, Subscription: o.seg.route.ref.Subscription,
		Message: o.message, Delivery: o.Delivery, Attempt: o.attempt, Outcome: o.Outcome, Count: 1, Duration: o.Duration, Err: o.cause})
}
