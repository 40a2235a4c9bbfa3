package ledger_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// cpu returns the processor time that the session's backend has used. If the system does not report
// it, it returns the time of day, which other work on the machine makes longer.
func (s *session) cpu(pid int) time.Duration {
	s.t.Helper()
	told, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	var ns int64
	if _, err := fmt.Sscan(string(told), &ns); err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(ns)
}

// grows compares the cost of a statement for few and for times as many items; %d in its text is the
// number. It returns a fault if that is more than most times as much for each.
func (s *session) grows(what, statement string, few, times, most int) (fault string) {
	s.t.Helper()
	pid := get[int](s, `select pg_backend_pid()`)
	cost := func(n int) time.Duration {
		least := time.Duration(1<<63 - 1)
		for range 3 {
			s.exec(`begin`)
			before := s.cpu(pid)
			s.exec(strings.ReplaceAll(statement, "%d", fmt.Sprint(n)))
			least = min(least, s.cpu(pid)-before)
			s.exec(`rollback`)
			if n > few && least > time.Second {
				break
			}
		}
		return least
	}
	one, many := cost(few), cost(few*times)
	s.t.Logf("%s: %v for %d, %v for %d", what, one, few, many, few*times)
	if many > one*time.Duration(most*times) {
		return fmt.Sprintf("%s of %d costs %v, and of %d %v", what, few, one, few*times, many)
	}
	return ""
}

// The cost of a call grows linearly with its input, not quadratically.
func TestRuleSendingManyGrowsWithThem(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		return s.grows("sending", `select count(*) from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', g,
			'key', g::text, 'headers', jsonb_build_object('a', repeat('b', 500)), 'terms', jsonb_build_array(repeat('c', 200), g::text))) from generate_series(1, %d) g))`, 500, 10, 3)
	}, without("subscripts for headers", patch{file: "send_many.sql", old: "v_headers[n] := v_options.headers;", new: "v_headers := v_headers || array[v_options.headers];"}))
}

// Receipts of one claim are gathered without copying those before.
func TestRuleSettlingGrowsWithReceipts(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const most = 4000
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1)))`, most)
		ids := s.claim(s.register(), 1, most, false)
		if len(ids) != most {
			t.Fatalf("claimed %d", len(ids))
		}
		return s.grows("settling", fmt.Sprintf(`select count(*) from posthaste.settle('{}', '{}', array(select %d + g from generate_series(0, %%d - 1) g), array_fill('done'::text, array[%%d]),
			array_fill(null::text, array[%%d]), array_fill(null::float8, array[%%d]), array_fill(to_json(repeat('r', 1200))::text, array[%%d]), array_fill(1::real, array[%%d]))`, ids[0]), most/10, 10, 2)
	}, without("subscripts", patch{file: "settle.sql", old: "v_receipts[cardinality(v_places) + 1] := v_receipt;", new: "v_receipts := v_receipts || array[v_receipt];"}))
}

// Whether the message of a key in use was withdrawn is read from indexes: looking it up by its
// position reads all that the index of these has not summarized yet.
func TestRuleKeysInUseAreAskedOfIndexes(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		touched := func(n int) int {
			send := fmt.Sprintf(`select count(*) from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', g, 'dedupe_key', '%d ' || g)) from generate_series(1, %[1]d) g))`, n)
			s.exec(send)
			s.exec(send)
			return s.blocks(send)
		}
		const few, times = 600, 10
		one, many := touched(few), touched(few*times)
		t.Logf("%d blocks for %d, %d for %d", one, few, many, few*times)
		if many > one*2*times {
			return fmt.Sprintf("%d keys in use touch %d blocks, and %d %d", few, one, few*times, many)
		}
		return ""
	}, without("asking them", patch{file: "taken_back.sql", old: "     where (select k.pos from posthaste.cancelled k", new: "     where true or (select k.pos from posthaste.cancelled k"},
		patch{file: "first_heads.sql", old: " set enable_bitmapscan = on", new: ""}, patch{file: "first_heads.sql", old: "group by x >> 10", new: "group by x"}))
}

// Erasing compares each message with none of the others.
func TestRuleErasingGrowsWithMessages(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const most = 6000
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'terms', '["a@example.com"]'::jsonb)) from generate_series(1, $1)))`, most)
		s.exec(`select from posthaste.settle_singles(array(select delivery_id from generate_series(1, $1 / 1000) g cross join lateral posthaste.receive('q', 1000, '1 hour') where g > 0), 'dead', null, 'no', null, null)`, most)
		s.exec(`set work_mem = '64kB'`) // or more messages are needed to show it
		return s.grows("erasing", `select count(*) from posthaste.erase('a@example.com', max => %d)`, most/15, 15, 2)
	}, without("looking up queues once", patch{file: "erase.sql", old: "max(x.queue_id)", new: "(select h.queue_id from unnest(v_heads) h where h.message_id = x.id limit 1)"}))
}
