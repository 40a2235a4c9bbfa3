package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var errStopped = &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the worker is stopping"}

// shutdown stops all parts in the order that [Worker.Run] promises.
func (rt *runtime) shutdown(ctx context.Context) {
	grace, cancel := context.WithTimeout(ctx, rt.config.Grace)
	defer cancel()
	rt.report.log.Info("stopping: claiming no more messages, waiting for running handlers", slog.Duration("grace", rt.config.Grace))
	rt.pool.stop()
	rt.stopFetch()
	for _, f := range rt.fetchers {
		f.stop()
	}
	rt.release(ctx)

	rt.startAtMostOnce()
	if !rt.pool.wait(grace) {
		rt.pool.stop()
		rt.pool.interrupt(errStopped)
		last, cancel := context.WithTimeout(ctx, time.Second)
		stopped := rt.pool.wait(last) // handlers that return now still get their outcome recorded
		cancel()
		if !stopped && rt.pool.closing() {
			last, cancel := context.WithTimeout(ctx, lastNotes) // and those whose log is being stored
			rt.pool.wait(last)
			cancel()
		}
	}
	rt.reportUnstarted()
	// Messages that were handled and are not settled would be redelivered. While the store is
	// unavailable, preventing that is worth as long a wait as handlers get.
	least := time.Now().Add(callTimeout / 2)
	until, _ := grace.Deadline()
	if until.Before(least) {
		until = least
	}
	last, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	rt.acks.flush(last)
	rt.pool.interrupt(errStopped)
	for _, s := range rt.services {
		s.stop()
	}
	rt.acking.stop()
	rt.stats.send(last)
	rt.leave(ctx)
	rt.bell.Close()
}

// release hands back the messages that were claimed and have not started, except for those
// of at-most-once queues, which no other worker would get.
func (rt *runtime) release(ctx context.Context) {
	var back []outcome
	for _, r := range rt.routes {
		if !r.once.Load() {
			back = append(back, rt.held.unstarted(r)...)
		}
	}
	if len(back) > 0 {
		rt.outbox.put(back)
	}
	// Replies of claims that are still missing will not come any more.
	rt.held.forget()
	worker, upTo, known := rt.held.memory()
	if worker == 0 || upTo == 0 {
		return
	}
	if err := rt.reconcile.compare(ctx, worker, upTo, known); err != nil {
		rt.report.log.Warn("could not release the deliveries of lost replies; they are redelivered after a rescue", slog.Any("error", err))
	}
}

// startAtMostOnce lets messages of at-most-once queues start although the worker stops,
// because no other worker would get them.
func (rt *runtime) startAtMostOnce() {
	for _, r := range rt.routes {
		if rt.held.backlog(r).waiting() {
			rt.pool.resume()
			return
		}
	}
}

// reportUnstarted reports messages of at-most-once queues that did not start in time.
func (rt *runtime) reportUnstarted() {
	for _, r := range rt.routes {
		items, from := rt.held.backlog(r).takeAll()
		if len(items) == 0 {
			continue
		}
		for _, seg := range from {
			rt.held.settled(seg, 1)
		}
		rt.report.log.Error("stopped before messages of an at-most-once queue could start: they are lost",
			slog.String("queue", r.ref.Queue), slog.Int("deliveries", len(items)), slog.Any("first", items[0].MessageID))
		rt.report.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: r.ref.Queue, Subscription: r.ref.Subscription,
			Outcome: posthaste.OutcomeLost, Count: len(items)})
	}
}

// leave ends the registration.
func (rt *runtime) leave(ctx context.Context) {
	worker, left := rt.held.leaving()
	if left > 0 {
		rt.report.log.Warn("stopped with unsettled messages; they are redelivered to other workers", slog.Int("deliveries", left))
	}
	if worker == 0 {
		return
	}
	err := bounded(ctx, callTimeout/2, func(ctx context.Context) error { return rt.engine.Unregister(ctx, worker) })
	if err != nil {
		rt.report.log.Warn("could not end the worker's registration; it ends with its lease", slog.Any("error", err))
		return
	}
	if left > 0 {
		// The heartbeat of another worker would lead to a rescue, but later.
		err = bounded(ctx, callTimeout/2, func(ctx context.Context) error {
			_, err := rt.engine.Maintain(ctx, posthaste.UpkeepRescue)
			return err
		})
		if err != nil {
			rt.report.log.Warn("could not make the unsettled messages available to other workers at once", slog.Any("error", err))
		}
	}
}
