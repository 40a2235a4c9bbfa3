package nats

import (
	"context"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// renewed is a delivery and the lease that its server has confirmed.
type renewed struct {
	d     *held
	lease time.Duration
}

// renew extends the leases of deliveries by signs of progress. A delivery whose sign is not confirmed
// keeps its lease. A server that is cut off confirms signs that the others do not know, so the leases
// are extended only if the store has taken a write after that, which needs a majority.
func (e *Engine) renew(ctx context.Context, all []*held) {
	var open sync.WaitGroup
	var mu sync.Mutex
	var done []renewed
	for _, d := range all {
		e.sendProgress(d, &open, func(lease time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, renewed{d, lease})
		})
	}
	waitFor(ctx, &open, partTimeout)
	mu.Lock()
	confirmed := done
	done = nil
	mu.Unlock()
	if len(confirmed) == 0 || e.reach(ctx) != nil {
		return
	}
	for _, r := range confirmed {
		e.holding.extendLease(r.d, r.lease)
	}
}

// sendProgress sends a sign of progress. Once the server has confirmed it, it calls done with the end of the
// new lease, which began when the sign was sent.
func (e *Engine) sendProgress(d *held, open *sync.WaitGroup, done func(lease time.Duration)) {
	until := e.holding.leaseOf(d)
	if at := uptime(); at < until {
		open.Add(1)
		e.acks.send(&ack{reply: d.reply, sign: signProgress, until: min(until, at+repeatAfter), done: func(confirmed bool) {
			defer open.Done()
			if confirmed {
				done(at + d.sub.AckWait - margin)
			}
		}})
	}
}

// waitFor waits for a group, at most for a time.
func waitFor(ctx context.Context, open *sync.WaitGroup, most time.Duration) {
	done := make(chan bool)
	go func() { defer close(done); open.Wait() }()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// extendLease sets a later lease.
func (h *holding) extendLease(d *held, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.lease = max(d.lease, lease)
}

// giveBackAll settles all deliveries of a worker as lost, and gives back all messages that came to this
// process and were not handed out.
func (e *Engine) giveBackAll(ctx context.Context, worker posthaste.WorkerID) {
	e.settleAllLost(ctx, e.holding.ofWorker(worker))
	e.emptyBuffers(ctx, true)
}

// emptyBuffers gives back messages that came and were not handed out, without counting an attempt: those
// whose lease ends soon, or all.
func (e *Engine) emptyBuffers(ctx context.Context, everything bool) {
	var open sync.WaitGroup
	for b, all := range e.buffers.drain(everything) {
		q, sub := e.sourceOf(b)
		if sub == nil {
			continue
		}
		for _, a := range all {
			open.Go(func() {
				d := a.held(q, sub, b, e.clock.now())
				if q.Options.Mode == posthaste.AtMostOnce { // it was acknowledged when it came
					_ = e.store(ctx, q, []*natsgo.Msg{e.followingEntry(d, d.meta, posthaste.OutcomeReleased, e.clock.now())})
					return
				}
				_, _ = e.settleByEntry(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeReleased}) // after an error, it is redelivered when AckWait has passed
			})
		}
	}
	open.Wait()
}

func (e *Engine) settleAllLost(ctx context.Context, all []*held) (lost int) {
	results := make(chan bool, len(all))
	slots := make(chan bool, atOnce)
	for _, d := range all {
		slots <- true
		go func() {
			defer func() { <-slots }()
			results <- e.settleLost(ctx, d)
		}()
	}
	for range all {
		if <-results {
			lost++
		}
	}
	return lost
}

// rescue settles the deliveries of this process whose receiver's or worker's lease has ended as lost.
// The server redelivers those of other processes that are gone when AckWait has passed, see
// continueLost. It returns how many lost deliveries this process has continued since the last call.
func (e *Engine) rescue(ctx context.Context) int {
	e.settleExpired(ctx)
	return int(e.rescued.Swap(0))
}

func (e *Engine) settleExpired(ctx context.Context) {
	e.rescued.Add(int64(e.settleAllLost(ctx, e.holding.abandoned(e.lost))))
}

// abandoned returns deliveries of receivers whose time has passed, and of workers that are lost.
func (h *holding) abandoned(lost func(posthaste.WorkerID) bool) (all []*held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	for worker, of := range h.byWork {
		gone := worker != 0 && lost(worker)
		for _, d := range of {
			if gone || d.until != 0 && now > d.until {
				all = append(all, d)
			}
		}
	}
	return all
}

// keepLeases extends the leases of deliveries at the server, settles those whose holder is gone as lost,
// and forgets those that the server has redelivered. So a worker keeps its deliveries even if its
// heartbeats are further apart than AckWait.
func (e *Engine) keepLeases(ctx context.Context) {
	e.settleExpired(ctx)
	e.holding.forgetEnded()
	if all := e.holding.toRenew(e.lost); len(all) > 0 {
		e.renew(ctx, all)
	}
}

// toRenew returns the deliveries of live workers and receivers of whose AckWait half has passed.
func (h *holding) toRenew(lost func(posthaste.WorkerID) bool) (all []*held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	for worker, of := range h.byWork {
		if len(of) == 0 || worker != 0 && lost(worker) {
			continue
		}
		for _, d := range of {
			if !d.settling && (worker != 0 || now <= d.until) && d.lease-now < d.sub.AckWait/2 {
				all = append(all, d)
			}
		}
	}
	return all
}

// forgetEnded removes deliveries whose lease ended long ago.
func (h *holding) forgetEnded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	for id, d := range h.byID {
		if now > d.lease+2*d.sub.AckWait {
			delete(h.byID, id)
			delete(h.byWork[d.worker], id)
		}
	}
}

// Unsettled implements [posthaste.Engine].
func (e *Engine) Unsettled(ctx context.Context, worker posthaste.WorkerID, upTo int64) (ids []posthaste.DeliveryID, err error) {
	if err := e.alive(ctx, worker); err != nil {
		return nil, err
	}
	for _, d := range e.holding.ofWorker(worker) {
		if d.claimNumber <= upTo {
			ids = append(ids, d.id)
		}
	}
	return ids, ctx.Err()
}

// look looks for messages of a subscription without taking any.
func (e *Engine) look(ctx context.Context, ref posthaste.QueueRef) (posthaste.LookReply, error) {
	reply := posthaste.LookReply{NextDue: -1}
	q, sub, err := e.findSubscription(ctx, ref)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound || err == nil && !q.PausedAt.IsZero() {
		return reply, nil
	}
	if err != nil {
		return reply, err
	}
	for _, lane := range q.lanes() {
		b := e.buffers.of(q, sub, lane)
		if e.buffers.hasMessages(b) {
			reply.Found = true
			return reply, nil
		}
		c, err := e.js.Consumer(ctx, q.stream, b.consumer)
		if err != nil {
			return reply, e.readError(err)
		}
		if c.CachedInfo().NumPending > 0 {
			reply.Found = true
			return reply, nil
		}
	}
	return reply, nil
}

// hasMessages reports whether the buffer of a consumer has messages.
func (s *buffers) hasMessages(b *buffer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(b.arrivals) > 0
}
