package memory

import (
	"context"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/charts"
)

// figures are the data of charts: details as they came, and their sums by hours, both ordered by time.
type figures struct {
	stats, statsByHour       []posthaste.HandlerStats
	failures, failuresByHour []posthaste.Failure
	samples, samplesByHour   []posthaste.Sample
	sampledAt                time.Time
	last                     map[*queue]posthaste.SubscriptionInfo // at the last sample
}

// Report implements [posthaste.Engine].
func (e *Engine) Report(ctx context.Context, id posthaste.WorkerID, stats []posthaste.HandlerStats) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, err := e.worker(id)
	if err != nil {
		return err
	}
	now := e.now()
	e.figures.prune(now)
	for _, h := range stats {
		ref := posthaste.QueueRef{Queue: h.Queue, Subscription: h.Subscription}.Normal()
		if _, err := e.subscribed(ref); err != nil {
			continue // it was dropped
		}
		h.At, h.Subscription, h.Version, h.Worker = now, ref.Subscription, w.Version, w.Name
		for _, of := range charts.MostFrequent(slices.Clone(h.Errors), func(c posthaste.ErrorCount) int64 { return c.Count }) {
			e.figures.addFailure(posthaste.Failure{Queue: h.Queue, Subscription: h.Subscription, Kind: h.Kind, Version: h.Version, ErrorCount: of, First: now, Last: now})
		}
		h.Errors = nil
		e.figures.addStats(h)
	}
	return ctx.Err()
}

func hourOf(at time.Time) time.Time { return charts.Begin(charts.Unit(at, true), true) }

func (f *figures) addStats(h posthaste.HandlerStats) {
	f.stats = append(f.stats, h)
	h.At = hourOf(h.At)
	for i := len(f.statsByHour) - 1; i >= 0 && f.statsByHour[i].At.Equal(h.At); i-- {
		if is := &f.statsByHour[i]; is.Queue == h.Queue && is.Kind == h.Kind && is.Version == h.Version && is.Worker == h.Worker {
			charts.Merge(is, &h)
			return
		}
	}
	f.statsByHour = append(f.statsByHour, h)
}

// addFailure adds failed attempts. All errors of an hour are kept: there are few in a test.
func (f *figures) addFailure(x posthaste.Failure) {
	f.failures = append(f.failures, x)
	for i := len(f.failuresByHour) - 1; i >= 0 && hourOf(f.failuresByHour[i].First).Equal(hourOf(x.First)); i-- {
		if is := &f.failuresByHour[i]; is.Queue == x.Queue && is.Kind == x.Kind && is.Version == x.Version && is.Fingerprint == x.Fingerprint {
			is.Count, is.Last = is.Count+x.Count, x.Last
			return
		}
	}
	f.failuresByHour = append(f.failuresByHour, x)
}

func (f *figures) addSample(x posthaste.Sample) {
	f.samples = append(f.samples, x)
	x.At = hourOf(x.At)
	for i := len(f.samplesByHour) - 1; i >= 0 && f.samplesByHour[i].At.Equal(x.At); i-- {
		if is := &f.samplesByHour[i]; is.Queue == x.Queue {
			charts.MergeSamples(is, &x, true)
			return
		}
	}
	f.samplesByHour = append(f.samplesByHour, x)
}

// prune removes figures that are too old.
func (f *figures) prune(now time.Time) {
	detail, hours := now.Add(-posthaste.ChartDetail-time.Minute), now.Add(-posthaste.ChartHours-time.Hour)
	f.removeIf(func(_ string, at time.Time) bool { return at.Before(detail) }, func(_ string, at time.Time) bool { return at.Before(hours) })
}

// forget removes the figures of a queue.
func (f *figures) forget(q *queue) {
	is := func(name string, _ time.Time) bool { return name == q.name }
	f.removeIf(is, is)
	delete(f.last, q)
}

// erase erases the errors of a message: the text, and the fingerprint if no other had the error.
func (f *figures) erase(id posthaste.MessageID) {
	for _, all := range [][]posthaste.Failure{f.failures, f.failuresByHour} {
		for i := range all {
			if x := &all[i]; x.Message == id {
				x.Error = "erased"
				if x.Count == 1 {
					x.Fingerprint = "erased"
				}
			}
		}
	}
}

