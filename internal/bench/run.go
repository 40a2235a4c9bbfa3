package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste/internal/cpumeter"
)

const (
	// clearing is the part of overhead that is reserved for clearing up, because dropping
	// a database waits for a checkpoint.
	clearing = 8 * time.Second
	// draining is the part of overhead that is reserved for work that takes longer than
	// planned: emptying queues and finishing rounds.
	draining = 5 * time.Second
	// rounds is how often floor and measurement alternate.
	rounds = 3
	// warming is the share of the duration that is not measured.
	warming = 0.06
)

// run is one run of a scenario.
type run struct {
	o      Options
	result *Result
	server *server       // nil on Redis and NATS
	redis  *redisStore   // nil on PostgreSQL and NATS
	nats   *natsStore    // nil on PostgreSQL and Redis
	until  time.Time     // when the run is cut off
	during time.Duration // of all phases: Options.Duration, or less if starting took long

	mu      sync.Mutex
	now     string    // the current phase
	started time.Time // when the first phase began; zero before
}

// store is the PostgreSQL server or the Redis of a run.
type store interface{ close(context.Context) error }

// closed closes a store, even if ctx has ended.
func closed(ctx context.Context, s store) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	return s.close(ctx)
}

// clearUp closes a run's store and reports whether nothing is left. It only logs an error,
// which does not affect the figures.
func (r *run) clearUp(ctx context.Context, s store) bool {
	r.phase("clearing up")
	fault := closed(ctx, s)
	if fault != nil {
		r.o.Log.Warn("bench could not clear up", slog.Any("error", fault))
	}
	return fault == nil
}

// phase sets the name of the current phase.
func (r *run) phase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = name
}

// begin starts the clock of the phases. If starting the store used up the overhead, the
// phases get less time.
func (r *run) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.during = max(0, min(r.during, r.until.Sub(r.started)-draining))
}

// part returns a share of the duration of all phases.
func (r *run) part(share float64) time.Duration {
	return time.Duration(share * float64(r.during))
}

// late reports that no further round must begin, because the earlier rounds took too long.
func (r *run) late() bool { return time.Since(r.started) > r.during+draining/2 }

// invalid adds a reason why the result must not be trusted.
func (r *run) invalid(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if r.result.Valid = false; r.result.Reason != "" {
		reason = r.result.Reason + "; " + reason
	}
	r.result.Reason = reason
}

// watch reports the progress until the returned function is called.
func (r *run) watch() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	tell := func() {
		r.mu.Lock()
		name, started, during := r.now, r.started, r.during
		r.mu.Unlock()
		elapsed := time.Duration(0)
		if !started.IsZero() {
			elapsed = min(time.Since(started), during)
		}
		r.o.Progress(name, elapsed, during)
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell()
			case <-quit:
				tell()
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// profiled runs f, with a CPU profile if the options ask for one and last is true.
func (r *run) profiled(last bool, f func() error) error {
	if r.o.Profile == "" || !last {
		return f()
	}
	file, err := os.Create(r.o.Profile)
	if err != nil {
		return fmt.Errorf("the CPU profile cannot be written: %w", err)
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("the CPU profile cannot be taken: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}

// home returns a new home. On Redis all homes of a run are the same.
func (r *run) home(ctx context.Context, purpose string) (at home, err error) {
	if r.redis != nil {
		return home{r.redis.url, r.redis.prefix}, nil
	}
	at.URL, err = r.server.database(ctx, purpose)
	return at, err
}

// meter returns the CPU meter of the run's store.
func (r *run) meter() cpumeter.Meter {
	if r.redis != nil {
		return r.redis.meter
	}
	return r.server.meter
}

// outstanding returns how many messages may be unsettled before senders wait: enough that
// neither side waits for a round trip, few enough to stay in cache.
func outstanding(batch int) int { return max(20*batch, 10_000) }

// outstanding returns fewer for a queue with limits, because a claim of such a queue takes
// only messages that can start at once.
func (r *run) outstanding() int {
	if r.o.Keyed != "" {
		return 10 * r.o.Batch
	}
	return outstanding(r.o.Batch)
}

// pause waits for d. It returns an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
