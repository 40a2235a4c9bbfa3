package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Figures cost rows by the minute, and none by the message.
func TestDB12_FiguresCostNothingPerMessage(t *testing.T) {
	t.Parallel()
	s := charts(t, testpg.New(t))
	for i := range 3 {
		s.after(time.Duration(i) * time.Minute)
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, 3000)))`)
		for range 3 {
			s.exec(`select posthaste.ack(array(select delivery_id from posthaste.receive('q', 1000, '1 hour')))`)
		}
		if n := get[int64](s.session, `select (select count(*) from posthaste.samples) + (select count(*) from posthaste.stats)`); n != int64(i) {
			t.Fatalf("before round %d of upkeep there are %d rows", i, n)
		}
		for range 5 {
			s.upkeep()
		}
	}
	if got := get[string](s.session, `select count(*) || ' ' || sum(sent) || ' ' || sum(done) from posthaste.samples`); got != "3 9000 9000" {
		t.Errorf("samples, and messages that were sent and done, in them: %s", got)
	}
}

// days lets days pass, with a report, a message and a round of upkeep in each hour, and
// returns the most rows that there were after a round. It is one statement, because it has
// thousands of rounds.
const days = `do $$
declare
  w bigint := (select max(id) from posthaste.registrations);
  n bigint;
begin
  for i in 1..%d loop
    update public.pretended set at = at + interval '1 hour';
    perform posthaste.report_stats(w, '[{"queue": "q", "kind": "mail", "done": 1, "wait": [1], "run": [0, 1], "errors": [{"fingerprint": "f", "error": "e", "count": 1}]}]');
    update posthaste.counters set sent = sent + 1, done = done + 1;
    perform posthaste.take_samples();
    perform posthaste.roll_up();
    perform posthaste.forget_charts();
    perform posthaste.forget_charts();
    commit;
    select (select count(*) from posthaste.stats where part < 3), (select count(*) from posthaste.stats where part >= 3) into n, w;
    update public.pretended set details = greatest(details, n), hours = greatest(hours, w);
    w := (select max(id) from posthaste.registrations);
  end loop;
end $$`

// Over 60 days of reports the tables stay bounded, details are kept for two hours and sums for 30
// days, and nothing is counted twice or lost.
func TestDB12_FiguresStayBounded(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := charts(t, url)
		s.exec(`alter table public.pretended add column details bigint not null default 0, add column hours bigint not null default 0`)
		for day := 1; day <= 60; day++ {
			s.exec(fmt.Sprintf(days, 24))
			passed := time.Duration(day) * 24 * time.Hour
			details, _ := s.reported(passed - 2*time.Hour)
			since := max(passed-30*24*time.Hour, 0)
			_, hours := s.reported(since)
			sampled := get[int64](s.session, `select sum(sent)::bigint from posthaste.list_samples(time_from => $1, step => '1 day')`, chartsBegin.Add(since))
			// The reports at the begin and at the end, except the one at the very first begin; samples are of the minute before.
			want := int64((passed-since)/time.Hour) + 1
			if since == 0 {
				want--
			}
			if details != 3 || hours != want || sampled < want-1 || sampled > want {
				return fmt.Sprintf("after day %d there are %d messages of the last 2 hours, want 3; and of the last 30 days %d in reports and %d in samples, want %d", day, details, hours, sampled, want)
			}
		}
		most := get[string](s.session, `select details || ' ' || hours from public.pretended`)
		var detail, hour int
		if _, err := fmt.Sscan(most, &detail, &hour); err != nil {
			t.Fatal(err)
		}
		t.Logf("at most %d reports, and %d sums", detail, hour)
		if detail > 3*2 || hour > 3*16*24 {
			return fmt.Sprintf("there were %d reports, one an hour, and sums of %d hours", detail, hour)
		}
		return ""
	},
		without("truncating", patch{file: "forget_charts.sql", old: "execute format('truncate posthaste.stats_%1$s, posthaste.samples_%1$s', v_part);", new: "null;"}),
		without("keeping sums", patch{file: "forget_charts.sql", old: "interval '2 days'", new: "interval '8 days'"}),
		without("keeping details", patch{file: "forget_charts.sql", old: "v_part := v_details % 3;", new: "v_part := (v_details + 1) % 3;"}))
}
