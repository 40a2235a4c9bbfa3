package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// ceiling is the throughput of the broker's client alone, confirmed, in messages per second.
type ceiling struct {
	perSecond                float64
	outstanding, connections int
}

// measureCeiling tries all combinations of these.
var (
	ceilingOutstanding = []int{100, 1000, 10_000}
	ceilingConnections = []int{1, 2, 4}
)

// measureCeiling returns the best combination; all of them together take the given time.
func measureCeiling(ctx context.Context, p place, during time.Duration) (best ceiling, err error) {
	each := during / time.Duration(len(ceilingOutstanding)*len(ceilingConnections))
	for _, connections := range ceilingConnections {
		for _, outstanding := range ceilingOutstanding {
			perSecond, err := publishAlone(ctx, p, connections, outstanding/connections, each)
			if err != nil {
				return best, err
			}
			if perSecond > best.perSecond {
				best = ceiling{perSecond, outstanding, connections}
			}
		}
	}
	return best, nil
}

// publishAlone publishes on several connections, each with at most window unconfirmed
// messages.
func publishAlone(ctx context.Context, p place, connections, window int, during time.Duration) (perSecond float64, err error) {
	var all []publisher
	for range connections {
		one, err := p.publisher(ctx, window)
		if err != nil {
			return 0, err
		}
		defer one.close()
		all = append(all, one)
	}
	began := time.Now()
	until := began.Add(during)
	var published atomic.Int64
	var group errgroup.Group
	for _, one := range all {
		group.Go(func() error {
			n, err := one.publish(ctx, until)
			published.Add(n)
			return err
		})
	}
	err = group.Wait()
	return rate(published.Load(), time.Since(began)), err
}

// flying publishes one message after the other until a time. It waits for the oldest message
// if window messages are unconfirmed, and for all at the end.
func flying[C any](until time.Time, window int, publish func(n int) (C, error), wait func(C) error) (confirmed int64, err error) {
	open := make(chan C, window) // a ring, for one goroutine
	for n := 0; time.Now().Before(until); n++ {
		if len(open) == window {
			if err := wait(<-open); err != nil {
				return confirmed, err
			}
			confirmed++
		}
		c, err := publish(n)
		if err != nil {
			return confirmed, err
		}
		open <- c
	}
	for len(open) > 0 {
		if err := wait(<-open); err != nil {
			return confirmed, err
		}
		confirmed++
	}
	return confirmed, nil
}

// stopwatch measures the time from the commit of each message to its confirm.
type stopwatch struct {
	mu        sync.Mutex
	confirmed map[int64]time.Time
	took      []time.Duration
}

func (s *stopwatch) confirm(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed != nil {
		s.confirmed[id] = time.Now()
	}
}

// await waits for a message's confirm, and notes the time from since to it.
func (s *stopwatch) await(ctx context.Context, id int64, since time.Time) error {
	for {
		s.mu.Lock()
		at, ok := s.confirmed[id]
		if ok {
			s.took = append(s.took, max(0, at.Sub(since)))
			delete(s.confirmed, id)
		}
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// percentile returns a percentile of the samples, in milliseconds.
func (s *stopwatch) percentile(q float64) float64 {
	return percentile(slices.Sorted(slices.Values(s.took)), q).Seconds() * 1000
}
