package ledger_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Entries that the ledger writes for itself cannot be named by callers. Events of keyed lanes are
// stored as entries with the message id 0.

// unusual are numbers that no message, delivery, claim or worker has, but that the ledger uses for
// itself or that overflow where ids are combined.
var unusual = []int64{0, -1, 1 << 51, math.MaxInt64, math.MaxInt64 - 4095, math.MinInt64, math.MinInt64 + 4095}

// An event that was mistaken for a message and withdrawn would strand waiting messages.
func TestRuleEventsAreNobodysMessages(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		sent := []int64{s.sendKey("a"), s.sendKey("a"), s.sendKey("a")}
		s.fails(`{"retry_after": "300 milliseconds"}`, s.take(1)...)
		for _, id := range append(unusual, list[int64](s, `select pos from posthaste.entries where message_id = 0`)...) {
			for _, call := range []string{`select from posthaste.cancel($1)`, `select from posthaste.reschedule($1, now() + interval '1 day')`, `select from posthaste.message($1)`} {
				if code := s.code(call, id); code != "PH404" {
					return fmt.Sprintf("%s of %d answers %q", call, id, code)
				}
			}
		}
		// Nothing before the first one of the key, which comes once its time has.
		var came []int64
		until(t, "all three came", func() bool {
			for _, g := range s.take(1) {
				came = append(came, g.message)
				s.ack(g)
			}
			return len(came) == 3
		})
		if !slices.Equal(came, sent) {
			return fmt.Sprintf("%v came of %v", came, sent)
		}
		return ""
	}, without("telling events from messages", patch{file: "later_heads.sql", old: " where x > 0", new: ""}))
}

// Any number that a caller passes as an id either fails with a message, or is reported as unknown,
// and changes nothing.
func TestUnusualNumbers(t *testing.T) {
	t.Parallel()
	s := ordered(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('plain')`)
	for _, queue := range []string{"q", "plain"} {
		s.exec(`select posthaste.send($1, '1', '{"key": "a"}') from generate_series(1, 5)`, queue)
		s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive($1, 1, '1 hour')), 'no', '{"retry_after": "1 hour"}')`, queue)
		s.exec(`select from posthaste.receive($1, 1, '1 hour')`, queue)
	}
	const state = `select jsonb_build_array((select jsonb_agg(e order by e.pos) from posthaste.entries e), (select jsonb_agg(p) from posthaste.parked p), (select jsonb_agg(z) from posthaste.keys z),
		(select jsonb_agg(c) from posthaste.cancelled c), (select jsonb_agg(x) from posthaste.settlements x), (select jsonb_agg(x) from posthaste.outcomes x), (select jsonb_agg(x) from posthaste.leases x),
		(select jsonb_agg(x) from posthaste.action_records x))::text`
	before := get[string](s, state)
	began := time.Now()
	calls := []string{
		`select from posthaste.message($1)`, `select from posthaste.cancel($1)`, `select from posthaste.reschedule($1, now())`,
		`select from posthaste.replay(array[$1::bigint])`, `select from posthaste.discard(array[$1::bigint])`,
		`select from posthaste.list_dead_letters(message_ids => array[$1::bigint])`, `select from posthaste.list_dead_letters(before => $1)`,
		`select from posthaste.list_messages(before => $1)`, `select from posthaste.list_messages(queue => 'q', before => $1)`,
		`select from posthaste.list_messages(reference => 'r', before => $1)`, `select from posthaste.list_messages(key => 'a', before => $1)`,
		`select from posthaste.list_messages(state => 'ready', before => $1)`,
		`select from posthaste.list_actions(message_id => $1)`, `select from posthaste.list_actions(before => $1)`,
		`select from posthaste.ack(array[$1::bigint])`, `select from posthaste.fail($1, 'e')`, `select from posthaste.release(array[$1::bigint])`,
		`select from posthaste.extend(array[$1::bigint], '1 hour')`, `select from posthaste.delivery_queues(array[$1::bigint])`,
		`select from posthaste.worker_heartbeat($1)`, `select from posthaste.worker_look($1, '{q}', '{default}')`, `select from posthaste.worker_unregister($1)`,
		`select posthaste.report_stats($1, '[]')`, `select from posthaste.list_failures(max => $1)`, `select from posthaste.worker_unsettled($1, 1)`, `select from posthaste.worker_unsettled(1, $1)`, `select from posthaste.rescue_in($1)`,
		`select from posthaste.claim($1, 1, 'plain', 'default', 1)`, `select from posthaste.fetch($1, 1)`, `select from posthaste.fetch(1, $1)`,
		`select from posthaste.settle(array[$1::bigint], array[B'1'])`,
		`select from posthaste.settle('{}', '{}', array[$1::bigint], array['done'], array[null::text], array[null::float8], array[null::text], array[null::real])`,
		`select from posthaste.erase('x', before => $1)`, `select from posthaste.replay(filter => '{"queue": "q"}', before => $1)`,
	}
	for _, call := range calls {
		for _, id := range unusual {
			if code := s.code(call, id); code != "" && code[:2] != "PH" {
				t.Errorf("%s of %d answers %s", call, id, code)
			}
		}
	}
	if after := get[string](s, state); after != before {
		t.Errorf("the ledger is\n%s\nand was\n%s", after, before)
	}
	t.Logf("%d calls in %v", len(calls)*len(unusual), time.Since(began))
}

