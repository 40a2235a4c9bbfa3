package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

const (
	// orderedKeys is the number of keys that the messages of scenario ordered have in turn.
	orderedKeys = 10_000
	// benchKinds is the number of kinds that the messages of scenario kinds have in turn.
	benchKinds = 4
)

// ordered is flow through an ordered queue, compared with flow through a plain one.
func ordered(ctx context.Context, r *run) error {
	r.result.OrderedResult = &OrderedResult{Keys: orderedKeys}
	return besideFlow(ctx, r, posthaste.QueueOptions{Ordered: true}, "flow through an ordered queue",
		func(t *traffic) { t.keys = keysInTurn(orderedKeys) })
}

// kinds is flow with messages of some kinds, and a handler for each, compared with flow without.
func kinds(ctx context.Context, r *run) error {
	r.result.KindsResult = &KindsResult{Kinds: benchKinds}
	return besideFlow(ctx, r, posthaste.QueueOptions{}, "flow of several kinds", func(t *traffic) {
		for i := range benchKinds {
			t.kinds = append(t.kinds, fmt.Sprint("kind-", i))
		}
	})
}

// besideFlow measures flow through a queue with options o, and by turns flow through a plain
// queue. It calls form before the worker of the first starts.
func besideFlow(ctx context.Context, r *run, o posthaste.QueueOptions, phase string, form func(*traffic)) (err error) {
	at, err := r.home(ctx, r.result.Scenario)
	if err != nil {
		return err
	}
	plain, err := startTraffic(ctx, r, at, "plain", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	t, err := newTraffic(ctx, r, at, "own", o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	form(t)
	if err := t.work(ctx); err != nil {
		return err
	}
	r.begin()
	for _, t := range []*traffic{plain, t} {
		if err := t.warm(ctx); err != nil {
			return err
		}
	}
	own, others := lane{traffic: t, phase: phase}, lane{traffic: plain, phase: "flow through a plain queue"}
	own.cost.meter, others.cost.meter = r.meter(), r.meter()
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		// Each is first in turn, because the first finds more of the server's caches cold.
		turn := []*lane{&others, &own}
		if round%2 == 1 {
			turn[0], turn[1] = turn[1], turn[0]
		}
		for _, l := range turn {
			err := r.profiled(round == rounds-1 && l == &own, func() error { return l.measure(ctx, r) })
			if err != nil {
				return err
			}
		}
	}
	plain.audit(r, !others.late)
	t.audit(r, !own.late)
	own.compare(&others)
	return nil
}

// lane is one of two flows that are compared.
type lane struct {
	*traffic
	phase string
	cost  cost
	rates []float64
	late  bool // not all messages of some round were settled in time
}

// measure measures one round.
func (l *lane) measure(ctx context.Context, r *run) error {
	r.phase(l.phase)
	end := l.cost.span()
	s, err := l.batches(ctx, r.part((1-2*warming)/(2*rounds)), r.o.Batch, outstanding(r.o.Batch), true)
	end(s.messages)
	l.late = l.late || !s.complete
	l.rates = append(l.rates, rate(s.messages, s.whole))
	return err
}

// compare sets the figures of the result.
func (l *lane) compare(others *lane) {
	flow, throughput := median(others.rates), median(l.rates)
	r := l.run
	res := r.result
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, flow)
	res.Batch, res.Senders, res.Messages = r.o.Batch, r.o.Senders, l.cost.messages
	l.cost.into(res)
	c := &FlowComparison{FlowPerSecond: *known(flow), OwnRounds: rounded(l.rates), FlowRounds: rounded(others.rates),
		FlowServerCPU: others.cost.serverPerMessage(), FlowClientCPU: others.cost.clientPerMessage()}
	if plain := others.cost.perMessage(); plain > 0 {
		c.CPURatio = known(l.cost.perMessage() / plain)
	}
	res.FlowComparison = c
}
