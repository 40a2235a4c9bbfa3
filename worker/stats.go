package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/fingerprint"
)

// maxFingerprints is how many different errors of one kind are counted between two reports.
const maxFingerprints = 100

// stats counts settled outcomes, and reports the counts to the store for charts.
type stats struct {
	engine posthaste.Engine
	report *reporter
	held   *holdings

	mu     sync.Mutex
	counts map[statsKey]*kindStats // since the last report
	// last is the newest key and its counts, because messages of one kind often follow each
	// other.
	last   statsKey
	lastOf *kindStats
}

type statsKey struct {
	ref  posthaste.QueueRef
	kind string
}

// kindStats are the counts of one kind of a subscription.
type kindStats struct {
	posthaste.HandlerStats
	waited, ran time.Duration                    // sums of what Wait and Run count
	errors      map[string]*posthaste.ErrorCount // by fingerprint
}

func newStats(engine posthaste.Engine, report *reporter, held *holdings) *stats {
	return &stats{engine: engine, report: report, held: held, counts: map[statsKey]*kindStats{}}
}

// settled counts an outcome that was recorded as became. Messages that were handed back, and
// those that were cancelled, do not count.
func (s *stats) settled(o *outcome, became posthaste.Outcome) {
	became = cmp.Or(became, o.Outcome)
	if became == posthaste.OutcomeReleased || became == posthaste.OutcomeSetAside || became == posthaste.OutcomeCancelled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(statsKey{o.seg.route.ref, o.kind})
	of.Wait.Add(o.wait)
	of.Run.Add(o.Duration)
	of.waited += max(o.wait, 0)
	of.ran += max(o.Duration, 0)
	switch became {
	case posthaste.OutcomeDone:
		of.Done++
		return
	case posthaste.OutcomeRetried:
		of.Retried++
	default:
		of.Failed++
	}
	of.failed(o)
}

// of returns the counts of a key. The caller holds mu.
func (s *stats) of(key statsKey) *kindStats {
	if s.lastOf != nil && s.last == key {
		return s.lastOf
	}
	of := s.counts[key]
	if of == nil && len(s.counts) >= posthaste.MaxStatsKinds {
		key.kind = posthaste.OtherKinds // one more for each subscription
		of = s.counts[key]
	}
	if of == nil {
		of = &kindStats{HandlerStats: posthaste.HandlerStats{Queue: key.ref.Queue, Subscription: key.ref.Subscription, Kind: key.kind}}
		s.counts[key] = of
	}
	s.last, s.lastOf = key, of
	return of
}

// failed counts an error.
func (k *kindStats) failed(o *outcome) {
	alike := fingerprint.Of(o.Error)
	count := k.errors[alike]
	if count == nil {
		if len(k.errors) >= maxFingerprints {
			return
		}
		if k.errors == nil {
			k.errors = map[string]*posthaste.ErrorCount{}
		}
		count = &posthaste.ErrorCount{Fingerprint: alike, Error: fingerprint.First(o.Error), Message: o.message}
		k.errors[alike] = count
	}
	count.Count++
}

// take returns the counts since the last report.
func (s *stats) take() (all []posthaste.HandlerStats) {
	s.mu.Lock()
	counts := s.counts
	s.counts, s.lastOf = map[statsKey]*kindStats{}, nil
	s.mu.Unlock()
	for _, of := range counts {
		for _, count := range of.errors {
			of.Errors = append(of.Errors, *count)
		}
		slices.SortFunc(of.Errors, func(a, b posthaste.ErrorCount) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fingerprint, b.Fingerprint))
		})
		of.Errors = of.Errors[:min(len(of.Errors), posthaste.MaxReportErrors)]
		all = append(all, of.HandlerStats)
		s.tell(of)
	}
	return all
}

// tell tells telemetry the counts of one kind.
func (s *stats) tell(of *kindStats) {
	if !s.report.quiet() {
		counts := of.HandlerStats
		s.report.tell(posthaste.Event{Kind: posthaste.EventCounted, Queue: counts.Queue, Subscription: counts.Subscription,
			Count: int(counts.Run.Count()), Stats: &counts, WaitSum: of.waited, RunSum: of.ran})
	}
}

func (s *stats) run(ctx context.Context) {
	ticker := time.NewTicker(posthaste.StatsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.send(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// send reports the counts. They are no records: if that fails, those of this interval are
// dropped, because a repetition might count them twice.
func (s *stats) send(ctx context.Context) {
	counts := s.take()
	if len(counts) == 0 {
		return
	}
	worker, err := s.held.current(ctx)
	if err == nil {
		err = bounded(ctx, callTimeout, func(ctx context.Context) error { return s.engine.Report(ctx, worker, counts) })
	}
	if err != nil && ctx.Err() == nil {
		s.report.log.Debug("the counts of this interval are missing in charts", "error", err)
	}
}
