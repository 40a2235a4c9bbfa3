package ledger_test

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The rules of schedules: each tick is one message, whichever session sends it and however late.

// ticks counts the messages that name a tick, and the different ticks.
func (s *session) ticks() (messages, different int) {
	s.t.Helper()
	messages = get[int](s, `select count(*)::int from posthaste.entries where headers ? 'posthaste-tick'`)
	different = get[int](s, `select count(distinct (headers ->> 'posthaste-schedule', headers ->> 'posthaste-tick'))::int from posthaste.entries where headers ? 'posthaste-tick'`)
	return messages, different
}

// schedule puts a schedule to queue q whose next tick was ago before now.
func (s *session) schedule(name, spec, options, ago string) {
	s.t.Helper()
	s.exec(`select posthaste.schedule_put($1, 'q', $2, '1', $3)`, name, spec, options)
	s.exec(`update posthaste.schedule_settings set next_at = date_trunc('minute', clock_timestamp()) - $2::interval where name = $1`, name, ago)
}

// tick ticks once and returns the numbers of sent and missed messages.
func (s *session) tick() (sent, missed int) {
	s.t.Helper()
	if err := s.QueryRow(s.t.Context(), `select sent, missed from posthaste.tick()`).Scan(&sent, &missed); err != nil {
		s.t.Fatal(err)
	}
	return sent, missed
}

// Of several sessions that tick at once one sends, and the others do not wait for it.
func TestRuleTickIsSentOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first, second := connect(t, url), connect(t, url)
		s.schedule("hourly", "@hourly", `{}`, "1 second")
		s.exec(`set lock_timeout = '10s'`)
		first.exec(`begin`)
		first.tick()
		waiting := second.start(`select sent::bigint from posthaste.tick()`)
		until(t, "the second has ticked or waits", func() bool {
			return len(waiting) == 1 || second.waits(s)
		})
		waited := len(waiting) == 0
		first.exec(`commit`)
		if a := <-waiting; a.err != nil {
			t.Fatal(a.err)
		}
		s.tick()
		if messages, different := s.ticks(); messages != 1 || different != 1 {
			return fmt.Sprintf("one tick became %d messages", messages)
		}
		if waited {
			return "the second waited for the first"
		}
		return ""
	},
		without("the lock", patch{file: "tick.sql", old: " for update skip locked", new: ""}),
		without("passing over", patch{file: "tick.sql", old: " for update skip locked", new: " for update"}))
}

// A tick whose transaction is rolled back is sent by the next one.
func TestRuleTickThatIsRolledBackIsSentAgain(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.schedule("hourly", "@hourly", `{}`, "1 second")
		s.exec(`begin`)
		s.tick()
		s.exec(`rollback`)
		if sent, _ := s.tick(); sent != 1 {
			return fmt.Sprintf("%d were sent after it", sent)
		}
		if sent, missed := s.tick(); sent+missed != 0 {
			return fmt.Sprintf("%d were sent and %d missed at once after that", sent, missed)
		}
		return ""
	}, without("moving on", patch{file: "tick_schedule.sql", old: "set next_at = s.next_at,", new: "set next_at = x.next_at,"}))
}

