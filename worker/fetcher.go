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
	// horizon is how long the pool should be able to work on what is prefetched.
	horizon = 250 * time.Millisecond
	// soon is within what time a claim of more than usual must be worked off: then
	// its outcomes are many at a time, too, for a claim that is settled bit by bit
	// costs more the larger it is.
	soon = 25 * time.Millisecond
	// usual is how many messages one claim asks for at most where handlers are not
	// very fast.
	usual = 1000
	// firstTarget is how much is prefetched before the pool's speed is known.
	firstTarget = 16
	// prefetchBytes bounds the payloads of one claim, by what payloads had on
	// average before.
	prefetchBytes = 32 << 20
	// calm is the time without a find after which a claim counts as one after a pause.
	calm = 5 * time.Millisecond
)

// fetcher claims messages of one subscription, as many as the pool can start
// at once or within the horizon, and sleeps at the doorbell when there are none.
type fetcher struct {
	rt  *runtime
	sub *subscription
	// target is how many to have prefetched beyond what can start at once.
	target int64
	rate   float64 // messages completed per second
	at     time.Duration
	done   int64 // completed at that time
	// payload is the mean size of payloads so far.
	payload float64
	found   time.Duration // when something was found last
	retry   backoff
	alone   aloneState
	// limited: what is handed out counts against limits, and nothing is prefetched
	// that others could start. Taken to be so until a claim was answered.
	limited bool
}

func newFetcher(rt *runtime, sub *subscription) *fetcher {
	return &fetcher{rt: rt, sub: sub, target: firstTarget, limited: true, payload: 4 << 20, at: now(),
		retry: backoff{rt: rt, task: "claim " + sub.ref.Queue}}
}

func (f *fetcher) run(ctx context.Context) {
	for drained := false; ctx.Err() == nil; {
		want := f.capacity(ctx)
		if want == 0 {
			return
		}
		var found claimed
		var err error
		if drained {
			found, err = f.sleep(ctx)
		} else {
			found, err = f.gatedClaim(ctx, want)
		}
		drained = err == nil && f.drained(found)
		switch {
		case err != nil:
			f.recover(ctx, err)
		case f.mayRunAlone(found):
			f.runAlone(ctx)
		}
	}
}

// drained reports whether to sleep after a claim: it found less than it could take, so
// that the look before falling asleep does for the claim that would follow. A claim takes
// from one lane, and a doorbell that polls pauses before each look, so that with several
// lanes only a claim that found nothing counts. Of an ordered queue more may come as soon
// as what was handed out has ended; there only a claim that came after a pause counts.
func (f *fetcher) drained(found claimed) bool {
	switch {
	case found.rung || f.mayRunAlone(found):
		return false
	case found.handed == 0:
		return true
	case found.handed >= min(found.asked, usual): // a store may give no more than usual at once
		return false
	}
	return f.sub.lanes == 1 && (found.paused || !f.sub.inOrder.Load())
}

// recover deals with a claim that failed.
func (f *fetcher) recover(ctx context.Context, err error) {
	if posthaste.CodeOf(err) == posthaste.WorkerLost {
		// The next claim waits for a new registration, once the heartbeat has given up this one.
		pause(ctx, 20*time.Millisecond)
		return
	}
	f.rt.reconcile.poke()
	f.retry.failed(ctx, err)
}

// capacity waits until something should be claimed and returns how much, or 0
// if ctx ended.
func (f *fetcher) capacity(ctx context.Context) int {
	for ctx.Err() == nil {
		f.adapt()
		if want := f.want(); want > 0 {
			return want
		}
		f.sub.markAt(f.sub.buffered() - f.ahead()/2)
		if want := f.want(); want > 0 { // changed before the mark was set
			return want
		}
		select {
		case <-f.sub.wanted:
		case <-ctx.Done():
		}
	}
	return 0
}

