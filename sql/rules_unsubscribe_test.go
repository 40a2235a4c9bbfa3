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

// What a settlement that was under way parks or buries for a subscription that ended
// meanwhile goes with the next upkeep: its number may be another's one day.
func TestRuleUnsubscribedMeanwhileLeavesNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		other := connect(t, url)
		s.exec(`select posthaste.create_queue('steps', '{"ordered": true, "lanes": 1, "max_attempts": 2}'), posthaste.subscribe('steps', 'second')`)
		s.exec(`select posthaste.send('steps', '1', '{"key": "a"}'), posthaste.send('steps', '1', '{"key": "b"}')`)
		other.exec(`create temp table got as select delivery_id from posthaste.receive('steps', 10, '1 hour', '{"subscription": "second"}')`)
		other.exec(`begin`)
		other.exec(`select posthaste.fail(min(delivery_id), 'not now', '{"retry_after": "1 hour"}'), posthaste.fail(max(delivery_id), 'never', '{"permanent": true}') from got`)
		s.exec(`select posthaste.unsubscribe('steps', 'second')`)
		other.exec(`commit`)
		s.exec(`select posthaste.maintain() from generate_series(1, 20)`)
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n > 0 {
			return fmt.Sprintf("%d are parked", n)
		}
		if n := get[int](s, `select count(*)::int from posthaste.dead_letter_entries`); n > 0 {
			return fmt.Sprintf("%d are dead letters", n)
		}
		return ""
	}, without("looking for what is parked", patch{file: "forget_gone.sql", old: "delete from posthaste.parked p where", new: "delete from posthaste.parked p where false and"}),
		without("looking for dead letters", patch{file: "forget_gone.sql", old: "d.subscription = u.number;", new: "false;"}))
}
