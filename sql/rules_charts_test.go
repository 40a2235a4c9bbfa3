package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// charted is a database with queue q, in which the time of the figures is what the test says, and
// a worker. The time begins at a full block of both lengths.
type charted struct {
	*session
	worker int64
}

// chartsBegin is the first second of a block of details and of one of sums.
var chartsBegin = time.Unix(1382400*1400, 0).UTC()

func charts(t *testing.T, url string) *charted {
	t.Helper()
	s := begin(t, url)
	s.exec(`create table public.pretended as select $1::timestamptz as at`, chartsBegin)
	s.exec(`create or replace function posthaste.chart_time() returns timestamptz language sql volatile as 'select at from public.pretended'`)
	return &charted{session: s, worker: s.register()}
}

// after sets the time since the beginning.
func (s *charted) after(d time.Duration) {
	s.t.Helper()
	s.exec(`update public.pretended set at = $1`, chartsBegin.Add(d))
}

const reportDone = `select posthaste.report_stats($1, jsonb_build_array(jsonb_build_object('queue', 'q', 'kind', 'mail', 'done', $2::int, 'wait', array[0, $2::int], 'run', array[$2::int],
	'errors', jsonb_build_array(jsonb_build_object('fingerprint', 'f', 'error', 'e', 'message', 7, 'count', 1)))))`

func (s *charted) reports(done int) {
	s.t.Helper()
	s.exec(reportDone, s.worker, done)
}

// upkeep runs a round of upkeep, and further ones while those of the figures change something.
func (s *charted) upkeep() {
	s.t.Helper()
	const progress = `select c.summed_to::text || c.details_block || ' ' || c.hours_block from posthaste.charted c`
	for before := ""; ; {
		s.exec(`select from posthaste.maintain()`)
		now := get[string](s.session, progress)
		if now == before {
			return
		}
		before = now
	}
}

// reported returns the number of messages that were done by a query of details, and by one of hours.
func (s *charted) reported(since time.Duration) (details, hours int64) {
	s.t.Helper()
	const sum = `select coalesce(sum(done), 0)::bigint from posthaste.list_stats(time_from => $1, step => $2::text::interval)`
	from := chartsBegin.Add(since)
	return get[int64](s.session, sum, from, "1 minute"), get[int64](s.session, sum, from, "1 hour")
}

// An hour is summed up once, also if upkeep is interrupted: the sum and the note of it are one
// transaction.
func TestRuleHoursAreSummedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		for i := range 5 {
			s.after(time.Duration(i) * 15 * time.Minute)
			s.reports(1 << i)
		}
		for _, step := range []struct {
			at     time.Duration
			sums   int64
			what   string
			commit string
		}{
			{61 * time.Minute, 0, "before the hour is summed", "commit"},
			{66 * time.Minute, 0, "after an interrupted round", "rollback"},
			{66 * time.Minute, 1, "after a round", "commit"},
			{66 * time.Minute, 1, "after another round", "commit"},
			{80 * time.Minute, 1, "later", "commit"},
			{126 * time.Minute, 2, "after the next hour", "commit"},
			{180 * time.Minute, 2, "after hours without reports", "commit"},
		} {
			s.after(step.at)
			s.exec(`begin`)
			s.exec(`select from posthaste.maintain()`)
			s.exec(step.commit)
			if _, hours := s.reported(0); hours != 31 {
				return fmt.Sprintf("%s the hours have %d messages, want 31", step.what, hours)
			}
			if got := get[int64](s.session, `select count(*) from posthaste.stats where part >= 3`); got != step.sums {
				return fmt.Sprintf("%s there are %d sums, want %d", step.what, got, step.sums)
			}
		}
		failures := list[string](s.session, `select count || ' ' || to_char(first_at - $1, 'HH24:MI') || ' ' || to_char(last_at - $1, 'HH24:MI') from posthaste.list_failures(time_from => $1)`, chartsBegin)
		if !slices.Equal(failures, []string{"5 00:00 01:00"}) {
			return fmt.Sprintf("in the sums the failures are %q", failures)
		}
		return ""
	},
		without("noting it", patch{file: "roll_up.sql", old: "set summed_to = coalesce(v_hour + interval '1 hour', v_over);", new: "set summed_to = v_to;"}),
		without("reading the hours that are not summed", patch{file: "chart_span.sql", old: "(select c.summed_to from posthaste.charted c)", new: "'infinity'"}))
}

