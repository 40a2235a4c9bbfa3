package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sharedbell"
)

// callTimeout bounds calls at the start and the end.
const callTimeout = 10 * time.Second

// runtime is everything of one Run.
type runtime struct {
	engine posthaste.Engine
	config Config
	log    *slog.Logger
	quiet  bool // nobody listens to events
	debug  bool // successes are logged
	subs   []*subscription
	refs   []posthaste.QueueRef
	bell   posthaste.Doorbell

	held      *holdings
	gate      *gate
	pool      *pool
	acks      *acknowledger
	heart     *heartbeat
	rescue    *rescuer
	maintain  *janitor
	schedule  *scheduler
	reconcile *reconciler
	lastBeat  atomic.Pointer[instant]
	wall      func(time.Time) int64

	base       context.Context // never ends
	fetching   context.Context // ends when the worker stops claiming
	claiming   context.Context // ends a little later, with the claims on their way
	handling   context.Context // ends when handlers must leave
	stopFetch  context.CancelFunc
	stopClaims context.CancelFunc
	stopRuns   context.CancelCauseFunc
	fetchers   []*service
	services   []*service // all else but the acknowledger
	acking     service
}

func newRuntime(w *Worker) *runtime {
	rt := &runtime{engine: w.engine, config: w.config, log: w.config.Logger, subs: w.subs, wall: w.wall}
	_, rt.quiet = w.config.Telemetry.(posthaste.NoTelemetry)
	rt.debug = rt.log.Enabled(context.Background(), slog.LevelDebug)
	for _, s := range w.subs {
		rt.refs = append(rt.refs, s.ref)
	}
	rt.held = newHoldings(w.subs)
	rt.gate = newGate()
	rt.pool = newPool(rt, w.config.Concurrency)
	rt.acks = newAcknowledger(rt)
	rt.heart = newHeartbeat(rt)
	rt.rescue = newRescuer(rt)
	rt.maintain = newJanitor(rt)
	rt.schedule = newScheduler(rt)
	rt.reconcile = newReconciler(rt)
	return rt
}

func (rt *runtime) tell(e posthaste.Event) {
	if !rt.quiet {
		rt.config.Telemetry.Event(rt.base, e)
	}
}

// beaten is when the last heartbeat that got through was sent.
func (rt *runtime) beaten() instant { return *rt.lastBeat.Load() }

// completed counts the messages that ended in this worker.
func (rt *runtime) completed() (n int64) {
	for _, s := range rt.subs {
		n += s.completed.Load()
	}
	return n
}

func (rt *runtime) register(ctx context.Context) (id posthaste.WorkerID, err error) {
	err = bounded(ctx, callTimeout, func(ctx context.Context) error {
		id, err = rt.engine.Register(ctx, posthaste.WorkerInfo{Name: rt.config.Name, Lease: rt.config.Lease, Version: rt.config.Version})
		return err
	})
	return id, err
}

// prepare checks the queues, opens the doorbell and registers the worker. It
// waits for a store that is away.
func (rt *runtime) prepare(ctx context.Context) error {
	rt.base = context.WithoutCancel(ctx)
	retry := backoff{rt: rt, task: "start"}
	for _, step := range []func(context.Context) error{rt.checkQueues, rt.openBell, rt.registerFirst} {
		for {
			err := step(ctx)
			if err == nil {
				break
			}
			if hopeless(err) || !retry.failed(ctx, err) {
				if rt.bell != nil {
					rt.bell.Close()
				}
				return err
			}
		}
	}
	retry.worked()
	return nil
}

