// Package crontest generates test cases for schedules: random cron lines whose meaning is
// known, and an oracle that checks the zone's clock every minute against the line.
package crontest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// cronLine is a cron line with its meaning: the values of each field, and the text for them.
type cronLine struct {
	text                                   string
	minutes, hours, days, months, weekdays map[int]bool
	anyDay, anyWeekday                     bool // the field is *
}

var (
	monthNames   = strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")
	weekdayNames = strings.Fields("sun mon tue wed thu fri sat")
)

// randomField returns a field and its values; names begin at low.
func randomField(r *rand.Rand, low, high int, names []string) (text string, values map[int]bool) {
	values = map[int]bool{}
	say := func(v int) string {
		if names != nil && v-low < len(names) && r.IntN(2) == 0 {
			if name := names[v-low]; r.IntN(2) == 0 {
				return name
			}
			return strings.ToUpper(names[v-low])
		}
		return fmt.Sprintf([]string{"%d", "%02d"}[r.IntN(2)], v)
	}
	if r.IntN(3) == 0 {
		for v := low; v <= high; v++ {
			values[v] = true
		}
		return "*", values
	}
	var parts []string
	for range 1 + r.IntN(3) {
		from, to, step := low+r.IntN(high-low+1), 0, 1
		part := ""
		switch r.IntN(4) {
		case 0:
			part, to = say(from), from
		case 1:
			from, to, part = low, high, "*"
		default:
			to = from + r.IntN(high-from+1)
			part = say(from) + "-" + say(to)
		}
		if part != say(from) && to != from && r.IntN(2) == 0 || part == "*" {
			step = 2 + r.IntN(high-low)
			part += fmt.Sprintf("/%d", step)
		}
		for v := from; v <= to; v += step {
			values[v] = true
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), values
}

func randomLine(r *rand.Rand) (l cronLine) {
	var f [5]string
	f[0], l.minutes = randomField(r, 0, 59, nil)
	f[1], l.hours = randomField(r, 0, 23, nil)
	f[2], l.days = randomField(r, 1, 31, nil)
	f[3], l.months = randomField(r, 1, 12, monthNames)
	f[4], l.weekdays = randomField(r, 0, 6, weekdayNames)
	l.anyDay, l.anyWeekday = f[2] == "*", f[4] == "*"
	for i := range f {
		// Most real lines leave the days unrestricted and tick often.
		if i >= 2 && r.IntN(3) > 0 {
			f[i] = "*"
			switch i {
			case 2:
				l.anyDay = true
			case 3:
				l.months = nil
			case 4:
				l.anyWeekday = true
			}
		}
	}
	l.text = strings.Join(f[:], " ")
	return l
}

func (l *cronLine) onDay(w time.Time) bool {
	day, weekday := l.anyDay || l.days[w.Day()], l.anyWeekday || l.weekdays[int(w.Weekday())]
	if !l.anyDay && !l.anyWeekday {
		day, weekday = day || weekday, true
	}
	return (l.months == nil || l.months[int(w.Month())]) && day && weekday
}

func (l *cronLine) names(w time.Time) bool {
	return l.minutes[w.Minute()] && l.hours[w.Hour()] && l.onDay(w)
}

// onWall returns the local time of the zone at t, as a time in UTC.
func onWall(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// next returns the first tick after a time. It checks each minute up to limit against the
// clock of the zone. If the line has every hour, it ticks at each minute whose local time
// matches. Otherwise each local time ticks once, when the clock first shows it or has just
// passed it.
func (l *cronLine) next(zone *time.Location, after, limit time.Time) (time.Time, bool) {
	latest := time.Time{}
	t := after.Truncate(time.Minute)
	if len(l.hours) < 24 {
		t = t.Add(-50 * time.Hour) // to know local times that have already passed
		latest = onWall(t, zone)
	}
	for t = t.Add(time.Minute); !t.After(limit); t = t.Add(time.Minute) {
		w := onWall(t, zone)
		if len(l.hours) == 24 {
			if l.names(w) {
				return t, true
			}
			continue
		}
		for latest.Before(w) {
			latest = latest.Add(time.Minute)
			if t.After(after) && l.names(latest) {
				return t, true
			}
		}
	}
	return time.Time{}, false
}

// The zones have changes at midnight, a minute later, by half an hour, by two hours and by a
// whole day, and offsets of odd minutes.
var oracleZones = strings.Fields(`UTC Europe/Berlin Europe/London Europe/Dublin America/New_York America/St_Johns America/Sao_Paulo
	America/Havana Africa/Cairo Asia/Beirut Asia/Kolkata Asia/Kathmandu Australia/Sydney Australia/Lord_Howe Pacific/Apia
	Pacific/Kiritimati Pacific/Kwajalein Pacific/Chatham Antarctica/Troll Africa/Casablanca`)

// zoneChanges returns the times at which a zone's clocks changed, 1993 to 2022.
func zoneChanges(zone *time.Location) (all []time.Time) {
	offset := func(t time.Time) int { _, o := t.In(zone).Zone(); return o }
	const step = 7 * time.Hour
	for t := time.Date(1993, 1, 1, 0, 0, 0, 0, time.UTC); t.Year() < 2023; t = t.Add(step) {
		low, high := t, t.Add(step)
		if offset(low) == offset(high) {
			continue
		}
		for high.Sub(low) > time.Second {
			if middle := low.Add(high.Sub(low) / 2).Truncate(time.Second); offset(middle) == offset(t) {
				low = middle
			} else {
				high = middle
			}
		}
		all = append(all, high)
	}
	return all
}

var oracleChanges = sync.OnceValue(func() map[string][]time.Time {
	changes := map[string][]time.Time{}
	for _, name := range oracleZones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		changes[name] = zoneChanges(zone)
	}
	return changes
})

// Case asks for the first tick of a line after a time.
type Case struct {
	line cronLine
	// Zone is the name of the time zone, After the time.
	Zone  string
	After time.Time
}

// Spec is the text of the line.
func (c *Case) Spec() string { return c.line.text }

// Random returns a random case, often with a time near a change of the clocks.
func Random(r *rand.Rand) Case {
	c := Case{line: randomLine(r), Zone: oracleZones[r.IntN(len(oracleZones))]}
	c.After = time.Date(1993, 1, 1, 0, 0, r.IntN(30*365*86400), 0, time.UTC)
	if changes := oracleChanges()[c.Zone]; len(changes) > 0 && r.IntN(5) > 0 {
		c.After = changes[r.IntN(len(changes))].Add(time.Duration(r.IntN(60*3600)-50*3600) * time.Second / time.Duration(1+r.IntN(20)))
	}
	if r.IntN(3) == 0 {
		c.After = c.After.Truncate(time.Minute)
	}
	return c
}

// Fault compares an answer, which is nil if there was no tick, with the oracle. It returns ""
// if the answer is right.
func (c *Case) Fault(got *time.Time) string {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return err.Error()
	}
	told := func(want string) string {
		return fmt.Sprintf("%q in %s after %s: %v, want %s", c.line.text, c.Zone, c.After.Format(time.RFC3339), got, want)
	}
	near := c.After.Add(20 * 24 * time.Hour)
	if want, ok := c.line.next(zone, c.After, near); ok {
		if got == nil || !got.Equal(want) {
			return told(want.Format(time.RFC3339))
		}
		return ""
	}
	// The oracle found nothing near: no matching day may lie before the answer's.
	end := near.Add(8 * 366 * 24 * time.Hour)
	if got != nil {
		end = got.Add(-96 * time.Hour)
	}
	for day := near.Add(-48 * time.Hour); day.Before(end); day = day.Add(24 * time.Hour) {
		if c.line.onDay(day) {
			return told("it about " + day.Format(time.DateOnly))
		}
	}
	if got == nil {
		return ""
	}
	if want, ok := c.line.next(zone, got.Add(-120*time.Hour), *got); !ok || !want.Equal(*got) {
		return told("another one")
	}
	return ""
}
