// Package charts answers the queries of posthaste.Charts, for engines whose stores cannot group and
// sum by themselves. The engine passes its stored figures, in any order.
package charts

import (
	"iter"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Span is the time of a query, in steps.
type Span struct {
	From, To time.Time // From is the begin of the first step, and To excluded
	Step     time.Duration
	Hours    bool // the query reads hours instead of details
	now      time.Time
}

// StatsSpan returns the span of a query. now is the store's time.
func StatsSpan(q posthaste.StatsQuery, now time.Time) Span { return spanOf(q.From, q.To, q.Step, now) }

// SampleSpan returns the span of a query. now is the store's time.
func SampleSpan(q posthaste.SampleQuery, now time.Time) Span {
	if q.Step == 0 {
		q.Step = time.Minute
	}
	return spanOf(q.From, q.To, q.Step, now)
}

// FailureSpan returns the span of a query. now is the store's time.
func FailureSpan(q posthaste.FailureQuery, now time.Time) Span {
	return spanOf(q.From, time.Time{}, 0, now)
}

// KeptHours returns the span of all hours that are kept. now is the store's time.
func KeptHours(now time.Time) Span {
	return Span{From: floor(now.Add(-posthaste.ChartHours), time.Hour), To: now.Add(time.Nanosecond), Hours: true, now: now}
}

func spanOf(from, to time.Time, step time.Duration, now time.Time) Span {
	s := Span{From: from, To: to, Step: step, now: now}
	if s.To.IsZero() {
		s.To = now.Add(time.Nanosecond)
	}
	if s.From.IsZero() {
		s.From = s.To.Add(-time.Hour)
	}
	s.Hours = step >= time.Hour || step == 0 && now.Sub(s.From) > posthaste.ChartDetail
	s.From = floor(s.From, max(step, s.unit()))
	return s
}

// floor returns the begin of the step in which at lies.
func floor(at time.Time, step time.Duration) time.Time {
	seconds := int64(step / time.Second)
	n := at.Unix()
	return time.Unix(n-(n%seconds+seconds)%seconds, 0)
}

func (s Span) unit() time.Duration {
	if s.Hours {
		return time.Hour
	}
	return time.Minute
}

// begin returns the begin of the step in which at lies. ok is false if at is not in the span.
func (s Span) begin(at time.Time) (begin time.Time, ok bool) {
	if at.Before(s.From) || !at.Before(s.To) {
		return begin, false
	}
	if s.Step == 0 {
		return s.From, true
	}
	return floor(at, s.Step), true
}

// Units returns the numbers of the minutes, or of the hours, of the span since 1970, as far as
// figures of them are kept.
func (s Span) Units() iter.Seq[int64] {
	kept := posthaste.ChartDetail
	if s.Hours {
		kept = posthaste.ChartHours
	}
	first := later(s.From, s.now.Add(-kept-s.unit()))
	last := s.To
	if s.now.Before(last) {
		last = s.now.Add(time.Nanosecond)
	}
	return func(yield func(int64) bool) {
		for at := floor(first, s.unit()); at.Before(last); at = at.Add(s.unit()) {
			if !yield(Unit(at, s.Hours)) {
				return
			}
		}
	}
}

// Unit returns the number of the minute, or of the hour, in which at lies.
func Unit(at time.Time, hours bool) int64 {
	if hours {
		return floor(at, time.Hour).Unix() / 3600
	}
	return floor(at, time.Minute).Unix() / 60
}

// Begin returns the time at which a minute, or an hour, begins.
func Begin(unit int64, hours bool) time.Time {
	if hours {
		return time.Unix(unit*3600, 0)
	}
	return time.Unix(unit*60, 0)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
