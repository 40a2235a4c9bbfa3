package charts

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Stats sums up counts of handled messages.
type Stats struct {
	query  posthaste.StatsQuery
	span   Span
	groups map[group]*posthaste.HandlerStats
}

type group struct {
	at                                         time.Time
	queue, subscription, kind, version, worker string
}

// NewStats begins a sum for a query.
func NewStats(q posthaste.StatsQuery, span Span) *Stats {
	return &Stats{query: q, span: span, groups: map[group]*posthaste.HandlerStats{}}
}

// Add adds counts with all their names and the time of their report. It leaves out those that the
// query does not select.
func (s *Stats) Add(h *posthaste.HandlerStats) {
	begin, ok := s.span.begin(h.At)
	if !ok || !selects(s.query.Queue, h.Queue) || !selects(s.query.Subscription, h.Subscription) || !selects(s.query.Kind, h.Kind) {
		return
	}
	by := group{at: begin}
	if s.query.By&posthaste.ByQueue != 0 {
		by.queue, by.subscription = h.Queue, h.Subscription
	}
	if s.query.By&posthaste.ByKind != 0 {
		by.kind = h.Kind
	}
	if s.query.By&posthaste.ByVersion != 0 {
		by.version = h.Version
	}
	if s.query.By&posthaste.ByWorker != 0 {
		by.worker = h.Worker
	}
	sum := s.groups[by]
	if sum == nil {
		sum = &posthaste.HandlerStats{At: begin, Queue: by.queue, Subscription: by.subscription, Kind: by.kind, Version: by.version, Worker: by.worker}
		s.groups[by] = sum
	}
	Merge(sum, h)
}

// Merge adds the counts of h to sum.
func Merge(sum, h *posthaste.HandlerStats) {
	sum.Done, sum.Retried, sum.Failed = sum.Done+h.Done, sum.Retried+h.Retried, sum.Failed+h.Failed
	sum.Wait.Merge(&h.Wait)
	sum.Run.Merge(&h.Run)
}

// All returns the sums.
func (s *Stats) All() (all []posthaste.HandlerStats) {
	for _, sum := range s.groups {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b posthaste.HandlerStats) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Worker, b.Worker))
	})
	return all
}

func selects(wanted, is string) bool { return wanted == "" || wanted == is }

// Samples sums up samples.
type Samples struct {
	query posthaste.SampleQuery
	span  Span
	steps map[group]*posthaste.Sample
	last  map[group]time.Time
}

// NewSamples begins a sum for a query.
func NewSamples(q posthaste.SampleQuery, span Span) *Samples {
	return &Samples{query: q, span: span, steps: map[group]*posthaste.Sample{}, last: map[group]time.Time{}}
}

// Add adds a sample with its time. It leaves out one that the query does not select.
func (s *Samples) Add(x posthaste.Sample) {
	begin, ok := s.span.begin(x.At)
	if !ok || len(s.query.Queues) > 0 && !slices.Contains(s.query.Queues, x.Queue) {
		return
	}
	by := group{at: begin, queue: x.Queue, subscription: x.Subscription}
	if s.query.Total {
		by.queue, by.subscription = "", ""
	}
	sum := s.steps[by]
	if sum == nil {
		sum = &posthaste.Sample{At: begin, Queue: by.queue, Subscription: by.subscription}
		s.steps[by] = sum
	}
	MergeSamples(sum, &x, !s.query.Total && !x.At.Before(s.last[by]))
	s.last[by] = later(s.last[by], x.At)
}

// MergeSamples adds the counts of x to sum. If x is the later one, sum gets its depths.
func MergeSamples(sum, x *posthaste.Sample, later bool) {
	sum.Sent, sum.Done, sum.Retried, sum.Lost, sum.Expired = sum.Sent+x.Sent, sum.Done+x.Done, sum.Retried+x.Retried, sum.Lost+x.Lost, sum.Expired+x.Expired
	if later {
		sum.Depth, sum.InFlight, sum.Dead, sum.OldestAge = x.Depth, x.InFlight, x.Dead, x.OldestAge
	}
}

// All returns the sums.
func (s *Samples) All() (all []posthaste.Sample) {
	for _, sum := range s.steps {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b posthaste.Sample) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Subscription, b.Subscription))
	})
	return all
}

// Failures groups failed attempts.
type Failures struct {
	query posthaste.FailureQuery
	by    map[failure]*posthaste.Failure
}

type failure struct{ queue, subscription, kind, version, fingerprint string }

// NewFailures begins a grouping for a query.
func NewFailures(q posthaste.FailureQuery) *Failures {
	return &Failures{query: q, by: map[failure]*posthaste.Failure{}}
}

// Add adds failed attempts. counts says whether they are in the time of the query; otherwise they
// only say when the error came first and last.
func (f *Failures) Add(x *posthaste.Failure, counts bool) {
	if !selects(f.query.Queue, x.Queue) || !selects(f.query.Subscription, x.Subscription) || !selects(f.query.Kind, x.Kind) {
		return
	}
	by := failure{x.Queue, x.Subscription, x.Kind, x.Version, x.Fingerprint}
	sum := f.by[by]
	if sum == nil {
		is := *x
		sum = &is
		sum.Count = 0
		f.by[by] = sum
	}
	if !x.Last.Before(sum.Last) { // the message of the last one is most likely still there
		sum.Last, sum.Error, sum.Message = x.Last, x.Error, x.Message
	}
	if x.First.Before(sum.First) {
		sum.First = x.First
	}
	if counts {
		sum.Count += x.Count
	}
}

// All returns the groups with errors in the time of the query, most frequent first.
func (f *Failures) All() []posthaste.Failure {
	all := make([]posthaste.Failure, 0, len(f.by))
	for sum := range maps.Values(f.by) {
		if sum.Count > 0 {
			all = append(all, *sum)
		}
	}
	slices.SortFunc(all, func(a, b posthaste.Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Subscription, b.Subscription),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all[:min(len(all), cmp.Or(f.query.Limit, 100))]
}

// MostFrequent returns the most frequent of the errors, at most [posthaste.MaxReportErrors], those
// first that come first in all. It changes the order of all.
func MostFrequent[T any](all []T, count func(T) int64) []T {
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(count(b), count(a)) })
	return all[:min(len(all), posthaste.MaxReportErrors)]
}
