package cron

import (
	"maps"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// eachMost and ticksMost bound one step of catching up: messages where each tick
	// gets one, else ticks.
	eachMost, ticksMost = 100, 1000
	// skipAfter is how late a tick may be where those that are late are skipped.
	skipAfter = time.Minute
)

// Due is what becomes of the ticks of a schedule that are due.
type Due struct {
	// Ticks are those that get a message, oldest first.
	Ticks []time.Time
	// Missed counts those that get none.
	Missed int64
	// Next is the tick after them, which may be due, too: steps are bounded. It is zero
	// if there is none.
	Next time.Time
}

// Due is what to do at now about ticks from next on, which is due.
func (s Spec) Due(zone *time.Location, next, now time.Time, catchUp posthaste.CatchUp) (d Due) {
	d.Next = next
	each, most := catchUp == posthaste.CatchUpEach, ticksMost
	if each {
		most = eachMost
	} else if s.every > 0 {
		d.Missed = int64(now.Sub(next) / s.every)
		d.Next = next.Add(time.Duration(d.Missed) * s.every)
	}
	for range most {
		tick := d.Next
		var ok bool
		if d.Next, ok = s.Next(zone, tick); !ok {
			d.Next = time.Time{}
		}
		more := ok && !d.Next.After(now)
		if !each && (more || catchUp == posthaste.CatchUpSkip && tick.Before(now.Add(-skipAfter))) {
			d.Missed++
		} else {
			d.Ticks = append(d.Ticks, tick)
		}
		if !more {
			break
		}
	}
	return d
}

// Resumed is the next tick of a schedule that goes on at now, whose next was next: an
// interval keeps its step. It is zero if there is none.
func (s Spec) Resumed(zone *time.Location, next, now time.Time) time.Time {
	if next.After(now) {
		return next
	}
	if s.every > 0 {
		return next.Add(s.every * (1 + now.Sub(next)/s.every))
	}
	next, _ = s.Next(zone, now)
	return next
}

// Upcoming are the next ticks from next on, which is one, at most so many.
func (s Spec) Upcoming(zone *time.Location, next time.Time, most int) (ticks []time.Time) {
	for ok := true; ok && len(ticks) < most; next, ok = s.Next(zone, next) {
		ticks = append(ticks, next)
	}
	return ticks
}

// Tick is the message of a schedule's tick.
func Tick(schedule string, m posthaste.Message, tick time.Time) posthaste.Message {
	m.Headers = maps.Clone(m.Headers)
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	m.Headers[posthaste.HeaderSchedule], m.Headers[posthaste.HeaderTick] = schedule, tick.UTC().Format(time.RFC3339)
	return m
}
