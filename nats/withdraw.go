package nats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

const (
	// firesWithin is how long before its time a schedule may already be under way to its target: replacing
	// or removing it then can be too late.
	firesWithin = 2 * time.Second
	// withdrawFor bounds the repetitions while a message moves.
	withdrawFor   = 15 * time.Second
	withdrawPause = 20 * time.Millisecond
)

// errMoved says that a message is not where it was found.
var errMoved = errors.New("nats: the message has moved")

// Cancel implements [posthaste.MessageAdmin]. It is exact for a scheduled message or a retry that is due
// at least 2 s later. A waiting message is removed after all processes were asked not to hand it out; a
// process that does not answer within 2 s may still hand it out.
func (e *Engine) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	c := &cancelling{e: e, done: map[string]posthaste.Withdrawal{}}
	err := e.untilSettled(ctx, func() error {
		s, err := e.find(ctx, id)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound && c.found != nil { // it has ended
			c.ended()
			return nil
		}
		if err != nil {
			return err
		}
		c.found = s
		return c.try(ctx, s)
	})
	if c.changed {
		c.freeDedupeKey(ctx)
		err = errors.Join(err, e.record(ctx, "cancel", c.found.q.Name, id, nil))
	}
	if err != nil {
		return nil, err
	}
	return c.results(), nil
}

// untilSettled calls try until it does not return errMoved.
func (e *Engine) untilSettled(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawFor)
	defer cancel()
	for {
		if err := try(); !errors.Is(err, errMoved) {
			return err
		}
		if !sleepFor(ctx, withdrawPause) {
			return cmp.Or(ctx.Err(), unavailable("the message is being moved at this moment", nil))
		}
	}
}

// cancelling is a call of Cancel.
type cancelling struct {
	e       *Engine
	found   *lookup
	done    map[string]posthaste.Withdrawal // subscriptions that are finished
	changed bool
}

// freeDedupeKey makes the dedupe key free, if the message is cancelled for all subscriptions.
func (c *cancelling) freeDedupeKey(ctx context.Context) {
	for _, w := range c.done {
		if w.State != posthaste.StateCancelled {
			return
		}
	}
	for _, p := range c.found.locations {
		c.e.freeDedupeKey(ctx, c.found.q, p.meta)
		return // all locations are of one message
	}
}

// ended finishes the subscriptions for which the message is no longer found: it has ended while it was
// being cancelled.
func (c *cancelling) ended() {
	for name := range c.found.locations {
		c.finish(posthaste.Withdrawal{Subscription: name, State: posthaste.StateDone})
	}
}

func (c *cancelling) finish(w posthaste.Withdrawal) {
	if _, was := c.done[w.Subscription]; !was {
		c.done[w.Subscription] = w
	}
}

func (c *cancelling) results() (all []posthaste.Withdrawal) {
	for _, w := range c.done {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b posthaste.Withdrawal) int { return cmp.Compare(a.Subscription, b.Subscription) })
	return all
}

// try cancels the message in the locations where it was found.
func (c *cancelling) try(ctx context.Context, s *lookup) error {
	entries := map[uint64][]string{} // the entries to remove, with the subscriptions that wait for them
	asks, later := false, false
	for name, p := range s.locations {
		if _, finished := c.done[name]; finished {
			continue
		}
		switch p.rank {
		case rankDead, rankOver:
			ended := len(p.attempts) > 0 && p.attempts[len(p.attempts)-1].Outcome == posthaste.OutcomeCancelled
			c.finish(posthaste.Withdrawal{Subscription: name, State: p.state, InTime: p.state == posthaste.StateCancelled && !ended})
		case rankHeld:
			if p.state == posthaste.StateHandedOut {
				c.finish(posthaste.Withdrawal{Subscription: name, State: p.state})
			} else {
				asks = true
			}
		case rankRetry, rankSchedule:
			if fromMicros(p.meta.Due).Sub(c.e.clock.now()) < firesWithin {
				later = true // until it has fired
				continue
			}
			entries[p.seq] = append(entries[p.seq], name)
		default:
			asks = true
			entries[p.seq] = append(entries[p.seq], name)
		}
	}
	if asks {
		if err := c.ask(ctx, s, entries); err != nil {
			return err
		}
	}
	if err := c.remove(ctx, s, entries); err != nil {
		return err
	}
	if later {
		return errMoved
	}
	return nil
}

// ask makes all processes withhold the entries, and finishes the subscriptions of which a process holds the
// message, whose attempt learns that it is cancelled.
func (c *cancelling) ask(ctx context.Context, s *lookup, entries map[uint64][]string) error {
	r := withholdRequest{From: c.e.holding.processNumber(), Message: s.id, Stream: s.q.stream, At: micros(c.e.clock.now())}
	for seq, names := range entries {
		if p := s.locations[names[0]]; p.rank == rankCopy || p.rank == rankShared {
			r.Entries = append(r.Entries, seq)
		}
	}
	answer := c.e.holding.withhold(r)
	if len(r.Entries) > 0 {
		others, err := c.e.withholdEverywhere(ctx, r)
		if err != nil {
			return err
		}
		answer.add(others)
	}
	for name, fresh := range answer.Held {
		c.finish(posthaste.Withdrawal{Subscription: name, State: posthaste.StateRunning, Requested: true})
		if c.changed = c.changed || fresh; !fresh {
			continue
		}
		m := recordEntry(s.q.cancelSubject(name, s.id), sentRecord{Sent: []posthaste.Sent{{ID: s.id}}}, cancelledFor)
		if err := c.e.store(ctx, s.q, []*natsgo.Msg{m}); err != nil && !errors.Is(err, errExists) {
			return err
		}
	}
	if answer.Busy {
		return errMoved
	}
	for name, p := range s.locations {
		if _, finished := c.done[name]; p.rank == rankHeld && !finished {
			return errMoved // its lease has ended, or it was settled
		}
	}
	return nil
}