func (rt *runtime) checkQueues(ctx context.Context) error {
	names := make([]string, len(rt.refs))
	missing := map[posthaste.QueueRef]bool{}
	for i, ref := range rt.refs {
		names[i] = ref.Queue
		missing[ref] = true
	}
	return bounded(ctx, callTimeout, func(ctx context.Context) error {
		infos, err := rt.engine.Queues(ctx, slices.Compact(slices.Sorted(slices.Values(names)))...)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, info := range infos {
			there[info.Name] = true
			if err := rt.learnOptions(info); err != nil {
				return err
			}
			for _, sub := range info.Subscriptions {
				delete(missing, posthaste.QueueRef{Queue: info.Name, Subscription: sub.Name})
			}
		}
		for ref := range missing {
			if there[ref.Queue] {
				return &posthaste.Error{Code: posthaste.NotFound, Field: "subscription",
					Message: fmt.Sprintf("queue %q has no subscription %q", ref.Queue, ref.Subscription), Hint: "create it before its worker starts"}
			}
			return &posthaste.Error{Code: posthaste.NotFound, Field: "queue",
				Message: fmt.Sprintf("there is no queue %q", ref.Queue), Hint: "create it before its worker starts"}
		}
		return nil
	})
}

// learnOptions notes what the queue promises, and how many lanes it has.
func (rt *runtime) learnOptions(info posthaste.QueueInfo) error {
	for _, sub := range rt.subs {
		if sub.ref.Queue != info.Name {
			continue
		}
		once := info.Options.Mode == posthaste.AtMostOnce
		if once && sub.single {
			return &posthaste.Error{Code: posthaste.Invalid, Field: "mode",
				Message: fmt.Sprintf("queue %q hands out at most once, and its handler wants to settle in transactions of its own", info.Name),
				Hint:    "handing out settles already: register the handler without that option"}
		}
		sub.once.Store(once)
		sub.lanes = max(1, info.Options.Lanes)
	}
	return nil
}

func (rt *runtime) openBell(ctx context.Context) error {
	// The doorbell is needed until ctx ends, so it is not bounded like a call.
	bell, err := rt.engine.Doorbell(ctx)
	if err == nil {
		rt.bell = bell
	}
	return err
}

func (rt *runtime) registerFirst(ctx context.Context) error {
	sent := rt.moment()
	id, err := rt.register(ctx)
	if err == nil {
		rt.lastBeat.Store(&sent)
		rt.held.register(id)
	}
	return err
}

// shareBell lets the fetchers of several subscriptions sleep on one queue. It
// returns bell itself where no queue has several.
func shareBell(ctx context.Context, bell posthaste.Doorbell, subs []*subscription) posthaste.Doorbell {
	seen := map[string]bool{}
	for _, s := range subs {
		if seen[s.ref.Queue] {
			return sharedbell.New(ctx, bell)
		}
		seen[s.ref.Queue] = true
	}
	return bell
}

// start starts everything.
func (rt *runtime) start() {
	rt.fetching, rt.stopFetch = context.WithCancel(rt.base)
	rt.claiming, rt.stopClaims = context.WithCancel(rt.base)
	rt.handling, rt.stopRuns = context.WithCancelCause(rt.base)
	rt.bell = shareBell(rt.fetching, rt.bell, rt.subs)
	rt.acking.start(rt.base, rt.acks.run)
	sweep := func(ctx context.Context) { rt.pool.sweep(ctx, rt.config.Overrun) }
	for _, f := range []func(context.Context){rt.heart.run, rt.rescue.run, rt.maintain.run, rt.schedule.run, rt.reconcile.run, sweep} {
		s := &service{}
		s.start(rt.base, f)
		rt.services = append(rt.services, s)
	}
	for _, sub := range rt.subs {
		s := &service{}
		s.start(rt.fetching, newFetcher(rt, sub).run)
		rt.fetchers = append(rt.fetchers, s)
	}
}

