package ledger_test

import (
	"fmt"
	"testing"
)

const (
	failAll  = `select posthaste.fail(delivery_id, 'x', '{"permanent": true}') from posthaste.receive('q', 100, '1 hour')`
	manyKeys = `select posthaste.send_many('q', $1::jsonb)`
)

// A key that is held until its message was started is free after a subscription was handed it, also
// when nothing is known of that any more and another subscription waits.
func TestR3_StartedLongAgo(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set spare_slots = 15, carry_after = '0'`)
		s.subscribe("slow", `{}`)
		const options = `{"key": "k", "until": "started"}`
		first, _ := s.sendUnique(options)
		s.runOn()
		s.exec(endAll)
		reclaimFirstClaim(t, s)
		if id, stored := s.sendUnique(options); !stored {
			return fmt.Sprintf("message %d was started long ago, and message %d was not sent for its key", first, id)
		}
		return ""
	}, without("asking who had it", patch{file: "unique_held.sql", old: "x.attempt > 1 or not exists (", new: "true or not exists ("}))
}

// Of dead letters with one key, a call replays one.
func TestR3_ReplaysOfOneKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		for range 3 {
			s.sendUnique(`{"key": "k"}`)
			s.exec(failAll)
		}
		if ids := list[int64](s, `select posthaste.replay(filter => '{"queue": "q"}')`); len(ids) != 1 {
			return fmt.Sprintf("%v have one key, and were replayed together", ids)
		}
		if dead := get[int](s, `select count(*)::int from posthaste.dead_letter_entries`); dead != 2 {
			return fmt.Sprintf("%d dead letters stayed, want 2", dead)
		}
		return ""
	}, without("knowing the one before", patch{file: "unique_again.sql", old: "if (k.queue_id, k.key) = v_given then", new: "if false then"}))
}

// Calls hold the lanes of replaced messages before they take keys: otherwise two could wait for
// each other.
func TestR4_LanesBeforeKeys(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, one, other := begin(t, url), connect(t, url), connect(t, url)
		s.sendUnique(`{"key": "a"}`)
		s.sendUnique(`{"key": "c"}`)
		one.exec(`set deadlock_timeout = '100ms'`)
		one.exec(`begin`)
		one.exec(manyKeys, `[{"payload": 1, "unique": {"key": "a", "exists": "replace"}}]`)
		waiting := other.start(manyKeys, `[{"payload": 1, "unique": {"key": "b"}}, {"payload": 1, "unique": {"key": "c", "exists": "replace"}}]`)
		other.blocked(s)
		refused := one.refusal(manyKeys, `[{"payload": 1, "unique": {"key": "b"}}]`)
		one.exec(`rollback`)
		if a := <-waiting; a.err != nil || refused != nil {
			return fmt.Sprintf("they ended with %v and %v", refused, a.err)
		}
		return ""
	}, without("their order", patch{file: "take_unique.sql", old: "if v_ids <> '{}' then", new: "if false then"}))
}

// A call with two messages of a key of which one would replace the other is refused.
func TestR4_ReplaceInOneCall(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		if pg := s.refusal(manyKeys, `[{"payload": 1, "unique": {"key": "k"}}, {"payload": 2, "unique": {"key": "k", "exists": "replace"}}]`); pg == nil || pg.Code != "PH400" {
			return fmt.Sprintf("it ended with %v", pg)
		}
		return ""
	}, without("looking at all of them", patch{file: "take_unique.sql", old: "bool_or(p_options[n] ->> 'exists' = 'replace')", new: "bool_and(p_options[n] ->> 'exists' = 'replace')"}))
}

// A message that is too old to be handed out holds no key.
func TestR3_TooOld(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first, _ := s.sendUnique(`{"key": "k"}`)
		s.exec(`select posthaste.update_queue('q', '{"max_age": "1 millisecond"}')`)
		until(t, "it is too old", func() bool {
			return get[bool](s, `select created_at < clock_timestamp() - interval '1 millisecond' from posthaste.message($1)`, first)
		})
		if id, stored := s.sendUnique(`{"key": "k"}`); !stored {
			return fmt.Sprintf("message %d will expire, and message %d was not sent for its key", first, id)
		}
		return ""
	}, without("looking at its age", patch{file: "unique_held.sql", old: "q.max_age <= clock_timestamp()", new: "q.max_age <= '-infinity'"}))
}

// A replayed message holds its key until it is started, whatever the other subscriptions do.
func TestR3_ReplayedBesideARetry(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.subscribe("other", `{}`)
		const options = `{"key": "k", "until": "started"}`
		id, _ := s.sendUnique(options)
		s.exec(failAll)
		s.exec(`select posthaste.fail(delivery_id, 'x', '{"retry_after": "1 hour"}') from posthaste.receive('q', 100, '1 hour', '{"subscription": "other"}')`)
		s.exec(`select posthaste.replay(array[$1::bigint])`, id)
		if again, stored := s.sendUnique(options); stored {
			return fmt.Sprintf("message %d was sent beside the replayed message %d", again, id)
		}
		s.exec(endAll)
		if again, stored := s.sendUnique(options); !stored {
			t.Fatalf("message %d was started, and message %d was not sent", id, again)
		}
		return ""
	}, without("telling them apart", patch{file: "unique_held.sql", old: "case when u.attempt > 1 then", new: "case when false then"}))
}

// A message that was replayed was handed out before: it is neither edited nor replaced.
func TestR7_ReplayedIsNotChanged(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		id, _ := s.sendUnique(`{"key": "k"}`)
		s.exec(failAll)
		s.exec(`select posthaste.replay(array[$1::bigint])`, id)
		if pg := s.refusal(`select posthaste.update_message($1, '{"payload": 2}')`, id); pg == nil || pg.Code != "PH409" {
			return fmt.Sprintf("editing it ended with %v", pg)
		}
		if state := get[string](s, `select state from posthaste.send_unique('q', '2', '{"unique": {"key": "k", "exists": "replace"}}')`); state != "ready" {
			return fmt.Sprintf("replacing it ended with %q", state)
		}
		return ""
	}, without("looking at its attempts", patch{file: "rewrite.sql", old: "or v.waits and (v.h).attempt > 1", new: ""}))
}
