package ledger_test

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Reads and deletes after a wait for a lock must not use an older snapshot: rows of keys would stay
// behind their dropped queue or subscription.
func TestRuleOlderSnapshotsLeaveNoKeys(t *testing.T) {
	for name, end := range map[string]string{"unsubscribe": `select posthaste.unsubscribe('steps', 'second')`, "drop_queue": `select posthaste.drop_queue('steps')`} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s, old := begin(t, url), connect(t, url)
				s.exec(`select posthaste.create_queue('steps', '{"ordered": true, "lanes": 1}'), posthaste.subscribe('steps', 'second')`)
				for _, level := range []string{"repeatable read", "serializable"} {
					old.exec(`begin isolation level ` + level)
					old.exec(`select from posthaste.keys`)
					s.exec(`select posthaste.send('steps', '1', '{"key": "a"}')`)
					s.exec(`select posthaste.fail(delivery_id, 'not now', '{"retry_after": "1 hour"}') from posthaste.receive('steps', 10, '1 hour', '{"subscription": "second"}')`)
					code := old.code(end)
					if code == "" {
						old.exec(`commit`)
						return fmt.Sprintf("%s: %d rows of keys are left", level, get[int](s, `select count(*)::int from posthaste.keys where subscriber & 1023 > 0`))
					}
					if code != "PH400" {
						t.Errorf("%s: ended with %s", level, code)
					}
					old.exec(`rollback`)
				}
				s.exec(end)
				if n := get[int](s, `select count(*)::int from posthaste.keys where subscriber & 1023 > 0`); n > 0 {
					t.Errorf("in READ COMMITTED %d rows of keys are left", n)
				}
				return ""
			}, without("the refusal", patch{file: name + ".sql", old: "perform posthaste.read_committed('" + name + "');", new: ""}))
		})
	}
}

// Erasing blanks messages that were copied to the history while it waited for upkeep, and a changed
// limit wakes the keys that wait by the old one.
func TestRuleOlderSnapshotsAreRefused(t *testing.T) {
	for name, call := range map[string]string{"erase": `select posthaste.erase('a@example.com')`, "update_queue": `select posthaste.update_queue('q', '{"concurrency": 1}')`} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				s.exec(`begin isolation level repeatable read`)
				code := s.code(call)
				s.exec(`rollback`)
				if code != "PH400" {
					return "it ended with " + code
				}
				s.exec(call)
				return ""
			}, without("the refusal", patch{file: name + ".sql", old: "perform posthaste.read_committed('" + name + "');", new: ""}))
		})
	}
}

// No schedule is created for a queue that was dropped since the snapshot.
func TestRuleOlderSnapshotsMakeNoScheduleForADroppedQueue(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, old := begin(t, url), connect(t, url)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.queue_settings`)
		s.exec(`select posthaste.drop_queue('q')`)
		code := old.code(`select posthaste.schedule_put('s', 'q', '@daily')`)
		if code == "" {
			old.exec(`commit`)
			return fmt.Sprintf("%d schedules are for a dropped queue", get[int](s, `select count(*)::int from posthaste.schedule_settings`))
		}
		if code != "40001" {
			t.Errorf("it ended with %s", code)
		}
		return ""
	}, without("the lock", patch{file: "schedule_put.sql", old: "where q.id = s.queue_id for share;", new: "where q.id = s.queue_id;"}))
}

// Senders to keyed queues whose keys differ do not conflict, also under SERIALIZABLE.
func TestRuleSerializableSendersDoNotConflict(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 2}`)
		s.exec(`analyze posthaste.queue_settings`)
		for n := range 5 {
			first, second := connect(t, url), connect(t, url)
			for _, x := range []*session{first, second} {
				x.exec(`begin isolation level serializable`)
			}
			first.sendKey(fmt.Sprint("a", n))
			second.sendKey(fmt.Sprint("b", n))
			for _, x := range []*session{first, second} {
				if code := x.code(`commit`); code != "" {
					return "two senders of other keys: the commit ends with " + code
				}
			}
		}
		return ""
	}, without("rolling back", patch{file: "ord_now.sql", old: "    raise division_by_zero;\n", new: "    delete from posthaste.order_marks where xmin::text::bigint = v_low;\n"}))
}

// ◆ Under a publication of all tables, as backups and change data capture set one up, each
// kind of queue sends, claims, settles and is rebased, at each isolation level that a
// sender may have.
func TestPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := connect(t, url)
	connect(t, superuser(t, s)).exec(`create publication everything for all tables`)
	for i, options := range []string{`{}`, `{"ordered": true}`, `{"fair": true}`, `{"key_concurrency": 1}`, `{"rate_limit": {"limit": 1000}}`, `{"retention": "1 day"}`} {
		name := fmt.Sprint("q", i)
		s.exec(`select posthaste.create_queue($1, $2)`, name, options)
		s.exec(`select posthaste.subscribe($1, 'second')`, name)
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			s.exec(`begin isolation level ` + level)
			s.exec(`select posthaste.send($1, '1', '{"key": "a"}')`, name)
			s.exec(`select posthaste.send_many($1, '[{"payload": 1, "key": "a"}, {"payload": 2, "key": "b"}]')`, name)
			s.exec(`commit`)
		}
		for range 4 {
			s.exec(`select f.* from posthaste.receive($1, 1, '1 hour') d cross join lateral posthaste.fail(d.delivery_id, 'no', '{"retry_after": "0"}') f`, name)
			s.exec(`select posthaste.ack(array(select delivery_id from posthaste.receive($1, 2, '1 hour')))`, name)
		}
	}
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15, carry_after = '0'`)
	s.exec(`select posthaste.send('q0', '1', '{"delay": "1 day", "dedupe_key": "x"}')`)
	for range 6 {
		s.exec(`select posthaste.maintain()`)
	}
	s.exec(`select posthaste.purge('q1', 'test')`)
	s.exec(`update posthaste.identity set database_oid = 1`)
	// For the database all messages were sent after the restore, except parked ones.
	for _, subscription := range []string{"default", "second"} {
		until(t, "nothing is parked", func() bool {
			for i := range 6 {
				s.exec(`select posthaste.ack(array(select delivery_id from posthaste.receive($1, 100, '1 hour', jsonb_build_object('subscription', $2::text))))`, fmt.Sprint("q", i), subscription)
			}
			return get[int](s, `select count(*)::int from posthaste.parked where subscriber & 1023 = $1`, map[string]int{"default": 0, "second": 1}[subscription]) == 0
		})
	}
	s.exec(`select posthaste.rebase()`)
	s.exec(`select posthaste.drop_queue('q2')`)
	for range 4 {
		s.exec(`select posthaste.maintain()`)
	}
}
