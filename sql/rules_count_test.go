package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// fill sends batches of 2,000 messages, each in a transaction of its own.
func (s *session) fill(queue string, batches, size int) {
	s.t.Helper()
	for range batches {
		s.exec(`select posthaste.send_rows(array_fill($1::text, array[2000]), array_fill(convert_to('"' || repeat('x', $2) || '"', 'UTF8'), array[2000]), a, k, a, null, a, null, null, null, a, false)
			from (select array_fill(null::text, array[2000]) as a, array(select 'k' || g from generate_series(1, 2000) g) as k) x`, queue, size)
	}
}

// Messages that came while there was no upkeep are counted in parts, each once, also beside a
// transaction that stays open.
func TestRuleALongPauseIsCountedInParts(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, open := keyed(t, url, `{"lanes": 4}`), connect(t, url)
		s.exec(`select posthaste.create_queue('ordered', '{"ordered": true}')`)
		counted := func() string {
			s.exec(`select posthaste.count_up()`)
			return get[string](s, `select string_agg(sent || ' ' || settled, ', ' order by queue_id) from posthaste.counters`)
		}
		s.exec(`select posthaste.maintain()`)
		s.fill("q", 9, 1)
		s.fill("ordered", 1, 1)
		open.exec(`begin`)
		open.fill("q", 1, 1)
		s.fill("q", 9, 1)
		s.fill("ordered", 1, 1)
		s.ack(s.take(100)...)
		if have := counted(); have != "36000 100, 4000 0" {
			return "beside a transaction that is open they are counted as " + have
		}
		open.exec(`commit`)
		if have := counted(); have != "38000 100, 4000 0" {
			return "after it they are counted as " + have
		}
		return ""
	}, without("the last of each part", patch{file: "count_up.sql", old: "least(x.lo + v_step, r.hi)", new: "least(x.lo + v_step - 1, r.hi)"}))
}

// Counting reads each page about once, however many lanes share it, and not once a lane.
func TestRuleALongPauseIsReadOnce(t *testing.T) {
	testrun.Nightly(t, "it needs more pages than the server keeps in its cache")
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"lanes": 8}`)
		s.exec(`set synchronous_commit = off`)
		s.fill("q", 500, 300)
		var plans []struct {
			Plan struct {
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(get[[]byte](s, `explain (analyze, buffers, format json) select posthaste.count_up()`), &plans); err != nil {
			t.Fatal(err)
		}
		pages := get[int](s, `select (sum(pg_table_size(oid)) / 8192)::int from pg_class where relname ~ '^entries_(plain|other)_[0-9]+$' and relnamespace = 'posthaste'::regnamespace`)
		if read := plans[0].Plan.Read; read > 2*pages {
			return fmt.Sprintf("%d pages are read of a table of %d", read, pages)
		}
		return ""
	}, without("the parts", patch{file: "count_up.sql", old: "if v_parts > 1 then", new: "if false then"}))
}

// Positions that the sequence jumps over are no reason to count in parts.
func TestRuleAJumpIsNoLongPause(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`do $$ begin for i in 1..50 loop perform posthaste.create_queue('q' || i); end loop; end $$`)
		s.exec(`select posthaste.count_up()`)
		s.exec(`do $$ begin for i in 1..300 loop perform posthaste.send('q1', '1'); commit; end loop; end $$`)
		const count = `select posthaste.count_up()`
		touched := func() int {
			s.exec(`begin`)
			defer s.exec(`rollback`)
			return s.blocks(count)
		}
		before := touched()
		s.exec(`update posthaste.settings set slot_rows = 1`)
		until(t, "the sequence has jumped", func() bool { return get[string](s, `select coalesce(posthaste.rotate(), '')`) == "moved" })
		s.send(`{}`)
		if after := touched(); after > 3*before {
			return fmt.Sprintf("counting 300 messages touches %d pages, and %d after a jump", before, after)
		}
		return ""
	}, without("leaving out the jump", patch{file: "count_up.sql", old: "then v_last - k.last_value else v_last & 4194303 end", new: "then v_last - k.last_value else v_last - k.last_value end"}))
}
