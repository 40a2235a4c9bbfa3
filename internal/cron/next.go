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

// Zone finds a time zone by its name as the database of time zones writes it; "" is
// UTC. Abbreviations, which have no summer time, are refused, with
// [posthaste.Invalid] and the field time_zone.
func Zone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "UTC") {
		return time.UTC, nil
	}
	// right/… has leap seconds, which no clock on a wall shows.
	if (placeZone.MatchString(name) || offsetZone.MatchString(name)) && !strings.HasPrefix(name, "right/") {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "time_zone", Message: fmt.Sprintf("there is no time zone '%s'", name),
		Hint: "UTC, or a name with a place in it as the database of time zones writes it, such as Europe/Berlin"}
}

// Next is the first tick after a time; of an interval, one that ticked at that time. ok
// is false if there is none in nine years, in which every date there is comes once.
//
// A line that names every hour follows the passing of time: it ticks whenever the clocks
// of the zone show one of its minutes, so that every 15 minutes stays that when they are
// set. Any other names times of a day: each comes once, the first time that the clocks
// show it or a later one.
func (s Spec) Next(zone *time.Location, after time.Time) (tick time.Time, ok bool) {
	if s.every > 0 {
		return after.Add(s.every), true
	}
	after = after.UTC()
	if s.hours != 1<<24-1 {
		wall := onWall(after, zone).Truncate(time.Minute)
		for {
			// In an hour that comes again, the times that have come are passed over.
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
		// Up to the next change of its clocks the zone is as far from UTC as now.
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

// onWall is what the clocks of a zone show at a time, as a time of UTC.
func onWall(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// firstShown is the first moment at which the clocks of a zone show a time or a later
// one: of a time that comes twice the first, and of one that they are set forward over
// the moment when that is done.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	// Clocks are never as far as that from UTC, nor set by more.
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

// nextOnWall is the first time on the wall that a line names, from a whole minute on:
// the calendar only.
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
