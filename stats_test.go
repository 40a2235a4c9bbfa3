package posthaste_test

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func TestHistogramQuantiles(t *testing.T) {
	t.Parallel()
	var h posthaste.Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %s", got)
	}
	for range 90 {
		h.Add(3 * time.Millisecond)
	}
	for range 10 {
		h.Add(700 * time.Millisecond)
	}
	for _, of := range []struct {
		q         float64
		low, high time.Duration
	}{{0, 2 * time.Millisecond, 3 * time.Millisecond}, {0.5, 2 * time.Millisecond, 4 * time.Millisecond}, {0.9, 2 * time.Millisecond, 4 * time.Millisecond},
		{0.91, 512 * time.Millisecond, 1024 * time.Millisecond}, {1, 512 * time.Millisecond, 1024 * time.Millisecond}} {
		if got := h.Quantile(of.q); got < of.low || got > of.high {
			t.Errorf("quantile %g is %s, and should lie between %s and %s", of.q, got, of.low, of.high)
		}
	}
	if h.Quantile(0.5) > h.Quantile(0.8) {
		t.Error("a higher quantile is below a lower one")
	}
}

func TestHistogramBounds(t *testing.T) {
	t.Parallel()
	for d, bucket := range map[time.Duration]int{-time.Second: 0, 0: 0, time.Millisecond - 1: 0, time.Millisecond: 1, 2*time.Millisecond - 1: 1, 2 * time.Millisecond: 2,
		time.Second: 10, 1 << 62: posthaste.HistogramBuckets - 1} {
		var h posthaste.Histogram
		h.Add(d)
		if h[bucket] != 1 {
			t.Errorf("%s is not in bucket %d: %v", d, bucket, h)
		}
		if d == 1<<62 && h.Quantile(1) != time.Millisecond<<30 {
			t.Errorf("the last bucket's estimate is %s, expected its lower bound", h.Quantile(1))
		}
		var sum posthaste.Histogram
		sum.Merge(&h)
		sum.Merge(&h)
		if sum[bucket] != 2 || sum.Count() != 2 {
			t.Errorf("merged twice: %v", sum)
		}
	}
}

func TestStatsQueriesAreChecked(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, q := range []posthaste.StatsQuery{{Step: -time.Minute}, {Step: 90 * time.Second}, {Step: 90 * time.Minute}, {From: at, To: at}, {By: 1 << 4}} {
		if posthaste.CodeOf(q.Check()) != posthaste.CodeInvalid {
			t.Errorf("%+v is accepted", q)
		}
	}
	for _, q := range []posthaste.StatsQuery{{}, {Step: 5 * time.Minute}, {Step: 24 * time.Hour, By: posthaste.ByQueue | posthaste.ByWorker}, {From: at, To: at.Add(1)}} {
		if err := q.Check(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if err := (&posthaste.SampleQuery{Step: time.Second}).Check(); err == nil {
		t.Error("samples every second are accepted")
	}
	if err := (&posthaste.FailureQuery{Limit: 1001}).Check(); err == nil {
		t.Error("1001 failures are accepted")
	}
}

func TestStatsByNames(t *testing.T) {
	t.Parallel()
	all := posthaste.ByQueue | posthaste.ByKind | posthaste.ByVersion | posthaste.ByWorker
	var again posthaste.StatsBy
	for _, name := range all.Names() {
		by, known := posthaste.StatsByName(name)
		if !known || again&by != 0 {
			t.Errorf("%q is %d (%v), after %d", name, by, known, again)
		}
		again |= by
	}
	if again != all {
		t.Errorf("the names %q mean %d, want %d", all.Names(), again, all)
	}
	if _, known := posthaste.StatsByName("day"); known || len(posthaste.StatsBy(0).Names()) != 0 {
		t.Error("a name is known that should not be")
	}
}
