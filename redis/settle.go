package redis

import (
	"context"
	"math/rand/v2"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// settlement is a settlement in the form of settle.lua.
type settlement struct {
	Delivery string   `codec:"d"`
	Outcome  string   `codec:"o"`
	Error    string   `codec:"e,omitempty"`
	Receipt  string   `codec:"r,omitempty"`
	Terms    []string `codec:"t,omitempty"`
	Duration float64  `codec:"u,omitempty"`
	After    *int64   `codec:"a,omitempty"`
	Jitter   float64  `codec:"j"`
}

// Settle implements [posthaste.Engine]. It runs one script per queue and 1,000 settlements.
func (e *Engine) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results := make([]posthaste.SettleResult, len(settlements))
	ids := make([]int64, len(settlements))
	for i := range settlements {
		ids[i], results[i].Delivery = int64(settlements[i].Delivery), settlements[i].Delivery
	}
	queues, err := e.registry.ofIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range ids {
		if q := queues[number(ids[i])]; q != nil && q.once != "" {
			return nil, &posthaste.Error{Code: posthaste.CodeConflict, Field: "mode", Message: "queue " + quote.Name(q.name) + " delivers at most once: its deliveries are settled when they are handed out"}
		}
	}
	byQueue := map[*queue][]int{}
	for i := range settlements {
		if results[i].Err = jsoncheck.Settlement(&settlements[i]); results[i].Err != nil {
			continue
		}
		if q := queues[number(ids[i])]; q != nil && ids[i] > 0 {
			byQueue[q] = append(byQueue[q], i)
		}
	}
	for q, of := range byQueue {
		for len(of) > 0 {
			n := min(len(of), claimMost)
			if err := e.settle(ctx, q, settlements, results, of[:n]); err != nil {
				return nil, writeError(err)
			}
			of = of[n:]
		}
	}
	return results, nil
}

// settle settles the deliveries of one queue.
func (e *Engine) settle(ctx context.Context, q *queue, settlements []posthaste.Settlement, results []posthaste.SettleResult, of []int) error {
	var others []int
	var said arguments
	plain, places := make([]int, 0, len(of)), make([]string, len(of))
	args := append(make(arguments, 0, 3+len(of)), arg{"number", q.numberArg}, arg{"rules", q.rules}, arg{"plainly", 0})
	for _, i := range of {
		s := &settlements[i]
		if s.Outcome == posthaste.OutcomeDone && s.Duration == 0 && len(s.Receipt) == 0 && len(s.Terms) == 0 {
			plain = append(plain, i)
			at := &places[len(plain)-1]
			*at = place(int64(s.Delivery))
			args = append(args, arg{is: at}) // a pointer, because a string in an interface takes another allocation
			continue
		}
		others = append(others, i)
		said = append(said, arg{is: packed(settlementOf(q, s))})
	}
	args[2].is = len(plain)
	args = append(args, said...)
	reply, err := e.settleKnown(ctx, q, args)
	if err != nil || reply == "gone" {
		return err
	}
	all, err := list("settle", reply, 2)
	if err != nil {
		return err
	}
	was := str(all[0])
	answers, _ := all[1].([]any)
	if len(was) != len(plain) || len(answers) != 2*len(others) {
		return unexpected("settle", reply)
	}
	for n, i := range plain {
		if was[n] == '1' {
			results[i].Settled, results[i].Outcome = true, posthaste.OutcomeDone
		}
	}
	for n, i := range others {
		outcome := str(answers[2*n])
		results[i].Settled, results[i].Outcome = outcome != "", posthaste.Outcome(outcome)
		if due, ok := parseMicros(str(answers[2*n+1])); ok {
			results[i].DueAt = at(due)
		}
	}
	return nil
}

// settleKnown runs settle.lua. If another queue has the number of q by now, or q has other
// options, it repeats the call with those. It replies "gone" if the queue was dropped with its
// deliveries, or has ended.
func (e *Engine) settleKnown(ctx context.Context, q *queue, args arguments) (any, error) {
	reply, err := settleScript.run(ctx, e.client, q.keys, args)
	for tries := 0; err == nil && reply == "gone"; tries++ {
		if tries == 5 {
			return nil, busy()
		}
		was, number := q.ref(), q.number
		if _, err := e.registry.read(ctx); err != nil {
			return nil, err
		}
		if q = e.registry.numbered(number); q != nil && q.ref() == was { // its options were changed
			if err := e.remake(ctx, q); err != nil {
				return nil, err
			}
			q = e.registry.numbered(number)
		}
		if q == nil || q.once != "" || q.ref() == was && q.first != "" {
			return "gone", nil
		}
		args[0].is, args[1].is = q.numberArg, q.rules
		reply, err = settleScript.run(ctx, e.client, q.keys, args)
	}
	return reply, err
}

// settlementOf returns a settlement in the form of settle.lua.
func settlementOf(q *queue, s *posthaste.Settlement) settlement {
	one := settlement{Delivery: place(int64(s.Delivery)), Outcome: string(s.Outcome), Receipt: string(s.Receipt), Terms: s.Terms,
		Duration: float64(s.Duration) / 1e6, Jitter: rand.Float64()}
	if s.Outcome == posthaste.OutcomeRetried || s.Outcome == posthaste.OutcomeDead {
		one.Error = posthaste.ErrorText(s.Error)
	}
	switch {
	case s.Outcome == posthaste.OutcomeSetAside:
		if q.looks > 0 {
			one.After = new(posthaste.SetAsideWait.Microseconds())
		}
	case s.RetryAfter > 0:
		one.After = new(s.RetryAfter.Microseconds())
	}
	return one
}

// Extend implements [posthaste.Engine].
func (e *Engine) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	results := make([]posthaste.SettleResult, len(req.Deliveries))
	ids := make([]int64, len(req.Deliveries))
	for i, d := range req.Deliveries {
		ids[i], results[i].Delivery = int64(d), d
	}
	queues, err := e.registry.ofIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	byQueue := map[*queue][]int{}
	for i := range ids {
		if q := queues[number(ids[i])]; q != nil && ids[i] > 0 {
			byQueue[q] = append(byQueue[q], i)
		}
	}
	for q, of := range byQueue {
		if req.Notes != nil {
			// The notes of other queues may be on record, and must not be recorded again.
			if err := e.note(ctx, q, req, results, of); err != nil && len(byQueue) == 1 {
				return nil, err
			} else if err != nil {
				for _, i := range of {
					if results[i].Err == nil {
						results[i].Err = err
					}
				}
			}
			continue
		}
		args := arguments{{"lease", max(1, req.Lease.Microseconds())}}
		for _, i := range of {
			args = append(args, arg{is: place(ids[i])})
		}
		reply, err := extendScript.run(ctx, e.client, q.keys, args)
		if err != nil {
			return nil, readError(err)
		}
		was, err := list("extend", reply, len(of))
		if err != nil {
			return nil, err
		}
		for n, i := range of {
			results[i].Settled, results[i].Cancelled = was[n] != int64(0), was[n] == int64(2)
		}
	}
	return results, nil
}

// DeliveryQueues implements [posthaste.TokenStore].
func (e *Engine) DeliveryQueues(ctx context.Context, deliveries ...posthaste.DeliveryID) ([]string, error) {
	ids := make([]int64, len(deliveries))
	for i, d := range deliveries {
		ids[i] = int64(d)
	}
	queues, err := e.registry.ofIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(deliveries))
	for i := range ids {
		if q := queues[number(ids[i])]; q != nil {
			names[i] = q.name
		}
	}
	return names, nil
}
