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

// renew asks the servers for a new AckWait of deliveries. An unconfirmed one keeps its old lease. A
// server that is cut off confirms signs of progress that the others do not know. So the leases are
// extended only if the store has taken a write after that, for which it needs a majority.
func (e *Engine) renew(ctx context.Context, all []*held) {
	var open sync.WaitGroup
	var mu sync.Mutex
	var done []renewed
	for _, d := range all {
		e.progress(d, &open, func(lease time.Duration) {
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
		e.holding.extend(r.d, r.lease)
	}
}

// progress sends a sign of progress, and calls done with the lease that begins when it is sent, once the
// server has confirmed it.
func (e *Engine) progress(d *held, open *sync.WaitGroup, done func(lease time.Duration)) {
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

// extend sets a later lease.
func (h *holding) extend(d *held, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.lease = max(d.lease, lease)
}

// giveBack gives back all deliveries of a worker, and what came and was not handed out.
func (e *Engine) giveBack(ctx context.Context, worker posthaste.WorkerID) {
	e.loseAll(ctx, e.holding.of(worker))
	e.emptyHands(ctx, true)
}

// emptyHands gives back messages that came and were not handed out, without an attempt: the late ones,
// or all.
func (e *Engine) emptyHands(ctx context.Context, everything bool) {
	var open sync.WaitGroup
	for t, all := range e.taps.emptied(everything) {
		q := e.queues.known(t.queue)
		if q == nil || q.subscription(t.subscription) == nil {
			continue
		}
		for _, a := range all {
			open.Go(func() {
				d := a.held(q, q.subscription(t.subscription), t, e.clock.now())
				if q.Options.Mode == posthaste.AtMostOnce { // it was acknowledged
					_ = e.store(ctx, q, []*natsgo.Msg{e.following(d, d.meta, posthaste.OutcomeReleased, e.clock.now())})
					return
				}
				_, _ = e.continues(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeReleased}) // or AckWait ends
			})
		}
	}
	open.Wait()
}

func (e *Engine) loseAll(ctx context.Context, all []*held) (lost int) {
	results := make(chan bool, len(all))
	slots := make(chan bool, atOnce)
	for _, d := range all {
		slots <- true
		go func() {
			defer func() { <-slots }()
			results <- e.lose(ctx, d)
		}()
	}
	for range all {
		if <-results {
			lost++
		}
	}
	return lost
}

// rescue gives back the deliveries of this process whose receiver's lease or whose worker's lease
// has ended. The server hands out those of other processes again when AckWait has passed. It
// returns how many this process has continued since the last call, in one way or the other.
func (e *Engine) rescue(ctx context.Context) int {
	e.loseExpired(ctx)
	return int(e.rescued.Swap(0))
}

func (e *Engine) loseExpired(ctx context.Context) {
	e.rescued.Add(int64(e.loseAll(ctx, e.holding.expired(e.lost))))
}

// expired returns deliveries of receivers whose time has passed, and of workers that are lost.
func (h *holding) expired(lost func(posthaste.WorkerID) bool) (all []*held) {
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

// keepLeases extends the leases of deliveries at the server, gives back those whose holder is gone,
// and forgets those that the server has handed out to others. A worker whose heartbeats are further
// apart than AckWait keeps its deliveries so.
func (e *Engine) keepLeases(ctx context.Context) {
	e.loseExpired(ctx)
	e.holding.forget()
	if all := e.holding.ending(e.lost); len(all) > 0 {
		e.renew(ctx, all)
	}
}

// ending returns the deliveries of living workers and receivers of which half of AckWait has
// passed.
func (h *holding) ending(lost func(posthaste.WorkerID) bool) (all []*held) {
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

// forget removes deliveries whose lease ended long ago.
func (h *holding) forget() {
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
	for _, d := range e.holding.of(worker) {
		if d.number <= upTo {
			ids = append(ids, d.id)
		}
	}
	return ids, ctx.Err()
}

// look looks for messages of a subscription without taking any.
func (e *Engine) look(ctx context.Context, ref posthaste.QueueRef) (posthaste.LookReply, error) {
	reply := posthaste.LookReply{NextDue: -1}
	q, sub, err := e.subscribed(ctx, ref)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound || err == nil && !q.PausedAt.IsZero() {
		return reply, nil
	}
	if err != nil {
		return reply, err
	}
	for _, track := range q.tracks() {
		t := e.taps.of(q, sub, track)
		if e.taps.holds(t) {
			reply.Found = true
			return reply, nil
		}
		c, err := e.js.Consumer(ctx, q.stream, t.consumer)
		if err != nil {
			return reply, e.fault(err)
		}
		if c.CachedInfo().NumPending > 0 {
			reply.Found = true
			return reply, nil
		}
	}
	return reply, nil
}

// holds reports whether messages of a consumer wait in this process.
func (s *taps) holds(t *tap) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(t.hand) > 0
}
