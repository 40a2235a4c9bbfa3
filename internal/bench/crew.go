package bench

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// countEvery is the time between two looks at what the crew has settled.
const countEvery = 5 * time.Millisecond

// crew is worker processes that handle what is sent.
type crew struct{ workers []*child }

func startCrew(ctx context.Context, first order, n int) (*crew, error) {
	c := &crew{}
	for range n {
		one, err := startChild(ctx, "handler", first)
		if err != nil {
			return c, err
		}
		c.workers = append(c.workers, one)
	}
	return c, nil
}

// total sums up what the workers have done, and says when the last message was settled.
func (c *crew) total() (sum report, err error) {
	for _, w := range c.workers {
		got, err := w.ask(order{})
		if err != nil {
			return sum, err
		}
		sum.Handled += got.Handled
		sum.Done += got.Done
		sum.CPU += got.CPU
		sum.Last = max(sum.Last, got.Last)
	}
	return sum, nil
}

// await waits until so many messages are settled. It returns false if ctx ended first.
func (c *crew) await(ctx context.Context, messages int64) (sum report, all bool, err error) {
	for {
		if sum, err = c.total(); err != nil || sum.Done >= messages {
			return sum, err == nil, err
		}
		if pause(ctx, countEvery) != nil {
			return sum, false, nil
		}
	}
}

func (c *crew) end() error {
	var faults []error
	for _, w := range c.workers {
		faults = append(faults, w.end())
	}
	return errors.Join(faults...)
}

// handler is a worker whose handlers do nothing. It says what was handled and what that
// costs whenever it is asked.
func handler(ctx context.Context, o *orders) error {
	engine, err := o.first.open(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer engine.Close()
	watched := watchSettled(engine)
	var handled atomic.Int64
	w := worker.New(watched, worker.Config{Logger: quiet(slog.Default())})
	for _, queue := range o.first.Queues {
		worker.Handle(w, queue, func(context.Context, posthaste.Delivery[json.RawMessage]) error {
			handled.Add(1)
			return nil
		})
	}
	ended, err := start(ctx, w)
	if err != nil {
		return err
	}
	// Times of this process, as all processes of this machine tell them.
	offset := monotonic() - time.Since(epoch)
	o.tell(report{Ready: true})
	for range o.next {
		o.tell(report{CPU: ownCPU(), RSSMB: residentMB(), Handled: handled.Load(), Done: watched.count.Load(),
			Last: offset + time.Duration(watched.last.Load())})
	}
	return <-ended
}

// start runs a worker until ctx ends, and returns once it has started. What Run returned is
// then to be read from ended.
func start(ctx context.Context, w *worker.Worker) (ended <-chan error, err error) {
	run := make(chan error, 1)
	go func() { run <- w.Run(ctx) }()
	select {
	case <-w.Started():
		return run, nil
	case err := <-run:
		return nil, errors.Join(errors.New("the worker did not start"), err)
	}
}
