package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// A worker's claim that finds nothing fresh turns to the due track late. The cursor that it uses
// there is read after that reader's lock: another claim may have moved it since this claim began, in
// a slot that became live since.
func TestRuleTheDueTrackIsReadAfterItsLock(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		claimer, other := connect(t, url), connect(t, url)
		worker := s.register()
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.send(`{"delay": "1 microsecond"}`)
		if handed := get[int](s, `select handed from posthaste.claim($1, 1, 'q', 'default', 10)`, worker); handed != 1 {
			t.Fatalf("%d were handed out, want 1", handed)
		}
		const falls = `update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`
		before, after := s.send(`{"delay": "1 day"}`), s.send(`{"delay": "1 day"}`)
		other.exec(`begin`)
		reader := get[int64](other, `select posthaste.reader_key((select id from posthaste.queue_settings), 0, 0, 1)`)
		other.exec(`select posthaste.lock_reader($1, true)`, reader)
		waiting := claimer.start(fmt.Sprintf(`select handed::bigint from posthaste.claim(%d, 2, 'q', 'default', 10, false, false, false)`, worker))
		claimer.blocked(s)
		s.exec(falls, before)
		s.send(`{"delay": "1 microsecond"}`)
		turn(t, s)
		// The track is emptied, as a purge does: a cursor at a new snapshot.
		other.exec(`do $$ declare c posthaste.claims := posthaste.without_places(posthaste.cursor_of(` + fmt.Sprint(reader) + `, posthaste.live_slots())); begin
			c.s0 := c.s1;
			c.s1 := pg_current_snapshot();
			c.t0 := c.t1;
			c.t1 := clock_timestamp();
			c.part := 2;
			c.ended := true;
			perform posthaste.put_claim(c, null, null, null, false);
		end $$`)
		s.exec(falls, after)
		other.exec(`commit`)
		a := <-waiting
		if a.err != nil {
			return a.err.Error()
		}
		if !slices.Equal(a.values, []int64{1}) {
			return fmt.Sprintf("handed out %v of a track with one message that fell due since it was emptied", a.values)
		}
		if again := get[int](s, `select handed from posthaste.claim($1, 3, 'q', 'default', 10)`, worker); again != 0 {
			return fmt.Sprintf("then handed out %d of an emptied track", again)
		}
		return ""
	}, without("the marks of then", patch{file: "claim_lane.sql", old: "        live := posthaste.live_slots();\n", new: ""}),
		without("the snapshot of then", patch{file: "claim_lane.sql", old: "        s := posthaste.snapshot_now();\n", new: ""}))
}

// Live slots are returned as runs, at most three: if the ring has more gaps than that, the smallest
// gaps are included, and all live slots are covered.
func TestLiveSlotsAreCovered(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`create function pg_temp.covered(mask int) returns int language plpgsql as $$ begin
		update posthaste.slots set live = (mask >> slot) & 1 = 1, epoch = 16 + slot;
		perform setval('posthaste.positions', (16 + floor(log(2, mask))::bigint) << 22);
		return (select sum(case when posthaste.in_slots(g, l.a, l.b, l.c, l.d, l.e, l.f) then 1 << g else 0 end)::int
			from posthaste.live_slots() l cross join generate_series(0, 15) g);
	end $$`)
	const step = 37
	for i, got := range list[int](s, `select pg_temp.covered(mask) from generate_series(1, 65535, $1) mask`, step) {
		mask := 1 + i*step
		if got&mask != mask {
			t.Fatalf("live %016b, covered %016b", mask, got)
		}
		if gaps(mask) <= 2 && got != mask {
			t.Fatalf("live %016b, covered %016b, which is more than needed", mask, got)
		}
	}
}

// gaps counts the runs of zeros between ones.
func gaps(mask int) int {
	n := 0
	for seen := false; mask > 0; mask >>= 1 {
		if mask&1 == 1 {
			seen = true
		} else if seen && mask&2 == 2 {
			n++
		}
	}
	return n
}

// A claim that stopped among messages that become due later asks for another claim at once:
// otherwise a message that is due now would wait for the next look.
func TestRuleClaimsSayThatTheyStoppedOnTheirWay(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		sendLater(s, 10_000)
		m := s.send(`{"delay": "1 microsecond"}`)
		for number := 1; ; number++ {
			said := get[string](s, `select handed || ' ' || coalesce(next_due::text, 'nothing') from posthaste.claim($1, $2, 'q', 'default', 10)`, worker, number)
			if strings.HasPrefix(said, "1 ") {
				if number == 1 {
					t.Fatal("the first claim already got through")
				}
				return ""
			}
			if said != "0 0" {
				return fmt.Sprintf("message %d is due, and claim %d found nothing and says nothing of it", m, number)
			}
		}
	}, without("saying so", patch{file: "claim_lane.sql", old: "        next_due := t;\n", new: "        null;\n"}))
}

