package ledger_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
)

// However many messages of one key wait, those of others come with the next claims, even from far
// behind; and two keys with many messages get about the same share.
func TestRuleFairKeysTakeTurns(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true}`)
		many := func(key string, n int) {
			s.exec(`select from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'key', $1::text)) from generate_series(1, $2::int)))`, key, n)
		}
		large := rows(t, 9000)
		many("a", large)
		many("b", 10)
		handed := map[string]int{}
		take := func(most int) {
			for _, key := range list[string](s, `select key from posthaste.receive('q', $1, '1 hour')`, most) {
				handed[key]++
			}
		}
		for handed["b"] < 10 && handed["a"] < large/2 {
			take(50)
		}
		if handed["b"] < 10 {
			return fmt.Sprintf("after %d of a, %d of b were handed out", handed["a"], handed["b"])
		}
		many("c", 3000)
		many("d", 3000)
		for (handed["c"] == 0 || handed["d"] == 0) && handed["a"] < large {
			take(50)
		}
		clear(handed)
		alone := 0
		for range 20 {
			before := maps.Clone(handed)
			if take(50); handed["a"] == before["a"] || handed["c"] == before["c"] || handed["d"] == before["d"] {
				alone++
			}
		}
		if alone > 10 {
			return fmt.Sprintf("%d of 20 claims leave a key out", alone)
		}
		if a, c, d := handed["a"], handed["c"], handed["d"]; a+c+d != 1000 || min(a, c, d) < 200 {
			return fmt.Sprintf("of 1,000 handed out %d are of a, %d of c and %d of d", a, c, d)
		}
		return ""
	},
		without("passing on", patch{file: "claim_keyed.sql", old: "while handed < p_max or q.fair loop", new: "while handed < p_max loop"},
			patch{file: "claim_keyed.sql", old: "if q.fair and v_rest and not v_log.ended then", new: "if false then"}),
		without("shares", patch{file: "let_go.sql", old: "v_room := least(v_room, case when k.early > 0 then greatest(v_share, (p_limit + 1) / 2) else v_share end);", new: "null;"}))
}

// Messages behind the backlog of other keys are handed out once the backlog was looked at, and not
// only after it was handed out or parked. A message taken before its turn in the log is handed out
// once and in its key's order, can be withdrawn, and is counted once.
func TestRuleFairNewcomers(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true}`)
		send := func(key string, n int) {
			s.exec(`insert into posthaste.entries_other (ord, queue_id, lane, key, payload)
				select (select posthaste.ord_now()), q.id, 0, $1, '1' from posthaste.queue_settings q cross join generate_series(1, $2::int) g where q.name = 'q'`, key, n)
		}
		last, handed, seen := map[string]int64{}, map[string]int{}, map[int64]bool{}
		take := func(most int) (fault string) {
			found, err := s.Query(t.Context(), `select message_id, key from posthaste.receive('q', $1, '1 hour')`, most)
			if err != nil {
				return err.Error()
			}
			var id int64
			var key string
			_, err = pgx.ForEachRow(found, []any{&id, &key}, func() error {
				if seen[id] {
					return fmt.Errorf("message %d of key %s is handed out twice", id, key)
				} else if id < last[key] {
					return fmt.Errorf("message %d of key %s is handed out after %d", id, key, last[key])
				}
				seen[id], last[key] = true, id
				handed[key]++
				return nil
			})
			if err != nil {
				return err.Error()
			}
			return ""
		}
		send("large", 12_000)
		if fault := take(10); fault != "" { // from here on in a window of its own
			return fault
		}
		send("large", 60_000)
		send("medium", 100)
		send("small", 40)
		withdrawn := s.sendKey("small")
		for range 4 {
			if fault := take(10); fault != "" {
				return fault
			}
		}
		if handed["small"] < 3 {
			return fmt.Sprintf("after 4 claims behind 72,000 messages %d of a new key came", handed["small"])
		}
		dropped := func() int64 {
			s.exec(`select posthaste.maintain()`)
			return get[int64](s, `select dropped from posthaste.counters c join posthaste.queue_settings q on q.id = c.queue_id where q.name = 'q'`)
		}
		if n := dropped(); n != 0 {
			return fmt.Sprintf("%d are counted as taken back, and none was", n)
		}
		if !get[bool](s, `select cancelled from posthaste.cancel($1)`, withdrawn) {
			return "one that was not handed out cannot be taken back"
		}
		if n := dropped(); n != 1 {
			return fmt.Sprintf("%d are counted as taken back, and one was", n)
		}
		// Messages of a key that are not handed out yet go before later ones.
		later := s.sendKey("medium")
		for range 3 {
			if fault := take(100); fault != "" {
				return fault
			}
		}
		if seen[later] && handed["medium"] < 101 {
			return fmt.Sprintf("the last of 101 messages of a key is handed out, and %d in all", handed["medium"])
		}
		s.exec(`select posthaste.purge('q')`)
		if fault := take(100); fault != "" {
			return fault
		}
		s.exec(`select posthaste.maintain()`)
		if n := get[int](s, `select count(*)::int from posthaste.ahead_keys`); n != 0 {
			return fmt.Sprintf("%d keys that were read ahead are left", n)
		}
		return ""
	},
		without("reading ahead", patch{file: "claim_keyed.sql", old: "if q.fair and v_rest and not v_log.ended then", new: "if false then"}),
		without("withdrawing from the log", patch{file: "park_ahead.sql", old: "select c.pos, p_subscriber, 'parked', c.xid, true from come c", new: "select -c.pos, p_subscriber, 'parked', c.xid, true from come c"}),
		without("knowing entries taken before", patch{file: "read_ahead.sql", old: "where z.pos = f.poss[x.i] and z.subscriber = v_subscriber limit 1)", new: "where z.pos = -f.poss[x.i] and z.subscriber = v_subscriber limit 1)"}),
		without("leaving later ones of a key", patch{file: "read_ahead.sql", old: "where k.left_in_log is not true", new: "where true"},
			patch{file: "read_ahead.sql", old: "where x.nth + x.before <= v_share", new: "where x.nth <= v_share"},
			patch{file: "read_ahead.sql", old: "then 2048", new: "then 8"}),
		without("counting messages taken back", patch{file: "unpark.sql", old: "case when cancelled.outcome = 'parked' then excluded.noted else cancelled.noted end", new: "cancelled.noted"}),
		without("an end", patch{file: "claim_keyed.sql", old: "elsif q.fair and v_log.ended and v_ahead.reading is not null then", new: "elsif false then"}))
}

