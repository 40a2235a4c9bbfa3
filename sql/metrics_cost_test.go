package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// blocks counts the blocks that a statement goes through, those of the functions
// that it calls included.
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

// What a scrape of /metrics asks of the database costs the same, however many
// messages wait: counted in blocks, never by time.
func TestRuleMetricsCostTheSame(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
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
	}, without("counters", patch{file: "oldest_waiting.sql", old: "begin\n  for v_lane", new: "begin\n  perform count(*) from posthaste.entries e where e.queue_id = p_queue;\n  for v_lane"}))
}
