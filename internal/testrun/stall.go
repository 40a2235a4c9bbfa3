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

// StallsEnv names the file in which the launcher of a run records the stalls that
// concern all of it. Without it each process watches for itself.
const StallsEnv = "POSTHASTE_TEST_STALLS"

// shortest is the shortest delay that counts as a stall. Schedulers cause shorter
// ones all the time.
const shortest = 10 * time.Millisecond

// A Stall is a time in which something that normally takes microseconds did not come
// to its end.
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

// NewWitness returns a witness that calls record, if it is not nil, for each stall.
// Calls do not overlap.
func NewWitness(record func(Stall)) *Witness { return &Witness{record: record} }

// WatchProcess records, until ctx ends, when this process got no processor.
func (w *Witness) WatchProcess(ctx context.Context) {
	const pause = 2 * time.Millisecond
	_ = w.watch(ctx, "process", pause, pause, func() error {
		time.Sleep(pause)
		return nil
	})
}

// WatchFsync records, until ctx ends, when flushing a small file in dir took long.
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

// WatchNotify records, until ctx ends, when a round trip took long. The round trip
// should be a NOTIFY to a connection that listens.
func (w *Witness) WatchNotify(ctx context.Context, roundTrip func(context.Context) error) error {
	return w.watch(ctx, "notify", 0, 100*time.Millisecond, func() error { return roundTrip(ctx) })
}

// watch does something again and again, with pauses in between, and records when it
// took longer than it does on a machine at rest. An action that is under way when ctx
// ends counts only if it has succeeded.
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

// Stalls returns what was recorded so far.
func (w *Witness) Stalls() []Stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Stall(nil), w.seen...)
}

// Line is the stall as a line of the file of [StallsEnv].
func (s Stall) Line() string {
	return fmt.Sprintf("%s %d %d\n", s.What, s.From.UnixNano(), s.To.UnixNano())
}

// local is the witness of this process. It watches from the first use on, which is
// before the first test that measures time begins to measure.
var local = sync.OnceValue(func() *Witness {
	w := NewWitness(nil)
	go w.WatchProcess(context.Background())
	if os.Getenv(StallsEnv) == "" {
		go func() { _ = w.WatchFsync(context.Background(), os.TempDir()) }()
	}
	return w
})

// standstill is the longest total that one kind of stall took between two times.
// A stall that still lasts is not known yet, but the process kind: the caller runs.
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

// readStalls reads whole lines. The last one may just be being written.
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

// attempts is how often a measurement is made before its test is given up as
// inconclusive.
const attempts = 3

// Timed measures something and holds it to bound. measure returns a fault, or "" if
// all was in time. If there is a fault and the machine stood still for a third of
// bound or longer during the measurement, nothing is known, and it is made anew. After
// three such measurements the test is skipped as inconclusive, which `make test` lists.
// A measurement without a fault counts although the machine stood still: a stall makes
// nothing faster.
//
// Only faults of time may be returned. What no stall can cause fails the test inside
// measure, at once.
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
		t.Logf("measured anew: %s; the machine stood still for %s", fault, stood)
	}
}

// settle gives the witnesses time to record a stall that has just ended.
func settle() { time.Sleep(5 * shortest) }
