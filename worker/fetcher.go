package worker

import (
	"context"
	"errors"
	"log/slog"
	goruntime "runtime"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	claimTimeout = 5 * time.Second
	// horizon is how long the pool should be able to work on prefetched messages.
	horizon = 250 * time.Millisecond
	// soon is the time within which a claim of more than usual must be handled. Then its
	// outcomes are settled in large calls, too: the larger a claim, the more it costs to
	// settle it in small parts.
	soon = 25 * time.Millisecond
	// usual bounds the messages of one claim unless handlers are very fast.
	usual = 1000
	// firstTarget is how much is prefetched before the pool's speed is known.
	firstTarget = 16
	// calm is the time without a message after which a claim counts as one after a pause.
	calm = 5 * time.Millisecond
	// farewell is how long claims in flight may take when the worker stops.
	farewell = time.Second
)

// fetcher claims messages for one route, as many as the pool can start at once or within the
// horizon, and sleeps at the doorbell while there are none.
type fetcher struct {
	engine    posthaste.Engine
	report    *reporter
	config    *Config
	route     *route
	team      *team
	backlog   *backlog
	bell      posthaste.Doorbell
	gate      *gate
	held      *holdings
	pool      *pool
	outbox    *outbox
	acks      *acknowledger
	heart     *heartbeat
	reconcile *reconciler

	// target is how many messages to prefetch beyond those that can start at once.
	target int64
	rate   float64       // messages completed per second
	at     time.Duration // when rate was last computed
	done   int64         // completed at that time
	// payload is the mean size of payloads so far.
	payload float64
	found   time.Duration // time of the latest claim that found messages
	retry   backoff
	alone   aloneState
	// limited says that claimed messages count against limits, so that none is prefetched
	// that other workers could start. It is true until the first claim was answered.
	limited bool
}

// newFetcher adds the state of a fetcher to its parts.
func newFetcher(f fetcher) *fetcher {
	f.backlog = f.team.backlog
	f.target, f.limited, f.payload, f.at = firstTarget, true, 4<<20, now()
	f.retry = backoff{report: f.report, task: "claim " + f.route.ref.Queue}
	return &f
}

func (f *fetcher) run(ctx context.Context) {
	calls, cancel := outliving(ctx, farewell)
	defer cancel()
	for drained := false; ctx.Err() == nil; {
		want := f.capacity(ctx)
		if want == 0 {
			return
		}
		var found claimed
		var err error
		if drained {
			found, err = f.sleep(ctx, calls)
		} else {
			found, err = f.gatedClaim(ctx, calls, want)
		}
		drained = err == nil && f.drained(found)
		switch {
		case err != nil:
			f.recover(ctx, err)
		case f.mayRunAlone(found):
			f.runAlone(ctx, calls)
		}
	}
}

// drained reports whether to sleep after a claim, because it found fewer messages than it
// asked for. The look before the sleep replaces the next claim. With several lanes, only a
// claim that found nothing counts: a claim takes from one lane, and a doorbell that polls
// pauses before each look. With an ordered queue, only a claim after a pause counts: more
// messages may become available as soon as those that were claimed have ended.
func (f *fetcher) drained(found claimed) bool {
	switch {
	case found.rung || f.mayRunAlone(found):
		return false
	case found.handed == 0:
		return true
	case found.handed >= min(found.asked, usual): // a store may give no more than usual at once
		return false
	}
	return f.route.lanes == 1 && (found.paused || !f.route.inOrder.Load())
}

// recover waits after a claim that failed.
func (f *fetcher) recover(ctx context.Context, err error) {
	if posthaste.CodeOf(err) == posthaste.CodeWorkerLost {
		// The next claim waits for a new registration, after the heartbeat has ended this one.
		pause(ctx, 20*time.Millisecond)
		return
	}
	f.reconcile.poke()
	f.retry.failed(ctx, err)
}

// capacity waits until messages should be claimed and returns how many, or 0 if ctx ended.
func (f *fetcher) capacity(ctx context.Context) int {
	for ctx.Err() == nil {
		f.adapt()
		if want := f.want(); want > 0 {
			return want
		}
		f.backlog.markAt(f.backlog.buffered() - f.ahead()/2)
		if want := f.want(); want > 0 { // changed before the mark was set
			return want
		}
		select {
		case <-f.route.wanted:
		case <-ctx.Done():
		}
	}
	return 0
}

