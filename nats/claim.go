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
	q, sub, err := e.findSubscription(ctx, req.QueueRef)
	if err != nil {
		return reply, err
	}
	before := e.holding.ofWorker(req.Worker)
	for _, d := range before {
		if d.claimNumber == req.Number { // repeated after a lost response
			reply.Deliveries = append(reply.Deliveries, d.raw())
		}
	}
	if len(reply.Deliveries) > 0 {
		return reply, nil
	}
	c := &claiming{q: q, sub: sub, n: req.Max, allowAlone: req.AllowAlone}
	err = e.pull(ctx, c)
	for _, d := range c.got {
		d.claimNumber = req.Number
		if e.holding.add(d, req.Worker) {
			reply.Deliveries = append(reply.Deliveries, d.raw())
		}
	}
	reply.AloneWaiting, reply.NextDue = c.aloneWaits, c.nextDue()
	if len(c.got) > 0 {
		err = nil // another consumer failed
	}
	return reply, err
}

// claiming is a claim or a receive under way.
type claiming struct {
	q          *queue
	sub        *subscription
	n          int // the maximum of deliveries
	allowAlone bool

	got        []*held
	aloneWaits bool // a message waits that must run alone
	expired    bool // messages came that were older than max_age
}

// full reports whether nothing more may be handed out.
func (c *claiming) full() bool {
	return len(c.got) >= c.n || c.aloneWaits || len(c.got) == 1 && c.got[0].alone
}

// nextDue is zero if only expired messages came, because others may wait behind them.
func (c *claiming) nextDue() time.Duration {
	if c.expired && len(c.got) == 0 {
		return 0
	}
	return -1
}

// pull fetches messages of a subscription, and hands them out to c.
func (e *Engine) pull(ctx context.Context, c *claiming) error {
	if !c.q.PausedAt.IsZero() {
		return nil
	}
	if c.q.Options.Ordered {
		return e.pullOrdered(ctx, c)
	}
	for _, lane := range e.laneOrder(c.q) {
		b := e.buffers.of(c.q, c.sub, lane)
		if e.handOut(c, b); c.full() {
			return nil
		}
		if err := e.pullFrom(ctx, c, b); err != nil || c.full() {
			return err
		}
	}
	return nil
}

// orderedClaimWait is how long a claim of an ordered queue waits for the first message.
const orderedClaimWait = 30 * time.Millisecond

// pullOrdered is pull for an ordered queue. A consumer whose one message is in flight does not answer
// a pull. So each consumer has a pull that stays open, and a claim takes the messages that have come.
func (e *Engine) pullOrdered(ctx context.Context, c *claiming) error {
	rings := make(chan bool, 1)
	defer e.buffers.listen(c.q.Name, rings)()
	timer := time.NewTimer(orderedClaimWait)
	defer timer.Stop()
	for {
		for _, lane := range c.q.lanes() {
			b := e.buffers.of(c.q, c.sub, lane)
			if e.handOut(c, b); c.full() {
				return nil
			}
			if err := e.buffers.openWaiting(b); err != nil {
				return e.readError(err)
			}
		}
		if len(c.got) > 0 {
			return nil
		}
		select {
		case <-rings:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pullAgain is when a pull without an answer is sent again: a server that hands over or loses the lead of a
// consumer drops the pulls that it has. If the earlier one was only slow, its messages come into the buffer, so a
// repetition asks for one message.
const pullAgain = time.Second

// pullFrom pulls from a consumer and takes the messages that come.
func (e *Engine) pullFrom(ctx context.Context, c *claiming, b *buffer) error {
	timer := time.NewTimer(pullAgain)
	defer timer.Stop()
	n := c.n - len(c.got)
	for range callTimeout / pullAgain {
		p, err := e.buffers.open(b, n, false)
		if err != nil {
			return e.readError(err)
		}
		n = 1
		timer.Reset(pullAgain)
		select {
		case <-p.done:
			e.handOut(c, b)
			if fault := e.buffers.faultOf(p); fault != "" && len(c.got) == 0 {
				return unavailable("NATS does not hand out messages: "+fault, nil)
			}
			return nil
		case <-timer.C:
			if e.handOut(c, b); len(c.got) > 0 || c.full() {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if denial := e.denials.recent(); denial != nil {
		return denial
	}
	e.leaveIfCutOff()
	return unavailable("NATS does not hand out messages", nil)
}

// laneOrder returns the lanes of a queue in the order in which a claim asks their consumers: by
// priority, and in each eighth claim another one first, so that none starves.
func (e *Engine) laneOrder(q *queue) []int {
	lanes := q.lanes()
	if n := e.turns.Add(1); len(lanes) > 1 && n%8 == 0 {
		first := 1 + int(n/8)%(len(lanes)-1)
		lanes = slices.Insert(slices.Delete(slices.Clone(lanes), first, first+1), 0, lanes[first])
	}
	return lanes
}

// handOut moves messages from the buffer of a consumer to the claim, which gives them ids. A message that
// must run alone is handed out alone, and only if the claim allows that; otherwise it stays.
func (e *Engine) handOut(c *claiming, b *buffer) {
	now := e.clock.now()
	for at := uptime(); !c.full(); {
		next := e.buffers.next(b, at)
		if next == nil {
			return
		}
		d := next.held(c.q, c.sub, b, now)
		switch age := c.q.Options.MaxAge; {
		case age > 0 && now.Sub(d.meta.since()) > age:
			c.expired = true
			e.runInBackground(func(ctx context.Context) { e.expire(ctx, d, posthaste.OutcomeExpired) })
		case d.alone && (len(c.got) > 0 || !c.allowAlone):
			e.buffers.putBack(b, next)
			c.aloneWaits = len(c.got) == 0
			return
		default:
			// A message that was due within dueSoon was sent without a schedule.
			if early := fromMicros(d.meta.Due).Sub(now); early > 0 && early <= dueSoon {
				time.Sleep(early)
				at = uptime()
			}
			c.got = append(c.got, d)
		}
	}
}

// held makes a delivery of a message that arrived.
func (a *arrival) held(q *queue, sub *subscription, b *buffer, now time.Time) *held {
	m := *a.meta
	return &held{q: q, sub: sub, lane: b.lane, meta: &m, body: a.body, reply: a.Reply, seq: a.seq, delivered: a.delivered, claimedAt: now, lease: a.lease, alone: m.Losses >= 2}
}

// since returns when the age of the message begins: see max_age.
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

// Receive implements [posthaste.Engine]. This process holds the deliveries, and extends their leases at
// the server up to the requested one. So they end with this process, too.
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	reply := posthaste.ReceiveReply{NextDue: -1}
	switch {
	case req.Max < 1 || req.Max > 1000:
		return reply, posthaste.Invalidf("max", "max must be 1 to 1000, got %d", req.Max)
	case req.Lease <= 0 || req.Lease > 12*time.Hour:
		return reply, posthaste.Invalidf("lease", "lease must be above zero and at most 12h, got %s", req.Lease)
	}
	q, sub, err := e.findSubscription(ctx, req.QueueRef)
	if err != nil {
		return reply, err
	}
	c := &claiming{q: q, sub: sub, n: req.Max, allowAlone: true}
	err = e.pull(ctx, c)
	for _, d := range c.got {
		d.until = uptime() + req.Lease
		if e.holding.add(d, 0) {
			reply.Deliveries = append(reply.Deliveries, d.raw())
		}
	}
	reply.NextDue = c.nextDue()
	if len(c.got) > 0 {
		err = nil
	}
	return reply, err
}
