package bench

import (
	"context"
	"errors"

	"github.com/posthaste-mq/posthaste"
)

// flow sends in batches, handles and settles, and compares with a floor that only inserts.
func flow(ctx context.Context, r *run) (err error) {
	if r.o.Steady {
		return steadyFlow(ctx, r)
	}
	at, err := r.home(ctx, "flow")
	if err != nil {
		return err
	}
	f, err := openFloors(ctx, r)
	if err != nil {
		return err
	}
	defer f.close()
	t, err := startTraffic(ctx, r, at, "flow", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()

	r.begin()
	if err := t.warm(ctx); err != nil {
		return err
	}
	var inserted [len(floorConnections)]floorRounds
	own, complete := cost{meter: r.meter()}, true
	result := &FlowResult{}
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		r.phase("floor")
		for i, n := range floorConnections {
			if err := inserted[i].measure(ctx, r, f, n); err != nil {
				return err
			}
		}
		f.turn()
		r.phase("flow")
		err := r.profiled(round == rounds-1, func() error {
			end := own.span()
			s, err := t.batches(ctx, r.part((1-warming-floorShare)/rounds), r.o.Batch, outstanding(r.o.Batch), true)
			end(s.messages)
			complete = complete && s.complete
			result.Rounds = append(result.Rounds, rate(s.messages, s.whole))
			return err
		})
		if err != nil {
			return err
		}
	}
	t.audit(r, complete)
	bestFloor(result, inserted[:])
	throughput := median(result.Rounds)
	res := r.result
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, result.FloorPerSecond)
	result.FloorPerSecond, result.Rounds = *known(result.FloorPerSecond), rounded(result.Rounds)
	res.FlowResult, res.Batch, res.Senders, res.Messages = result, r.o.Batch, r.o.Senders, own.messages
	own.into(res)
	return nil
}

// floorShare is the share of the duration for the floor.
const floorShare = 0.34

// floorRounds are the figures of the floor with one number of connections.
type floorRounds struct {
	rates []float64
	cost  cost
}

// measure measures one round through n connections.
func (m *floorRounds) measure(ctx context.Context, r *run, f floors, n int) error {
	m.cost.meter = r.meter()
	end := m.cost.span()
	rows, took, err := f.measure(ctx, n, r.part(floorShare/float64(rounds*len(floorConnections))))
	if err != nil {
		return err
	}
	end(rows)
	m.rates = append(m.rates, rate(rows, took))
	return nil
}

// bestFloor sets the figures of the floor to those of the best number of connections.
func bestFloor(result *FlowResult, inserted []floorRounds) {
	for i, n := range floorConnections {
		if m := median(inserted[i].rates); m > result.FloorPerSecond {
			result.FloorPerSecond, result.FloorConnections = m, n
			result.FloorRounds, result.FloorServerCPU = rounded(inserted[i].rates), inserted[i].cost.serverPerMessage()
		}
	}
}

// openFloors opens the floor of the run's store.
func openFloors(ctx context.Context, r *run) (floors, error) {
	if r.redis != nil {
		return &pushes{client: r.redis.client, list: r.redis.loopKey("floor"), batch: floorRows / 10}, nil
	}
	url, err := r.server.copied(ctx, "floor")
	if err != nil {
		return nil, err
	}
	return openFloor(ctx, url)
}