// What a transaction reported that was still open at the end of the hour is in its sum.
func TestRuleSumsWaitForOpenReports(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		late := connect(t, url)
		s.reports(1)
		s.after(time.Hour - time.Second)
		late.exec(`begin`)
		late.exec(reportDone, s.worker, 2)
		s.after(time.Hour + 10*time.Second)
		s.upkeep()
		late.exec(`commit`)
		s.after(66 * time.Minute)
		s.upkeep()
		if _, hours := s.reported(0); hours != 3 {
			return fmt.Sprintf("%d messages are in the sum, want 3", hours)
		}
		return ""
	}, without("waiting", patch{file: "roll_up.sql", old: "v_now - interval '5 minutes'", new: "v_now"}))
}

// A sum has all of an hour: histograms, the five most frequent errors of a kind with the first of
// the workers, and the last depth of the samples.
func TestHoursHaveTheSumsOfDetails(t *testing.T) {
	t.Parallel()
	s := charts(t, testpg.New(t))
	other := get[int64](s.session, `select posthaste.worker_register('a', 'test', '1 hour')`)
	for i := range 4 {
		s.after(time.Duration(10*i+1) * time.Minute)
		for _, w := range []int64{s.worker, other} {
			s.exec(`select posthaste.report_stats($1, (select jsonb_build_array(jsonb_build_object('queue', 'q', 'kind', 'mail', 'done', 1, 'failed', sum(g), 'wait', array[0, 3], 'run', array[0, 0, 4],
				'errors', jsonb_agg(jsonb_build_object('fingerprint', 'f' || g, 'error', 'e' || $2::int, 'message', $2::int, 'count', g)))) from generate_series(4 * $2::int, 4 * $2::int + 3) g))`, w, i)
		}
		s.exec(`update posthaste.counters set sent = sent + 5, done = done + 1, dropped = dropped + 1`)
		s.upkeep()
	}
	s.after(70 * time.Minute)
	s.upkeep()
	got := list[string](s.session, `select worker || ' ' || done || ' ' || failed || ' ' || wait::text || ' ' || run::text || ' ' || (select coalesce(string_agg((e ->> 'fingerprint') || ':' || (e ->> 'count') || ':' || (e ->> 'error'), ' '), '') from jsonb_array_elements(errors) e)
		from posthaste.stats where part >= 3 order by worker`)
	want := []string{"a 4 120 {0,12} {0,0,16} f15:30:e3 f14:28:e3 f13:26:e3 f12:24:e3 f11:22:e2", "w 4 120 {0,12} {0,0,16} "}
	if !slices.Equal(got, want) {
		t.Errorf("the sums are\n%q, want\n%q", got, want)
	}
	samples := list[string](s.session, `select sent || ' ' || done || ' ' || depth || ' ' || in_flight from posthaste.samples where part >= 3`)
	if !slices.Equal(samples, []string{"20 4 16 0"}) {
		t.Errorf("the sums of the samples are %q", samples)
	}
}

// A sample has what changed since the sample before, once a minute, and nothing where nothing did.
func TestRuleSamplesHaveWhatChanged(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		s.exec(`select posthaste.create_queue('idle')`)
		for i, step := range []struct {
			at   time.Duration
			send int
			want []string // sent and depth
		}{
			{time.Minute, 3, []string{"3 3"}}, {time.Minute + 50*time.Second, 2, []string{"3 3"}}, {2 * time.Minute, 0, []string{"3 3", "2 5"}},
			{3 * time.Minute, 0, []string{"3 3", "2 5"}}, {10 * time.Minute, 7, []string{"3 3", "2 5", "7 12"}},
		} {
			s.after(step.at)
			for range step.send {
				s.send(`{}`)
			}
			s.upkeep()
			if got := list[string](s.session, `select sent || ' ' || depth from posthaste.list_samples(time_from => $1) order by at`, chartsBegin.Add(-time.Hour)); !slices.Equal(got, step.want) {
				return fmt.Sprintf("after step %d the samples are %q, want %q", i, got, step.want)
			}
		}
		return ""
	},
		without("noting the figures", patch{file: "take_samples.sql", old: "set sampled = f.now from", new: "set sampled = f.before from"}),
		without("minutes", patch{file: "take_samples.sql", old: "if date_trunc('minute', v_last, 'UTC') = date_trunc('minute', v_now, 'UTC') then", new: "if false then"}),
		without("leaving out what did not change", patch{file: "take_samples.sql", old: " and f.now <> f.before", new: ""}))
}

