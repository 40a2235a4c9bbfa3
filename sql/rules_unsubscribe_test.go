package ledger_test

import (
	"fmt"
	"testing"
)

// A claim that waited for the lane while its subscription ended hands out nothing, and
// parks nothing that nobody would take away.
func TestRuleUnsubscribedMeanwhileParksNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		other, late := connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('steps', '{"ordered": true, "lanes": 1}'), posthaste.subscribe('steps', 'second')`)
		s.exec(`select posthaste.send('steps', '1', '{"key": "a"}') from generate_series(1, 5)`)
		other.exec(`begin`)
		other.exec(`select posthaste.unsubscribe('steps', 'second')`)
		waiting := late.start(`select delivery_id from posthaste.receive('steps', 10, '1 hour', '{"subscription": "second"}')`)
		late.blocked(s)
		other.exec(`commit`)
		if a := <-waiting; len(a.values) > 0 {
			return fmt.Sprintf("%d were handed out", len(a.values))
		}
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n > 0 {
			return fmt.Sprintf("%d are parked", n)
		}
		return ""
	}, without("the look under the lock", patch{file: "claim_keyed.sql", old: "  if v_gone then\n", new: "  if false then\n"}))
}
