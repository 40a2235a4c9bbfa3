package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/cron/crontest"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The ticks of a cron line are those that a program finds that looks at the clock of the zone each
// minute, also while clocks change.
func TestRuleTicksAreThoseOfTheClockOnTheWall(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		for round := range 3 {
			var cases [250]crontest.Case
			var lines, zones []string
			var afters []time.Time
			for i := range cases {
				cases[i] = crontest.Random(r)
				lines, zones, afters = append(lines, cases[i].Spec()), append(zones, cases[i].Zone), append(afters, cases[i].After)
			}
			got := list[*time.Time](s, `select posthaste.next_tick((posthaste.schedule_spec(x.line)).cron, null, x.zone, x.after)
				from unnest($1::text[], $2::text[], $3::timestamptz[]) with ordinality x (line, zone, after, n) order by x.n`, lines, zones, afters)
			for i := range cases {
				if fault := cases[i].Fault(got[i]); fault != "" {
					return fmt.Sprintf("seed %d, round %d: %s", seed, round, fault)
				}
			}
		}
		return ""
	},
		without("the first of two", patch{file: "wall_time.sql", old: "if v_earlier < t and", new: "if false and"}),
		without("the skipped hour", patch{file: "wall_time.sql", old: "if v_over <> '0' then", new: "if false then"}),
		without("the change ahead", patch{file: "next_tick.sql", old: "      if t < v_until then\n        return t;\n      end if;\n      v_from := v_until;\n", new: "      return t;\n"}),
		without("time that passes", patch{file: "next_tick.sql", old: "if c.hours <> (1 << 24) - 1 then", new: "if true then"}),
		without("either day", patch{file: "schedule_spec.sql", old: "f[3] not in ('*', '*/1') and", new: "false and"}))
}

// The implementation in Go, by which the engine on Redis ticks, accepts and rejects the same specs
// with the same messages, and ticks at the same times.
func TestTicksAreThoseOfTheTwinInGo(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	for _, spec := range []string{"* * * * *", "*/15 * * * *", " 30 2\t* * MON-fri ", "0 9 1 * mon", "0 9 */1 * mon", "5,10-20/3 8-18 1-31/2 jan-mar,12 5-7", "0 0 29 2 *", "59 23 * * sat-sun",
		"@hourly", "@Daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "every 90 seconds", "EVERY  2 days", "every 1 week 2 days 3 hours 4 min 5 s", "every 1h30m", "every 87600 hours", "every 1 day 1 day", "every 1h 2 hours", "every 1 d 24 hours", "every 1 week 7 days", "every 1 week 1 weeks",
		"", " ", "every", "every now and then", "every 0 seconds", "every 87601 hours", "every 87599 hours 61 minutes", "every 99999 weeks", "every 1 month", "every 2 years", "every x days",
		"0 0 31 2 *", "* * * *", "* * * * * *", "@never", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "* * * foo *", "* * * * mon-foo", "jan * * * *",
		"5/2 * * * *", "9-3 * * * *", "*/0 * * * *", "1, * * * *", "1,,2 * * * *", ", * * * *", "-1 * * * *", "100 * * * *", "* * * * fri-mon", "* * * * 6-0", "* * * * 0-7", "* * * * 7-7/2",
		"* * * * *\n", strings.Repeat("1,", 150) + "2 * * * *"} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Etc/GMT+5", "etc"} {
			after := time.Date(2026, 10, 24, 23, 30, 0, 0, time.UTC)
			var theirs time.Time
			err := s.QueryRow(t.Context(), `select posthaste.schedule_next($1, $2, $3)`, spec, zone, after).Scan(&theirs)
			want := theirs.UTC().Format(time.RFC3339)
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.Code == "PH400" {
				want = pg.ColumnName + ": " + pg.Message
			} else if err != nil {
				t.Fatal(err)
			}
			if got := twinNext(spec, zone, after); got != want {
				t.Errorf("%q in %s: %s in SQL, %s in Go", spec, zone, want, got)
			}
		}
	}
}

func twinNext(spec, zone string, after time.Time) string {
	line, err := cron.Parse(spec)
	var in *time.Location
	if err == nil {
		in, err = cron.Zone(zone)
	}
	var said *posthaste.Error
	if errors.As(err, &said) {
		return said.Field + ": " + said.Message
	}
	next, ok := line.Next(in, after)
	if !ok {
		return fmt.Sprintf("spec: the cron line '%s' never fires", spec)
	}
	return next.UTC().Format(time.RFC3339)
}

// Any spec fails as bad input or ticks later than the given time.
func FuzzScheduleSpec(f *testing.F) {
	for _, spec := range []string{"* * * * *", "*/15 2,3-5 1-31/2 jan-mar,12 fri-sun", "@daily", "every 90 seconds", "0 0 31 2 *", "every 1 year", "59 23 29 2 0-7/3", "1,,2 * * * *", "every -1 s"} {
		f.Add(spec)
	}
	s := connect(f, testpg.New(f))
	f.Fuzz(func(t *testing.T, spec string) {
		if !utf8.ValidString(spec) || strings.ContainsRune(spec, 0) {
			t.Skip("PostgreSQL has no such text")
		}
		var later bool
		err := s.QueryRow(t.Context(), `select posthaste.schedule_next($1, 'Europe/Berlin', '2026-03-29 00:30Z') > '2026-03-29 00:30Z'`, spec).Scan(&later)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "PH400" && pg.ColumnName == "spec":
		case err != nil:
			t.Errorf("%q ended with %v", spec, err)
		case !later:
			t.Errorf("%q ticks before", spec)
		}
	})
}
