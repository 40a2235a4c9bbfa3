package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// fillPatience is the time that filling the backlog may take on top of the duration, and
// fillShare the share of the duration that it may also take, because millions of messages
// need a longer one.
const (
	fillPatience = 12 * time.Second
	fillShare    = 0.35
)

// backlogRounds is how often the full queue is measured, each time between two measurements
// of the empty one. The speed of a machine changes while memory and files are new, and while
// it writes back many pages.
const backlogRounds = 3

// backlog is flow while many messages wait, compared with flow through an empty queue.
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
	if err := empty.warm(ctx); err != nil {
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
	for round := range backlogRounds {
		if round > 0 && r.late() {
			break
		}
		if filled, err := refill(ctx, full); err != nil || !filled {
			return err
		}
		n, err := waiting(ctx, full, &own, round == backlogRounds-1)
		if err != nil || n == 0 {
			return err
		}
		result.FullRounds, res.Messages = append(result.FullRounds, *known(n)), own.messages
		if err := flow(); err != nil {
			return err
		}
	}
	empty.audit(r, complete)
	// Each empty round except for the first and the last is next to two full ones.
	neighbors := slices.Concat(result.EmptyRounds[1:], result.EmptyRounds[:len(result.EmptyRounds)-1])
	result.EmptyPerSecond, res.PerSecond = *known(mean(neighbors)), known(mean(result.FullRounds))
	res.Ratio = quotient(*res.PerSecond, result.EmptyPerSecond)
	own.into(res)
	return nil
}

// refill fills the queue up to the messages that shall wait. It reports whether it could.
func refill(ctx context.Context, t *traffic) (filled bool, err error) {
	r := t.run
	// If only a few shall wait, the worker settled all of them before it ended.
	missing := r.o.Waiting - int(t.unsettled())
	if missing <= 0 {
		return true, nil
	}
	r.phase("filling the queue")
	patience := fillPatience + r.part(fillShare)
	if _, err := t.fill(ctx, missing, patience); err != nil || t.unsettled() < int64(r.o.Waiting) {
		r.invalid("only %d of %d messages could be put into the queue within %s: a longer --duration leaves more time for it", t.unsettled(), r.o.Waiting, patience)
		return false, err
	}
	return true, nil
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// waiting measures one round of flow through the full queue. It returns the messages settled
// per second, or 0 if the round is not valid.
func waiting(ctx context.Context, t *traffic, own *cost, last bool) (perSecond float64, err error) {
	r := t.run
	already := t.settled.count.Load()
	if err := t.work(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.rest()) }()
	// The clock starts once the worker has settled its first message.
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