// want returns how many messages to claim now.
func (f *fetcher) want() int {
	if f.full() {
		f.route.throttled.Store(true) // the acknowledger then calls route.want after its next settle
		if f.full() {
			return 0
		}
	}
	buffered := f.backlog.buffered()
	goroutines, crowdedOut := f.pool.room(f.team)
	startable := int64(goroutines) * f.route.batch
	ahead := f.ahead()
	if ahead == 0 && buffered == 0 && crowdedOut {
		// Nothing is prefetched, because of limits or because messages are rare. Without a
		// message in the backlog the team would get no turn among the others, and nothing
		// would wake this fetcher after they have ended.
		ahead = 1
	}
	if buffered > 0 && buffered > ahead/2 {
		return 0
	}
	want := min(startable+ahead-buffered, f.most())
	want = min(want, max(1, int64(prefetchBytes/max(1, f.payload))))
	return int(max(want, 0))
}

// most bounds the messages of one claim. Messages of an ordered queue wait for each other,
// so that fewer of them are handled at a time.
func (f *fetcher) most() int64 {
	most := int64(usual)
	if !f.route.inOrder.Load() {
		most = max(most, int64(f.rate*soon.Seconds()))
	}
	return min(most, int64(f.config.Batch))
}

// ahead is how many messages to prefetch beyond those that can start at once.
func (f *fetcher) ahead() int64 {
	if f.limited {
		return 0
	}
	return f.target
}

// full reports whether so many messages are unsettled that no more should be claimed,
// because settling fails or is too slow.
func (f *fetcher) full() bool {
	return f.held.unsettled() >= 20*min(f.config.Batch, usual)+f.config.Concurrency*int(f.route.batch)
}

// adapt sets the target by the speed of the pool: it doubles when the pool ran out of
// messages, and is bounded by what the pool completes within the horizon.
func (f *fetcher) adapt() {
	t, done := now(), f.route.completed.Load()
	passed, n := t-f.at, done-f.done
	if f.route.starved.Swap(false) {
		f.target = max(firstTarget, 2*f.target)
	}
	if passed >= 50*time.Millisecond || (n >= f.target && passed > 0) {
		rate := float64(n) / passed.Seconds()
		if f.rate == 0 {
			f.rate = rate
		}
		f.rate = (f.rate + rate) / 2
		f.at, f.done = t, done
	}
	bound := 2 * f.most()
	if f.rate > 0 {
		bound = min(bound, int64(f.rate*horizon.Seconds()))
	}
	f.target = min(f.target, bound)
}

// claimed is the result of one claim.
type claimed struct {
	asked        int  // messages that it asked for
	handed       int  // messages that it got
	paused       bool // it began after a pause without messages
	rung         bool // the sleep ended after it, and it found nothing
	nextDue      time.Duration
	aloneWaiting bool // a message waits to run alone
	atLimit      bool // the queue's own limits are reached
	full         bool // and a settle may free a place
	alone        bool // its message must run alone
}

func (f *fetcher) gatedClaim(ctx, calls context.Context, limit int) (claimed, error) {
	if err := f.gate.enter(ctx); err != nil {
		return claimed{}, err
	}
	defer f.gate.leave()
	return f.claim(ctx, calls, limit, false)
}

// claim asks for up to limit messages and makes them available to the pool. If a reply is
// lost, it repeats the call with the same number, to which the store gives the same reply, so
// that no message is lost with it. It stops when ctx ends; the calls themselves end with
// calls.
func (f *fetcher) claim(ctx, calls context.Context, limit int, idle bool) (claimed, error) {
	worker, err := f.held.current(ctx)
	if err != nil {
		return claimed{}, err
	}
	req := posthaste.ClaimRequest{Worker: worker, Number: f.held.begin(), QueueRef: f.route.ref, Max: limit, Single: f.route.single, AllowAlone: idle}
	for {
		var reply posthaste.ClaimReply
		began := now()
		err := bounded(calls, claimTimeout, func(ctx context.Context) (err error) {
			reply, err = f.engine.Claim(ctx, req)
			return err
		})
		switch {
		case err == nil:
			f.retry.worked()
			f.route.claimTook.Store(int64(now() - began))
			paused := began-f.found >= calm
			found := f.keep(req, reply)
			found.paused = paused
			return found, nil
		case posthaste.CodeOf(err) == posthaste.CodeWorkerLost:
			f.held.finish(req.Number, nil)
			f.heart.lost(worker)
			return claimed{}, err
		case !uncertain(err):
			f.held.finish(req.Number, nil)
			var refused *posthaste.Error
			if errors.As(err, &refused) && refused.Code == posthaste.CodeInvalid && refused.Field == "number" {
				// The store has already closed a higher number, of another fetcher. This
				// claim got nothing, and a new number is enough.
				req.Number = f.held.begin()
				continue
			}
			return claimed{}, err
		}
		f.reconcile.poke()
		if !f.retry.failed(ctx, err) {
			return claimed{}, err // the number stays in flight; shutdown releases its deliveries
		}
	}
}

