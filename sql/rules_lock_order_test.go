package ledger_test

import (
	"fmt"
	"testing"
)

// All sessions take several locks in the same order: while a statement waits for one of them, no
// other session waits for a lock that the statement takes later.

// takesInOrder examines, while holder holds one lock, whether a statement that waits for that leaves
// a later one alone: free must find it.
func takesInOrder(s, holder, taker *session, hold, take, free string) string {
	s.t.Helper()
	holder.exec(`begin`)
	holder.exec(hold)
	ended := taker.start(take)
	taker.waitsOrEnds(s, ended)
	found := get[int](s, free)
	holder.exec(`commit`)
	if a := <-ended; a.err != nil {
		return fmt.Sprint("it ended with ", a.err)
	}
	if found == 0 {
		return "it waited for the first and had the later one"
	}
	return ""
}

// Settlements that come too late lock the readers of their claims in ascending order.
func TestRuleLateSettlementsTakeReadersInOrder(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, holder, late := begin(t, url), connect(t, url), connect(t, url)
		s.subscribe("second", `{}`)
		s.send(`{}`)
		second, first := s.takeFor("second", 1)[0].delivery, s.takeFor("default", 1)[0].delivery // by their claims in this order
		s.endLeases()
		until(t, "their leases have ended", func() bool {
			s.exec(`select posthaste.rescue()`)
			return get[int](s, `select count(*)::int from posthaste.outcomes where outcome = 'lost'`) == 2
		})
		return takesInOrder(s, holder, late, `select pg_advisory_xact_lock(posthaste.lock_key(1, posthaste.reader_key(1, 0, 0, 1)))`,
			fmt.Sprintf(`select delivery_id from posthaste.ack(array[%d, %d]::bigint[])`, second, first),
			`select pg_try_advisory_xact_lock(posthaste.lock_key(1, posthaste.reader_key(1, 1, 0, 1)))::int`)
	}, without("the order", patch{file: "settle.sql", old: "order by v_late[g].reader >> 10, v_late[g].reader >> 1 & 255, g loop", new: "order by g loop"}))
}

// Dead letters are removed in the order in which they are replayed and discarded.
func TestRuleDeadLettersAreRemovedInOrder(t *testing.T) {
	for name, c := range map[string]struct{ ends, file, old string }{
		"unsubscribing": {`select 1::bigint from posthaste.unsubscribe('q', 'default')`, "unsubscribe.sql", "order by d.message_id for update;"},
		"dropping":      {`select 1::bigint from posthaste.drop_queue('q')`, "drop_queue.sql", "order by d.message_id, d.subscription for update;"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s, holder, ending := begin(t, url), connect(t, url), connect(t, url)
				s.subscribe("second", `{}`)
				bury(s, 2)
				// The later one stands first in the table.
				s.exec(`update posthaste.dead_letter_entries set error = 'again' where message_id = 1`)
				return takesInOrder(s, holder, ending, `select from posthaste.dead_letter_entries where message_id = 1 for update`, c.ends,
					`select count(*)::int from (select from posthaste.dead_letter_entries where message_id = 2 for update skip locked) x`)
			}, without("the order", patch{file: c.file, old: c.old, new: "and false;"}))
		})
	}
}

// Dropping a queue waits for its schedules before it locks anything else of it that upkeep uses.
func TestRuleDroppingWaitsForSchedulesFirst(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, holder, ending := begin(t, url), connect(t, url), connect(t, url)
		s.exec(`select posthaste.schedule_put('s', 'q', 'every 1 day')`)
		return takesInOrder(s, holder, ending, `select from posthaste.schedule_settings for update`, `select 1::bigint from posthaste.drop_queue('q')`,
			`select count(*)::int from (select from posthaste.counters for update skip locked) x`)
	}, without("the order",
		patch{file: "drop_queue.sql", old: "  with gone as (delete from posthaste.schedule_settings where queue_id = v_id returning name)\n  select array_agg(g.name) into v_schedules from gone g;\n", new: ""},
		patch{file: "drop_queue.sql", old: "  delete from posthaste.history_cursors", new: "  delete from posthaste.schedule_settings where queue_id = v_id;\n  delete from posthaste.history_cursors"}))
}

// An open transaction that cancels does not delay upkeep, which removes withdrawals of reclaimed
// slots.
func TestRuleForgettingPassesOverWhoCancels(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, other := begin(t, url), connect(t, url)
		s.exec(`insert into posthaste.cancelled (pos, subscriber, outcome, noted) values (5, 1024, 'cancelled', '3'), (6, 1024, 'cancelled', '3')`)
		s.exec(`update posthaste.slots set cleared_to = 1::bigint << 22 where slot = 0`)
		other.exec(`begin`)
		other.exec(`update posthaste.cancelled set outcome = 'done' where pos = 5`)
		s.exec(`set statement_timeout = '20s'`)
		if code := s.code(`select posthaste.forget_cancelled()`); code != "" {
			return fmt.Sprintf("beside a cancelling transaction it ended with %q", code)
		}
		if n := get[int](s, `select count(*)::int from posthaste.cancelled`); n != 1 {
			return fmt.Sprintf("%d are kept, want that one alone", n)
		}
		return ""
	}, without("passing over", patch{file: "forget_cancelled.sql", old: "        for update skip locked));", new: "        ));"}))
}

// Changing a queue's limits does not delay transactions that only refer to the queue.
func TestRuleLimitingHoldsUpNoSubscriber(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, other := begin(t, url), connect(t, url)
		other.exec(`begin`)
		other.exec(`select posthaste.update_queue('q', '{"concurrency": 3}')`)
		s.exec(`set statement_timeout = '20s'`)
		if code := s.code(`select posthaste.subscribe('q', 'second')`); code != "" {
			return fmt.Sprintf("subscribing ended with %q", code)
		}
		return ""
	}, without("the weaker lock", patch{file: "update_queue.sql", old: "for no key update;", new: "for update;"}))
}
