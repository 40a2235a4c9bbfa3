package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// sendUnique sends a message with a unique key, and returns its id and whether it was stored.
func (s *session) sendUnique(options string) (id int64, stored bool) {
	s.t.Helper()
	id = get[int64](s, `with x as (select * from posthaste.send_unique('q', '1', jsonb_build_object('unique', $1::jsonb)))
		select case when duplicate or replaced then -message_id else message_id end from x`, options)
	if id < 0 {
		return -id, false
	}
	return id, true
}

// endAll receives and acknowledges all that waits.
const endAll = `select posthaste.ack(array(select delivery_id from posthaste.receive('q', 100, '1 hour')))`

const uniqueSend = `select case when duplicate then -message_id else message_id end from posthaste.send_unique('q', '2', '{"unique": {"key": "k"}}')`

// Of two senders with a key of which the holder has just ended, one stores its message, and the
// other waits for it and gets its id, or stores its own if that one rolled back.
func TestR3_TwoSendersAtOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, first, second := begin(t, url), connect(t, url), connect(t, url)
		for _, end := range []string{`commit`, `rollback`} {
			s.sendUnique(`{"key": "k"}`)
			s.exec(endAll)
			first.exec(`begin`)
			one := get[int64](first, uniqueSend)
			if one < 0 {
				t.Fatalf("message %d is done, and holds the key", -one)
			}
			waiting := second.start(uniqueSend)
			second.waitsOrEnds(s, waiting)
			first.exec(end)
			a := <-waiting
			if a.err != nil {
				t.Fatal(a.err)
			}
			if same := a.values[0] == -one; same != (end == `commit`) {
				return fmt.Sprintf("after %s of message %d the second sender got %d", end, one, a.values[0])
			}
			if got := list[int64](s, `select delivery_id from posthaste.receive('q', 100, '1 hour')`); len(got) != 1 {
				return fmt.Sprintf("after %s %d were handed out, want one message", end, len(got))
			} else {
				s.exec(`select posthaste.ack($1::bigint[])`, got)
			}
		}
		return ""
	}, without("reading the state again under the lock", patch{file: "take_unique.sql", old: "      continue when v_state is not null;\n      -- A message", new: "      v_state := null;\n      -- A message"}))
}

// Senders with a key that a message holds do not wait for each other.
func TestR3_DuplicatesDoNotWait(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, open := begin(t, url), connect(t, url)
		one, _ := s.sendUnique(`{"key": "k"}`)
		open.exec(`begin`)
		open.sendUnique(`{"key": "k"}`)
		s.exec(`set lock_timeout = '3s'`)
		if pg := s.refusal(uniqueSend); pg != nil {
			return "a send beside another duplicate's transaction ended with " + pg.Code
		}
		open.exec(`commit`)
		if again, stored := s.sendUnique(`{"key": "k"}`); stored || again != one {
			t.Fatalf("message %d, want %d", again, one)
		}
		return ""
	}, without("reading without a lock", patch{file: "take_unique.sql", old: "and u.key = w.key offset 0", new: "and u.key = w.key offset 0 for update"}))
}

// Calls take their keys in ascending order: otherwise two of them would deadlock.
func TestR3_UniqueKeysAreTakenInOrder(t *testing.T) {
	const many = `select posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'unique', jsonb_build_object('key', k)) order by n) from unnest($1::text[]) with ordinality u (k, n)))`
	rule(t, func(t *testing.T, url string) string {
		s, holder, one, other := begin(t, url), connect(t, url), connect(t, url), connect(t, url)
		holder.exec(`begin`)
		holder.sendUnique(`{"key": "m"}`)
		return s.takenInOrder(holder, one, other, many)
	}, without("their order", patch{file: "take_unique.sql", old: "order by f.queue, f.key", new: "order by f.first"}))
}

