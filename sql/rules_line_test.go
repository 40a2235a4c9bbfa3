package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// sendKeys sends n messages of the given number of keys, in turn, to a queue with one lane.
func (s *session) sendKeys(keys, n int) {
	s.t.Helper()
	s.exec(`insert into posthaste.entries_other (ord, queue_id, lane, key, payload)
		select (select posthaste.ord_now()), q.id, 0, 'k' || g % $1, '1' from posthaste.queue_settings q cross join generate_series(1, $2::int) g where q.name = 'q'`, keys, n)
}

// A key with few messages is handed out within a few claims, however many others have many waiting.
// At full size 1,000 keys have 1,000 each.
func TestRuleFairNewcomerBehindManyKeys(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		keys, each := testrun.Size(300, 1000), testrun.Size(40, 1000)
		s := keyed(t, url, `{"fair": true}`)
		s.sendKeys(keys, keys*each)
		claims := func(key string) int {
			for range 10 {
				s.sendKey(key)
			}
			for n, came := 1, 0; ; n++ {
				for _, k := range list[string](s, `select key from posthaste.receive('q', 50, '1 hour')`) {
					if k == key {
						came++
					}
				}
				if came == 10 || n == 60 {
					return n
				}
			}
		}
		// The first one waits until the messages before it were looked at, 65,536 at a time, and
		// fewer if many of them are parked.
		if n, most := claims("first"), 20+keys*each/65536; n > most {
			return fmt.Sprintf("behind %d messages of %d keys ten of another took %d claims, want at most %d", keys*each, keys, n, most)
		}
		for i := range 3 {
			if n := claims(fmt.Sprint("next ", i)); n > 5 {
				return fmt.Sprintf("beside %d keys that wait ten messages of another took %d claims", keys, n)
			}
		}
		return ""
	},
		without("a line for who has little", patch{file: "block_keys.sql", old: "coalesce(u.waits, false), 16", new: "coalesce(u.waits, false), 0"}),
		without("knowing who has much", patch{file: "line_up.sql", old: "early = greatest(z.early - u.n, 0)", new: "early = z.early"}))
}

// While not all events were read nothing is released: a message that came back and is not known yet
// may be an earlier one of a key.
func TestRuleEventsAreReadFirst(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		// A claim reads one event.
		breakFunctions(t, url, []patch{
			{file: "lane_events.sql", old: "limit 4096 loop", new: "limit 1 loop", times: 2},
			{file: "lane_events.sql", old: "walked - v_before < 4096", new: "walked - v_before < 1"},
			{file: "lane_events.sql", old: "exit when walked >= 16384", new: "exit when walked >= 1"},
		})
		s := ordered(t, url)
		a1, a2 := s.sendKey("a"), s.sendKey("a")
		worker := s.register()
		g := s.claims(worker, 1, 2)
		if fault := wants("first", g, a1, a2); fault != "" {
			t.Fatal(fault)
		}
		s.settleAs("released", g[1])
		s.settleAs("released", g[0])
		var got []int64
		for number := range int64(20) {
			got = append(got, messages(s.claims(worker, number+2, 10))...)
		}
		if !slices.Equal(got, []int64{a1, a2}) {
			return fmt.Sprintf("%v was handed out, want %d before %d", got, a1, a2)
		}
		return ""
	}, without("waiting for all events", patch{file: "claim_keyed.sql", old: "if v_complete and cardinality(v_keys) > 0", new: "if cardinality(v_keys) > 0"}))
}

// A look for messages to claim sees keys in line, because nothing else tells of them.
func TestRuleKeysInLineAreSeen(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true}`)
		worker := s.register()
		s.sendKeys(20, 20)
		until(t, "all older transactions have ended, also those of other tests", func() bool {
			return get[bool](s, `select bool_and(ord < pg_snapshot_xmin(pg_current_snapshot())) from posthaste.entries`)
		})
		handed := 0
		for range 4 {
			handed += len(s.take(2))
		}
		if n := get[int](s, `select count(*)::int from posthaste.keys where turn is not null`); n == 0 || handed == 20 {
			t.Fatalf("of 20 keys %d were handed out, and %d are in line", handed, n)
		}
		if !get[bool](s, `select (posthaste.look(q.id, 0, array[0])).ready from posthaste.queue_settings q`) {
			return "a look sees nothing"
		}
		if !get[bool](s, `select coalesce(ready, false) from posthaste.worker_look($1, '{q}', '{default}')`, worker) {
			return "a worker's look sees nothing"
		}
		for range 40 {
			handed += len(s.take(2))
		}
		if handed != 20 {
			return fmt.Sprintf("%d of 20 were handed out", handed)
		}
		if get[bool](s, `select (posthaste.look(q.id, 0, array[0])).ready from posthaste.queue_settings q`) {
			return "a look sees something where nothing is left"
		}
		return ""
	},
		without("the look at the line", patch{file: "look.sql", old: "or posthaste.has_line(v_reader >> 10, v_lane, v_due_cursor.turns)", new: ""}),
		without("the worker's look at the line", patch{file: "worker_look.sql", old: "and not posthaste.has_line(o.id::bigint << 10 | o.number, g, b.turns)", new: ""}))
}

// A claim costs no more with very many keys in line than with few: it reads and writes those that it
// serves. The same holds while an old snapshot keeps rows that died at the front of the line from
// being cleaned up. At full size 10,000 keys wait.
func TestClaimBesideManyKeysInLine(t *testing.T) {
	t.Parallel()
	const few = 100
	many := testrun.Size(1_000, 10_000)
	pages := func(keys int) (fresh, old int) {
		url := testpg.New(t)
		s, reader := keyed(t, url, `{"fair": true}`), connect(t, url)
		s.sendKeys(keys, 5*keys)
		until(t, "all are parked", func() bool {
			s.take(1)
			return get[bool](s, `select ended from posthaste.claims where reader & 1 = 0 and reader >> 1 & 511 = 0 order by seq desc limit 1`)
		})
		// The median of several, because a page may fill up under one of them.
		median := func() int {
			var all []int
			for range 5 {
				written := get[int](s, `select count(*)::int from posthaste.entries where attempt = 0`)
				all = append(all, s.buffers(`select * from posthaste.receive('q', 10, '1 hour')`))
				if n := get[int](s, `select count(*)::int from posthaste.entries where attempt = 0`) - written; n != 0 {
					t.Errorf("with %d keys a claim wrote %d events", keys, n)
				}
			}
			slices.Sort(all)
			return all[2]
		}
		s.exec(`vacuum posthaste.keys, posthaste.parked`)
		fresh = median()
		reader.exec(`begin isolation level repeatable read`)
		reader.exec(`select from posthaste.keys limit 1`)
		for range 30 {
			s.take(10)
		}
		old = median()
		return fresh, old
	}
	leastFresh, leastOld := pages(few)
	mostFresh, mostOld := pages(many)
	t.Logf("a claim of 10 touches %d pages with %d keys in line and %d with %d; above what died %d and %d", leastFresh, few, mostFresh, many, leastOld, mostOld)
	// An index of more keys may have a level more, and no more than that.
	if mostFresh > 2*leastFresh {
		t.Errorf("a claim touches %d pages with %d keys in line, and %d with %d", mostFresh, many, leastFresh, few)
	}
	if mostOld > 2*leastOld {
		t.Errorf("above what died in the line a claim touches %d pages with %d keys in it, and %d with %d", mostOld, many, leastOld, few)
	}
}
