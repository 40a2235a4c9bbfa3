package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// fillPatience is how long filling the backlog may take on top of the duration, and
// fillShare how much of that it may take besides: millions need a longer one.
const (
	fillPatience = 12 * time.Second
	fillShare    = 0.35
)

// backlogRounds is how often the full queue is measured, each time between two
// measurements of the empty one: what a machine gives changes while memory and files
// are new, and while much is written back.
const backlogRounds = 3

// backlog is flow with many messages waiting all the time, against the same with none.
func backlog(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "backlog")
	if err != nil {
		return err
	}
	empty, err := startTraffic(ctx, r, home{URL: url}, "empty", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty.stop()) }()
	full, err := newTraffic(ctx, r, home{URL: url}, "backlog", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, full.stop()) }()
	r.begin()
	if err := r.warm(ctx, empty); err != nil {
		return err
	}
	res, result := r.result, &BacklogResult{Waiting: r.o.Waiting}
	res.BacklogResult, res.Batch, res.Senders = result, r.o.Batch, r.o.Senders
	own := cost{meter: r.server.meter}
	complete := true
	flow := func() error {
		r.phase("flow with an empty queue")
		s, err := empty.batches(ctx, r.part(0.3/(backlogRounds+1)), r.o.Batch, outstanding(r.o.Batch), true)
		result.EmptyRounds, complete = append(result.EmptyRounds, *known(rate(s.messages, s.whole))), complete && s.complete
		return err
	}
	if err := flow(); err != nil {
		return err
	}
	patience := fillPatience + r.part(fillShare)
	for round := range backlogRounds {
		if round > 0 && r.late() {
			break
		}
		// A few messages are all settled before the worker has ended.
		if missing := r.o.Waiting - int(full.unsettled()); missing > 0 {
			r.phase("filling the queue")
			if _, err := full.fill(ctx, missing, patience); err != nil || full.unsettled() < int64(r.o.Waiting) {
				r.invalid("only %d of %d messages could be put into the queue within %s: a longer --duration leaves more time for it", full.unsettled(), r.o.Waiting, patience)
				return err
			}
		}
		n, err := full.waiting(ctx, &own, round == backlogRounds-1)
		if err != nil || n == 0 {
			return err
		}
		result.FullRounds, res.Messages = append(result.FullRounds, *known(n)), own.messages
		if err := flow(); err != nil {
			return err
		}
	}
	empty.audit(r, complete)
	// Each empty round but the first and the last stands beside two full ones.
	neighbours := slices.Concat(result.EmptyRounds[1:], result.EmptyRounds[:len(result.EmptyRounds)-1])
	result.EmptyPerSecond, res.PerSecond = *known(mean(neighbours)), known(mean(result.FullRounds))
	res.Ratio = quotient(*res.PerSecond, result.EmptyPerSecond)
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	return nil
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// waiting measures flow through the queue while it is full, for one round: how many
// messages a second are settled, 0 if that says nothing.
func (t *traffic) waiting(ctx context.Context, own *cost, last bool) (perSecond float64, err error) {
	r := t.run
	already := t.settled.count.Load()
	if err := t.work(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.rest()) }()
	// The clock starts once the worker is at work.
	limited, stop := context.WithTimeout(ctx, r.o.drain)
	defer stop()
	if !t.await(limited, t.sent.Load()-already-1) {
		r.invalid("no message was settled within %s of the worker's start", r.o.drain)
		return 0, ctx.Err()
	}
	r.phase("flow with a backlog")
	err = r.profiled(last, func() error {
		before, begun := t.settled.count.Load(), time.Now()
		end := own.span()
		_, err := t.batches(ctx, r.part(0.3/backlogRounds), r.o.Batch, r.o.Waiting+outstanding(r.o.Batch), false)
		n := t.settled.count.Load() - before
		end(n)
		if perSecond = rate(n, time.Since(begun)); n == 0 {
			r.invalid("nothing was settled while the queue was full")
		}
		return err
	})
	return perSecond, err
}

// fill sends n messages while no worker runs and says how many went in.
func (t *traffic) fill(ctx context.Context, n int, patience time.Duration) (int, error) {
	const at = 10_000
	messages := make([]posthaste.Message, at)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: t.queue, Payload: payload}
	}
	left := make(chan int, n/at+1)
	for rest := n; rest > 0; rest -= at {
		left <- min(rest, at)
	}
	close(left)
	_, err := t.send(ctx, fillers, patience, false, func(ctx context.Context) (int64, error) {
		some, ok := <-left
		if !ok {
			return 0, errFilled
		}
		_, err := t.client.Send(ctx, messages[:some]...)
		return int64(some), err
	})
	return int(t.sent.Load()), err
}