// want is how much to claim now, 0 for nothing yet.
func (f *fetcher) want() int {
	if f.full() {
		f.sub.throttled.Store(true) // the acknowledger tells when it got on
		if f.full() {
			return 0
		}
	}
	buffered := f.sub.buffered()
	goroutines, crowdedOut := f.rt.pool.room(f.sub)
	startable := int64(goroutines) * f.sub.batch
	ahead := f.ahead()
	if ahead == 0 && buffered == 0 && crowdedOut {
		// Under limits, and where so little comes that nothing is prefetched: or it
		// would get no turn among the others, and wait for ever once they have ended.
		ahead = 1
	}
	if buffered > 0 && buffered > ahead/2 {
		return 0
	}
	want := min(startable+ahead-buffered, f.most())
	want = min(want, max(1, int64(prefetchBytes/max(1, f.payload))))
	return int(max(want, 0))
}

// most is how many messages to ask for in one claim. Those of an ordered queue wait
// for each other, so that fewer of them are worked off at a time.
func (f *fetcher) most() int64 {
	most := int64(usual)
	if !f.sub.inOrder.Load() {
		most = max(most, int64(f.rate*soon.Seconds()))
	}
	return min(most, int64(f.rt.config.Batch))
}

// ahead is how much to have prefetched beyond what can start at once.
func (f *fetcher) ahead() int64 {
	if f.limited {
		return 0
	}
	return f.target
}

// full reports whether so much waits to be settled that nothing more should
// be handed out: outcomes cannot be recorded at present, or not fast enough.
func (f *fetcher) full() bool {
	return f.rt.held.unsettled() >= 20*min(f.rt.config.Batch, usual)+f.rt.config.Concurrency*int(f.sub.batch)
}

