package nats

import (
	"context"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Claim implements [posthaste.Engine].
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	reply := posthaste.ClaimReply{NextDue: -1}
	if req.Max < 1 || req.Max > posthaste.MaxPlaces {
		return reply, posthaste.Invalidf("max", "max must be 1 to %d, got %d", posthaste.MaxPlaces, req.Max)
	}
	if err := e.alive(ctx, req.Worker); err != nil {
		return reply, err
	}
	q, sub, err := e.subscribed(ctx, req.QueueRef)
	if err != nil {
		return reply, err
	}
	before := e.holding.of(req.Worker)
	for _, d := range before {
		if d.number == req.Number { // repeated after a lost response
			reply.Deliveries = append(reply.Deliveries, d.raw())
		}
	}
	if len(reply.Deliveries) > 0 {
		return reply, nil
	}
	got, alone, err := e.pull(ctx, q, sub, req.Max, req.AllowAlone)
	for _, d := range got {
		d.number = req.Number
		e.holding.add(d, req.Worker)
		reply.Deliveries = append(reply.Deliveries, d.raw())
	}
	reply.AloneWaiting = alone
	if len(got) > 0 {
		err = nil // of a further consumer
	}
	return reply, err
}

// pull returns up to n messages of a subscription. aloneWaits says that one waits that must run alone.
func (e *Engine) pull(ctx context.Context, q *queue, sub *subscription, n int, allowAlone bool) (got []*held, aloneWaits bool, err error) {
	if !q.PausedAt.IsZero() {
		return nil, false, nil
	}
	if q.Options.Ordered {
		return e.pullOrdered(ctx, q, sub, n, allowAlone)
	}
	for _, track := range e.turn(q) {
		t := e.taps.of(q, sub, track)
		got, aloneWaits = e.hand(q, sub, t, got, n, allowAlone)
		if len(got) >= n || aloneWaits || len(got) == 1 && got[0].alone {
			return got, aloneWaits, nil
		}
		p, err := e.taps.open(t, n-len(got), false)
		if err != nil {
			return got, false, e.fault(err)
		}
		if got, aloneWaits, err = e.finish(ctx, q, sub, p, got, n, allowAlone); err != nil || aloneWaits || len(got) >= n {
			return got, aloneWaits, err
		}
	}
	return got, aloneWaits, nil
}

// shortWait is how long a claim of an ordered queue waits for the first message.
const shortWait = 30 * time.Millisecond

