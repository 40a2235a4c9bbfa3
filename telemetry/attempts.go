package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthaste-mq/posthaste"
)

// attempts is a histogram of attempts by queue, subscription and kind, with the buckets of
// [posthaste.Histogram]. It has at most [posthaste.MaxStatsKinds] series, and one more for each
// subscription, whose kind is [posthaste.OtherKinds]: a series is never removed.
type attempts struct {
	desc   *prometheus.Desc
	mu     sync.Mutex
	series map[[3]string]*attemptSeries
}

type attemptSeries struct {
	counts posthaste.Histogram
	sum    time.Duration
}

func newAttempts(name, help string) attempts {
	return attempts{
		desc:   prometheus.NewDesc(name, help, []string{"queue", "subscription", "kind"}, nil),
		series: map[[3]string]*attemptSeries{},
	}
}

// add adds the counts of an [posthaste.EventCounted].
func (a *attempts) add(e posthaste.Event, counts *posthaste.Histogram, sum time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	labels := [3]string{e.Queue, e.Subscription, e.Stats.Kind}
	of := a.series[labels]
	if of == nil && len(a.series) >= posthaste.MaxStatsKinds {
		labels[2] = posthaste.OtherKinds
		of = a.series[labels]
	}
	if of == nil {
		of = &attemptSeries{}
		a.series[labels] = of
	}
	of.counts.Merge(counts)
	of.sum += sum
}

func (a *attempts) Describe(out chan<- *prometheus.Desc) { out <- a.desc }

func (a *attempts) Collect(out chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for labels, of := range a.series {
		cumulated, total := make(map[float64]uint64, len(of.counts)), uint64(0)
		for i, n := range of.counts {
			total += uint64(n)
			if i < len(of.counts)-1 { // the last one has no upper bound
				cumulated[(time.Millisecond << i).Seconds()] = total
			}
		}
		out <- prometheus.MustNewConstHistogram(a.desc, total, of.sum.Seconds(), cumulated, labels[:]...)
	}
}