// adapt sets the target by how fast the pool is: it doubles when the pool ran
// out of work, and is bounded by what the pool completes within the horizon.
func (f *fetcher) adapt() {
	t, done := now(), f.sub.completed.Load()
	passed, n := t-f.at, done-f.done
	if f.sub.starved.Swap(false) {
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

// claimed is what one claim found.
type claimed struct {
	asked     int // for how many
	handed    int
	paused    bool // nothing had been found for a while when it began
	rung      bool // it came before something ended the sleep
	nextDue   time.Duration
	wantsIdle bool // a message waits to run alone
	atLimit   bool // the queue's own limits are reached
	full      bool // which a settle may end
	alone     bool // this is one
}

func (f *fetcher) gatedClaim(ctx context.Context, limit int) (claimed, error) {
	if err := f.rt.gate.enter(ctx); err != nil {
		return claimed{}, err
	}
	defer f.rt.gate.leave()
	return f.claim(ctx, limit, false)
}

// claim asks for up to limit messages and makes them available to the pool.
// After an answer was lost it asks again with the same number, until it has
// one or ctx ends: what a lost answer handed out is not lost with it.
func (f *fetcher) claim(ctx context.Context, limit int, idle bool) (claimed, error) {
	worker, err := f.rt.held.current(ctx)
	if err != nil {
		return claimed{}, err
	}
	req := posthaste.ClaimRequest{Worker: worker, Number: f.rt.held.begin(), QueueRef: f.sub.ref, Max: limit, Single: f.sub.single, Idle: idle}
	for {
		var reply posthaste.ClaimReply
		began := now()
		err := bounded(f.rt.claiming, claimTimeout, func(ctx context.Context) (err error) {
			reply, err = f.rt.engine.Claim(ctx, req)
			return err
		})
		switch {
		case err == nil:
			f.retry.worked()
			f.sub.claimTook.Store(int64(now() - began))
			paused := began-f.found >= calm
			found := f.keep(req, reply)
			found.paused = paused
			return found, nil
		case posthaste.CodeOf(err) == posthaste.WorkerLost:
			f.rt.held.finish(req.Number, nil)
			f.rt.heart.lost(worker)
			return claimed{}, err
		case !uncertain(err):
			f.rt.held.finish(req.Number, nil)
			var refused *posthaste.Error
			if errors.As(err, &refused) && refused.Code == posthaste.Invalid && refused.Field == "number" {
				// Another fetcher's later number came first and is closed
				// already. Nothing was handed out: a new number will do.
				req.Number = f.rt.held.begin()
				continue
			}
			return claimed{}, err
		}
		f.rt.reconcile.poke()
		if !f.retry.failed(ctx, err) {
			return claimed{}, err // the number stays unfinished; the end releases it
		}
	}
}

// tellLost logs that the attempt before this one was lost: whoever held it
// could not.
func (f *fetcher) tellLost(d *posthaste.RawDelivery) {
	if n := len(d.Story); n > 0 && d.Story[n-1].Outcome == posthaste.Lost {
		f.rt.log.Warn("the attempt before this one was lost with its holder", slog.String("queue", f.sub.ref.Queue), slog.Any("message", d.MessageID),
			slog.Any("delivery", d.ID), slog.Int("attempt", d.Attempt), slog.String("outcome", string(posthaste.Lost)), slog.String("holder", d.Story[n-1].Worker),
			slog.String("error", d.Story[n-1].Error))
	}
}

// keep takes over what a claim handed out.
func (f *fetcher) keep(req posthaste.ClaimRequest, reply posthaste.ClaimReply) claimed {
	found := claimed{asked: req.Max, handed: len(reply.Deliveries), nextDue: reply.NextDue, wantsIdle: reply.WantsIdle, atLimit: reply.AtLimit,
		full: reply.AtLimit && reply.FreedBySettle}
	f.limited = reply.Limits
	if found.handed == 0 {
		f.rt.held.finish(req.Number, nil)
		return found
	}
	for i := range reply.Deliveries {
		f.tellLost(&reply.Deliveries[i])
	}
	found.alone = reply.Deliveries[0].Alone
	f.sub.once.Store(reply.Deliveries[0].AtMostOnce)
	bytes := 0
	for i := range reply.Deliveries {
		bytes += len(reply.Deliveries[i].Payload)
	}
	f.payload += (float64(bytes)/float64(found.handed) - f.payload) / 2
	kept := false
	if reply.InOrder {
		f.sub.inOrder.Store(true)
		var back []outcome
		if kept, back = f.rt.held.finishOrdered(req.Number, f.sub, req.Worker, min(f.rt.config.Batch, usual), reply.Deliveries); len(back) > 0 {
			f.rt.acks.put(back)
		}
	} else {
		kept = f.rt.held.finish(req.Number, newSegment(f.sub, req.Worker, reply.Deliveries))
	}
	if kept {
		f.rt.tell(posthaste.Event{Kind: posthaste.EventClaimed, Queue: f.sub.ref.Queue, Subscription: f.sub.ref.Subscription, Count: found.handed})
		f.rt.pool.start(f.sub)
		// The handler first: what the fetcher does next would else keep it waiting
		// until another thread woke up, a tenth of a millisecond on an idle machine.
		// In dense traffic it is the next claim that must not wait.
		if now()-f.found >= calm {
			goruntime.Gosched()
		}
	}
	f.found = now()
	return found
}

// sleep waits at the doorbell, whose look is one more claim.
func (f *fetcher) sleep(ctx context.Context) (found claimed, err error) {
	looked := false
	err = f.rt.bell.Sleep(ctx, f.sub.ref.Queue, func(context.Context) (posthaste.LookReply, error) {
		var err error
		looked = true
		// Before the claim, or a settle that comes right after it would wake nobody.
		f.sub.full.Store(f.limited)
		found, err = f.gatedClaim(ctx, max(1, f.want()))
		f.sub.full.CompareAndSwap(true, found.full)
		reply := posthaste.LookReply{Found: found.handed > 0 || f.mayRunAlone(found), Handed: found.handed, NextDue: found.nextDue, AtLimit: found.atLimit}
		if wait := f.aloneIn(found); wait > 0 && (reply.NextDue < 0 || wait < reply.NextDue) {
			reply.NextDue = wait
		}
		return reply, err
	})
	if err == nil && looked && found.handed == 0 && !found.wantsIdle {
		f.rt.tell(posthaste.Event{Kind: posthaste.EventWoken, Queue: f.sub.ref.Queue, Subscription: f.sub.ref.Subscription, Count: 1})
	}
	found.rung = found.handed == 0
	// A pause says nothing about the pool's speed.
	f.at, f.done = now(), f.sub.completed.Load()
	return found, err
}