// pullOrdered is pull for an ordered queue. A consumer that has its one message in hand does not
// answer a pull, so that each has a pull that stays open, and a claim takes what has come.
func (e *Engine) pullOrdered(ctx context.Context, q *queue, sub *subscription, n int, allowAlone bool) (got []*held, aloneWaits bool, err error) {
	rings := make(chan bool, 1)
	defer e.taps.listen(q.Name, rings)()
	timer := time.NewTimer(shortWait)
	defer timer.Stop()
	for {
		for _, track := range q.tracks() {
			t := e.taps.of(q, sub, track)
			var waits bool
			if got, waits = e.hand(q, sub, t, got, n, allowAlone); waits {
				aloneWaits = true
			}
			if len(got) >= n || len(got) == 1 && got[0].alone {
				return got, aloneWaits, nil
			}
			if _, err := e.taps.openWaiting(t); err != nil {
				return got, aloneWaits, e.fault(err)
			}
		}
		if len(got) > 0 || aloneWaits {
			return got, aloneWaits, nil
		}
		select {
		case <-rings:
		case <-timer.C:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// finish waits for a pull and takes what it brought.
func (e *Engine) finish(ctx context.Context, q *queue, sub *subscription, p *pull, got []*held, n int, allowAlone bool) ([]*held, bool, error) {
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		if refused := e.denials.recent(); refused != nil {
			return got, false, refused
		}
		e.doubt()
		return got, false, unavailable("NATS does not hand out messages", nil)
	case <-ctx.Done():
		return got, false, ctx.Err()
	}
	got, alone := e.hand(q, sub, p.tap, got, n, allowAlone)
	if fault := e.taps.faultOf(p); fault != "" && len(got) == 0 {
		return got, alone, unavailable("NATS does not hand out messages: "+fault, nil)
	}
	return got, alone, nil
}

// turn returns the consumers of a queue in the order in which a claim asks them: by priority, and in
// each eighth claim another one first, so that none starves.
func (e *Engine) turn(q *queue) []int {
	tracks := q.tracks()
	if n := e.turns.Add(1); len(tracks) > 1 && n%8 == 0 {
		first := 1 + int(n/8)%(len(tracks)-1)
		tracks = slices.Insert(slices.Delete(slices.Clone(tracks), first, first+1), 0, tracks[first])
	}
	return tracks
}

// hand takes messages from the hand of a consumer until there are n. A message that must run alone is
// handed out alone, and only if it is allowed; otherwise it stays, and waits is true.
func (e *Engine) hand(q *queue, sub *subscription, t *tap, got []*held, n int, allowAlone bool) (all []*held, waits bool) {
	now := e.clock.now()
	for len(got) < n {
		next := e.taps.takes(t, 1)
		if len(next) == 0 {
			return got, false
		}
		d := e.heldOf(q, sub, t, next[0], now)
		switch {
		case d == nil:
		case d.alone && (len(got) > 0 || !allowAlone):
			e.taps.back(t, next[0])
			return got, len(got) == 0
		default:
			if got = append(got, d); d.alone {
				return got, false
			}
		}
	}
	return got, false
}

// heldOf makes a delivery of a message that arrived, or ends the message, if it is too old, and
// returns nil.
func (e *Engine) heldOf(q *queue, sub *subscription, t *tap, a *arrival, now time.Time) *held {
	d := a.held(q, sub, t, now)
	if age := q.Options.MaxAge; age > 0 && now.Sub(d.meta.since()) > age {
		e.goes(func(ctx context.Context) { e.ends(ctx, d, posthaste.OutcomeExpired) })
		return nil
	}
	return d
}

// held makes a delivery of a message that arrived.
func (a *arrival) held(q *queue, sub *subscription, t *tap, now time.Time) *held {
	m := *a.meta
	return &held{q: q, sub: sub, track: t.track, meta: &m, body: a.body, reply: a.Reply, seq: a.seq, delivered: a.delivered, claimedAt: now, lease: a.lease, alone: m.Losses >= 2}
}

// since is when the message's age begins to count.
func (m *meta) since() time.Time {
	switch {
	case m.Since != 0:
		return fromMicros(m.Since)
	case m.Due != 0:
		return fromMicros(m.Due)
	}
	return fromMicros(m.At)
}

// raw returns the delivery as workers get it.
func (d *held) raw() posthaste.RawDelivery {
	m := d.meta
	o := d.q.Options.Attempts(m.Kind, m.own())
	return posthaste.RawDelivery{ID: d.id, MessageID: m.ID, Queue: d.q.Name, Subscription: d.sub.Name, Attempt: m.attempt(), Key: m.Key, Kind: m.Kind, Headers: m.Headers,
		Reference: m.Reference, ContentType: m.Type, Payload: d.body, CreatedAt: fromMicros(m.At), DueAt: fromMicros(m.Due), Timeout: o.Timeout, Story: m.Story, Alone: d.alone,
		AtMostOnce: d.q.Options.Mode == posthaste.AtMostOnce}
}

// Receive implements [posthaste.Engine]. The delivery is held by this process, which extends its
// lease at the server up to the one that was requested.
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	reply := posthaste.ReceiveReply{NextDue: -1}
	switch {
	case req.Max < 1 || req.Max > 1000:
		return reply, posthaste.Invalidf("max", "max must be 1 to 1,000, got %d", req.Max)
	case req.Lease <= 0 || req.Lease > 12*time.Hour:
		return reply, posthaste.Invalidf("lease", "lease must be above zero and at most 12h, got %s", req.Lease)
	}
	q, sub, err := e.subscribed(ctx, req.QueueRef)
	if err != nil {
		return reply, err
	}
	got, _, err := e.pull(ctx, q, sub, req.Max, true)
	for _, d := range got {
		d.until = uptime() + req.Lease
		e.holding.add(d, 0)
		reply.Deliveries = append(reply.Deliveries, d.raw())
	}
	if len(got) > 0 {
		err = nil
	}
	return reply, err
}
