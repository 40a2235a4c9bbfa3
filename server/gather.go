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

// maxClaim is the most one shared claim asks for.
const maxClaim = 1000

// gatherer hands out messages to HTTP receivers. All that wait for one
// subscription share one goroutine, which claims for them together: a claim holds its
// reader's lock until it is on disk, so that one claim for sixteen receivers
// costs what each of sixteen would. While a claim is on its way the next
// receivers gather for the next one; when there is nothing, the goroutine
// sleeps at the doorbell for all of them.
type gatherer struct {
	engine  posthaste.Engine
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
	// tried says that a claim which began after the waiter came found
	// nothing; expired, that its time to wait is over. Both together end it.
	tried, expired bool
	answered       bool
	// answer has room for the one answer, so that nobody waits to give it.
	answer chan received
}

type received struct {
	deliveries []posthaste.RawDelivery
	err        error
}

func newGatherer(engine posthaste.Engine, log *slog.Logger, timeout, look time.Duration) *gatherer {
	if look <= 0 {
		look = 500 * time.Millisecond
	}
	return &gatherer{engine: engine, log: log, timeout: timeout, look: look, gatherings: map[posthaste.QueueRef]*gathering{}}
}

// receive waits up to wait for messages of a subscription, which is named, and
// returns at most max, or none. If ctx ends first, what was handed out meanwhile is handed back.
func (g *gatherer) receive(ctx context.Context, ref posthaste.QueueRef, max int, lease, wait time.Duration) ([]posthaste.RawDelivery, error) {
	w := &waiter{max: max, lease: lease, expired: wait <= 0, answer: make(chan received, 1)}
	if err := g.join(ctx, ref, w); err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case got := <-w.answer:
			return got.deliveries, got.err
		case <-timer.C:
			g.expire(ref, w)
		case <-ctx.Done():
			g.leave(ref, w)
			return nil, ctx.Err()
		}
	}
}

// join adds a waiter to its subscription's gathering and starts or wakes it.
func (g *gatherer) join(ctx context.Context, ref posthaste.QueueRef, w *waiter) error {
	bell, err := g.doorbell(ctx, !w.expired)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return &posthaste.Error{Code: posthaste.Unavailable, Message: "the server is stopping", Hint: "try again, it may be at another address then"}
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

// doorbell returns the doorbell, opening it when the first receiver wants to
// wait. It may be nil where nobody has waited yet.
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
		// Another receiver was faster, or it is over.
		go opened.Close()
		return g.bell, nil
	}
	// The queue may have several subscriptions that are waited for.
	g.bell = sharedbell.New(context.Background(), opened)
	return g.bell, nil
}

// expire ends a waiter's waiting: at once if nothing was found since it came, else after the claim that is under way.
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

// leave takes a waiter out whose caller has gone. What it was given already is
// handed back.
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
	case got := <-w.answer:
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

// give answers a waiter and takes it out. g.mu is held.
func (g *gatherer) give(gathered *gathering, w *waiter, got received) {
	w.answered = true
	g.drop(gathered, w)
	w.answer <- got
}

// endExpired answers those whose time is over and for whom nothing was found. g.mu is held.
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
	// What a claim hands out must be known to somebody, so no caller's leaving
	// cuts it off: claims have a time limit only.
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
			// Without a bell nobody waits: who is here came this moment.
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

// round claims once for every lease that is asked for. found says whether
// something was handed out, and when to look again; untried that somebody waits
// for whom no claim was made yet.
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
		g.release(g.distribute(gathered, group, reply.Deliveries, len(reply.Deliveries) < asked, failed))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range gathered.waiters {
		untried = untried || !w.tried
	}
	return found, untried, err
}

// groups returns the waiters by lease, in the order they came.
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

// distribute gives a group what was claimed for it, first come first served,
// and returns what nobody is there for any more. empty says that the claim got
// less than it asked for, so that there is no more.
func (g *gatherer) distribute(gathered *gathering, group []*waiter, deliveries []posthaste.RawDelivery, empty bool, err error) []posthaste.RawDelivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range group {
		if w.answered {
			continue
		}
		switch n := min(w.max, len(deliveries)); {
		case err != nil:
			g.give(gathered, w, received{err: err})
		case n > 0:
			g.give(gathered, w, received{deliveries: deliveries[:n:n]})
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

// release hands back what nobody took. It tries for a while; what the store
// does not take back comes again when its lease ends.
func (g *gatherer) release(deliveries []posthaste.RawDelivery) {
	if len(deliveries) == 0 {
		return
	}
	settlements := make([]posthaste.Settlement, len(deliveries))
	for i, d := range deliveries {
		settlements[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Released}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		_, err := g.engine.Settle(ctx, settlements)
		if err == nil {
			return
		}
		if posthaste.CodeOf(err) == posthaste.Conflict {
			g.log.Error("deliveries of a queue that hands out at most once could not be answered, and are lost",
				"queue", deliveries[0].Queue, "count", len(deliveries), "first", deliveries[0].MessageID, "error", err)
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			g.log.Warn("deliveries could not be handed back and come again when their lease ends",
				"queue", deliveries[0].Queue, "count", len(deliveries), "first", deliveries[0].ID, "error", errors.Join(err, ctx.Err()))
			return
		}
	}
}

// drain ends all waiting: whoever waits is answered now, whoever comes later
// is answered after one look.
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