// Dead letters that an operator discards are in the next sample, although no counter changes.
func TestRuleSamplesHaveDiscardedDeadLetters(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		bury(s.session, 3)
		s.upkeep()
		s.exec(`select from posthaste.discard(filter => '{"all": true}', max => 2)`)
		s.exec(`update posthaste.action_records set at = $1 where action = 'discard'`, chartsBegin.Add(-10*time.Second)) // it commits after the sample
		for i := range 5 {
			s.after(time.Duration(i+1) * time.Minute)
			s.upkeep()
		}
		if got := list[int64](s.session, `select dead from posthaste.list_samples(time_from => $1) order by at`, chartsBegin.Add(-time.Hour)); !slices.Equal(got, []int64{3, 1}) {
			return fmt.Sprintf("dead letters in the samples: %v, want 3 and 1", got)
		}
		return ""
	},
		without("looking at actions", patch{file: "take_samples.sql", old: "z.id desc limit 1) > v_last", new: "z.id desc limit 1) is null and v_now < v_last"}),
		without("time to spare", patch{file: "take_samples.sql", old: "v_last - interval '1 minute'", new: "v_last"}))
}

// Of two concurrent rounds of upkeep one takes the sample and sums up.
func TestConcurrentUpkeepChartsOnce(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := charts(t, url)
	first, second := connect(t, url), connect(t, url)
	for range 3 {
		s.send(`{}`)
	}
	s.reports(4)
	s.after(66 * time.Minute)
	first.exec(`begin`)
	first.exec(`select from posthaste.maintain()`)
	other := second.start(`select count(*) from posthaste.maintain()`)
	second.waitsOrEnds(s.session, other)
	first.exec(`commit`)
	if a := <-other; a.err != nil {
		t.Fatal(a.err)
	}
	s.upkeep()
	sent := get[int64](s.session, `select coalesce(sum(sent), 0)::bigint from posthaste.list_samples(time_from => $1)`, chartsBegin)
	if _, done := s.reported(0); sent != 3 || done != 4 {
		t.Errorf("the samples have %d messages, want 3, and the sums %d, want 4", sent, done)
	}
}

// After hours without upkeep, details are summed before their part is truncated.
func TestRuleDetailsAreSummedBeforeTheyGo(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		for i := range 16 {
			s.after(time.Duration(i) * 30 * time.Minute)
			s.reports(1)
		}
		for range 12 {
			s.exec(`select from posthaste.maintain()`)
		}
		if _, hours := s.reported(0); hours != 16 {
			return fmt.Sprintf("%d messages are in the sums, want 16", hours)
		}
		s.upkeep()
		if kept := get[int64](s.session, `select count(*) from posthaste.stats where part < 3`); kept > 12 {
			return fmt.Sprintf("%d reports are kept as they came", kept)
		}
		return ""
	}, without("asking whether they are", patch{file: "forget_charts.sql", old: " and posthaste.chart_block(k.summed_to, false) >= v_details - 2", new: ""}))
}

// A reader of a part keeps it from being truncated, and upkeep from nothing else.
func TestRuleReadFiguresAreForgottenLater(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		s.exec(`alter function posthaste.forget_charts() set lock_timeout = '50ms'`)
		reader := connect(t, url)
		s.reports(1)
		s.after(5 * time.Hour)
		reader.exec(`begin`)
		reader.exec(`select from posthaste.stats`)
		s.exec(`set statement_timeout = '5s'`)
		for range 5 {
			if code := s.code(`select from posthaste.maintain()`); code != "" {
				return "upkeep beside a reader ended with " + code
			}
		}
		if n := get[int64](s.session, `select count(*) from posthaste.stats where part < 3`); n != 1 {
			t.Fatalf("%d reports are kept", n)
		}
		reader.exec(`commit`)
		s.upkeep()
		if n := get[int64](s.session, `select count(*) from posthaste.stats where part < 3`); n != 0 {
			return fmt.Sprintf("after the reader ended %d reports are kept", n)
		}
		return ""
	}, without("going on", patch{file: "forget_charts.sql", old: "exception when lock_not_available then\n      return false;", new: "exception when division_by_zero then\n      return false;"}),
		without("coming back", patch{file: "forget_charts.sql", old: "exception when lock_not_available then\n      return false;", new: "exception when lock_not_available then\n      null;"}))
}

