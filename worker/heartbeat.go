package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// heartbeat keeps the worker alive, on a goroutine and in calls of its own. With each
// heartbeat the store looks at the queues, which wakes fetchers whose notification was lost,
// names the deliveries whose messages were cancelled, and says when rescue, maintenance and
// schedules are due.
type heartbeat struct {
	engine posthaste.Engine
	report *reporter
	config *Config
	refs   []posthaste.QueueRef
	kinds  map[posthaste.QueueRef][]string // see posthaste.WorkerInfo
	sinks  []posthaste.WorkerSink
	bell   posthaste.Doorbell
	held   *holdings
	lease  *lease
	pool   *pool

	// The services that a reply wakes, or an error.
	rescue    *rescuer
	maintain  *janitor
	schedule  *scheduler
	reconcile *reconciler

	dead  chan posthaste.WorkerID // registrations that a claim found to be declared lost
	retry backoff
}

// lost says that a registration was found to be declared lost.
func (h *heartbeat) lost(worker posthaste.WorkerID) {
	select {
	case h.dead <- worker:
	default: // it is known already
	}
}

func (h *heartbeat) run(ctx context.Context) {
	ticker := time.NewTicker(h.config.Heartbeat)
	defer ticker.Stop()
	defer h.lease.stop()
	h.beat(ctx)
	for {
		select {
		case <-ticker.C:
			h.beat(ctx)
		case <-h.lease.ended:
			h.beat(ctx)
		case worker := <-h.dead:
			h.renew(ctx, worker)
		case <-ctx.Done():
			return
		}
	}
}

// beat sends a heartbeat and repeats it until it succeeds, or until a claim finds that the
// registration is lost.
func (h *heartbeat) beat(ctx context.Context) {
	for !h.try(ctx) {
		select {
		case worker := <-h.dead:
			h.renew(ctx, worker)
			return
		default:
		}
	}
}

// try returns true if there is nothing to repeat.
func (h *heartbeat) try(ctx context.Context) bool {
	worker, err := h.held.current(ctx)
	if err != nil {
		return true
	}
	sent := h.lease.now()
	var reply posthaste.HeartbeatReply
	err = bounded(ctx, h.config.Heartbeat, func(ctx context.Context) (err error) {
		reply, err = h.engine.Heartbeat(ctx, posthaste.Heartbeat{Worker: worker, Queues: h.refs, State: h.pool.state()})
		return err
	})
	answered := time.Now()
	switch {
	case posthaste.CodeOf(err) == posthaste.CodeWorkerLost:
		h.renew(ctx, worker)
	case err != nil:
		h.reconcile.poke()
		return !h.retry.failed(ctx, err)
	default:
		h.retry.worked()
		h.alive(sent)
		h.pool.cancel(reply.Cancelled)
		if !reply.QueuesUnknown { // else what an earlier reply said still counts
			h.schedule.next(answered, reply.TickIn)
			h.rescue.next(answered, reply)
			h.act(reply)
		}
	}
	return true
}

// alive notes that the store has renewed the lease at sent or later.
func (h *heartbeat) alive(sent instant) {
	if h.lease.renew(sent) {
		h.pool.wake()
	}
}

func (h *heartbeat) act(reply posthaste.HeartbeatReply) {
	for i, look := range reply.Looks {
		if look.Found && i < len(h.refs) {
			h.bell.Wake(h.refs[i].Queue)
		}
	}
	if reply.Maintain {
		token(h.maintain.wake)
	}
}

// renew drops what a lost registration had prefetched and registers again. Handlers that run
// go on, but the store will refuse their outcomes.
func (h *heartbeat) renew(ctx context.Context, worker posthaste.WorkerID) {
	dropped, news := h.held.lose(worker)
	if !news {
		return
	}
	h.report.log.Warn("this worker was declared lost, and its messages run elsewhere; registering again",
		slog.Any("worker", worker), slog.Int("dropped", dropped))
	h.report.tell(posthaste.Event{Kind: posthaste.EventLost, Count: dropped})
	for {
		err := h.register(ctx)
		if err == nil {
			h.retry.worked()
			return
		}
		if !h.retry.failed(ctx, err) {
			return
		}
	}
}

// register registers the worker, which begins its lease.
func (h *heartbeat) register(ctx context.Context) error {
	return bounded(ctx, callTimeout, func(ctx context.Context) error {
		sent := h.lease.now()
		id, err := h.engine.Register(ctx, posthaste.WorkerInfo{Name: h.config.Name, Lease: h.config.Lease, Version: h.config.Version, Kinds: h.kinds, Sinks: h.sinks})
		if err != nil {
			return err
		}
		h.alive(sent)
		h.held.register(id)
		return nil
	})
}