// Many keys that all have many messages get about the same share: a key that had a turn comes after
// those that had none.
func TestRuleFairTurnsGoRound(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true}`)
		const keys = 20
		for key := range keys {
			s.exec(`select from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'key', $1::text)) from generate_series(1, 100)))`, fmt.Sprint(key))
		}
		handed := map[string]int{}
		for range 30 {
			for _, key := range list[string](s, `select key from posthaste.receive('q', 20, '1 hour')`) {
				handed[key]++
			}
		}
		least, most := 100, 0
		for key := range keys {
			n := handed[fmt.Sprint(key)]
			least, most = min(least, n), max(most, n)
		}
		if least < 10 || most > 80 {
			return fmt.Sprintf("of 600 handed out one key has %d, another %d", least, most)
		}
		return ""
	}, without("going to the end", patch{file: "let_go.sql", old: "then let_go.turn + 1 end", new: "then coalesce(k.turn, let_go.turn + 1) end"}))
}

// If messages of a key need not wait for one another, one that waits for its retry delays no message
// behind it.
func TestRuleWaitingRetryHoldsUpNoKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_concurrency": 10}`)
		s.sendKey("a")
		for _, d := range s.take(10) {
			s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "1 hour"}')`, d.delivery)
		}
		s.take(10) // the claim that learns of it
		s.sendKey("a")
		n := 0
		for range 5 {
			n += len(s.take(10))
		}
		if n != 1 {
			return fmt.Sprintf("of one behind it %d came", n)
		}
		return ""
	}, without("a look behind", patch{file: "park.sql", old: " or u.why = 'behind' and not q.ordered group", new: " group"}))
}
