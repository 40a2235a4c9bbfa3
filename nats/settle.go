package nats

import (
	"cmp"
	"context"
	"sync"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// atOnce is the maximum of settlements other than plain successes that one call works on concurrently.
const atOnce = 64

// Settle implements [posthaste.Engine]. A delivery of another process is settled by that process.
func (e *Engine) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	results := make([]posthaste.SettleResult, len(settlements))
	elsewhere := map[int64][]int{}
	for i, s := range settlements {
		results[i].Delivery = s.Delivery
		if err := jsoncheck.Settlement(&s); err != nil {
			results[i].Err = err
		} else if no := holderOf(s.Delivery); no != e.holding.processNumber() {
			elsewhere[no] = append(elsewhere[no], i)
		}
	}
	for no, indexes := range elsewhere {
		all := make([]posthaste.Settlement, len(indexes))
		for i, at := range indexes {
			all[i] = settlements[at]
		}
		if err := e.forward(ctx, e.processSubject(no), all, indexes, results); err != nil {
			return nil, err
		}
	}
	return results, e.settleOwn(ctx, settlements, results)
}

// settling has the settlements under way in one call of Settle.
type settling struct {
	open  sync.WaitGroup
	slots chan bool
	mu    sync.Mutex
	err   error
}

func (s *settling) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// settleOwn settles deliveries of this process.
func (e *Engine) settleOwn(ctx context.Context, settlements []posthaste.Settlement, results []posthaste.SettleResult) error {
	for _, s := range settlements {
		if s.Delivery > 0 && s.Delivery&handedOutBit != 0 && holderOf(s.Delivery) == e.holding.processNumber() {
			return &posthaste.Error{Code: posthaste.CodeConflict, Field: "mode", Message: "the queue is an at-most-once queue: its deliveries are settled as soon as they are handed out"}
		}
	}
	w, now := &settling{slots: make(chan bool, atOnce)}, uptime()
	for i, s := range settlements {
		d := e.holding.get(s.Delivery)
		if d == nil || results[i].Err != nil || results[i].Settled || !e.holding.beginSettling(d, now) {
			continue
		}
		if s.Outcome == posthaste.OutcomeDone && e.leavesNothing(d) {
			e.settleByAck(d, w, &results[i])
			continue
		}
		w.slots <- true
		now = uptime() // waiting for the slot took time
		w.open.Go(func() {
			defer func() { <-w.slots }()
			r, err := e.settleByEntry(ctx, d, s)
			if endedDelivery(err) {
				e.holding.remove(d)
				return
			}
			if err != nil {
				e.holding.abandonSettling(d)
				w.failed(err)
				return
			}
			e.holding.remove(d)
			results[i] = r
		})
	}
	w.open.Wait()
	return w.err
}

// leavesNothing reports whether a success of a delivery needs an acknowledgment and nothing else: no
// outcome is stored, and there are no notes and no stored attempt to remove.
func (e *Engine) leavesNothing(d *held) bool {
	return d.q.Options.Retention == 0 && !e.holding.hasNote(d) && !(d.q.Options.Ordered && d.delivered > 1)
}

// settleByAck settles a delivery as done by its acknowledgment. It does not wait for the confirmation.
func (e *Engine) settleByAck(d *held, w *settling, result *posthaste.SettleResult) {
	w.open.Add(1)
	e.acks.send(&ack{reply: d.reply, sign: signAck, until: e.holding.leaseOf(d), done: func(confirmed bool) {
		defer w.open.Done()
		if !confirmed {
			e.holding.abandonSettling(d)
			w.failed(cmp.Or(e.denials.recent(), errUnconfirmed))
			return
		}
		e.holding.remove(d)
		result.Settled, result.Outcome = true, posthaste.OutcomeDone
	}})
}

var errUnconfirmed error = &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "NATS has not confirmed an acknowledgment before the lease ended, so the message may be delivered again",
	Hint: "make handlers idempotent, for example by package inbox"}