// shutdown ends everything in order, as [Worker.Run] promises.
func (rt *runtime) shutdown() {
	grace, cancel := context.WithTimeout(rt.base, rt.config.Grace)
	defer cancel()
	rt.log.Info("stopping: claiming no more, waiting for running handlers", slog.Duration("grace", rt.config.Grace))
	rt.pool.hold() // for good: nothing new starts
	rt.stopFetch()
	cut := time.AfterFunc(time.Second, rt.stopClaims) // claims on their way may come home
	for _, f := range rt.fetchers {
		f.stop()
	}
	cut.Stop()
	rt.stopClaims()
	rt.handBack()

	rt.runWhatIsOurs()
	if !rt.pool.wait(grace) {
		rt.pool.hold()
		rt.stopRuns(errStopped)
		last, cancel := context.WithTimeout(rt.base, time.Second)
		rt.pool.wait(last) // those that obey get to say how they ended
		cancel()
	}
	rt.loseWhatIsLeft()
	// What was handled and is not settled runs again: while the store is away, that is
	// worth waiting as long as handlers may take.
	least := time.Now().Add(callTimeout / 2)
	until, _ := grace.Deadline()
	if until.Before(least) {
		until = least
	}
	last, cancel := context.WithDeadline(rt.base, until)
	defer cancel()
	rt.acks.flush(last)
	rt.stopRuns(errStopped)
	for _, s := range rt.services {
		s.stop()
	}
	rt.acking.stop()
	rt.leave()
	rt.bell.Close()
}

var errStopped = &posthaste.Error{Code: posthaste.Unavailable, Message: "the worker has to stop"}

// handBack releases what was claimed and has not started.
func (rt *runtime) handBack() {
	var back []outcome
	for _, sub := range rt.subs {
		if sub.once.Load() {
			continue // nobody takes them back
		}
		items, from := sub.takeAll()
		for i := range items {
			back = append(back, released(from[i], &items[i]))
		}
		for _, seg := range rt.held.waiting(sub) {
			back = append(back, released(seg, &seg.items[0]))
		}
	}
	if len(back) > 0 {
		rt.acks.put(back)
	}
	// Claims whose answers never came are finished now, as far as they can be.
	rt.held.forget()
	worker, upTo, known := rt.held.memory()
	if worker == 0 || upTo == 0 {
		return
	}
	if err := rt.reconcile.compare(rt.base, worker, upTo, known); err != nil {
		rt.log.Warn("could not compare with the store what this worker holds; what is left is rescued", slog.Any("error", err))
	}
}

// runWhatIsOurs lets what was handed out at most once start all the same, for
// nobody else will run it.
func (rt *runtime) runWhatIsOurs() {
	for _, sub := range rt.subs {
		if sub.waiting() {
			rt.pool.resume()
			return
		}
	}
}

// loseWhatIsLeft tells of what was handed out at most once and did not start in
// time.
func (rt *runtime) loseWhatIsLeft() {
	for _, sub := range rt.subs {
		items, from := sub.takeAll()
		if len(items) == 0 {
			continue
		}
		for _, seg := range from {
			rt.held.settled(seg, 1)
		}
		rt.log.Error("stopped with messages that had been handed out at most once and did not start: they are lost",
			slog.String("queue", sub.ref.Queue), slog.Int("deliveries", len(items)), slog.Any("first", items[0].MessageID))
		rt.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: sub.ref.Queue, Subscription: sub.ref.Subscription,
			Outcome: posthaste.Lost, Count: len(items)})
	}
}

// leave ends the registration.
func (rt *runtime) leave() {
	worker, left := rt.held.leaving()
	if left > 0 {
		rt.log.Warn("stopped with messages unsettled; they run again elsewhere", slog.Int("deliveries", left))
	}
	if worker == 0 {
		return
	}
	err := bounded(rt.base, callTimeout/2, func(ctx context.Context) error { return rt.engine.Unregister(ctx, worker) })
	if err != nil {
		rt.log.Warn("could not end the worker's registration; it ends with its lease", slog.Any("error", err))
		return
	}
	if left > 0 {
		// Somebody else's heartbeat would see it, but soon is better.
		err = bounded(rt.base, callTimeout/2, func(ctx context.Context) error {
			_, err := rt.engine.Rescue(ctx)
			return err
		})
		if err != nil {
			rt.log.Warn("could not hand out anew what was left", slog.Any("error", err))
		}
	}
}
