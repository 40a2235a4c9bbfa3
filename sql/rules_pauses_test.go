package ledger_test

import (
	"fmt"
	"testing"
)

// paused reports whether a queue is paused, and why.
func (s *session) paused(queue string) string {
	return get[string](s, `select coalesce((select q.paused_at is not null from posthaste.queue_settings q where q.name = $1 and q.dropped_at is null)::text, 'gone')
		|| ' ' || coalesce((select p.reason from posthaste.list_pauses($1) p where p.what = 'queue'), '-')`, queue)
}

// The end of a pause ends no pause that replaces it, whatever upkeep has already seen.
func TestRuleEndOfPauseEndsNoNewerOne(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, other, upkeep := connect(t, url), connect(t, url), connect(t, url)
		for _, queue := range []string{"q", "first"} {
			s.exec(`select posthaste.create_queue($1)`, queue)
			s.exec(`select posthaste.pause_queue($1, reason => 'old', until => clock_timestamp() + interval '1 hour')`, queue)
		}
		s.exec(`update posthaste.pauses set until = clock_timestamp() - case queue_id when (select id from posthaste.queue_settings where name = 'first') then interval '1 minute' else interval '1 second' end`)
		// Upkeep has seen both. It ends the first one, which takes long and fails.
		s.exec(`create function public.hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(42); raise exception 'held'; end $$`)
		s.exec(`create trigger hold before delete on posthaste.pauses for each row when (old.queue_id = ` + get[string](s, `select id::text from posthaste.queue_settings where name = 'first'`) + `) execute function public.hold()`)
		other.exec(`begin`)
		other.exec(`select pg_advisory_xact_lock(42)`)
		ended := upkeep.start(`select ended::bigint from posthaste.tick()`)
		upkeep.blocked(s)
		s.exec(`select posthaste.resume_queue('q'), posthaste.pause_queue('q', reason => 'new')`)
		other.exec(`commit`)
		if a := <-ended; a.err != nil {
			t.Fatal(a.err)
		}
		if got := s.paused("q"); got != "true new" {
			return "upkeep that had seen the old pause left: " + got
		}
		if got := s.paused("first"); got != "true old" {
			return "a pause that could not be ended is: " + got
		}
		s.exec(`drop trigger hold on posthaste.pauses`)
		for get[int](s, `select ended from posthaste.tick()`) > 0 {
		}
		if got := s.paused("first"); got != "false -" {
			return "after the next round the first one is: " + got
		}
		// An operator pauses it again at the same moment.
		s.exec(`update posthaste.pauses set until = clock_timestamp() - interval '1 second'`)
		other.exec(`begin`)
		other.exec(`select posthaste.pause_queue('q', reason => 'newer')`)
		ended = upkeep.start(`select ended::bigint from posthaste.tick()`)
		if a := <-ended; a.err != nil {
			t.Fatal(a.err)
		}
		other.exec(`commit`)
		s.exec(`select posthaste.tick()`)
		if got := s.paused("q"); got != "true newer" {
			return "upkeep at the moment of the new pause left: " + got
		}
		return ""
	}, without("the second look", patch{file: "end_pause.sql", old: "if not exists (select from posthaste.pauses x where x.id = p.id and x.until <= v_now) then", new: "if false then"}))
}

// Upkeep waits for no transaction that changes a queue, or sets messages of a kind aside: it ends the
// other pauses meanwhile.
func TestRuleEndOfPauseWaitsForNobody(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, other := connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('busy'), posthaste.create_queue('idle')`)
		for _, change := range []string{`select posthaste.pause_kind('busy', 'sms')`, `select posthaste.aside_lanes(id, '{sms}') from posthaste.queue_settings where name = 'busy'`} {
			for _, queue := range []string{"busy", "idle"} {
				s.exec(`select posthaste.pause_queue($1, until => clock_timestamp() + interval '1 hour')`, queue)
				s.exec(`update posthaste.pauses set until = least(until, clock_timestamp())`)
			}
			other.exec(`begin`)
			other.exec(change)
			s.exec(`set statement_timeout = '3s'`)
			if a := <-s.start(`select ended::bigint from posthaste.tick()`); a.err != nil {
				return "upkeep waits for the transaction: " + a.err.Error()
			}
			if got := s.paused("idle"); got != "false -" {
				return "beside a busy queue the other one is: " + got
			}
			other.exec(`rollback`)
			s.exec(`select posthaste.tick()`)
			if got := s.paused("busy"); got != "false -" {
				return "afterwards the busy one is: " + got
			}
		}
		return ""
	}, without("trying", patch{file: "lock_pause.sql", old: "if not pg_try_advisory_xact_lock(posthaste.lock_key(13, p_queue)) then", new: "perform pg_advisory_xact_lock(posthaste.lock_key(13, p_queue)); if false then"}),
		without("the row", patch{file: "lock_pause.sql", old: "perform from posthaste.queue_settings q where q.id = p_queue for no key update skip locked;\n    return found;", new: "return true;"}))
}

// Upkeep keeps no lock of a pause that it does not end: claims need them, and it goes on with schedules.
func TestRuleEndOfPauseKeepsNoLock(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, other, upkeep := connect(t, url), connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('k', '{"fair": true}')`)
		s.exec(`select posthaste.subscribe('k', 'second')`)
		s.exec(`select posthaste.pause_key('k', 'a', until => clock_timestamp() + interval '1 hour')`)
		s.exec(`update posthaste.pauses set until = clock_timestamp()`)
		other.exec(`begin`)
		other.exec(`select posthaste.lock_reader(posthaste.reader_key(q.id, u.number, posthaste.key_lane('a', q.width), 0), true)
			from posthaste.queue_settings q join posthaste.subscriptions u on u.queue_id = q.id where q.name = 'k' and u.name = 'second'`)
		upkeep.exec(`begin`)
		if n := get[int](upkeep, `select ended from posthaste.tick()`); n != 0 {
			return "it ended the pause of a key that another transaction locks"
		}
		if held := get[int](upkeep, `select count(*)::int from pg_locks l where l.locktype = 'advisory' and l.pid = pg_backend_pid()`); held != 0 {
			return fmt.Sprintf("it still holds %d locks", held)
		}
		upkeep.exec(`commit`)
		other.exec(`commit`)
		if n := get[int](s, `select ended from posthaste.tick()`); n != 1 {
			return "afterwards it did not end the pause"
		}
		return ""
	}, without("giving back", patch{file: "end_pause.sql", old: "raise exception using errcode = 'ZZ001'; -- gives back the locks that it took", new: "continue;"}))
}

