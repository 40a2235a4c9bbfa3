package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// settled is an engine that counts the messages settled as done, after their commit.
type settled struct {
	posthaste.Store
	count   atomic.Int64
	last    atomic.Int64 // time of the last one since epoch
	changed chan struct{}
}

// epoch is the start of the process's monotonic clock.
var epoch = time.Now()

func watchSettled(engine posthaste.Store) *settled {
	return &settled{Store: engine, changed: make(chan struct{}, 1)}
}

// Settle implements [posthaste.Engine].
func (s *settled) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results, err := s.Store.Settle(ctx, settlements)
	s.add(results)
	return results, err
}

// add counts the messages settled as done.
func (s *settled) add(results []posthaste.SettleResult) {
	n := int64(0)
	for i := range results {
		if results[i].Settled && results[i].Outcome == posthaste.OutcomeDone {
			n++
		}
	}
	if n > 0 {
		s.last.Store(int64(time.Since(epoch)))
		s.count.Add(n)
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// until waits until n messages are settled.
func (s *settled) until(ctx context.Context, n int64) error {
	for s.count.Load() < n {
		select {
		case <-s.changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages were settled: %w", s.count.Load(), n, ctx.Err())
		}
	}
	return nil
}

// settledInto is one of several engines whose messages are counted together.
type settledInto struct {
	posthaste.Store
	into *settled
}

// Settle implements [posthaste.Engine].
func (s *settledInto) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results, err := s.Store.Settle(ctx, settlements)
	s.into.add(results)
	return results, err
}

// runUntilStopped runs a worker. stop ends it, and returns the result of Run.
func runUntilStopped(ctx context.Context, w *worker.Worker) (stop func() error) {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// acknowledged waits until the server has stored a message.
func acknowledged(ctx context.Context, ack jetstream.PubAckFuture) error {
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
