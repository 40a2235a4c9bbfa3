package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// rounds is how often floor and measurement alternate.
	rounds = 3
	// warming is the share of the duration that is not measured.
	warming = 0.06
)

// outstanding is how many messages may be unsettled before senders wait: enough
// that neither side ever waits for a round trip, few enough to stay in cache.
func outstanding(batch int) int { return max(20*batch, 10_000) }

// outstanding is fewer for a queue with limits, of which a claim takes no more than can be
// started at once.
func (r *run) outstanding() int {
	if r.o.Keyed != "" {
		return 10 * r.o.Batch
	}
	return outstanding(r.o.Batch)
}

// flow sends in batches, handles and settles, against the insert-only floor.
func flow(ctx context.Context, r *run) (err error) {
	if r.o.Steady {
		return steadyFlow(ctx, r)
	}
	at, err := r.home(ctx, "flow")
	if err != nil {
		return err
	}
	f, err := r.floor(ctx)
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
	if err := r.warm(ctx, t); err != nil {
		return err
	}
	rates := make([][]float64, len(floorConnections))
	costs := make([]cost, len(floorConnections))
	own := cost{meter: r.meter()}
	result := &FlowResult{}
	complete := true
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		r.phase("floor")
		for i, n := range floorConnections {
			costs[i].meter = r.meter()
			end := costs[i].span()
			rows, took, err := f.measure(ctx, n, r.part(0.34/float64(rounds*len(floorConnections))))
			if err != nil {
				return err
			}
			end(rows)
			rates[i] = append(rates[i], rate(rows, took))
		}
		f.turn()
		r.phase("flow")
		err := r.profiled(round == rounds-1, func() error {
			end := own.span()
			s, err := t.batches(ctx, r.part((1-warming-0.34)/rounds), r.o.Batch, outstanding(r.o.Batch), true)
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
	for i := range rates {
		if m := median(rates[i]); m > result.FloorPerSecond {
			result.FloorPerSecond, result.FloorConnections = m, floorConnections[i]
			result.FloorRounds, result.FloorServerCPU = rounded(rates[i]), costs[i].serverPerMessage()
		}
	}
	throughput := median(result.Rounds)
	res := r.result
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, result.FloorPerSecond)
	result.FloorPerSecond, result.Rounds = *known(result.FloorPerSecond), rounded(result.Rounds)
	res.FlowResult, res.Batch, res.Senders, res.Messages = result, r.o.Batch, r.o.Senders, own.messages
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	return nil
}

// floors is what flow is compared with.
type floors interface {
	// measure stores what the flow sends, through n connections for a while.
	measure(ctx context.Context, n int, during time.Duration) (messages int64, took time.Duration, err error)
	// turn ends a round.
	turn()
	close()
}

// forAWhile lets n goroutines, from 0 on, call once until the time is over or a call
// failed, each at least one time, and adds up how many messages the calls stored.
func forAWhile(ctx context.Context, n int, during time.Duration, once func(ctx context.Context, i int) (messages int64, err error)) (messages int64, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var total atomic.Int64
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range n {
		wait.Go(func() {
			for first := true; first || time.Since(begun) < during; first = false {
				some, err := once(ctx, i)
				if err != nil {
					cancel(err)
					return
				}
				total.Add(some)
			}
		})
	}
	wait.Wait()
	return total.Load(), time.Since(begun), context.Cause(ctx)
}

func (r *run) floor(ctx context.Context) (floors, error) {
	if r.redis != nil {
		return &pushes{client: r.redis.client, list: r.redis.loopKey("floor"), batch: floorRows / 10}, nil
	}
	url, err := r.server.copied(ctx, "floor")
	if err != nil {
		return nil, err
	}
	return openFloor(ctx, url)
}

// warm lets connections, statements and functions get ready.
func (r *run) warm(ctx context.Context, t *traffic) error {
	r.phase("warming up")
	_, err := t.batches(ctx, min(r.part(warming), time.Second), r.o.Batch, r.outstanding(), true)
	return err
}