// A queue that is dropped waits for those that pause its keys before it removes their pauses.
func TestRuleDroppingWaitsForPausesOfKeys(t *testing.T) {
	const early = "  delete from posthaste.pauses p where p.queue_id = v_id;\n"
	rule(t, func(t *testing.T, url string) string {
		s, other, dropping := connect(t, url), connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('k', '{"fair": true}')`)
		s.exec(`select posthaste.pause_key('k', 'a')`)
		other.exec(`begin`)
		other.exec(`select posthaste.key_readers('k', 'a')`)
		other.exec(`select posthaste.pause_key('k', 'a again')`)
		dropped := dropping.start(`select 1::bigint from posthaste.drop_queue('k')`)
		dropping.blocked(s)
		if code := other.code(`select posthaste.resume_key('k', 'a')`); code != "" {
			return "resuming a key beside a drop ends with " + code
		}
		other.exec(`commit`)
		if a := <-dropped; a.err != nil {
			return "dropping beside it ends with " + a.err.Error()
		}
		if n := get[int](s, `select count(*)::int from posthaste.list_pauses()`); n != 0 {
			return fmt.Sprintf("the dropped queue left %d pauses", n)
		}
		return ""
	}, without("the order",
		patch{file: "drop_queue.sql", old: "  delete from posthaste.pauses p where p.queue_id = v_id or", new: "  delete from posthaste.pauses p where"},
		patch{file: "drop_queue.sql", old: "  -- Before the lanes, in the same order as a receive.\n", new: early}))
}

// A queue takes its pauses, and those of its schedules, with it.
func TestRulePausesGoWithTheirQueue(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q'), posthaste.create_queue('k', '{"fair": true}')`)
		s.exec(`select posthaste.schedule_put('s', 'q', 'every 1 hour'), posthaste.schedule_put('t', 'q', 'every 1 hour'), posthaste.schedule_put('u', 'k', 'every 1 hour')`)
		s.exec(`select posthaste.pause_queue('q'), posthaste.pause_kind('q', 'sms'), posthaste.pause_key('k', 'a'), posthaste.schedule_pause('s'), posthaste.schedule_pause('t'), posthaste.schedule_pause('u')`)
		s.exec(`select posthaste.schedule_drop('t')`)
		left := `select coalesce(string_agg(p.what || ' ' || coalesce(p.name, p.queue), ', ' order by p.id), 'none') from posthaste.list_pauses() p`
		if got := get[string](s, left); got != "queue q, kind sms, key a, schedule s, schedule u" {
			return "after a schedule was dropped: " + got
		}
		s.exec(`select posthaste.drop_queue('q')`)
		if got := get[string](s, left); got != "key a, schedule u" {
			return "after a queue was dropped: " + got
		}
		s.exec(`select posthaste.drop_queue('k')`)
		if got := get[string](s, left); got != "none" {
			return "after both: " + got
		}
		return ""
	}, without("the queue's", patch{file: "drop_queue.sql", old: "p.queue_id = v_id or p.queue_id = 0", new: "p.queue_id = 0"}),
		without("its schedules'", patch{file: "drop_queue.sql", old: "or p.queue_id = 0 and p.what = 'schedule' and p.name = any (v_schedules)", new: ""}),
		without("the schedule's", patch{file: "schedule_drop.sql", old: "delete from posthaste.pauses p where", new: "delete from posthaste.pauses p where false and"}))
}
