package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// floors stores messages at the least cost, as the measure of a scenario.
type floors interface {
	// measure stores the payloads of messages through n connections for a time.
	measure(ctx context.Context, n int, during time.Duration) (messages int64, took time.Duration, err error)
	// turn ends a round.
	turn()
	close()
}

// forAWhile calls once repeatedly from n goroutines, numbered from 0, until the time is over
// or a call fails. Each goroutine calls it at least one time. forAWhile returns the sum of
// the messages.
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

// inParallel divides n among calls of once from several goroutines. Each call gets the number
// of its goroutine and at most batch. It ends when nothing is left or a call fails.
func inParallel(goroutines, n, batch int, once func(i, n int) error) error {
	var wait sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	faults := make([]error, goroutines)
	for i := range goroutines {
		wait.Go(func() {
			for faults[i] == nil {
				some := min(int64(batch), left.Add(-int64(batch))+int64(batch))
				if some <= 0 {
					return
				}
				faults[i] = once(i, int(some))
			}
		})
	}
	wait.Wait()
	return errors.Join(faults...)
}
