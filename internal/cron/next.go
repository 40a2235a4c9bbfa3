package cron

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var (
	placeZone  = regexp.MustCompile(`^[A-Za-z_-]+(/[A-Za-z_-]+)+$`)
	offsetZone = regexp.MustCompile(`^Etc/GMT([+-]?0|\+([1-9]|1[0-2])|-([1-9]|1[0-4]))$`)
)

// Zone finds a time zone by its name in the time zone database; "" is UTC. Abbreviations are
// rejected, because they have no daylight saving time. The error is [posthaste.CodeInvalid] with
// the field time_zone.
func Zone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "UTC") {
		return time.UTC, nil
	}
	// right/… has leap seconds, which local clocks do not show.
	if (placeZone.MatchString(name) || offsetZone.MatchString(name)) && !strings.HasPrefix(name, "right/") {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "time_zone", Message: fmt.Sprintf("unknown time zone '%s'", name),
		Hint: "use UTC, or a name with a place from the time zone database, such as Europe/Berlin"}
}

// Next returns the first tick after a time; for an interval, that time must be a tick. ok is
// false if no tick exists in nine years, a period in which every date occurs.
//
// A line with every hour follows elapsed time: it ticks whenever the local time matches one of
// its minutes, so that every 15 minutes stays true when clocks change. Any other line names
// local times: each ticks once, when the clock first shows it or a later time.
func (s Spec) Next(zone *time.Location, after time.Time) (tick time.Time, ok bool) {
	if s.every > 0 {
		return after.Add(s.every), true
	}
	after = after.UTC()
	if s.hours != 1<<24-1 {
		wall := onWall(after, zone).Truncate(time.Minute)
		for {
			// In a repeated hour, skip the times that have already ticked.
			if wall, ok = s.nextOnWall(wall.Add(time.Minute)); !ok {
				return tick, false
			}
			if tick = firstShown(wall, zone); tick.After(after) {
				return tick, true
			}
		}
	}
	from := after.Truncate(time.Second).Add(time.Second)
	for {
		// Until the next change of its clocks, the zone keeps its offset from UTC.
		wall := onWall(from, zone)
		found, ok := s.nextOnWall(wall.Add(time.Minute - time.Second).Truncate(time.Minute))
		if !ok {
			return tick, false
		}
		tick = from.Add(found.Sub(wall))
		_, change := from.In(zone).ZoneBounds()
		if change.IsZero() || tick.Before(change) {
			return tick, true
		}
		from = change.UTC()
	}
}

// onWall returns the local time of a zone, as a time in UTC.
func onWall(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// firstShown returns the first time at which the clocks of a zone show a local time or a later
// one. For a local time that occurs twice it is the first; for one that is skipped it is the
// moment of the change.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	// Offsets from UTC, and changes of clocks, are always smaller than this.
	from := wall.Add(-48 * time.Hour)
	for {
		t := from.Add(wall.Sub(onWall(from, zone)))
		if t.Before(from) {
			return from
		}
		_, change := from.In(zone).ZoneBounds()
		if change.IsZero() || t.Before(change) {
			return t
		}
		from = change.UTC()
	}
}

// nextOnWall returns the first local time that a line names, from a whole minute on. It uses
// only the calendar.
func (s Spec) nextOnWall(from time.Time) (time.Time, bool) {
	has := func(bits uint64, v int) bool { return bits>>v&1 == 1 }
	year, month, day := from.Date()
	hour, minute := from.Hour(), from.Minute()
	d := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for last := d.AddDate(0, 0, 9*366); !d.After(last); hour, minute = 0, 0 {
		if !has(s.months, int(d.Month())) {
			d = time.Date(d.Year(), d.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		day, weekday := has(s.days, d.Day()), has(s.weekdays, int(d.Weekday()))
		if day && weekday || s.either && (day || weekday) {
			for ; hour < 24; hour, minute = hour+1, 0 {
				for ; has(s.hours, hour) && minute < 60; minute++ {
					if has(s.minutes, minute) {
						return d.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute), true
					}
				}
			}
		}
		d = d.AddDate(0, 0, 1)
	}
	return time.Time{}, false
}
