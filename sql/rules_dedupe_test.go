package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

func (s *session) sendOnce(key string) int64 {
	s.t.Helper()
	return s.send(fmt.Sprintf(`{"dedupe_key": %q}`, key))
}

// takenInOrder lets two calls of sql send messages with the keys a and b in opposite orders, while
// holder has the key m that both need in between. It returns a fault if they deadlock, or get
// different messages.
func (s *session) takenInOrder(holder, one, other *session, sql string) string {
	s.t.Helper()
	a := one.start(sql, []string{"b", "m", "a"})
	one.blocked(s)
	b := other.start(sql, []string{"a", "m", "b"})
	other.blocked(s)
	holder.exec(`rollback`)
	x, y := <-a, <-b
	if x.err != nil || y.err != nil {
		return fmt.Sprintf("they ended with %v and %v", x.err, y.err)
	}
	slices.Reverse(y.values)
	if !slices.Equal(x.values, y.values) {
		return fmt.Sprintf("they got %v and, reversed, %v", x.values, y.values)
	}
	return ""
}

// sendsBeside makes second send with the key that first has just sent with, and ends the transaction
// of first. It returns the id that second got, and a fault or "".
func (s *session) sendsBeside(first, second *session, end string) (told int64, broken string) {
	s.t.Helper()
	first.exec(`begin`)
	one := first.sendOnce("key of " + end)
	waiting := second.start(`select posthaste.send('q', '2', jsonb_build_object('dedupe_key', 'key of ' || $1::text))`, end)
	second.blocked(s)
	first.exec(end)
	a := <-waiting
	if a.err != nil {
		s.t.Fatal(a.err)
	}
	if same := a.values[0] == one; same != (end == `commit`) {
		return a.values[0], fmt.Sprintf("after %s of message %d the second sender got %d", end, one, a.values[0])
	}
	if got := s.receive(); !slices.Equal(got, a.values) {
		return a.values[0], fmt.Sprintf("after %s %v were handed out, and its sender got %v", end, got, a.values)
	}
	return a.values[0], ""
}

// A sender with a key that a transaction is using waits for that transaction, and gets the id of its
// message, or sends if it rolled back.
func TestRuleDedupeKeyIsUsedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, first, second := begin(t, url), connect(t, url), connect(t, url)
		for _, end := range []string{`commit`, `rollback`} {
			told, broken := s.sendsBeside(first, second, end)
			if broken != "" {
				return broken
			}
			if again := s.sendOnce("key of " + end); again != told {
				return fmt.Sprintf("a third sender got %d, want %d", again, told)
			}
		}
		return ""
	}, without("asking whether the window is over", patch{file: "dedupe.sql", old: " where d.until <= p_now\n      returning", new: "\n      returning"}))
}

// Of two senders that find at once that the message of a key was withdrawn, one sends.
func TestRuleAKeyThatIsFreeAgainIsUsedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, first, second := begin(t, url), connect(t, url), connect(t, url)
		for _, end := range []string{`commit`, `rollback`} {
			s.exec(`select from posthaste.cancel($1)`, s.sendOnce("key of "+end))
			if _, broken := s.sendsBeside(first, second, end); broken != "" {
				return broken
			}
		}
		return ""
	}, without("asking whether the key has the message still", patch{file: "dedupe.sql", old: " and d.key = k.key and d.message_id = v_id\n", new: " and d.key = k.key\n"}))
}

// Senders with a key that is in use do not wait for each other.
func TestRuleDuplicatesDoNotWait(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, open := begin(t, url), connect(t, url)
		one := s.sendOnce("key")
		open.exec(`begin`)
		open.sendOnce("key")
		s.exec(`set lock_timeout = '3s'`)
		if pg := s.refusal(`select posthaste.send('q', '1', '{"dedupe_key": "key"}')`); pg != nil {
			return "a send beside another duplicate's transaction ended with " + pg.Code
		}
		open.exec(`commit`)
		if again := s.sendOnce("key"); again != one {
			t.Fatalf("message %d, want %d", again, one)
		}
		return ""
	}, without("looking first", patch{file: "dedupe.sql", old: "and d.until - interval '0' > p_now;", new: "and d.until > p_now for update;"}))
}

