package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sharedbell"
)

// maxClaim is the largest number of messages in one claim.
const maxClaim = 1000

// gatherer delivers messages to HTTP receivers. The receivers of one subscription share a
// goroutine, which claims for all of them: a claim holds the lock of the subscription until
// it is on disk, so one claim for sixteen receivers costs as much as each of sixteen claims.
// While a claim runs, further receivers gather for the next claim. While there are no
// messages, the goroutine sleeps at the doorbell for all of them.
type gatherer struct {
	engine  posthaste.Store
	log     *slog.Logger
	timeout time.Duration
	look    time.Duration

	mu         sync.Mutex
	gatherings map[posthaste.QueueRef]*gathering
	bell       *sharedbell.Bell
	draining   bool
	closed     bool
	running    sync.WaitGroup
}

// gathering is the receivers of one subscription, oldest first.
type gathering struct {
	ref     posthaste.QueueRef
	waiters []*waiter
}

// waiter is one receiver. Its fields are guarded by gatherer.mu.
type waiter struct {
	max   int
	lease time.Duration
	// tried reports that a claim that began after the waiter joined found no message, and
	// expired that its time to wait is over. The waiter ends when both are true.
	tried, expired bool
	answered       bool
	// reply has capacity for the one reply, so that sending it never blocks.
	reply chan received
}

type received struct {
	deliveries []posthaste.RawDelivery
	// until is when their lease ends, at the earliest: it counts from before the claim.
	until time.Time
	err   error
}

func newGatherer(engine posthaste.Store, log *slog.Logger, timeout, look time.Duration) *gatherer {
	if look <= 0 {
		look = 500 * time.Millisecond
	}
	return &gatherer{engine: engine, log: log, timeout: timeout, look: look, gatherings: map[posthaste.QueueRef]*gathering{}}
}

// receive waits up to wait for messages of a subscription and returns at most max, or none, and
// the end of their lease by the clock of this process.
// If ctx ends first, it releases messages that were claimed in the meantime. ref must name
// the subscription.
func (g *gatherer) receive(ctx context.Context, ref posthaste.QueueRef, max int, lease, wait time.Duration) (deliveries []posthaste.RawDelivery, until time.Time, err error) {
	w := &waiter{max: max, lease: lease, expired: wait <= 0, reply: make(chan received, 1)}
	if err := g.join(ctx, ref, w); err != nil {
		return nil, until, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case got := <-w.reply:
			return got.deliveries, got.until, got.err
		case <-timer.C:
			g.expire(ref, w)
		case <-ctx.Done():
			g.leave(ref, w)
			return nil, until, ctx.Err()
		}
	}
}

// join adds a waiter to the gathering of its subscription, and starts or wakes that.
func (g *gatherer) join(ctx context.Context, ref posthaste.QueueRef, w *waiter) error {
	bell, err := g.doorbell(ctx, !w.expired)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the server is stopping", Hint: "try again; it may have another address then"}
	}
	if g.draining {
		w.expired = true
	}
	gathered := g.gatherings[ref]
	if gathered == nil {
		gathered = &gathering{ref: ref}
		g.gatherings[ref] = gathered
		g.running.Add(1)
		go g.run(gathered)
	}
	gathered.waiters = append(gathered.waiters, w)
	g.mu.Unlock()
	if bell != nil {
		bell.Wake(ref.Queue)
	}
	return nil
}