// sendLater appends messages that wait for the next day.
func sendLater(s *session, n int) {
	s.t.Helper()
	s.exec(`insert into posthaste.entries_other (queue_id, payload, due_at) select 1, '1', clock_timestamp() + '1 day' from generate_series(1, $1::int)`, n)
}

// A receiver continues where its claim stopped: a caller that sleeps after an empty result would
// need a day of naps to get there.
func TestRuleReceiveGoesOnBehindOthers(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		sendLater(s, 10_000)
		s.send(`{"delay": "1 microsecond"}`)
		if n := len(s.receive()); n != 1 {
			return fmt.Sprintf("one message is due, and %d were received", n)
		}
		return ""
	}, without("going on", patch{file: "receive_rows.sql", old: "v_stretches = 8", new: "v_stretches = 1"}))
}

// It does so in bounded steps, and the next call begins where this one stopped.
func TestReceiveIsBounded(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	sendLater(s, 8*4096)
	s.send(`{"delay": "1 microsecond"}`)
	for i, want := range []int{0, 1} {
		if n := len(s.receive()); n != want {
			t.Errorf("call %d received %d messages, want %d", i+1, n, want)
		}
	}
}

// Arrays that do not fit together would mix the words of messages up.
func TestSendRowsRefusesArraysOfOtherShapes(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	for _, arguments := range []string{
		`'{q}', '{x,y}', null, null`,
		`'{q,q}', '{x,y}', null, '{k}'`,
		`'{q,q}', '{x,y}', null, '{k,k,k}'`,
		`'{q,q}', '{x,y}', null, '[0:1]={k0,k1}'`,
		`'{q,q}', '[2:3]={x,y}', null, null`,
		`'{q,q}', null, null, null`,
	} {
		if code := s.code(`select posthaste.send_rows(` + arguments + `, null, null, null, null, null, null, null, true)`); code != "PH400" {
			t.Errorf("%s: %q, want PH400", arguments, code)
		}
	}
	if n := get[int](s, `select cardinality(posthaste.send_rows('{}', '{}', null, null, null, null, null, null, null, null, null, true))`); n != 0 {
		t.Errorf("nothing sent, and %d ids", n)
	}
	if n := get[int](s, `select count(*)::int from posthaste.entries`); n != 0 {
		t.Errorf("%d were stored", n)
	}
}

// The largest payload that a queue may allow is stored, and not a byte more.
func TestLargestPayloadIsStored(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('big', '{"max_payload": 33554432}')`)
	if code := s.code(`select posthaste.send_bytes('big', convert_to(repeat('x', 33554432), 'UTF8'))`); code != "" {
		t.Errorf("the largest payload: %s", code)
	}
	if code := s.code(`select posthaste.send_bytes('big', convert_to(repeat('x', 33554433), 'UTF8'))`); code != "PH413" {
		t.Errorf("one byte more: %q, want PH413", code)
	}
}

// Dropping a queue does not wait for open transactions that have sent to it: the next sender would
// wait behind the drop. Their messages are dropped with the queue.
func TestDroppingDoesNotWaitForSenders(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s, sender := begin(t, url), connect(t, url)
	for _, send := range []string{
		`select posthaste.send('q', '1', '{"reference": "r"}')`,
		`select posthaste.send('q', '1', '{"delay": "1 second"}')`,
		`select posthaste.send('q', '1', '{"dedupe_key": "d"}')`,
		`select posthaste.send_many('q', '[{"payload": 1}, {"payload": 2}]')`,
		`select posthaste.send_row('q', '1', null, null, null, null, null, null, null, null, null, true)`,
	} {
		sender.exec(`begin`)
		sender.exec(send)
		s.exec(`set lock_timeout = '5s'`)
		s.exec(`select posthaste.drop_queue('q')`)
		s.exec(`select posthaste.create_queue('q')`)
		sender.exec(`commit`)
		if code := sender.code(`select posthaste.send('q', '"later"', '{"dedupe_key": "d"}')`); code != "" {
			t.Fatalf("sending to the new queue: %s", code)
		}
		s.exec(`select posthaste.maintain()`)
		if got := list[string](s, `select payload_json::text from posthaste.receive('q', 10, '1 minute')`); !slices.Equal(got, []string{`"later"`}) {
			t.Errorf("%s, and the new queue hands out %q", send, got)
		}
	}
}

// claim_lane relies on its callers for the settings that fix its plans.
func TestCallersOfClaimLaneHoldItsPlans(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	const needed = `array['plan_cache_mode=force_generic_plan', 'enable_seqscan=off', 'enable_bitmapscan=off', 'enable_sort=off', 'jit=off']`
	callers := list[string](s, `select p.proname::text || case when p.proconfig @> `+needed+` then '' else ' without' end
		from pg_proc p where p.pronamespace = 'posthaste'::regnamespace and p.prosrc ~ 'posthaste\.claim_lane\(' order by 1`)
	if !slices.Equal(callers, []string{"claim", "claim_ruled", "receive_rows"}) {
		t.Errorf("callers %v, want claim, claim_ruled and receive_rows, with %s", callers, needed)
	}
}
