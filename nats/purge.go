package nats

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// purging is a call of PurgeQueue.
type purging struct {
	q        *queue
	messages map[string]int64 // how many were removed, by subscription
}

// PurgeQueue implements [posthaste.QueueAdmin]. A message that a claim is taking at this moment may
// still be handed out, and so may one that came to a process and was not handed out yet.
func (e *Engine) PurgeQueue(ctx context.Context, name string) (purged []posthaste.Purged, err error) {
	q, err := e.freshQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &purging{q: q, messages: map[string]int64{}}
	scheduled, err := e.purge(ctx, q.stream, q.subjects.under("s", "*"))
	if err != nil {
		return nil, e.queueError(ctx, q, err)
	}
	for _, s := range q.Subscriptions {
		retries, err := e.purge(ctx, q.stream, q.subjects.under("s", "*", subjectToken(s.Name)))
		if err != nil {
			return nil, err
		}
		p.messages[s.Name] = scheduled + retries
	}
	err = e.purgeWaiting(ctx, p)
	if p.halted() { // purgeWaiting has resumed the consumers
		err = errors.Join(err, e.applyPause(context.WithoutCancel(ctx), name))
	}
	if err != nil {
		return nil, err
	}
	for _, s := range q.Subscriptions {
		purged = append(purged, posthaste.Purged{Subscription: s.Name, Messages: p.messages[s.Name]})
	}
	return purged, e.record(ctx, "purge", name, 0, map[string]any{"messages": p.messages})
}

// halted reports whether the consumers are paused, or may be.
func (p *purging) halted() bool { return p.q.Pause != nil || !p.q.Halted.IsZero() }

// purgeWaiting removes the waiting messages of all subscriptions.
func (e *Engine) purgeWaiting(ctx context.Context, p *purging) error {
	for _, lane := range p.q.lanes() {
		if p.q.Options.Ordered {
			if err := e.purgeBehind(ctx, p, lane); err != nil {
				return err
			}
		}
		for i := range p.q.Subscriptions {
			if err := e.purgeFetched(ctx, p, &p.q.Subscriptions[i], lane); err != nil {
				return err
			}
		}
	}
	return nil
}

// Consumers that were resumed may hand out messages some time later.
const (
	purgeAgain = 50 * time.Millisecond
	purgeTries = 20
)

// purgeFetched fetches the waiting messages of a consumer and acknowledges them. A purge of the stream would also
// remove those that are in flight. A paused consumer is resumed for that: claims obey the entry of the queue.
func (e *Engine) purgeFetched(ctx context.Context, p *purging, sub *subscription, lane int) error {
	c, err := e.js.Consumer(ctx, p.q.stream, p.q.consumer(sub.Name, lane))
	if err != nil {
		return e.queueError(ctx, p.q, err)
	}
	left, tries := int(c.CachedInfo().NumPending), 0
	if p.halted() && left > 0 {
		if _, err := e.js.ResumeConsumer(ctx, p.q.stream, p.q.consumer(sub.Name, lane)); err != nil {
			return e.readError(err)
		}
		tries = purgeTries
	}
	for left > 0 {
		batch, err := c.FetchNoWait(min(left, 500))
		if err != nil {
			return e.readError(err)
		}
		got := 0
		for m := range batch.Messages() {
			got++
			if err := e.purgeOne(ctx, p, sub, m); err != nil {
				return err
			}
		}
		if left -= got; got > 0 {
			continue
		}
		if tries--; tries < 0 || !sleepFor(ctx, purgeAgain) {
			return ctx.Err()
		}
		info, err := c.Info(ctx)
		if err != nil {
			return e.readError(err)
		}
		left = min(left, int(info.NumPending)) // others may have taken some
	}
	return nil
}

// purgeOne records that a message was cancelled, and acknowledges it.
func (e *Engine) purgeOne(ctx context.Context, p *purging, sub *subscription, m jetstream.Msg) error {
	if is, body, err := decode(m.Headers(), m.Data()); err == nil { // foreign messages are removed without a record
		if err := e.recordPurged(ctx, p, sub, is, body); err != nil {
			return err
		}
	}
	if err := m.DoubleAck(ctx); err != nil {
		return e.readError(err)
	}
	p.messages[sub.Name]++
	return nil
}

func (e *Engine) recordPurged(ctx context.Context, p *purging, sub *subscription, is *meta, body []byte) error {
	d := &held{q: p.q, sub: sub, meta: is, body: body, claimedAt: e.clock.now()}
	return e.storeOutcome(ctx, d, is, posthaste.OutcomeCancelled)
}

// purgeBehind removes the entries of a lane of an ordered queue that wait behind a message in flight, which its
// consumer does not hand out until that is settled.
func (e *Engine) purgeBehind(ctx context.Context, p *purging, lane int) error {
	at := positions{upTo: map[string]uint64{}, running: map[uint64]bool{}}
	var all []*subscription
	for i := range p.q.Subscriptions {
		sub := &p.q.Subscriptions[i]
		c, err := e.js.Consumer(ctx, p.q.stream, p.q.consumer(sub.Name, lane))
		if err != nil {
			return e.queueError(ctx, p.q, err)
		}
		info := c.CachedInfo()
		if at.upTo[sub.Name] = info.Delivered.Stream; info.NumAckPending > 0 {
			at.running[info.Delivered.Stream] = true
		}
		all = append(all, sub)
	}
	if err := e.removeBehind(ctx, p, p.q.laneSubject(lane), all, at); err != nil {
		return err
	}
	for _, sub := range all {
		if err := e.removeBehind(ctx, p, p.q.subjects.under("r", subjectToken(sub.Name), strconv.Itoa(lane)), []*subscription{sub}, at); err != nil {
			return err
		}
	}
	return nil
}

// positions are those of the consumers of a lane of an ordered queue. Each has at most one entry in flight:
// the last one that it has delivered.
type positions struct {
	upTo    map[string]uint64 // the last entry that was delivered, by subscription
	running map[uint64]bool   // entries that are in flight for a subscription
}

// removeBehind removes the entries that a filter selects and that wait for some of the subscriptions. One that
// is in flight for another of them stays.
func (e *Engine) removeBehind(ctx context.Context, p *purging, filter string, subs []*subscription, at positions) error {
	for from := uint64(1); ; {
		var found []*rawEntry
		if err := e.scan(ctx, p.q.stream, filter, from, func(m *rawEntry) { found = append(found, m) }); err != nil || len(found) == 0 {
			return err
		}
		for _, m := range found {
			from = m.Sequence + 1
			waits := slices.DeleteFunc(slices.Clone(subs), func(s *subscription) bool { return m.Sequence <= at.upTo[s.Name] })
			if len(waits) == 0 || at.running[m.Sequence] {
				continue
			}
			if removed, err := e.deleteEntry(ctx, p.q.stream, m.Sequence); err != nil {
				return err
			} else if !removed {
				continue
			}
			is, body, foreign := decode(m.Header, m.Data)
			for _, sub := range waits {
				if p.messages[sub.Name]++; foreign != nil {
					continue
				}
				if err := e.recordPurged(ctx, p, sub, is, body); err != nil {
					return err
				}
			}
		}
	}
}
