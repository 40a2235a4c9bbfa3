package charts

import (
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func utc(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestSpans(t *testing.T) {
	t.Parallel()
	now := utc(t, "2026-11-27 10:20:30")
	for what, c := range map[string]struct {
		query posthaste.StatsQuery
		from  string
		hours bool
		units int
	}{
		"the last hour":            {posthaste.StatsQuery{}, "2026-11-27 09:20:00", false, 61},
		"by minutes":               {posthaste.StatsQuery{Step: time.Minute}, "2026-11-27 09:20:00", false, 61},
		"by quarters":              {posthaste.StatsQuery{Step: 15 * time.Minute}, "2026-11-27 09:15:00", false, 66},
		"by hours":                 {posthaste.StatsQuery{Step: time.Hour}, "2026-11-27 09:00:00", true, 2},
		"by days":                  {posthaste.StatsQuery{Step: 24 * time.Hour, From: now.Add(-36 * time.Hour)}, "2026-11-25 00:00:00", true, 59},
		"in one step":              {posthaste.StatsQuery{From: now.Add(-time.Minute)}, "2026-11-27 10:19:00", false, 2},
		"as long as details":       {posthaste.StatsQuery{From: now.Add(-posthaste.ChartDetail)}, "2026-11-27 08:20:00", false, 121},
		"longer than details":      {posthaste.StatsQuery{From: now.Add(-posthaste.ChartDetail - time.Second)}, "2026-11-27 08:00:00", true, 3},
		"details that have ended":  {posthaste.StatsQuery{Step: time.Minute, From: now.Add(-48 * time.Hour)}, "2026-11-25 10:20:00", false, 122},
		"hours that have ended":    {posthaste.StatsQuery{From: now.AddDate(-1, 0, 0)}, "2025-11-27 10:00:00", true, 30*24 + 2},
		"later":                    {posthaste.StatsQuery{From: now.Add(time.Hour)}, "2026-11-27 11:20:00", false, 0},
		"until a minute begins":    {posthaste.StatsQuery{To: utc(t, "2026-11-27 10:00:00")}, "2026-11-27 09:00:00", false, 60},
		"until later":              {posthaste.StatsQuery{From: now.Add(-time.Minute), To: now.Add(time.Hour)}, "2026-11-27 10:19:00", false, 2},
		"before 1970, of no store": {posthaste.StatsQuery{From: time.Unix(-30, 0), Step: time.Minute}, "1969-12-31 23:59:00", false, 122},
	} {
		s := StatsSpan(c.query, now)
		if n := len(slices.Collect(s.Units())); !s.From.Equal(utc(t, c.from)) || s.Hours != c.hours || n != c.units {
			t.Errorf("%s: from %s by hours %t in %d units, want %+v", what, s.From.UTC(), s.Hours, n, c)
		}
	}
}

// Steps are multiples since 1970 in UTC, and one step begins with the query's time.
func TestSteps(t *testing.T) {
	t.Parallel()
	now := utc(t, "2026-11-27 10:20:30")
	at := now.Add(-20 * time.Minute) // 10:00:30
	for step, want := range map[time.Duration]string{
		0: "2026-11-27 09:20:00", time.Minute: "2026-11-27 10:00:00", 7 * time.Minute: "2026-11-27 09:57:00",
		time.Hour: "2026-11-27 10:00:00", 24 * time.Hour: "2026-11-27 00:00:00", 48 * time.Hour: "2026-11-27 00:00:00",
	} {
		sums := NewStats(posthaste.StatsQuery{}, StatsSpan(posthaste.StatsQuery{Step: step}, now))
		sums.Add(&posthaste.HandlerStats{At: at, Done: 1})
		if all := sums.All(); len(all) != 1 || !all[0].At.Equal(utc(t, want)) {
			t.Errorf("by steps of %s: %+v, want one from %s", step, all, want)
		}
	}
	span := StatsSpan(posthaste.StatsQuery{From: now.Add(-time.Hour), To: now}, now)
	for at, want := range map[time.Time]int{span.From: 1, span.From.Add(-1): 0, now: 0, now.Add(-1): 1} {
		sums := NewStats(posthaste.StatsQuery{}, span)
		if sums.Add(&posthaste.HandlerStats{At: at, Done: 1}); len(sums.All()) != want {
			t.Errorf("of %s there are %d, want %d", at, len(sums.All()), want)
		}
	}
}

// A step has the depths of its last sample, in any order of samples.
func TestDepthsOfTheLastSample(t *testing.T) {
	t.Parallel()
	now := utc(t, "2026-11-27 10:20:30")
	first := posthaste.Sample{At: now.Add(-5 * time.Minute), Queue: "q", Sent: 1, Depth: 7}
	last := posthaste.Sample{At: now.Add(-4 * time.Minute), Queue: "q", Sent: 2, Depth: 3}
	for _, order := range [][]posthaste.Sample{{first, last}, {last, first}} {
		query := posthaste.SampleQuery{Step: time.Hour}
		sums := NewSamples(query, SampleSpan(query, now))
		for _, x := range order {
			sums.Add(x)
		}
		if all := sums.All(); len(all) != 1 || all[0].Sent != 3 || all[0].Depth != 3 {
			t.Errorf("%+v", all)
		}
	}
}

// An error came first when it did in any hour that is kept, and counts from the query's time on.
func TestFailuresOfBefore(t *testing.T) {
	t.Parallel()
	now := utc(t, "2026-11-27 10:20:30")
	of := func(text string, ago time.Duration) *posthaste.Failure {
		return &posthaste.Failure{ErrorCount: posthaste.ErrorCount{Fingerprint: "x", Error: text, Count: 2}, First: now.Add(-ago), Last: now.Add(-ago)}
	}
	sums := NewFailures(posthaste.FailureQuery{})
	sums.Add(of("now", time.Minute), true)
	sums.Add(of("before", 48*time.Hour), false)
	sums.Add(&posthaste.Failure{ErrorCount: posthaste.ErrorCount{Fingerprint: "past", Count: 9}}, false)
	all := sums.All()
	if len(all) != 1 || all[0].Count != 2 || all[0].Error != "now" || !all[0].First.Equal(now.Add(-48*time.Hour)) || !all[0].Last.Equal(now.Add(-time.Minute)) {
		t.Errorf("%+v", all)
	}
}
