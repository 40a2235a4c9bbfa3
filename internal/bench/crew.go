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

// countEvery is the interval at which the messages that the crew has settled are counted.
const countEvery = 5 * time.Millisecond

// crew is a group of worker processes that handle the messages.
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

// total sums the reports of the workers. Last is the time at which the last message was
// settled.
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

// await waits until messages are settled. It returns false if ctx ended first.
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

// handler is a worker whose handlers do nothing. At each order it reports its messages and
// its CPU time.
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
	// The offset from times of this process to those of the machine's clock.
	offset := monotonic() - time.Since(epoch)
	o.tell(report{Ready: true})
	for range o.next {
		o.tell(report{CPU: ownCPU(), RSSMB: residentMB(), Handled: handled.Load(), Done: watched.count.Load(),
			Last: offset + time.Duration(watched.last.Load())})
	}
	return <-ended
}

// start runs a worker until ctx ends, and returns once it has started. ended then receives the
// result of Run.
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
