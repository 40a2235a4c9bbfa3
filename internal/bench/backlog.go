package bench

import (
	"context"
	"errors"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// fillPatience is how long filling the backlog may take on top of the duration, and
// fillShare how much of that it may take besides: millions need a longer one.
const (
	fillPatience = 12 * time.Second
	fillShare    = 0.35
)

// backlog is flow with many messages waiting all the time, against the same with none,
// before and after it: what a machine gives changes while memory and files are new.
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
	r.begin()
	if err := r.warm(ctx, empty); err != nil {
		return err
	}
	var rates []float64
	complete := true
	flow := func() error {
		r.phase("flow with an empty queue")
		s, err := empty.batches(ctx, r.part(0.15), r.o.Batch, outstanding(r.o.Batch), true)
		rates, complete = append(rates, rate(s.messages, s.whole)), complete && s.complete
		return err
	}
	if err := flow(); err != nil {
		return err
	}
	t, err := newTraffic(ctx, r, home{URL: url}, "backlog", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	if err := errors.Join(t.waiting(ctx), t.stop()); err != nil || r.result.PerSecond == nil {
		return err
	}
	if err := flow(); err != nil {
		return err
	}
	empty.audit(r, complete)
	res := r.result
	res.BacklogResult = &BacklogResult{Waiting: r.o.Waiting, EmptyPerSecond: *known((rates[0] + rates[1]) / 2)}
	res.Ratio = quotient(*res.PerSecond, res.EmptyPerSecond)
	return nil
}

// waiting fills the queue and measures flow through it while it is full.
func (t *traffic) waiting(ctx context.Context) error {
	r := t.run
	r.phase("filling the queue")
	patience := fillPatience + r.part(fillShare)
	if done, err := t.fill(ctx, r.o.Waiting, patience); err != nil || done < r.o.Waiting {
		r.invalid("only %d of %d messages could be put into the queue within %s: a longer --duration leaves more time for it", done, r.o.Waiting, patience)
		return err
	}
	if err := t.work(ctx); err != nil {
		return err
	}
	// The clock starts once the worker is at work.
	limited, stop := context.WithTimeout(ctx, r.o.drain)
	defer stop()
	if !t.await(limited, int64(r.o.Waiting)-1) {
		r.invalid("no message was settled within %s of the worker's start", r.o.drain)
		return ctx.Err()
	}
	r.phase("flow with a backlog")
	own := cost{meter: r.server.meter}
	return r.profiled(true, func() error {
		before := t.settled.count.Load()
		begun := time.Now()
		end := own.span()
		_, err := t.batches(ctx, r.part(0.3), r.o.Batch, r.o.Waiting+outstanding(r.o.Batch), false)
		n := t.settled.count.Load() - before
		took := time.Since(begun)
		end(n)
		if n == 0 {
			r.invalid("nothing was settled while the queue was full")
		}
		res := r.result
		res.PerSecond = known(rate(n, took))
		res.Batch, res.Senders, res.Messages = r.o.Batch, r.o.Senders, n
		res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
		return err
	})
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
