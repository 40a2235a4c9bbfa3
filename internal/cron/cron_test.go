package cron

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron/crontest"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

func parse(t *testing.T, spec string) Spec {
	t.Helper()
	s, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The ticks of a cron line are those found by checking the zone's clock every minute, even
// when clocks are changed.
func TestTicksAreThoseOfTheClockOnTheWall(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range testrun.Size(300, 5000) {
		c := crontest.Random(r)
		zone, err := Zone(c.Zone)
		if err != nil {
			t.Fatal(err)
		}
		var got *time.Time
		if next, ok := parse(t, c.Spec()).Next(zone, c.After); ok {
			got = &next
		}
		if fault := c.Fault(got); fault != "" {
			t.Fatalf("seed %d: %s", seed, fault)
		}
	}
}

func TestZonesAreNamedByAPlace(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"": true, "utc": true, "Europe/Berlin": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT-14": true,
		"Local": false, "CET": false, "EST5EDT": false, "Europe/Nowhere": false, "Etc/GMT+15": false, "../Europe/Berlin": false, "Europe/../etc": false, "right/Europe/Berlin": false, "Europe/": false} {
		if _, err := Zone(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		} else if err != nil && posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%q is refused with %v", name, err)
		}
	}
}

// Missed ticks are caught up as the schedule says, in bounded steps, as in
// posthaste.tick_schedule.
func TestMissedTicksAreCaughtUpAsAsked(t *testing.T) {
	t.Parallel()
	const minutes, seconds = "* * * * *", "every 60 seconds"
	for _, c := range []struct {
		name, spec          string
		catchUp             posthaste.CatchUp
		ago                 time.Duration
		sent, missed, calls int
	}{
		{"each", minutes, posthaste.CatchUpEach, 250 * time.Minute, 251, 0, 3},
		{"each interval", seconds, posthaste.CatchUpEach, 250 * time.Minute, 251, 0, 3},
		{"once", minutes, posthaste.CatchUpOnce, 250 * time.Minute, 1, 250, 1},
		{"once interval", seconds, posthaste.CatchUpOnce, 250 * time.Minute, 1, 250, 1},
		{"once in steps", minutes, posthaste.CatchUpOnce, 1500 * time.Minute, 1, 1500, 2},
		{"once interval of years", "every 1 second", posthaste.CatchUpOnce, 24000 * time.Hour, 1, 24_000*3600 + 1, 1},
		{"skip", "0 0 1 1 *", posthaste.CatchUpSkip, 2 * time.Minute, 0, 1, 1},
		{"skip interval", "every 1 hour", posthaste.CatchUpSkip, 2 * time.Minute, 0, 1, 1},
		{"skip in time", "0 0 1 1 *", posthaste.CatchUpSkip, 0, 1, 0, 1},
		{"skip all but the last", seconds, posthaste.CatchUpSkip, 250 * time.Minute, 1, 250, 1},
	} {
		s := parse(t, c.spec)
		now := time.Date(2026, 11, 22, 12, 0, 1, 0, time.UTC)
		var ticks []time.Time
		missed, calls := 0, 0
		for next := now.Add(-time.Second - c.ago); !next.After(now); calls++ {
			d := s.Due(time.UTC, next, now, c.catchUp)
			ticks, missed, next = append(ticks, d.Ticks...), missed+int(d.Missed), d.Next
		}
		if len(ticks) != c.sent || missed != c.missed || calls != c.calls {
			t.Errorf("%s: %d sent, %d missed in %d calls, want %d, %d, %d", c.name, len(ticks), missed, calls, c.sent, c.missed, c.calls)
		}
		if len(slices.CompactFunc(slices.Clone(ticks), time.Time.Equal)) != c.sent || !slices.IsSortedFunc(ticks, time.Time.Compare) {
			t.Errorf("%s: ticks %s", c.name, ticks)
		}
	}
}

// A resumed schedule keeps its interval, and counts the ticks in between as missed.
func TestResumed(t *testing.T) {
	t.Parallel()
	next := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	every := parse(t, "every 20 seconds")
	for after, want := range map[time.Duration]time.Duration{-time.Second: 0, 0: 20 * time.Second, time.Second: 20 * time.Second, 41 * time.Second: 60 * time.Second} {
		if got := every.Resumed(time.UTC, next, next.Add(after)); !got.Equal(next.Add(want)) {
			t.Errorf("at %s its next tick is %s", after, got)
		}
	}
	if got := parse(t, "@daily").Resumed(time.UTC, next, next); !got.Equal(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("a line goes on at %s", got)
	}
}

// Any spec is rejected as invalid or ticks after the given time.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{"* * * * *", "*/15 2,3-5 1-31/2 jan-mar,12 fri-sun", "@daily", "every 90 seconds", "0 0 31 2 *", "every 1 year", "59 23 29 2 0-7/3", "1,,2 * * * *", "every 1h2m"} {
		f.Add(spec)
	}
	zone, err := Zone("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	after := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := Parse(spec)
		if err != nil {
			if posthaste.CodeOf(err) != posthaste.CodeInvalid {
				t.Errorf("%q ended with %v", spec, err)
			}
			return
		}
		if next, ok := s.Next(zone, after); ok && !next.After(after) {
			t.Errorf("%q ticks before", spec)
		}
	})
}