// Missed ticks are caught up as the schedule says, in bounded steps.
func TestRuleMissedTicksAreCaughtUpAsAsked(t *testing.T) {
	const minutes, seconds = "* * * * *", "every 60 seconds"
	for _, c := range []struct {
		name, spec, catchUp, ago string
		sent, missed, calls      int
	}{
		{"each", minutes, "each", "250 minutes", 251, 0, 3},
		{"each_interval", seconds, "each", "250 minutes", 251, 0, 3},
		{"once", minutes, "once", "250 minutes", 1, 250, 1},
		{"once_interval", seconds, "once", "250 minutes", 1, 250, 1},
		{"once_in_steps", minutes, "once", "1500 minutes", 1, 1500, 2},
		{"once_interval_of_years", "every 1 second", "once", "24000 hours", 1, 24_000*3600 + 1, 1},
		{"skip", "0 0 1 1 *", "skip", "2 minutes", 0, 1, 1},
		{"skip_interval", "every 1 hour", "skip", "2 minutes", 0, 1, 1},
		{"skip_in_time", "0 0 1 1 *", "skip", "0 seconds", 1, 0, 1},
		{"skip_all_but_the_last", seconds, "skip", "250 minutes", 1, 250, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, testpg.New(t))
			s.schedule("s", c.spec, fmt.Sprintf(`{"catch_up": %q}`, c.catchUp), c.ago)
			// Within one transaction's time, so that no minute passes meanwhile.
			now := get[string](s, `select (next_at + $1::interval + interval '1 second')::text from posthaste.schedule_settings`, c.ago)
			sent, missed, calls := 0, 0, 0
			for due := true; due; calls++ {
				var n, m int
				if err := s.QueryRow(t.Context(), `select r.sent, r.missed from posthaste.schedule_settings x, posthaste.tick_schedule(x, $1::text::timestamptz) r`, now).Scan(&n, &m); err != nil {
					t.Fatal(err)
				}
				sent, missed = sent+n, missed+m
				due = get[bool](s, `select next_at <= $1::text::timestamptz from posthaste.schedule_settings`, now)
			}
			if sent != c.sent || missed != c.missed || calls != c.calls {
				t.Errorf("%d sent, %d missed in %d calls, want %d, %d, %d", sent, missed, calls, c.sent, c.missed, c.calls)
			}
			if messages, different := s.ticks(); messages != c.sent || different != c.sent {
				t.Errorf("%d messages of %d ticks", messages, different)
			}
			if got := get[string](s, `select sent || ' ' || missed from posthaste.schedules`); got != fmt.Sprint(sent, " ", missed) {
				t.Errorf("the view says %s", got)
			}
			if c.sent > 0 && c.spec == minutes && !get[bool](s, `select bool_and((headers ->> 'posthaste-tick')::timestamptz = date_trunc('minute', (headers ->> 'posthaste-tick')::timestamptz))
				and max((headers ->> 'posthaste-tick')::timestamptz) = $1::text::timestamptz - interval '1 second' from posthaste.entries`, now) {
				t.Error("the messages' ticks are no whole minutes, or not up to now")
			}
		})
	}
}

// Dropping a queue locks its key and waits for its schedules; a tick has locked the schedule and
// must not wait for the key.
func TestRuleTickAndDropDoNotWaitForEachOther(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		ticker, dropper := connect(t, url), connect(t, url)
		s.schedule("hourly", "@hourly", `{}`, "1 second")
		ticker.exec(`begin`)
		ticker.exec(`select from posthaste.schedule_settings for update`)
		dropping := dropper.start(`select 1 from posthaste.drop_queue('q')`)
		dropper.blocked(s)
		if code := ticker.code(`select from posthaste.tick()`); code != "" {
			return "the tick ended with " + code
		}
		ticker.exec(`commit`)
		if a := <-dropping; a.err != nil {
			return fmt.Sprintf("the drop ended with %v", a.err)
		}
		if n := get[int](s, `select count(*)::int from posthaste.schedule_settings`); n != 0 {
			return "the schedule is still there"
		}
		return ""
	}, without("not waiting", patch{file: "tick_schedule.sql", old: "if not pg_try_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(v_queue))) then", new: "perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(v_queue)));\n  if false then"}))
}

