package ledger_test

import (
	"fmt"
	"testing"
)

// A claim that waited for the lane while its subscription ended hands out nothing, and parks nothing
// that would never be removed.
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

// Messages that a concurrent settlement parks for a subscription that ended meanwhile are removed by
// the next upkeep: its number may be used again one day.
func TestRuleUnsubscribedMeanwhileLeavesNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		other := connect(t, url)
		s.exec(`select posthaste.create_queue('steps', '{"ordered": true, "lanes": 1}'), posthaste.subscribe('steps', 'second')`)
		s.exec(`select posthaste.send('steps', '1', '{"key": "a"}')`)
		other.exec(`create temp table got as select delivery_id from posthaste.receive('steps', 10, '1 hour', '{"subscription": "second"}')`)
		other.exec(`begin`)
		other.exec(`select posthaste.fail(delivery_id, 'not now', '{"retry_after": "1 hour"}') from got`)
		s.exec(`select posthaste.unsubscribe('steps', 'second')`)
		other.exec(`commit`)
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n != 1 {
			t.Fatalf("%d are parked before", n)
		}
		s.exec(`select posthaste.maintain() from generate_series(1, 20)`)
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n > 0 {
			return fmt.Sprintf("%d are parked", n)
		}
		return ""
	}, without("looking for parked messages", patch{file: "forget_rows.sql", old: "x.dropped_at > clock_timestamp()", new: "false and x.dropped_at > clock_timestamp()"}))
}

// A key that is being paused while a subscription ends is not paused for the ended one: it could not
// be resumed, and later subscriptions would copy it.
func TestRuleUnsubscribedMeanwhileIsNotPaused(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true, "lanes": 1}`)
		other, late := connect(t, url), connect(t, url)
		s.exec(`select posthaste.subscribe('q', 'second')`)
		s.sendKey("a")
		other.exec(`begin`)
		other.exec(`select posthaste.unsubscribe('q', 'second')`)
		paused := late.start(`select posthaste.pause_key('q', 'a')::int::bigint`)
		late.blocked(s)
		other.exec(`commit`)
		if a := <-paused; a.err != nil {
			t.Fatal(a.err)
		}
		s.exec(`select posthaste.resume_key('q', 'a')`)
		if n := get[int](s, `select count(*)::int from posthaste.keys where paused_at is not null`); n > 0 {
			return fmt.Sprintf("%d stay paused", n)
		}
		s.exec(`select posthaste.subscribe('q', 'third', '{"from": "oldest"}')`)
		if n := get[int](s, `select count(*)::int from posthaste.receive('q', 10, '1 hour', '{"subscription": "third"}')`); n != 1 {
			return fmt.Sprintf("a later subscription got %d", n)
		}
		return ""
	}, without("the look under the locks", patch{file: "key_readers.sql", old: "and u.dropped_at is null) order by r)", new: ") order by r)"}))
}

// Ending a subscription, dropping the queue and receiving lock the cursor of leases and the lanes in
// the same order: none of them fails with a deadlock.
func TestRuleEndingMeetsReceivers(t *testing.T) {
	for name, c := range map[string]struct{ ends, file, cursors, parked string }{
		"unsubscribing": {`select 1::bigint from posthaste.unsubscribe('q', 'second')`, "unsubscribe.sql",
			"  delete from posthaste.lease_cursors z where z.subscriber = v_subscriber;\n", "  delete from posthaste.parked p where"},
		"dropping": {`select 1::bigint from posthaste.drop_queue('q')`, "drop_queue.sql",
			"  delete from posthaste.lease_cursors where subscriber >> 10 = v_id;\n", "  delete from posthaste.parked where"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := keyed(t, url, `{"fair": true, "lanes": 1}`)
				holder, ending, late := connect(t, url), connect(t, url), connect(t, url)
				s.exec(`select posthaste.subscribe('q', 'second')`)
				s.sendKey("a")
				const receive = `select delivery_id from posthaste.receive('q', 1, '1 millisecond', '{"subscription": "second"}')`
				s.exec(receive)
				s.exec(`select pg_sleep(0.2)`)
				s.exec(receive) // which makes the cursor of leases
				s.exec(`select pg_sleep(0.2)`)
				holder.exec(`begin`)
				holder.exec(`select from posthaste.subscriptions where name = 'second' for update`)
				ended := ending.start(c.ends) // locks the lanes
				ending.blocked(s)
				received := late.start(receive)
				late.blocked(s)
				holder.exec(`commit`)
				if a := <-ended; a.err != nil {
					return fmt.Sprint("ending: ", a.err)
				}
				if a := <-received; a.err != nil {
					return fmt.Sprint("receiving: ", a.err)
				}
				return ""
			}, without("the order", patch{file: c.file, old: c.cursors, new: ""}, patch{file: c.file, old: c.parked, new: c.cursors + c.parked}))
		})
	}
}

// A slot does not wait for the readers of a subscription that has ended.
func TestRuleUnsubscribedHoldNoSlot(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
		s.exec(`select posthaste.subscribe('q', 'second')`)
		s.send(`{}`)
		s.receive()
		turn(t, s)
		s.send(`{}`)
		s.receive()
		unread := func() *string { return get[*string](s, `select posthaste.slot_unread(0)`) }
		if unread() == nil {
			t.Fatal("the slot does not wait for the second subscription, which has read nothing")
		}
		s.exec(`select posthaste.unsubscribe('q', 'second')`)
		if why := unread(); why != nil {
			return "the slot waits for a subscription that has ended: " + *why
		}
		return ""
	}, without("those that have ended", patch{file: "slot_unread.sql", old: "where u.queue_id = x.id and u.dropped_at is null order by", new: "where u.queue_id = x.id order by"}))
}