// remove removes the entries, and stores that the message was cancelled.
func (c *cancelling) remove(ctx context.Context, s *lookup, entries map[uint64][]string) error {
	var moved error
	for seq, names := range entries {
		names = slices.DeleteFunc(names, func(name string) bool { _, finished := c.done[name]; return finished })
		if len(names) == 0 {
			continue
		}
		removed, err := c.e.deleteEntry(ctx, s.q.stream, seq)
		if err != nil {
			return err
		}
		if !removed {
			moved = errMoved
			continue
		}
		for _, name := range names {
			c.finish(posthaste.Withdrawal{Subscription: name, State: posthaste.StateCancelled, InTime: true})
			c.changed = true
			if err := c.e.storeEnd(ctx, s.q, name, s.locations[name].meta, s.locations[name].body, posthaste.StateCancelled); err != nil {
				return err
			}
		}
	}
	return moved
}

// Reschedule implements [posthaste.MessageAdmin]. It does not move a waiting message, nor one that is due
// within 2 s.
func (e *Engine) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	if at.IsZero() {
		return nil, posthaste.Invalidf("send_at", "send_at must say when")
	}
	if err := posthaste.CheckTime("send_at", at); err != nil {
		return nil, err
	}
	s, moved, err := e.moveSchedules(ctx, "reschedule", id, at)
	if err != nil {
		return nil, err
	}
	var all []posthaste.Withdrawal
	for name, p := range s.locations {
		all = append(all, posthaste.Withdrawal{Subscription: name, InTime: moved[name], State: p.state})
	}
	slices.SortFunc(all, func(a, b posthaste.Withdrawal) int { return cmp.Compare(a.Subscription, b.Subscription) })
	return all, nil
}

// moveSchedules gives the schedules of a message another time. It returns the message after that, and the
// subscriptions for which it was moved.
func (e *Engine) moveSchedules(ctx context.Context, action string, id posthaste.MessageID, at time.Time) (s *lookup, moved map[string]bool, err error) {
	moved = map[string]bool{}
	err = e.untilSettled(ctx, func() error {
		if s, err = e.find(ctx, id); err != nil {
			return err
		}
		if s.q.Options.Ordered && action == "reschedule" {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: "a message of an ordered queue cannot be rescheduled: all later ones of its key would wait for it", Hint: "cancel it, and send another"}
		}
		return e.moveFound(ctx, s, at, moved)
	})
	if len(moved) > 0 {
		err = errors.Join(err, e.record(ctx, action, s.q.Name, id, nil))
	}
	return s, moved, err
}

func (e *Engine) moveFound(ctx context.Context, s *lookup, at time.Time, moved map[string]bool) error {
	stored := map[uint64]bool{}
	now := e.clock.now()
	for name, p := range s.locations {
		if p.rank != rankRetry && p.rank != rankSchedule || moved[name] || fromMicros(p.meta.Due).Sub(now) < firesWithin {
			continue
		}
		next := *p.meta
		next.Due = micros(at)
		if at.Before(now) {
			next.Due = micros(now)
		}
		next.Since = next.Due
		if !stored[p.seq] { // one schedule for all subscriptions is replaced once
			m := asSchedule(next.encoded(p.subject, p.body), e.targetOf(s.q, name, p), fromMicros(next.Due))
			m.Header.Set(headerExpectedSeq, strconv.FormatUint(p.seq, 10))
			switch err := e.store(ctx, s.q, []*natsgo.Msg{m}); {
			case errors.Is(err, errExists):
				return errMoved
			case err != nil:
				return err
			}
			if _, err := e.deleteEntry(ctx, s.q.stream, p.seq); err != nil {
				return err
			}
			stored[p.seq] = true
		}
		p.meta = &next
		if p.state = posthaste.StateReady; at.After(now) || p.rank == rankRetry {
			p.state = posthaste.StateScheduled
			if next.attempt() > 1 {
				p.state = posthaste.StateRetrying
			}
		}
		moved[name] = true
	}
	return nil
}

// targetOf returns where a schedule is published when it fires.
func (e *Engine) targetOf(q *queue, subscription string, p *location) string {
	if p.rank == rankSchedule {
		return q.waitSubject(p.meta)
	}
	return q.subjects.under("r", subjectToken(subscription), strconv.Itoa(q.laneOf(p.meta)))
}

// RunMessage implements [posthaste.MessageAdmin].
func (e *Engine) RunMessage(ctx context.Context, id posthaste.MessageID) ([]posthaste.RunResult, error) {
	s, _, err := e.moveSchedules(ctx, "run", id, e.clock.now())
	if err != nil {
		return nil, err
	}
	now := e.clock.now()
	queue, info := posthaste.QueueInfo{Name: s.q.Name, Options: s.q.Options, PausedAt: s.q.PausedAt}, s.info(now)
	var all []posthaste.RunResult
	for _, state := range info.Subscriptions {
		r := posthaste.RunResult{Subscription: state.Subscription, State: state.State}
		switch state.State {
		case posthaste.StateReady, posthaste.StateScheduled, posthaste.StateRetrying:
			r.Due, r.HeldBy = true, posthaste.HeldBy(&queue, &info, state.Subscription)
		}
		all = append(all, r)
	}
	return all, nil
}

// UpdateMessage implements [posthaste.MessageAdmin]: it is not supported.
func (e *Engine) UpdateMessage(context.Context, posthaste.MessageID, posthaste.MessageUpdate) (posthaste.Updated, error) {
	return posthaste.Updated{}, unsupported("", "changing stored messages is not supported")
}