// If a queue does not accept a message, its error is reported, it delays no other schedule, and the
// schedule continues.
func TestRuleRefusedTickHoldsUpNobody(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select posthaste.create_queue('small')`)
		s.exec(`select posthaste.schedule_put('bad', 'small', '@hourly', '"long"')`)
		s.exec(`update posthaste.queue_settings set max_payload = 2 where name = 'small'`)
		s.schedule("good", "@hourly", `{}`, "1 second")
		s.exec(`update posthaste.schedule_settings set next_at = date_trunc('minute', clock_timestamp()) - interval '2 seconds' where name = 'bad'`)
		if code := s.code(`select from posthaste.tick()`); code != "" {
			return "the tick ended with " + code
		}
		if got := get[string](s, `select string_agg(name || ' ' || sent || ' ' || missed || ' ' || coalesce(error like 'payload of 6 bytes%', false), ', ' order by name) from posthaste.schedules`); got != "bad 0 1 true, good 1 0 false" {
			return got
		}
		s.exec(`update posthaste.queue_settings set max_payload = 200 where name = 'small'`)
		s.exec(`update posthaste.schedule_settings set next_at = date_trunc('minute', clock_timestamp())`)
		s.tick()
		if got := get[string](s, `select sent || coalesce(error, '') from posthaste.schedules where name = 'bad'`); got != "1" {
			return "afterwards: " + got
		}
		return ""
	}, without("going on", patch{file: "tick_schedule.sql", old: "if sqlstate not like 'PH4%' then", new: "if true then"}))
}

// In a copy of the database no message is sent automatically, and upkeep continues.
func TestRuleCopyDoesNotTick(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.schedule("hourly", "@hourly", `{}`, "1 second")
		s.exec(`update posthaste.identity set system_identifier = system_identifier + 1`)
		other := connect(t, url) // which has not checked before
		if code := other.code(`select from posthaste.tick()`); code != "PH503" {
			return "tick ended with " + code
		}
		if code := other.code(`select from posthaste.maintain()`); code != "" {
			return "upkeep ended with " + code
		}
		if messages, _ := s.ticks(); messages != 0 {
			return "it was sent"
		}
		return ""
	},
		without("asking", patch{file: "tick.sql", old: "perform posthaste.check_identity();", new: "null;"}),
		without("going on", patch{file: "maintain.sql", old: "exception when sqlstate 'PH503' then", new: "exception when sqlstate 'PH504' then"}))
}

// Put again unchanged, a schedule keeps its next tick and its pause; another spec or zone starts it
// over.
func TestRuleScheduleThatIsPutAgainGoesOn(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		next := func() string { return get[string](s, `select next_at::text from posthaste.schedule_settings`) }
		put := func(spec, options string) {
			s.exec(`select posthaste.schedule_put('s', 'q', $1, '1', $2)`, spec, options)
		}
		s.schedule("s", "every 2 hours", `{}`, "1 hour")
		before := next()
		put("every 2 hours", `{"key": "k"}`)
		if next() != before {
			return "another key moved the next tick"
		}
		if put("every 120 minutes", `{}`); next() != before {
			return "the same interval in other words moved the next tick"
		}
		if put("every 3 hours", `{}`); next() == before {
			return "another interval left the next tick"
		}
		s.exec(`select posthaste.schedule_pause('s')`)
		if put("@hourly", `{}`); get[bool](s, `select paused_at is null from posthaste.schedules`) {
			return "it is not paused any more"
		}
		if sent, missed := s.tick(); sent+missed != 0 {
			return "it ticked while it was paused"
		}
		return ""
	},
		without("keeping the tick", patch{file: "schedule_put.sql", old: "then x.next_at else excluded.next_at end", new: "then excluded.next_at else excluded.next_at end"}),
		without("a new beginning", patch{file: "schedule_put.sql", old: "then x.next_at else excluded.next_at end", new: "then x.next_at else x.next_at end"}))
}

// A paused schedule misses nothing, and an interval keeps its step.
func TestRuleResumedScheduleMissedNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.schedule("s", "every 1 hour", `{"catch_up": "each"}`, "150 minutes")
		s.exec(`select posthaste.schedule_pause('s')`)
		if sent, missed := s.tick(); sent+missed != 0 {
			return fmt.Sprintf("%d sent and %d missed while it was paused", sent, missed)
		}
		s.exec(`select posthaste.schedule_resume('s')`)
		if sent, missed := s.tick(); sent+missed != 0 {
			return fmt.Sprintf("%d sent and %d missed after it was resumed", sent, missed)
		}
		if in := get[float64](s, `select round(extract(epoch from next_at - date_trunc('minute', clock_timestamp())) / 60)::float8 from posthaste.schedules`); in != 30 && in != 29 {
			return fmt.Sprintf("the next tick is in %v minutes", in)
		}
		return ""
	},
		without("the pause", patch{file: "tick.sql", old: "where x.paused_at is null and", new: "where"},
			patch{file: "tick_in.sql", old: " where x.paused_at is null", new: ""}),
		without("passing over", patch{file: "schedule_resume.sql", old: "if s.next_at <= clock_timestamp() then", new: "if false then"}),
		without("the step", patch{file: "schedule_resume.sql", old: "else s.next_at + s.every * (1", new: "else clock_timestamp() + s.every * (1"}))
}

// Upkeep called by SQL alone sends ticks, and reports them.
func TestMaintainTicks(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	// In the first minute of an hour @hourly would have missed one.
	s.schedule("yearly", "@yearly", `{"key": "k", "headers": {"a": "b"}}`, "1 second")
	if got := list[string](s, `select task || ': ' || detail from posthaste.maintain()`); len(got) != 1 || got[0] != "ticked: 1 sent, 0 missed" {
		t.Errorf("it did %q", got)
	}
	if got := get[bool](s, `select r.key = 'k' and r.headers - 'posthaste-tick' = '{"a": "b", "posthaste-schedule": "yearly"}' and r.payload_json = '1' and r.due_at is null
		and (r.headers ->> 'posthaste-tick')::timestamptz = v.last_tick and r.message_id = v.last_message_id and r.created_at >= v.last_tick
		from posthaste.receive('q', 10, '1 minute') r, posthaste.schedules v`); !got {
		t.Error("the message or the view says otherwise")
	}
}