// A new subscription with the number, or a new queue with the name, of one that was dropped has
// none of its figures.
func TestRuleFiguresAreNotInherited(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		s.exec(`select posthaste.drop_queue('q')`)
		s.exec(`select posthaste.create_queue('q')`)
		s.reports(5)
		s.send(`{}`)
		s.upkeep()
		const figures = `select (select count(*) from posthaste.list_stats(queue => 'q', time_from => $1)) + (select count(*) from posthaste.list_samples(array['q'], time_from => $1))
			+ (select count(*) from posthaste.list_failures(time_from => $1))`
		if n := get[int64](s.session, figures, chartsBegin.Add(-time.Hour)); n != 3 {
			t.Fatalf("%d figures of one report and one sample", n)
		}
		s.exec(`update posthaste.subscriptions set created_at = $1 where dropped_at is null`, chartsBegin.Add(90*time.Minute))
		if n := get[int64](s.session, figures, chartsBegin.Add(-time.Hour)); n != 0 {
			return fmt.Sprintf("a later subscription has %d figures of an earlier one with its number", n)
		}
		return ""
	}, without("asking since when", patch{file: "chart_names.sql", old: "date_trunc('hour', u.created_at, 'UTC')", new: "'-infinity'::timestamptz"}))
}

// Reports are checked.
func TestReportsAreChecked(t *testing.T) {
	t.Parallel()
	s := charts(t, testpg.New(t))
	for report, want := range map[string]string{
		`[]`: "", `{}`: "PH400", `null`: "PH400", `[{"queue": "q", "done": -1}]`: "PH400", `[{"queue": "q", "wait": [1, -1]}]`: "PH400",
		`[{"queue": "q", "run": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]`: "PH400",
		`[{"queue": "nowhere", "done": 1}]`: "", `[{"queue": "q", "subscription": "none", "done": 1}]`: "", `[{"done": 1}]`: "", `[{"queue": "q", "errors": {}}]`: "", `[{"queue": "q", "errors": [{"count": 1}]}]`: "",
	} {
		if code := s.code(`select posthaste.report_stats($1, $2::text::jsonb)`, s.worker, report); code != want {
			t.Errorf("%s ends with %q, want %q", report, code, want)
		}
	}
	if code := s.code(`select posthaste.report_stats($1, (select jsonb_agg('{}'::jsonb) from generate_series(1, 10001)))`, s.worker); code != "PH400" {
		t.Errorf("10,001 counts end with %q", code)
	}
	if got := list[int64](s.session, `select done from posthaste.stats where done > 0`); len(got) > 0 {
		t.Errorf("reports about nothing have %v", got)
	}
	for call, want := range map[string]string{
		`select posthaste.report_stats(-1, '[]')`: "PH410", `select posthaste.report_stats(null, '[]')`: "PH410",
		`select from posthaste.list_stats(step => '90 seconds')`: "PH400", `select from posthaste.list_stats(step => '-1 hour')`: "PH400", `select from posthaste.list_stats(step => '90 minutes')`: "PH400",
		`select from posthaste.list_stats(time_from => now(), time_before => now())`: "PH400", `select from posthaste.list_stats(group_by => '{color}')`: "PH400",
		`select from posthaste.list_failures(max => 0)`: "PH400", `select from posthaste.list_failures(max => 1001)`: "PH400", `select from posthaste.list_samples(step => '61 seconds')`: "PH400",
		`select from posthaste.list_stats(step => '0')`: "", `select from posthaste.list_samples(step => '0')`: "", `select from posthaste.list_stats(group_by => array[null])`: "PH400",
	} {
		if code := s.code(call); code != want {
			t.Errorf("%s ends with %q, want %q", call, code, want)
		}
	}
}
