// Package cron computes when schedules tick, for stores that cannot do it themselves: cron
// lines in the local time of a time zone, and intervals. It implements the same rules and
// error texts as posthaste.schedule_spec and posthaste.next_tick of the PostgreSQL engine.
// Package crontest tests both.
package cron

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Spec says when a schedule ticks: at the times of a cron line, or after each interval.
type Spec struct {
	every                                  time.Duration // 0: by the fields, which are bit sets
	minutes, hours, days, months, weekdays uint64
	either                                 bool // day or weekday must match, not both
}

const (
	specBytes = 255
	specHint  = "a cron line such as '30 2 * * mon-fri', @daily, or 'every 90 seconds'"
	// everyMost is the longest interval.
	everyMost = 87600 * time.Hour
)

func invalid(hint, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "spec", Message: fmt.Sprintf(format, args...), Hint: hint}
}

func blank(r rune) bool { return r == ' ' || r == '\t' }

// Parse parses a cron line of five fields, @hourly, @daily, @midnight, @weekly, @monthly,
// @yearly or @annually, or "every" and a duration. Its errors are [posthaste.CodeInvalid] with the
// field spec.
func Parse(spec string) (s Spec, err error) {
	text := strings.ToLower(strings.Trim(spec, " \t"))
	switch {
	case len(spec) > specBytes:
		return s, invalid(specHint, "spec is over %d bytes", specBytes)
	case text == "":
		return s, invalid(specHint, "spec must not be empty")
	}
	if duration, ok := strings.CutPrefix(text, "every"); ok && strings.IndexFunc(duration, blank) == 0 {
		s.every, err = interval(strings.TrimFunc(duration, blank))
		return s, err
	}
	switch text {
	case "@yearly", "@annually":
		text = "0 0 1 1 *"
	case "@monthly":
		text = "0 0 1 * *"
	case "@weekly":
		text = "0 0 * * 0"
	case "@daily", "@midnight":
		text = "0 0 * * *"
	case "@hourly":
		text = "0 * * * *"
	}
	f := strings.FieldsFunc(text, blank)
	if len(f) != 5 {
		return s, invalid(specHint, "'%s' has %d fields, not five", spec, len(f))
	}
	for i, field := range []struct {
		what      string
		low, high int
		names     []string
		bits      *uint64
	}{
		{"minute", 0, 59, nil, &s.minutes},
		{"hour", 0, 23, nil, &s.hours},
		{"day of the month", 1, 31, nil, &s.days},
		{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}, &s.months},
		{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, &s.weekdays},
	} {
		bits, fault := values(f[i], field.low, field.high, field.names)
		if fault != "" {
			return s, invalid("five fields: minute, hour, day of the month, month, day of the week; for example '30 2 * * mon-fri'",
				"%s of the cron line: %s", field.what, fault)
		}
		*field.bits = bits
	}
	every := func(field string) bool { return field == "*" || field == "*/1" }
	s.either = !every(f[2]) && !every(f[4])
	return s, nil
}

var partOfField = regexp.MustCompile(`^(?:(\*)|([a-z]+|[0-9]{1,2})(?:-([a-z]+|[0-9]{1,2}))?)(?:/([0-9]{1,4}))?$`)

// values returns the values of a field as bits, or a description of the fault. Names stand for
// values from low on. In a weekday field, whose highest value is 7, Sunday is 0 and 7, so that
// a range may end with it.
func values(text string, low, high int, names []string) (bits uint64, fault string) {
	week, modulus := high == 7, 60
	if week {
		modulus = 7
	}
	value := func(text string) (int, bool) {
		if i := slices.Index(names, text); i >= 0 {
			return low + i, true
		}
		n, err := strconv.Atoi(text)
		return n, err == nil
	}
	for part := range strings.SplitSeq(text, ",") {
		m := partOfField.FindStringSubmatch(part)
		if m == nil {
			return 0, fmt.Sprintf("'%s' is not a value, range, step or *", part)
		}
		from, to, step := low, high, 1
		if m[4] != "" {
			step, _ = strconv.Atoi(m[4]) // the pattern matches only digits
		}
		if m[1] == "" {
			var ok bool
			if from, ok = value(m[2]); !ok {
				return 0, fmt.Sprintf("'%s' is not a name", m[2])
			}
			to = from
			if m[3] != "" {
				if to, ok = value(m[3]); !ok {
					return 0, fmt.Sprintf("'%s' is not a name", m[3])
				}
				if week && to == 0 && from > 0 {
					to = 7
				}
			} else if m[4] != "" {
				return 0, fmt.Sprintf("'%s': a step needs * or a range before it", part)
			}
			switch {
			case from < low || max(from, to) > high:
				return 0, fmt.Sprintf("'%s' is not within %d to %d", part, low, high)
			case to < from:
				return 0, fmt.Sprintf("range '%s' goes backwards; write it as two", part)
			}
		}
		if step < 1 {
			return 0, fmt.Sprintf("'%s': the step is zero", part)
		}
		for v := from; v <= to; v += step {
			bits |= 1 << (v % modulus)
		}
	}
	return bits, ""
}

var partOfInterval = regexp.MustCompile(`^[ \t]*([0-9]{1,9})[ \t]*([a-z]+)`)

// interval parses whole numbers of weeks, days, hours, minutes and seconds.
func interval(text string) (every time.Duration, err error) {
	named := map[time.Duration]bool{}
	for rest := text; rest != ""; {
		m := partOfInterval.FindStringSubmatch(rest)
		if m == nil {
			return 0, invalid(specHint, "'%s' is not a duration", text)
		}
		rest = rest[len(m[0]):]
		var unit time.Duration
		switch m[2] {
		case "s", "sec", "secs", "second", "seconds":
			unit = time.Second
		case "m", "min", "mins", "minute", "minutes":
			unit = time.Minute
		case "h", "hr", "hrs", "hour", "hours":
			unit = time.Hour
		case "d", "day", "days":
			unit = 24 * time.Hour // 24 hours, even when clocks change
		case "w", "week", "weeks":
			unit = 7 * 24 * time.Hour
		case "mon", "mons", "month", "months", "y", "yr", "yrs", "year", "years":
			return 0, invalid("use a cron line for days of months: '0 0 1 * *'",
				"months and years differ in length: an interval consists of weeks, days, hours, minutes and seconds")
		default:
			return 0, invalid(specHint, "'%s' is not a duration", text)
		}
		if named[unit] { // as in PostgreSQL
			return 0, invalid(specHint, "'%s' is not a duration", text)
		}
		named[unit] = true
		n, _ := strconv.Atoi(m[1]) // the pattern matches only digits
		if time.Duration(n) > (everyMost-every)/unit {
			every = 0
			break
		}
		every += time.Duration(n) * unit
	}
	if every == 0 {
		return 0, invalid(specHint, "an interval must be whole seconds, at least one second and at most ten years")
	}
	return every, nil
}
