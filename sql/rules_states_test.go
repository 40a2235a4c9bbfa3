package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// handles claims a slice of a queue for a worker and settles it in so many steps.
func (s *session) handles(worker, number int64, places, steps int) {
	s.t.Helper()
	s.exec(`select posthaste.claim($1, $2, 'q', 'default', $3, false, true)`, worker, number, places)
	for step := range steps {
		s.exec(`select posthaste.settle(array_agg(c.id), array_agg((select string_agg(case when g % $3 = $4 then '1' else '0' end, '' order by g) from generate_series(1, c.places) g)::bit varying))
			from posthaste.claims c where c.holder = $1 and c.number = $2 and c.places > 0`, worker, number, steps, step)
	}
}

// The state of many messages costs the same for each, however many there are, and however many were
// handed out with them.
func TestRuleStateOfManyMessages(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		const asked = 200
		var each []int
		for i, n := range []int{asked, 2000} {
			s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1)))`, n)
			s.handles(worker, int64(1+i), n, 3)
			sql := fmt.Sprintf(`select count(*) filter (where state = 'done') from (select state from posthaste.messages where message_id > (select max(e.pos) - %d from posthaste.entries e)) x`, asked)
			if done := get[int](s, sql); done != asked {
				return fmt.Sprintf("%d are done, want %d", done, asked)
			}
			each = append(each, s.reads(sql)/asked)
		}
		t.Logf("the view touches %d pages for each message of a slice of %d, and %d for each of 2,000", each[0], asked, each[1])
		if each[1] > each[0]+each[0]/8+5 {
			return fmt.Sprintf("the view touches %d pages for each message of a slice of %d, and %d for each of 2,000", each[0], asked, each[1])
		}
		for number := range int64(40) {
			s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, 20)))`)
			s.handles(worker, 10+number, 20, 1)
		}
		const listing = `select count(*) from posthaste.list_messages('q', state => 'ready')`
		pages := s.reads(listing) / 3000
		t.Logf("a listing touches %d pages for each of 3,000 messages", pages)
		if pages > 26 { // 16 on PostgreSQL 18, 24 on 14
			return fmt.Sprintf("a listing touches %d pages for each of 3,000 messages", pages)
		}
		return ""
	},
		without("passing over the slice", patch{file: "ends_of.sql", old: "if v_claim.withheld is null and", new: "if false and"}),
		without("the place of the entry", patch{file: "message_state.sql", old: "e.at_row = p_at and ", new: ""}),
		without("knowledge of the message before", patch{file: "message_states.sql", old: "if v_near.reader = v_reader and", new: "if false and"}))
}

// Shortcuts do not change the reported states: of slices settled in one step, in several and in
// part, by themselves or with others, with outcomes of their own, with a filter, in keyed queues
// and in at-most-once queues.
func TestStatesAreTheSameWithoutShortcuts(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	s.exec(`select posthaste.subscribe('q', 'xs', '{"filter": {"kind": "x"}}')`)
	s.exec(`select posthaste.create_queue('keyed', '{"key_concurrency": 1, "lanes": 1}'), posthaste.create_queue('once', '{"mode": "at_most_once"}')`)
	worker := s.register()
	for i := range 90 {
		s.send(fmt.Sprintf(`{"kind": "%c", "delay": "%d milliseconds"}`, 'x'+rune(i%2), i%3))
		s.send(`{}`)
		s.exec(`select posthaste.send('keyed', '1', jsonb_build_object('key', 'k' || $1::int))`, i%4)
		s.exec(`select posthaste.send('once', '1')`)
	}
	for number, steps := range []int{1, 3, 1, 2} {
		s.handles(worker, int64(1+number), 20, steps)
	}
	s.exec(`select posthaste.claim($1, 7, 'q', 'default', 20, false, true)`, worker)
	s.exec(`select posthaste.settle(array_agg(c.id), array_agg((repeat('1', c.places / 2) || repeat('0', c.places - c.places / 2))::bit varying)) from posthaste.claims c where c.holder = $1 and c.number = 7 and c.places > 0`, worker)
	for queue, subscription := range map[string]string{"q": "default", "keyed": "default", "once": "default"} {
		for round := range 3 {
			ids := list[int64](s, `select delivery_id from posthaste.receive($1, 9, '1 hour', jsonb_build_object('subscription', $2::text))`, queue, subscription)
			if queue == "once" || len(ids) == 0 {
				continue
			}
			switch round {
			case 0:
				s.exec(`select from posthaste.ack($1::bigint[])`, ids)
			case 1:
				s.exec(`select from posthaste.ack($1::bigint[], $2)`, ids[:1], `{"receipts": [{"id": 1}]}`)
				s.exec(`select from posthaste.fail($1, 'no', '{"permanent": true}')`, ids[len(ids)-1])
			case 2:
				s.exec(`select from posthaste.release($1::bigint[])`, ids[:1])
			}
		}
	}
	for range 2 {
		s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 15, '1 hour', '{"subscription": "xs"}')))`)
	}
	told := func() []string {
		return list[string](s, `select x from (
			select 'view ' || m.message_id || ' ' || m.queue || ' ' || m.subscription || ' ' || coalesce(m.state, '-') || ' ' || coalesce(m.due_at::text, '-') || ' ' || coalesce(m.attempts::text, '-') as x from posthaste.messages m
			union all select 'list ' || m.message_id || ' ' || m.queue || ' ' || m.subscription || ' ' || m.state || ' ' || coalesce(m.due_at::text, '-') || ' ' || m.attempts from posthaste.list_messages(max => 1000) m) y order by x`)
	}
	with := told()
	breakFunctions(t, url, []patch{
		{file: "ends_of.sql", old: "if v_claim.withheld is null and", new: "if false and"},
		{file: "message_states.sql", old: "if v_near.reader = v_reader and", new: "if false and"},
	})
	if without := told(); !slices.Equal(with, without) {
		for i := range min(len(with), len(without)) {
			if with[i] != without[i] {
				t.Fatalf("with shortcuts it is reported as %s, without as %s", with[i], without[i])
			}
		}
		t.Fatalf("with shortcuts %d rows, without %d", len(with), len(without))
	}
	states := map[string]int{}
	for _, state := range list[string](s, `select coalesce(state, 'nothing') from posthaste.messages`) {
		states[state]++
	}
	t.Log(states)
	for _, state := range []string{"ready", "running", "done", "dead", "handed_out"} {
		if states[state] == 0 {
			t.Errorf("none is %s, so that nothing is seen of it: %v", state, states)
		}
	}
}