// A message that a claim hands out at the same moment is not replaced, nor edited.
func TestR4_ReplaceAgainstClaim(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, claimer, editor := begin(t, url), connect(t, url), connect(t, url)
		for what, sql := range map[string]string{
			"replaced": `select case when replaced then -message_id else message_id end from posthaste.send_unique('q', '"new"', '{"unique": {"key": "k", "exists": "replace"}}')`,
			"edited":   `select -id from posthaste.update_message((select max(message_id) from posthaste.unique_keys), '{"payload": "new"}')`,
		} {
			id := get[int64](s, `select message_id from posthaste.send_unique('q', '1', '{"delay": "1 millisecond", "unique": {"key": "k"}}')`)
			until(t, "it is due", func() bool { return get[string](s, `select state from posthaste.message($1)`, id) == "ready" })
			claimer.exec(`begin`)
			payload := get[string](claimer, `select coalesce(payload_json::text, convert_from(payload, 'UTF8')) from posthaste.receive('q', 1, '1 minute')`)
			waiting := editor.start(sql)
			var a answer
			early := false
			until(t, "the editor waits or is done", func() bool {
				select {
				case a = <-waiting:
					early = true
				default:
				}
				return early || editor.waits(s)
			})
			claimer.exec(`commit`)
			if !early {
				a = <-waiting
			}
			if len(a.values) == 1 && a.values[0] == -id {
				return fmt.Sprintf("message %d was %s after it was handed out with %s", id, what, payload)
			}
			if got := s.receive(); len(got) != 0 {
				return fmt.Sprintf("%v were handed out after message %d was to be %s", got, id, what)
			}
			s.exec(`delete from posthaste.unique_keys`)
		}
		return ""
	}, without("the locks of the readers", patch{file: "hold_readers.sql", old: "perform posthaste.lock_reader(v_reader, true);", new: "null;"}))
}

// A dead letter whose key a sender is taking at the same moment stays.
func TestR3_ReplayAgainstSend(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sender := begin(t, url), connect(t, url)
		id, _ := s.sendUnique(`{"key": "k"}`)
		s.exec(`select posthaste.fail(delivery_id, 'x', '{"permanent": true}') from posthaste.receive('q', 1, '1 minute')`)
		sender.exec(`begin isolation level repeatable read`)
		sender.exec(`select 1`)
		s.exec(`select posthaste.replay(array[$1::bigint])`, id)
		if pg := sender.refusal(uniqueSend); pg == nil {
			return "a sender with an older snapshot took the key of a message that was replayed since"
		}
		sender.exec(`rollback`)
		if again, stored := s.sendUnique(`{"key": "k"}`); stored || again != id {
			return fmt.Sprintf("the replayed message %d does not hold its key: message %d", id, again)
		}
		return ""
	}, without("updating the row", patch{file: "unique_again.sql", old: "update posthaste.unique_keys u set message_id = k.message_id, until = k.until, attempt = v_attempt where u.queue_id = k.queue_id and u.key = k.key;", new: "null;"}))
}

// Rows of finished messages are forgotten, and those of others are kept.
func TestR3_UniqueKeysAreForgotten(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.sendUnique(`{"key": "done"}`)
		s.exec(endAll)
		s.sendUnique(`{"key": "dead"}`)
		s.exec(`select posthaste.fail(delivery_id, 'x', '{"permanent": true}') from posthaste.receive('q', 1, '1 minute')`)
		kept, _ := s.sendUnique(`{"key": "kept"}`)
		s.exec(`select posthaste.forget_unique()`)
		s.exec(`select posthaste.forget_unique()`)
		if again, stored := s.sendUnique(`{"key": "kept"}`); stored || again != kept {
			return fmt.Sprintf("message %d waits, and message %d was sent beside it", kept, again)
		}
		if got := get[[]string](s, `select array_agg(key order by key) from posthaste.unique_keys`); !slices.Equal(got, []string{"=dead", "=kept"}) {
			return fmt.Sprintf("the keys are %v", got)
		}
		return ""
	}, without("looking at their states", patch{file: "forget_unique.sql", old: "except select h.message_id from posthaste.unique_held(", new: "except select -h.message_id from posthaste.unique_held("}))
}
