package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration in the formats of Go ("30s", "1.5h", "1h30m"), of ISO 8601
// ("PT30S", "P1DT12H") and of PostgreSQL: numbers with units in words ("5 minutes", "1 day 2
// hours"), or a clock ("00:05:00", also after days). It rejects months and years, which have no
// fixed length.
func ParseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	p := durationParser{rest: strings.ToLower(strings.TrimSpace(s)), whole: s}
	if rest, ok := strings.CutPrefix(p.rest, "p"); ok {
		p.rest = rest
		return p.iso()
	}
	return p.parse()
}

type durationParser struct {
	rest  string
	whole string
	total time.Duration
}

func (p *durationParser) fail() error {
	return fmt.Errorf("must be a duration such as \"30s\", \"5 minutes\" or \"PT1H30M\", got %q", p.whole)
}

func (p *durationParser) parse() (time.Duration, error) {
	if p.rest == "" {
		return 0, p.fail()
	}
	for p.rest != "" {
		number := p.span("+-0123456789.:")
		if strings.Contains(number, ":") {
			if err := p.clock(number); err != nil {
				return 0, err
			}
		} else {
			p.rest = strings.TrimLeft(p.rest, " ")
			unit := p.span("abcdefghijklmnopqrstuvwxyzµ")
			if err := p.add(number, unit); err != nil {
				return 0, err
			}
		}
		p.rest = strings.TrimLeft(p.rest, " ")
	}
	return p.total, nil
}

// isoUnits are the letters of ISO 8601 in the order in which they must appear: T separates days
// from hours. A month is written as in PostgreSQL, so that add explains why it is rejected.
var isoUnits = []struct{ letter, unit string }{{"y", "year"}, {"m", "month"}, {"w", "w"}, {"d", "d"}, {"t", ""}, {"h", "h"}, {"m", "m"}, {"s", "s"}}

// iso reads the rest of a duration of ISO 8601 after its P. A comma is a decimal point.
func (p *durationParser) iso() (time.Duration, error) {
	next, parts := 0, 0
	for p.rest != "" {
		number := strings.ReplaceAll(p.span("+-0123456789.,"), ",", ".")
		letter := p.rest[:min(1, len(p.rest))]
		for next < len(isoUnits) && isoUnits[next].letter != letter {
			if isoUnits[next].unit == "" && number != "" {
				return 0, p.fail() // 1h without T
			}
			next++
		}
		if next == len(isoUnits) || (number == "") != (letter == "t") || letter == "t" && len(p.rest) == 1 {
			return 0, p.fail()
		}
		if unit := isoUnits[next].unit; unit != "" {
			parts++
			if err := p.add(number, unit); err != nil {
				return 0, err
			}
		}
		p.rest = p.rest[1:]
		next++
	}
	if parts == 0 {
		return 0, p.fail()
	}
	return p.total, nil
}

// span removes and returns the leading characters that are in set.
func (p *durationParser) span(set string) string {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return !strings.ContainsRune(set, r) })
	if end < 0 {
		end = len(p.rest)
	}
	head := p.rest[:end]
	p.rest = p.rest[end:]
	return head
}

func (p *durationParser) add(number, unit string) error {
	size, ok := durationUnits[unit]
	if !ok {
		switch strings.TrimSuffix(unit, "s") {
		case "month", "mon", "year", "y":
			return fmt.Errorf("must have a fixed length, got %q with %s; use days", p.whole, unit)
		}
		return p.fail()
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return p.fail()
	}
	sum := float64(p.total) + n*float64(size)
	if math.IsNaN(sum) || math.Abs(sum) >= math.MaxInt64 {
		return fmt.Errorf("is too long, got %q", p.whole)
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		// Whole numbers are added exactly.
		p.total += time.Duration(whole) * size
		return nil
	}
	p.total += time.Duration(math.Round(n * float64(size)))
	return nil
}

// clock adds hours:minutes[:seconds].
func (p *durationParser) clock(s string) error {
	sign := time.Duration(1)
	if strings.HasPrefix(s, "-") {
		sign, s = -1, s[1:]
	}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return p.fail()
	}
	hours, err1 := strconv.ParseUint(parts[0], 10, 20)
	minutes, err2 := strconv.ParseUint(parts[1], 10, 8)
	var seconds float64
	var err3 error
	if len(parts) == 3 {
		seconds, err3 = strconv.ParseFloat(parts[2], 64)
	}
	if err1 != nil || err2 != nil || err3 != nil || minutes > 59 || seconds < 0 || seconds >= 60 {
		return p.fail()
	}
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(math.Round(seconds*float64(time.Second)))
	if sum := float64(p.total) + float64(sign*d); math.Abs(sum) >= math.MaxInt64 {
		return fmt.Errorf("is too long, got %q", p.whole)
	}
	p.total += sign * d
	return nil
}

var durationUnits = map[string]time.Duration{
	"us": time.Microsecond, "µs": time.Microsecond, "microsecond": time.Microsecond, "microseconds": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "msecs": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// ParseTime reads an RFC 3339 time such as 2026-10-12T08:30:00Z, with an offset and up to
// nanoseconds. T and Z may be lower case. It rejects a comma before the fraction, which
// package time accepts and RFC 3339 does not allow.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil || strings.Contains(s, ",") {
		return time.Time{}, fmt.Errorf("must be an RFC 3339 time such as \"2026-10-12T08:30:00Z\", got %q", s)
	}
	return t, nil
}

// Duration takes a duration that is not negative; 0 if absent. See [ParseDuration].
func (o *Object) Duration(name string) time.Duration {
	if !o.Has(name) {
		o.Raw(name)
		return 0
	}
	s := o.Text(name)
	d, err := ParseDuration(s)
	if err != nil {
		o.Fail(name, "%s", err)
		return 0
	}
	if d < 0 {
		o.Fail(name, "must not be negative, got %q", s)
		return 0
	}
	return d
}

// positiveDuration rejects an explicit zero. In options zero means the default, and an
// explicit value must not silently become another value.
func (o *Object) positiveDuration(name string) time.Duration {
	given := o.Has(name)
	d := o.Duration(name)
	if given && d == 0 {
		o.Fail(name, "must be above zero")
	}
	return d
}
