package bench

import (
	"context"
	"errors"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// plainShare is the share of the duration for the plain commits.
const plainShare = 0.3

// single sends one message per call from many goroutines, and compares with as many
// connections that commit one plain row each.
func single(ctx context.Context, r *run) (err error) {
	at, err := r.home(ctx, "single")
	if err != nil {
		return err
	}
	t, err := startTraffic(ctx, r, at, "single", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	p, err := openPlains(ctx, r, at)
	if err != nil {
		return err
	}
	defer p.close()

	r.begin()
	r.phase("warming up")
	if _, err := t.singles(ctx, min(r.part(warming), time.Second)); err != nil {
		return err
	}
	own, plainly := cost{meter: r.meter()}, cost{meter: r.meter()}
	result := &SingleResult{}
	var handled []float64
	complete := true
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		r.phase("plain")
		end := plainly.span()
		rows, took, err := p.measure(ctx, singles, r.part(plainShare/rounds))
		if err != nil {
			return err
		}
		end(rows)
		result.PlainRounds = append(result.PlainRounds, rate(rows, took))
		r.phase("single")
		err = r.profiled(round == rounds-1, func() error {
			end := own.span()
			s, err := t.singles(ctx, r.part((1-warming-plainShare)/rounds))
			end(s.messages)
			complete = complete && s.complete
			result.SingleRounds = append(result.SingleRounds, rate(s.messages, s.sending))
			handled = append(handled, rate(s.messages, s.whole))
			return err
		})
		if err != nil {
			return err
		}
	}
	t.audit(r, complete)
	result.HandledPerSecond, result.PlainServerCPU = *known(median(handled)), plainly.serverPerMessage()
	singleResult(r.result, result, &own)
	return nil
}

func singleResult(res *Result, result *SingleResult, own *cost) {
	throughput, plain := median(result.SingleRounds), median(result.PlainRounds)
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, plain)
	result.PlainPerSecond = *known(plain)
	result.SingleRounds, result.PlainRounds = rounded(result.SingleRounds), rounded(result.PlainRounds)
	res.SingleResult, res.Messages = result, own.messages
	own.into(res)
}

// openPlains opens the plain table, or the plain list of Redis, of the run's store.
func openPlains(ctx context.Context, r *run, at home) (floors, error) {
	if r.redis != nil {
		return &pushes{client: r.redis.client, list: r.redis.loopKey("plain"), batch: 1}, nil
	}
	return openPlain(ctx, at.URL)
}
