package bench

import (
	"context"
	"errors"

	"github.com/posthaste-mq/posthaste"
)

// orderedKeys is the number of keys that the messages of scenario ordered have in turn.
const orderedKeys = 10_000

// ordered is flow through an ordered queue, compared with flow through a plain one.
func ordered(ctx context.Context, r *run) (err error) {
	at, err := r.home(ctx, "ordered")
	if err != nil {
		return err
	}
	plain, err := startTraffic(ctx, r, at, "plain", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	t, err := startTraffic(ctx, r, at, "ordered", posthaste.QueueOptions{Ordered: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	t.keys = keysInTurn(orderedKeys)
	r.begin()
	for _, t := range []*traffic{plain, t} {
		if err := t.warm(ctx); err != nil {
			return err
		}
	}
	result := &OrderedResult{Keys: orderedKeys}
	own, others := cost{meter: r.meter()}, cost{meter: r.meter()}
	complete := true
	measure := func(t *traffic, c *cost, rates *[]float64) error {
		end := c.span()
		s, err := t.batches(ctx, r.part((1-2*warming)/(2*rounds)), r.o.Batch, outstanding(r.o.Batch), true)
		end(s.messages)
		complete = complete && s.complete
		*rates = append(*rates, rate(s.messages, s.whole))
		return err
	}
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		r.phase("flow through a plain queue")
		if err := measure(plain, &others, &result.FlowRounds); err != nil {
			return err
		}
		r.phase("flow through an ordered queue")
		err := r.profiled(round == rounds-1, func() error { return measure(t, &own, &result.OrderedRounds) })
		if err != nil {
			return err
		}
	}
	plain.audit(r, complete)
	t.audit(r, complete)
	flow, throughput := median(result.FlowRounds), median(result.OrderedRounds)
	result.FlowPerSecond, result.FlowServerCPU = *known(flow), others.serverPerMessage()
	result.FlowRounds, result.OrderedRounds = rounded(result.FlowRounds), rounded(result.OrderedRounds)
	res := r.result
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, flow)
	res.OrderedResult, res.Batch, res.Senders, res.Messages = result, r.o.Batch, r.o.Senders, own.messages
	own.into(res)
	return nil
}
