package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// heartbeat keeps the worker alive, on a goroutine and in calls of its own. On
// the way the store looks at the queues, which wakes fetchers whose wake-up got
// lost, and says when rescue and maintenance are due.
type heartbeat struct {
	rt   *runtime
	dead chan posthaste.WorkerID // registrations that others found lost
	// late calls overdue when no heartbeat got through for a whole lease. It runs
	// beside the calls, because one that fails or hangs, and the wait after it, must
	// not delay it.
	late  *time.Timer
	soon  chan struct{} // to beat at once
	retry backoff

	mu     sync.Mutex
	paused bool
}

func newHeartbeat(rt *runtime) *heartbeat {
	return &heartbeat{rt: rt, dead: make(chan posthaste.WorkerID, 1), soon: make(chan struct{}, 1), retry: backoff{rt: rt, task: "heartbeat"}}
}

// lost tells that a registration was found to be declared lost.
func (h *heartbeat) lost(worker posthaste.WorkerID) {
	select {
	case h.dead <- worker:
	default: // it is known already
	}
}

func (h *heartbeat) run(ctx context.Context) {
	c := h.rt.config
	ticker := time.NewTicker(c.Heartbeat)
	defer ticker.Stop()
	h.late = time.AfterFunc(c.Lease-h.rt.since(h.rt.beaten()), h.overdue)
	defer h.late.Stop()
	h.beat(ctx)
	for {
		select {
		case <-ticker.C:
			h.beat(ctx)
		case <-h.soon:
			h.beat(ctx)
		case worker := <-h.dead:
			h.renew(ctx, worker)
		case <-ctx.Done():
			return
		}
	}
}

// overdue keeps prefetched messages from starting: by now they may have been
// handed out elsewhere.
func (h *heartbeat) overdue() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused {
		return
	}
	if left := h.rt.config.Lease - h.rt.since(h.rt.beaten()); left > 0 {
		h.late.Reset(left) // a heartbeat got through since the timer fired, or it came early
	} else {
		h.paused = true
		h.rt.pool.hold()
		token(h.soon)
		h.rt.log.Warn("no heartbeat got through for a whole lease; nothing new starts until one does",
			slog.Duration("lease", h.rt.config.Lease))
	}
}

// over reports whether the lease is over, whatever the timer did: a process that was
// stopped, or whose machine was suspended, goes on before its timers run. It is asked
// before each handler starts.
func (h *heartbeat) over() bool {
	if h.rt.since(h.rt.beaten()) < h.rt.config.Lease {
		return false
	}
	h.overdue()
	return true
}

// beat sends one heartbeat, and repeats it until it got through, or a claim has found that
// the registration is lost.
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

// try returns true when there is nothing to repeat.
func (h *heartbeat) try(ctx context.Context) bool {
	worker, err := h.rt.held.current(ctx)
	if err != nil {
		return true
	}
	sent := h.rt.moment()
	var reply posthaste.HeartbeatReply
	err = bounded(ctx, h.rt.config.Heartbeat, func(ctx context.Context) (err error) {
		reply, err = h.rt.engine.Heartbeat(ctx, posthaste.Heartbeat{Worker: worker, Queues: h.rt.refs})
		return err
	})
	answered := time.Now()
	switch {
	case posthaste.CodeOf(err) == posthaste.WorkerLost:
		h.renew(ctx, worker)
	case err != nil:
		h.rt.reconcile.poke()
		return !h.retry.failed(ctx, err)
	default:
		h.retry.worked()
		h.alive(sent)
		if !reply.Blind { // or what was told before still counts
			h.rt.schedule.next(answered, reply.TickIn)
			h.rt.rescue.next(answered, reply)
			h.act(reply)
		}
	}
	return true
}

// alive notes that the store has renewed the lease at sent or later.
func (h *heartbeat) alive(sent instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rt.lastBeat.Store(&sent)
	h.late.Reset(h.rt.config.Lease - h.rt.since(sent))
	if h.paused {
		h.paused = false
		h.rt.pool.resume()
	}
}

func (h *heartbeat) act(reply posthaste.HeartbeatReply) {
	for i, look := range reply.Looks {
		if look.Found && i < len(h.rt.refs) {
			h.rt.bell.Wake(h.rt.refs[i].Queue)
		}
	}
	if reply.Maintain {
		token(h.rt.maintain.wake)
	}
}

// renew drops what a lost registration had prefetched and registers anew.
// Handlers that run go on, but their outcomes will be refused.
func (h *heartbeat) renew(ctx context.Context, worker posthaste.WorkerID) {
	dropped, news := h.rt.held.lose(worker)
	if !news {
		return
	}
	h.rt.log.Warn("this worker was declared lost: what it held runs elsewhere; registering anew",
		slog.Any("worker", worker), slog.Int("dropped", dropped))
	h.rt.tell(posthaste.Event{Kind: posthaste.EventLost, Count: dropped})
	for {
		sent := h.rt.moment()
		id, err := h.rt.register(ctx)
		if err == nil {
			h.retry.worked()
			h.rt.held.register(id)
			h.alive(sent)
			return
		}
		if !h.retry.failed(ctx, err) {
			return
		}
	}
}
