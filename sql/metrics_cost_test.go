package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// blocks counts the blocks that a statement touches, including those of the functions that it calls.
func (s *session) blocks(sql string) int {
	s.t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(get[string](s, `explain (analyze, buffers, format json) `+sql)), &plan); err != nil || len(plan) != 1 {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// The queries of a scrape of /metrics cost the same, however many messages wait: counted in
// blocks, never by time.
func TestRuleMetricsCostTheSame(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		// One whose filter excludes all messages, and which has no reader.
		s.exec(`select from posthaste.subscribe('q', 'filtered', '{"filter": {"kind": "other"}}')`)
		asked := []string{`select * from posthaste.queues`, `select * from posthaste.vitals()`, `select * from posthaste.doctor()`}
		few := map[string]int{}
		fill := func(n int) {
			for sent := 0; sent < n; sent += 20_000 {
				s.exec(`select posthaste.send_many('q', (select jsonb_agg('{"payload": {}}'::jsonb) from generate_series(1, $1)))`, min(20_000, n-sent))
				s.exec(`select from posthaste.count_up()`)
			}
			s.exec(`analyze posthaste.entries`)
			for range 2 { // with what the first call only caches
				for _, sql := range asked {
					few[sql+fmt.Sprint(n)] = s.blocks(sql)
				}
			}
		}
		small, large := 1000, rows(t, 15_000)
		fill(small)
		fill(large)
		for _, sql := range asked {
			before, after := few[sql+fmt.Sprint(small)], few[sql+fmt.Sprint(large)]
			t.Logf("%s: %d blocks with %d waiting, %d with %d", sql, before, small, after, large)
			if after > before*3/2+20 {
				return fmt.Sprintf("%s goes through %d blocks with %d waiting, and %d with %d", sql, before, small, after, large+small)
			}
		}
		return ""
	},
		without("counters", patch{file: "oldest_fresh.sql", old: "begin\n", new: "begin\n  perform count(*) from posthaste.entries;\n"}),
		without("16 in a row", patch{file: "oldest_fresh.sql", old: "limit 16) e", new: ") e"}, patch{file: "oldest_fresh.sql", old: "or e.n = 16 or e.k = 1024 ", new: ""},
			patch{file: "oldest_fresh.sql", old: "order by e.xid, e.pos limit 1024", new: "order by e.xid, e.pos"}))
}

// Querying all subscriptions at once costs about as much as reading the cursor of each: it starts no
// statement for each, and walks no backlog.
func TestManySubscriptionsInOneLook(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`insert into posthaste.queue_settings (id, name, lanes, width, max_attempts, backoff_base, backoff_max, timeout, max_payload) overriding system value
		select 1000 + g, 'q' || g, lanes, width, max_attempts, backoff_base, backoff_max, timeout, max_payload from posthaste.queue_settings cross join generate_series(1, 300) g where name = 'q'`)
	s.exec(`insert into posthaste.subscriptions select (u).* from (select jsonb_populate_record(u, jsonb_build_object('queue_id', q.id, 'number', n, 'name', 's' || n,
			'filter', case when n = 2 then '{"kind": ["other"]}'::jsonb end)) u
		from posthaste.subscriptions u cross join posthaste.queue_settings q cross join generate_series(0, 2) n
		where u.queue_id = (select id from posthaste.queue_settings where name = 'q') and q.id > 1000) u`)
	s.exec(`insert into posthaste.entries_plain (queue_id, payload) select 1000 + g % 300, '1' from generate_series(1, 30000) g`)
	fastest := func(sql string) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			s.exec(sql)
			best = min(best, time.Since(began))
		}
		return best
	}
	each := fastest(`select posthaste.cursor_of(posthaste.reader_key(u.queue_id, u.number, 0, 0), posthaste.live_slots()) from posthaste.subscriptions u`)
	all := fastest(`select * from posthaste.queues`)
	if n := get[int](s, `select count(oldest_age) from posthaste.queues`); n != 897 {
		t.Errorf("something waits for %d subscriptions, want 897", n)
	}
	t.Logf("all subscriptions take %.1f times as long as their cursors", all.Seconds()/each.Seconds())
	if all > 8*each {
		t.Errorf("all subscriptions take %v, and their cursors one by one %v", all, each)
	}
}
