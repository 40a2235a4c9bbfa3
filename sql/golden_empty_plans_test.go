package ledger_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// growing matches the tables that may have very many rows shortly after they had none.
var growing = regexp.MustCompile(`^(parked|keys|cancelled|dedupe_keys|idempotency_keys|ahead_keys|limit_states|erased|outcomes_\d+|claims_\d+|settlements_\d+)$`)

// comparing finds the nodes of a plan that compare each row of one side with each of the other
// and read a growing table, or, with joined, that read all of one in a join.
func (p plan) comparing(joined bool) (found []string) {
	if p.Type == "Nested Loop" && p.JoinFilter != "" {
		var outer, inner plan
		for _, c := range p.Plans {
			switch c.Part {
			case "Outer":
				outer = c
			case "Inner":
				inner = c
			}
		}
		if growing.MatchString(inner.Relation) && inner.Condition == "" || growing.MatchString(outer.Relation) && inner.Relation == "" {
			found = append(found, p.JoinFilter)
		}
	}
	if joined && growing.MatchString(p.Relation) && (p.Type == "Seq Scan" || strings.HasPrefix(p.Type, "Index") && p.Condition == "") {
		found = append(found, "all of "+slotNumber.ReplaceAllString(p.Relation, "_N$2")+" where "+p.Filter)
	}
	for _, c := range p.Plans {
		found = append(found, c.comparing(joined || p.Type == "Nested Loop" || c.Part == "SubPlan")...)
	}
	return found
}

// useEmpty runs the upkeep of an idle ledger, and then some of each other statement.
// turn turns the ring.
func (p *planner) useEmpty(late *session, turn func()) {
	p.t.Helper()
	p.keepUp()
	for _, queue := range []string{"q", "ordered", "fair", "kept"} {
		for _, options := range []string{`{"key": "a", "delay": "1 day"}`, `{"key": "a"}`} {
			if queue == "ordered" && strings.Contains(options, "delay") {
				continue
			}
			id := get[int64](p.session, `select posthaste.send($1, '1', $2)`, queue, options)
			if queue != "ordered" {
				p.exec(`select from posthaste.reschedule($1, now() + interval '2 days')`, id)
			}
			p.exec(`select from posthaste.cancel($1)`, id)
			p.exec(`select posthaste.send($1, '1', $2)`, queue, options)
			p.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive($1, 1, '1 hour')))`, queue)
		}
	}
	p.exec(`select posthaste.subscribe('q', 'later', '{"from": "oldest"}')`)
	var number int64
	p.use(&number)
	p.useKeyed(late, &number)
	turn()
	p.keepUp()
	for _, file := range contracts(p.t) {
		for _, sql := range statements(contract(p.t, file)) {
			p.exec(sql)
		}
	}
}

// keepUp purges, and runs every task of upkeep.
func (p *planner) keepUp() {
	p.t.Helper()
	for _, queue := range []string{"q", "ordered", "fair", "kept"} {
		p.exec(`select from posthaste.purge($1)`, queue)
	}
	for slot := range 3 {
		p.exec(`select posthaste.carry_slot($1), posthaste.slot_unread($1), posthaste.slot_held($1), posthaste.keep_history($1)`, slot)
	}
	for _, what := range []string{"rows", "cancelled", "history", "buckets"} {
		p.exec(fmt.Sprintf(`select posthaste.forget_%s()`, what))
	}
	for range 20 {
		p.exec(`select from posthaste.maintain()`)
	}
}

// A plan that was made while a table was empty, as vacuum left it, stays in its session until the
// table is analyzed. By then it may have very many rows: no statement may compare each row with
// each other.
func TestNoPlanOfAnEmptyLedgerComparesEachWithEach(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s, late := begin(t, url), connect(t, url)
	s.exec(`update posthaste.settings set slot_rows = 1`)
	queues := maps.Clone(ruledQueues)
	queues["runs"], queues["kept"] = `{"key_concurrency": 1, "retention": "1 hour"}`, `{"retention": "1 hour"}`
	for queue, options := range queues {
		s.exec(`select posthaste.create_queue($1, $2)`, queue, options)
	}
	s.exec(`select posthaste.subscribe('q', 'filtered', '{"filter": {"kind": "x"}}')`)
	s.exec(`vacuum analyze`)
	p := newPlanner(t, url, nil)
	bad := map[string]string{}
	p.every = func(query string, top plan) {
		if strings.Contains(query, "from posthaste.messages") {
			return // a view, which is read with the reader's own settings
		}
		for _, what := range top.comparing(false) {
			bad[query] = what
		}
	}
	p.useEmpty(late, func() { turn(t, s) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range slices.Sorted(maps.Keys(bad)) {
		t.Errorf("compares %s: %s", bad[q], q)
	}
}
