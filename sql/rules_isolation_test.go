package ledger_test

import (
	"fmt"
	"testing"
)

// What reads or deletes after it waited for a lock must not do it by a snapshot that is older:
// rows of keys would stay behind the queue or subscription that they were of.
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

// Erasing blanks what was copied to the history while it waited for upkeep, and a changed
// limit wakes the keys that wait by the old one.
func TestRuleOlderSnapshotsAreRefused(t *testing.T) {
	for name, call := range map[string]string{"erase": `select posthaste.erase('a@example.com')`, "limit_queue": `select posthaste.limit_queue('q', '{"concurrency": 1}')`} {
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

// No schedule is made for a queue that was dropped since the snapshot.
func TestRuleOlderSnapshotsMakeNoScheduleForADroppedQueue(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, old := begin(t, url), connect(t, url)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.queue_settings`)
		s.exec(`select posthaste.drop_queue('q')`)
		code := old.code(`select posthaste.schedule_put('s', 'q', '@daily')`)
		if code == "" {
			old.exec(`commit`)
			return fmt.Sprintf("%d schedules are for a queue that is gone", get[int](s, `select count(*)::int from posthaste.schedule_settings`))
		}
		if code != "40001" {
			t.Errorf("it ended with %s", code)
		}
		return ""
	}, without("the lock", patch{file: "schedule_put.sql", old: "where q.id = s.queue_id for share;", new: "where q.id = s.queue_id;"}))
}