func (f *figures) removeIf(detail, hour func(queue string, at time.Time) bool) {
	stats := func(of func(string, time.Time) bool) func(posthaste.HandlerStats) bool {
		return func(h posthaste.HandlerStats) bool { return of(h.Queue, h.At) }
	}
	failures := func(of func(string, time.Time) bool) func(posthaste.Failure) bool {
		return func(x posthaste.Failure) bool { return of(x.Queue, x.First) }
	}
	samples := func(of func(string, time.Time) bool) func(posthaste.Sample) bool {
		return func(x posthaste.Sample) bool { return of(x.Queue, x.At) }
	}
	f.stats, f.statsByHour = slices.DeleteFunc(f.stats, stats(detail)), slices.DeleteFunc(f.statsByHour, stats(hour))
	f.failures, f.failuresByHour = slices.DeleteFunc(f.failures, failures(detail)), slices.DeleteFunc(f.failuresByHour, failures(hour))
	f.samples, f.samplesByHour = slices.DeleteFunc(f.samples, samples(detail)), slices.DeleteFunc(f.samplesByHour, samples(hour))
}

// sample takes a sample of each queue that changed, once in [posthaste.SampleInterval]. e.mu is held.
func (e *Engine) sample(now time.Time) {
	f := &e.figures
	if !f.sampledAt.IsZero() && now.Sub(f.sampledAt) < posthaste.SampleInterval {
		return
	}
	f.sampledAt = now
	f.prune(now)
	for _, q := range e.queues {
		is, was := q.info, f.last[q]
		f.last[q] = is
		x := posthaste.Sample{At: now, Queue: q.name, Subscription: is.Name,
			Sent: is.Sent - was.Sent, Done: is.Done - was.Done, Retried: is.Retried - was.Retried, Lost: is.Lost - was.Lost, Expired: is.Expired - was.Expired,
			Depth: is.Depth, InFlight: is.InFlight, Dead: is.Dead, OldestAge: q.oldestAge(now)}
		unchanged := posthaste.Sample{At: now, Queue: q.name, Subscription: is.Name, Depth: was.Depth, InFlight: was.InFlight, Dead: was.Dead, OldestAge: x.OldestAge}
		if x != unchanged {
			f.addSample(x)
		}
	}
}

// oldestAge returns since when the oldest message waits that can be handed out.
func (q *queue) oldestAge(now time.Time) (age time.Duration) {
	for _, waiting := range q.fresh {
		for _, n := range waiting {
			age = max(age, now.Sub(n.since))
		}
	}
	for _, n := range q.due {
		age = max(age, now.Sub(n.dueAt))
	}
	for _, n := range q.apart {
		if !q.isPaused(n) {
			age = max(age, now.Sub(n.asideAt))
		}
	}
	return age
}

// HandlerStats implements [posthaste.Charts].
func (e *Engine) HandlerStats(ctx context.Context, query posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	span, all := charts.StatsSpan(query, e.now()), e.figures.stats
	if span.Hours {
		all = e.figures.statsByHour
	}
	sums := charts.NewStats(query, span)
	for i := range all {
		sums.Add(&all[i])
	}
	return sums.All(), ctx.Err()
}

// Failures implements [posthaste.Charts].
func (e *Engine) Failures(ctx context.Context, query posthaste.FailureQuery) ([]posthaste.Failure, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	span, sums := charts.FailureSpan(query, e.now()), charts.NewFailures(query)
	for i := range e.figures.failuresByHour {
		x := &e.figures.failuresByHour[i]
		sums.Add(x, span.Hours && !x.First.Before(span.From))
	}
	for i := range e.figures.failures {
		x := &e.figures.failures[i]
		sums.Add(x, !span.Hours && !x.First.Before(span.From))
	}
	return sums.All(), ctx.Err()
}

// Samples implements [posthaste.Charts].
func (e *Engine) Samples(ctx context.Context, query posthaste.SampleQuery) ([]posthaste.Sample, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	span, all := charts.SampleSpan(query, e.now()), e.figures.samples
	if span.Hours {
		all = e.figures.samplesByHour
	}
	sums := charts.NewSamples(query, span)
	for _, x := range all {
		sums.Add(x)
	}
	return sums.All(), ctx.Err()
}
