package testrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// StallsEnv names the file in which the launcher records stalls that affect the whole run.
// Without it each process watches for itself.
const StallsEnv = "POSTHASTE_TEST_STALLS"

// shortest is the minimum duration of a stall. Schedulers cause shorter delays all the time.
const shortest = 10 * time.Millisecond

// A Stall is a period in which an operation that normally takes microseconds did not finish.
type Stall struct {
	What     string // "process", "fsync" or "notify"
	From, To time.Time
}

// A Witness records stalls. It is safe for concurrent use.
type Witness struct {
	mu     sync.Mutex
	seen   []Stall
	record func(Stall)
}

// NewWitness returns a witness that calls record after each stall, unless it is nil. Calls do
// not overlap.
func NewWitness(record func(Stall)) *Witness { return &Witness{record: record} }

// WatchProcess records, until ctx ends, periods in which this process got no CPU time.
func (w *Witness) WatchProcess(ctx context.Context) {
	const pause = 2 * time.Millisecond
	_ = w.watch(ctx, "process", pause, pause, func() error {
		time.Sleep(pause)
		return nil
	})
}

// WatchFsync records, until ctx ends, periods in which flushing a small file in dir took long.
func (w *Witness) WatchFsync(ctx context.Context, dir string) error {
	file, err := os.CreateTemp(dir, "posthaste-witness-")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	return w.watch(ctx, "fsync", 0, 100*time.Millisecond, func() error {
		_, err := file.WriteAt([]byte{1}, 0)
		return errors.Join(err, file.Sync())
	})
}

// WatchNotify records, until ctx ends, periods in which a round trip took long. The round trip
// should be a NOTIFY to a connection that listens.
func (w *Witness) WatchNotify(ctx context.Context, roundTrip func(context.Context) error) error {
	return w.watch(ctx, "notify", 0, 100*time.Millisecond, func() error { return roundTrip(ctx) })
}

// watch repeats an operation with pauses, and records when it took longer than normal. An
// operation that is running when ctx ends counts only if it succeeds.
func (w *Witness) watch(ctx context.Context, what string, normal, pause time.Duration, do func() error) error {
	for ctx.Err() == nil {
		from := time.Now()
		err := do()
		to := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the witness of stalls cannot watch %s: %w", what, err)
		}
		if to.Sub(from) >= normal+shortest {
			w.saw(Stall{what, from.Add(normal), to})
		}
		if normal == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	return nil
}

func (w *Witness) saw(s Stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, s)
	if w.record != nil {
		w.record(s)
	}
}

// Stalls returns the stalls recorded so far.
func (w *Witness) Stalls() []Stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Stall(nil), w.seen...)
}

// Line returns the stall as a line of the file of [StallsEnv].
func (s Stall) Line() string {
	return fmt.Sprintf("%s %d %d\n", s.What, s.From.UnixNano(), s.To.UnixNano())
}

// local is the witness of this process. It watches from its first use on, which is before the
// first measurement of a test.
var local = sync.OnceValue(func() *Witness {
	w := NewWitness(nil)
	go w.WatchProcess(context.Background())
	if os.Getenv(StallsEnv) == "" {
		go func() { _ = w.WatchFsync(context.Background(), os.TempDir()) }()
	}
	return w
})

// standstill returns the longest total duration of one kind of stall between two times. A
// stall that is still going on is not known, except of the kind process, because the caller is
// running.
func standstill(from, to time.Time) (time.Duration, error) {
	seen := local().Stalls()
	if path := os.Getenv(StallsEnv); path != "" {
		shared, err := readStalls(path)
		if err != nil {
			return 0, err
		}
		seen = append(seen, shared...)
	}
	return longest(seen, from, to), nil
}

func longest(seen []Stall, from, to time.Time) time.Duration {
	totals := map[string]time.Duration{}
	var most time.Duration
	for _, s := range seen {
		begin, end := s.From, s.To
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			totals[s.What] += end.Sub(begin)
			most = max(most, totals[s.What])
		}
	}
	return most
}

// readStalls reads complete lines. The last one may still be incomplete.
func readStalls(path string) ([]Stall, error) {
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	var seen []Stall
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	for line := range strings.Lines(string(whole)) {
		var what string
		var from, to int64
		if _, err := fmt.Sscan(line, &what, &from, &to); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		seen = append(seen, Stall{what, time.Unix(0, from), time.Unix(0, to)})
	}
	return seen, nil
}

// attempts is the number of measurements before a test is inconclusive.
const attempts = 3

// Timed runs a measurement whose limit is bound. measure returns a fault, or "" if everything
// was in time. If there is a fault and the machine stalled for at least a third of bound
// during the measurement, the result is discarded and measured again. After three such
// measurements the test is skipped as inconclusive, which `make test` lists. A measurement
// without a fault counts even if the machine stalled, because a stall makes nothing faster.
//
// measure must only return faults of time. For any other fault, it must fail the test itself.
func Timed(t testing.TB, bound time.Duration, measure func() (fault string)) {
	t.Helper()
	timed(t, bound, standstill, measure)
}

func timed(t testing.TB, bound time.Duration, standstill func(from, to time.Time) (time.Duration, error), measure func() string) {
	t.Helper()
	local()
	for n := 1; ; n++ {
		from := time.Now()
		fault := measure()
		if fault == "" || t.Failed() {
			return
		}
		settle()
		stood, err := standstill(from, time.Now())
		if err != nil {
			t.Fatalf("the stalls of this run cannot be read: %v", err)
		}
		if stood < bound/3 {
			t.Error(fault)
			return
		}
		if n == attempts {
			t.Skipf("inconclusive: %s; the machine stood still for %s in the last of %d measurements", fault, stood, attempts)
		}
		t.Logf("measured again: %s; the machine stood still for %s", fault, stood)
	}
}

// settle gives the witnesses time to record a stall that has just ended.
func settle() { time.Sleep(5 * shortest) }