// Batches take their keys in ascending order: otherwise two of them would deadlock.
func TestRuleDedupeKeysAreTakenInOrder(t *testing.T) {
	const many = `select posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'dedupe_key', k) order by n) from unnest($1::text[]) with ordinality u (k, n)))`
	rule(t, func(t *testing.T, url string) string {
		s, holder, one, other := begin(t, url), connect(t, url), connect(t, url), connect(t, url)
		holder.exec(`begin`)
		holder.sendOnce("m")
		return s.takenInOrder(holder, one, other, many)
	}, without("their order", patch{file: "dedupe.sql", old: "order by u.queue, u.key\n", new: "order by min(u.n)\n"}))
}

// Keys are removed once their window is over, a bounded number in a round, and not before.
func TestRuleDedupeKeysAreForgotten(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		kept := s.sendOnce("kept")
		s.exec(`select posthaste.send_many('q', jsonb_agg(jsonb_build_object('payload', g, 'dedupe_key', 'k' || g, 'dedupe_window', '1 microsecond'))) from generate_series(1, 10001) g`)
		keys := func() int { return get[int](s, `select count(*)::int from posthaste.dedupe_keys`) }
		most := 10002
		until(t, "all but one are forgotten", func() bool {
			s.exec(`select posthaste.maintain()`)
			n := keys()
			if most-n > 10000 {
				t.Errorf("%d were forgotten in one round", most-n)
			}
			most = n
			return n <= 1
		})
		if again := s.sendOnce("kept"); again != kept {
			return fmt.Sprintf("its window lasts a day, and it was sent again as %d", again)
		}
		return ""
	}, without("asking for the window", patch{file: "forget_rows.sql", old: "where d.until <= v_now order", new: "order"}))
}

// A request with a key that another request is using waits for that request, and gets its ids, or
// runs if that one failed.
func TestRuleRequestIsDoneOnce(t *testing.T) {
	const begins = `select coalesce((posthaste.idempotency_begin('path', $1, 'digest')).ids, '{0}')`
	rule(t, func(t *testing.T, url string) string {
		s, first, second := begin(t, url), connect(t, url), connect(t, url)
		for _, end := range []string{`commit`, `rollback`} {
			first.exec(`begin`)
			get[[]int64](first, begins, end)
			first.exec(`select posthaste.idempotency_end('path', $1, 'digest', array[7], 3600)`, end)
			waiting := second.start(`select unnest(coalesce((posthaste.idempotency_begin('path', $1, 'digest')).ids, '{0}'))`, end)
			second.waitsOrEnds(s, waiting)
			first.exec(end)
			a := <-waiting
			want := map[string]int64{`commit`: 7}[end]
			if a.err != nil || len(a.values) != 1 || a.values[0] != want {
				return fmt.Sprintf("after %s the second got %v, %v, want %d", end, a.values, a.err, want)
			}
		}
		if code := s.code(`select posthaste.idempotency_begin('path', 'commit', 'other')`); code != "PH422" {
			return "another request ended with " + code
		}
		s.exec(`update posthaste.idempotency_keys set until = clock_timestamp()`)
		s.exec(`select posthaste.maintain()`)
		if n := get[int](s, `select count(*)::int from posthaste.idempotency_keys`); n != 0 {
			return fmt.Sprintf("%d keys are kept after their time", n)
		}
		return ""
	}, without("the lock", patch{file: "idempotency_begin.sql", old: "perform pg_advisory_xact_lock(posthaste.lock_key(20, hashtextextended(p_scope || ' ' || p_key, 0)));", new: "null;"}),
		without("the digest", patch{file: "idempotency_begin.sql", old: "if k.request <> p_request then", new: "if false then"}),
		without("forgetting", patch{file: "forget_rows.sql", old: "i.until <= v_now", new: "false"}))
}
