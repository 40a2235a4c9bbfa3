package cron

import (
	"maps"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// eachMost and ticksMost bound one step of catching up: messages if each tick gets one,
	// otherwise ticks.
	eachMost, ticksMost = 100, 1000
	// skipAfter is how late a tick may be before the catch-up mode skip skips it.
	skipAfter = time.Minute
)

// Due says what to do with the due ticks of a schedule.
type Due struct {
	// Ticks are the ticks that get a message, oldest first.
	Ticks []time.Time
	// Missed counts the ticks that get none.
	Missed int64
	// Next is the tick after them, or zero. It may be due as well, because steps are bounded.
	Next time.Time
}

// Due says what to do at now with the ticks from next on, which is due.
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

// Resumed returns the next tick, or zero, of a schedule that is resumed at now and whose next
// tick was next. An interval keeps its rhythm.
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

// Upcoming returns the next ticks, beginning with next, at most most of them.
func (s Spec) Upcoming(zone *time.Location, next time.Time, most int) (ticks []time.Time) {
	for ok := true; ok && len(ticks) < most; next, ok = s.Next(zone, next) {
		ticks = append(ticks, next)
	}
	return ticks
}

// Run returns the message of a schedule that is run by hand.
func Run(schedule string, m posthaste.Message) posthaste.Message {
	m.Headers = maps.Clone(m.Headers)
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	m.Headers[posthaste.HeaderSchedule] = schedule
	return m
}

// Tick returns the message of a schedule's tick.
func Tick(schedule string, m posthaste.Message, tick time.Time) posthaste.Message {
	m = Run(schedule, m)
	m.Headers[posthaste.HeaderTick] = tick.UTC().Format(time.RFC3339)
	return m
}