// Messages that no claim would hand out any more are reported, with a hint. Messages that wait for a
// reason are not.
func TestDoctorFindsTheStranded(t *testing.T) {
	t.Parallel()
	s := ordered(t, testpg.New(t))
	s.exec(`set posthaste.patience = '1 millisecond'`)
	first := s.sendKey("a")
	s.sendKey("a")
	s.fails(`{"retry_after": "1 hour"}`, s.take(1)...)
	s.sendKey("b")
	until(t, "another key's runs", func() bool { return len(s.take(1)) == 1 })
	s.sendKey("b") // waits for the one that runs
	s.sendKey("c")
	s.exec(`select posthaste.pause_key('q', 'c')`)
	s.take(10)
	s.well(t, "stranded")
	// The event that would have told of it is taken away, and its time comes.
	s.exec(`insert into posthaste.cancelled (pos, subscriber, outcome) select pos, queue_id::bigint << 10, 'cancelled' from posthaste.entries where message_id = 0 and due_at > clock_timestamp()`)
	s.well(t, "stranded")
	s.exec(`update posthaste.parked set not_before = clock_timestamp() where message_id = $1`, first)
	s.ails(t, "stranded", "fault", fmt.Sprintf("message %d of key 'a'", first))
	if n := get[int](s, `select count(*)::int from posthaste.doctor() where "check" = 'stranded'`); n != 1 {
		t.Errorf("%d are told of, want 1", n)
	}
	s.look("a")
	s.heals(t, "stranded")
}

// Times that no program can show fail wherever they are passed, with the field's name: one of them
// would break every list that contains it.
func TestFarTimes(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('keyed', '{"fair": true}')`)
	waiting := s.send(`{"delay": "1 day"}`)
	s.send(`{}`)
	running := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
	const far = `9999-12-31T23:59:59-10:00`
	for _, c := range []struct {
		field, call string
		args        []any
	}{
		{"send_at", `select posthaste.send('q', '1', $1)`, []any{`{"send_at": "` + far + `"}`}},
		{"send_at", `select posthaste.send('keyed', '1', $1)`, []any{`{"key": "a", "send_at": "infinity"}`}},
		{"delay", `select posthaste.send('q', '1', $1)`, []any{`{"delay": "8000 years"}`}},
		{"delay", `select posthaste.send('q', '1', $1)`, []any{`{"delay": "250000 years"}`}},
		{"send_at", `select posthaste.send_bytes('q', '', $1)`, []any{`{"send_at": "12000-01-01T00:00:00Z"}`}},
		{"send_at", `select posthaste.send_many('q', $1)`, []any{`[{"payload": 1, "send_at": "` + far + `"}]`}},
		{"delay", `select posthaste.send_many('q', $1)`, []any{`[{"payload": 1, "delay": "9000 years"}]`}},
		{"send_at", `select from posthaste.reschedule($1, $2)`, []any{waiting, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"retry_after", `select from posthaste.fail($1, 'no', '{"retry_after": "8000 years"}')`, []any{running}},
		{"after", `select from posthaste.release(array[$1::bigint], '{"after": "8000 years"}')`, []any{running}},
		{"expires_at", `select posthaste.token_add('t', '{send}', $1)`, []any{`{"expires_at": "` + far + `"}`}},
		{"expires_in", `select posthaste.token_add('t', '{send}', '{"expires_in": "8000 years"}')`, nil},
		{"after", `select posthaste.schedule_next('every 1 day', 'UTC', '10000-01-01')`, nil},
	} {
		pg := s.refusal(c.call, c.args...)
		if pg == nil || pg.Code != "PH400" || pg.ColumnName != c.field {
			t.Errorf("%s of %v ends with %v, want PH400 with field %s", c.call, c.args, pg, c.field)
		}
	}
	// A past time means now.
	s.exec(`select from posthaste.reschedule($1, '1999-01-01T00:00:00Z')`, waiting)
	if age := get[time.Duration](s, `select oldest_age from posthaste.queues where queue = 'q'`); age > time.Hour {
		t.Errorf("the message moved to 1999 has waited for %v", age)
	}
}