// doorbell returns the doorbell, and opens it for the first receiver that waits. It is nil
// while no receiver has waited.
func (g *gatherer) doorbell(ctx context.Context, open bool) (*sharedbell.Bell, error) {
	g.mu.Lock()
	bell := g.bell
	g.mu.Unlock()
	if bell != nil || !open {
		return bell, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	opened, err := g.engine.Doorbell(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bell != nil || g.closed {
		// Another receiver opened it first, or the server was closed.
		go opened.Close()
		return g.bell, nil
	}
	g.bell = sharedbell.New(context.Background(), opened)
	return g.bell, nil
}

// expire ends the wait of a waiter: at once if a claim has found no message since it joined,
// else after the running claim.
func (g *gatherer) expire(ref posthaste.QueueRef, w *waiter) {
	g.mu.Lock()
	w.expired = true
	g.endExpired(g.gatherings[ref])
	bell := g.bell
	g.mu.Unlock()
	if bell != nil {
		bell.Wake(ref.Queue)
	}
}

// leave removes a waiter whose caller has left, and releases the messages it was given.
func (g *gatherer) leave(ref posthaste.QueueRef, w *waiter) {
	g.mu.Lock()
	if !w.answered {
		w.answered = true
		g.drop(g.gatherings[ref], w)
	}
	bell := g.bell
	g.mu.Unlock()
	if bell != nil {
		bell.Wake(ref.Queue)
	}
	select {
	case got := <-w.reply:
		g.release(got.deliveries)
	default:
	}
}

func (g *gatherer) drop(gathered *gathering, gone *waiter) {
	if gathered == nil {
		return
	}
	kept := gathered.waiters[:0]
	for _, w := range gathered.waiters {
		if w != gone {
			kept = append(kept, w)
		}
	}
	clear(gathered.waiters[len(kept):])
	gathered.waiters = kept
}

// give answers a waiter and removes it. The caller holds g.mu.
func (g *gatherer) give(gathered *gathering, w *waiter, got received) {
	w.answered = true
	g.drop(gathered, w)
	w.reply <- got
}

// endExpired answers the expired waiters for which no message was found. The caller holds
// g.mu.
func (g *gatherer) endExpired(gathered *gathering) {
	if gathered == nil {
		return
	}
	for _, w := range append([]*waiter(nil), gathered.waiters...) {
		if w.expired && w.tried {
			g.give(gathered, w, received{})
		}
	}
}

// run claims for the waiters of one subscription until there are none.
func (g *gatherer) run(gathered *gathering) {
	defer g.running.Done()
	// A claim is not cancelled when a receiver leaves, because the claimed messages would be
	// lost until their leases end. Claims only have a time limit.
	ctx := context.Background()
	for {
		_, untried, _ := g.round(ctx, gathered)
		g.mu.Lock()
		if len(gathered.waiters) == 0 {
			delete(g.gatherings, gathered.ref)
			g.mu.Unlock()
			return
		}
		bell := g.bell
		g.mu.Unlock()
		if untried || bell == nil {
			// Without a bell no receiver waits: these have just joined.
			continue
		}
		err := bell.Sleep(ctx, gathered.ref.Queue, func(ctx context.Context) (posthaste.LookReply, error) {
			reply, untried, err := g.round(ctx, gathered)
			g.mu.Lock()
			defer g.mu.Unlock()
			reply.Found = reply.Found || untried || len(gathered.waiters) == 0
			return reply, err
		})
		if err != nil {
			g.failAll(gathered, err)
		}
	}
}

// round claims once for every requested lease. found reports whether messages were claimed,
// and when to look again. untried reports that a waiter has joined since the claims began.
func (g *gatherer) round(ctx context.Context, gathered *gathering) (found posthaste.LookReply, untried bool, err error) {
	found.NextDue = g.look
	for _, group := range g.groups(gathered) {
		asked := 0
		for i, w := range group {
			if asked >= maxClaim {
				group = group[:i]
				break
			}
			asked = min(asked+w.max, maxClaim)
		}
		until := time.Now().Add(group[0].lease)
		reply, failed := g.claim(ctx, gathered.ref, asked, group[0].lease)
		if failed != nil {
			err = failed
		} else if len(reply.Deliveries) == 0 {
			found.AtLimit = reply.AtLimit
			if reply.NextDue >= 0 {
				found.NextDue = min(found.NextDue, reply.NextDue)
			}
		}
		found.Found = found.Found || len(reply.Deliveries) > 0
		g.release(g.distribute(gathered, group, received{reply.Deliveries, until, failed}, len(reply.Deliveries) < asked))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range gathered.waiters {
		untried = untried || !w.tried
	}
	return found, untried, err
}

// groups returns the waiters by lease, in the order in which they joined.
func (g *gatherer) groups(gathered *gathering) [][]*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	var groups [][]*waiter
	at := map[time.Duration]int{}
	for _, w := range gathered.waiters {
		i, ok := at[w.lease]
		if !ok {
			i = len(groups)
			at[w.lease] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], w)
	}
	return groups
}

func (g *gatherer) claim(ctx context.Context, ref posthaste.QueueRef, max int, lease time.Duration) (posthaste.ReceiveReply, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return g.engine.Receive(ctx, posthaste.ReceiveRequest{QueueRef: ref, Max: max, Lease: lease})
}

// distribute distributes claimed messages among a group in the order in which its waiters
// joined, and returns the messages that are left over because waiters have left. empty
// reports that the claim returned less than it requested, so that no message is left.
func (g *gatherer) distribute(gathered *gathering, group []*waiter, claimed received, empty bool) []posthaste.RawDelivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	deliveries := claimed.deliveries
	for _, w := range group {
		if w.answered {
			continue
		}
		switch n := min(w.max, len(deliveries)); {
		case claimed.err != nil:
			g.give(gathered, w, received{err: claimed.err})
		case n > 0:
			g.give(gathered, w, received{deliveries: deliveries[:n:n], until: claimed.until})
			deliveries = deliveries[n:]
		case empty:
			w.tried = true
		}
	}
	g.endExpired(gathered)
	return deliveries
}

func (g *gatherer) failAll(gathered *gathering, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range append([]*waiter(nil), gathered.waiters...) {
		g.give(gathered, w, received{err: err})
	}
}

// release releases messages that no receiver took. It retries until the timeout. Messages
// that could not be released are redelivered after their leases end.
func (g *gatherer) release(deliveries []posthaste.RawDelivery) {
	if len(deliveries) == 0 {
		return
	}
	settlements := make([]posthaste.Settlement, len(deliveries))
	for i, d := range deliveries {
		settlements[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeReleased}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		_, err := g.engine.Settle(ctx, settlements)
		if err == nil {
			return
		}
		if posthaste.CodeOf(err) == posthaste.CodeConflict {
			g.log.Error("deliveries of an at-most-once queue could not be sent to their receiver and are lost",
				"queue", deliveries[0].Queue, "count", len(deliveries), "first", deliveries[0].MessageID, "error", err)
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			g.log.Warn("deliveries could not be released and are redelivered after their leases end",
				"queue", deliveries[0].Queue, "count", len(deliveries), "first", deliveries[0].ID, "error", errors.Join(err, ctx.Err()))
			return
		}
	}
}

// drain ends all waiting. It answers the waiters at once; receivers that join later are
// answered after one claim.
func (g *gatherer) drain() {
	g.mu.Lock()
	g.draining = true
	bell := g.bell
	var asleep []string
	for ref, gathered := range g.gatherings {
		for _, w := range gathered.waiters {
			w.expired = true
		}
		g.endExpired(gathered)
		asleep = append(asleep, ref.Queue)
	}
	g.mu.Unlock()
	if bell == nil {
		return
	}
	for _, queue := range asleep {
		bell.Wake(queue)
	}
}

func (g *gatherer) close() {
	g.drain()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
	g.mu.Lock()
	bell := g.bell
	g.bell = nil
	g.mu.Unlock()
	if bell != nil {
		bell.Close()
	}
}