// logLost logs that the attempt before this one was lost. The worker that had it may have
// been killed before it could log anything.
func (f *fetcher) logLost(d *posthaste.RawDelivery) {
	if n := len(d.Story); n > 0 && d.Story[n-1].Outcome == posthaste.OutcomeLost {
		f.report.log.Warn("the previous attempt was lost with the worker that had it", slog.String("queue", f.route.ref.Queue), slog.Any("message", d.MessageID),
			slog.Any("delivery", d.ID), slog.Int("attempt", d.Attempt), slog.String("outcome", string(posthaste.OutcomeLost)), slog.String("holder", d.Story[n-1].Worker),
			slog.String("error", d.Story[n-1].Error))
	}
}

// keep makes the messages of a claim available to the pool.
func (f *fetcher) keep(req posthaste.ClaimRequest, reply posthaste.ClaimReply) claimed {
	found := claimed{asked: req.Max, handed: len(reply.Deliveries), nextDue: reply.NextDue, aloneWaiting: reply.AloneWaiting, atLimit: reply.AtLimit,
		full: reply.AtLimit && reply.FreedBySettle}
	f.limited = reply.Limits
	if found.handed == 0 {
		f.held.finish(req.Number, nil)
		return found
	}
	found.alone = reply.Deliveries[0].Alone
	f.route.once.Store(reply.Deliveries[0].AtMostOnce)
	bytes := 0
	for i := range reply.Deliveries {
		f.logLost(&reply.Deliveries[i])
		bytes += len(reply.Deliveries[i].Payload)
	}
	f.payload += (float64(bytes)/float64(found.handed) - f.payload) / 2
	kept := false
	if reply.InOrder {
		f.route.inOrder.Store(true)
		var back []outcome
		if kept, back = f.held.finishOrdered(req.Number, f.route, req.Worker, min(f.config.Batch, usual), reply.Deliveries); len(back) > 0 {
			f.outbox.put(back)
		}
	} else {
		kept = f.held.finish(req.Number, newSegment(f.route, req.Worker, reply.Deliveries))
	}
	if kept {
		f.report.tell(posthaste.Event{Kind: posthaste.EventClaimed, Queue: f.route.ref.Queue, Subscription: f.route.ref.Subscription, Count: found.handed})
		f.pool.start(f.team)
		// Let the handler run first. Otherwise it would wait until another thread wakes up,
		// which takes 0.1 ms on an idle machine. In dense traffic the next claim goes first.
		if now()-f.found >= calm {
			goruntime.Gosched()
		}
	}
	f.found = now()
	return found
}

// sleep waits at the doorbell, whose look is one more claim.
func (f *fetcher) sleep(ctx, calls context.Context) (found claimed, err error) {
	looked := false
	err = f.bell.Sleep(ctx, f.route.ref.Queue, func(context.Context) (posthaste.LookReply, error) {
		var err error
		looked = true
		// Set before the claim, because a settle right after it must wake this fetcher.
		f.route.full.Store(f.limited)
		found, err = f.gatedClaim(ctx, calls, max(1, f.want()))
		f.route.full.CompareAndSwap(true, found.full)
		reply := posthaste.LookReply{Found: found.handed > 0 || f.mayRunAlone(found), Handed: found.handed, NextDue: found.nextDue, AtLimit: found.atLimit}
		if wait := f.aloneIn(found); wait > 0 && (reply.NextDue < 0 || wait < reply.NextDue) {
			reply.NextDue = wait
		}
		return reply, err
	})
	if err == nil && looked && found.handed == 0 && !found.aloneWaiting {
		f.report.tell(posthaste.Event{Kind: posthaste.EventWoken, Queue: f.route.ref.Queue, Subscription: f.route.ref.Subscription, Count: 1})
	}
	found.rung = found.handed == 0
	// A pause says nothing about the pool's speed.
	f.at, f.done = now(), f.route.completed.Load()
	return found, err
}

// outliving returns a context that ends d after ctx ends.
func outliving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause(late, d)
		cancel()
	})
	return late, func() {
		stop()
		cancel()
	}
}
