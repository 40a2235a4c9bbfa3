package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// crash changes unlogged tables as a crash, a promotion or a restore does.
func (s *session) crash() {
	s.t.Helper()
	s.exec(`truncate posthaste.since_crash, posthaste.skipped`)
}

// ◆ No id is used for another message after a crash, even if a sender is the first to connect: ids
// that were lost with the old server may be known to other systems. The sender keeps no lock, waits
// for no transaction, and uses no snapshot.
func TestRuleSendersSkipLostIDs(t *testing.T) {
	const sendRow = `select posthaste.send_row('q', '1', null, null, null, null, null, null, null, null, null, true)`
	for name, by := range map[string]struct {
		send   string
		broken patch
	}{
		"send":       {`select posthaste.send('q', '1')`, patch{file: "send.sql", old: "perform posthaste.skip_ids();", new: "null;"}},
		"send_row":   {sendRow, patch{file: "send_row.sql", old: "perform posthaste.skip_ids();", new: "null;"}},
		"send_bytes": {`select posthaste.send_bytes('q', '1')`, patch{file: "send_row.sql", old: "perform posthaste.skip_ids();", new: "null;"}},
		"send_many":  {`select min(x) from posthaste.send_many('q', '[{"payload": 1}, {"payload": 2}]') x`, patch{file: "insert_entries.sql", old: "perform posthaste.skip_ids();", new: "null;"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s, first, second := begin(t, url), connect(t, url), connect(t, url)
				last := s.send(`{}`)
				s.crash()
				first.exec(`begin isolation level repeatable read`)
				second.exec(`begin isolation level repeatable read`)
				second.exec(`select`) // its snapshot is older than what the first one does
				lost := last + 1000
				if id := get[int64](first, by.send); id <= lost {
					return fmt.Sprintf("id %d is issued after a crash, and ids to %d may be known", id, lost)
				}
				if held := get[int](s, `select count(*)::int from pg_locks where pid = $1 and locktype = 'advisory' and objid::bigint = 0 and mode = 'ExclusiveLock'`, int32(first.PgConn().PID())); held > 0 {
					return "the sender keeps a lock"
				}
				before := get[int64](s, `select last_value from posthaste.positions`)
				if id := get[int64](second, by.send); id <= lost || id > before+10 {
					return fmt.Sprintf("the second sender is given id %d after %d", id, before)
				}
				first.exec(`commit`)
				second.exec(`rollback`)
				return ""
			}, without("skipping", by.broken), without("giving the lock back", patch{file: "skip_ids.sql", old: "      raise division_by_zero;\n", new: ""}))
		})
	}
}

// A sender's transaction that rolls back leaves nothing but the ids that it skipped.
func TestSkippedIDsStaySkipped(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s, first := begin(t, url), connect(t, url)
	last := s.send(`{}`)
	s.crash()
	first.exec(`begin`)
	one := first.send(`{}`)
	first.exec(`rollback`)
	if two := first.send(`{}`); one <= last+1000 || two != one+1 {
		t.Errorf("after id %d and a crash: id %d is rolled back, and the next is %d", last, one, two)
	}
}

// A dump has no row that says that ids were skipped, so they are skipped where it is restored.
func TestSkippedKeepsNoRow(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	for _, crash := range []bool{false, true} {
		s := begin(t, url)
		if crash {
			s.crash()
			s = connect(t, url)
			s.send(`{}`)
		}
		connect(t, superuser(t, s)).exec(`vacuum (freeze)`)
		if rows, size := get[int](s, `select count(*)::int from posthaste.skipped`), get[int](s, `select pg_relation_size('posthaste.skipped_at')::int`); rows > 0 || size != 16384 {
			t.Errorf("after a crash %t: %d rows, %d bytes, want no row and two pages", crash, rows, size)
		}
	}
}

// Maintenance does not move the sequence back to before ids that are skipped meanwhile.
func TestRuleMaintenanceSkipsFirst(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, later := begin(t, url), connect(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.receive()
		s.exec(`select posthaste.rotate()`)
		s.send(`{}`)
		s.exec(`truncate posthaste.skipped`)
		before := get[int64](s, `select last_value from posthaste.positions`)
		s.exec(pauseAfter("rotate", "v_start := posthaste.slot_start(v_last, m.slot);"))
		s.exec(`select pg_advisory_lock(77)`)
		moved := later.start(`select 1::bigint from posthaste.rotate()`)
		later.waitsOrEnds(s, moved)
		sender := connect(t, url)
		id := sender.send(`{}`)
		s.exec(`select pg_advisory_unlock(77)`)
		<-moved
		if next := sender.send(`{}`); next <= id {
			return fmt.Sprintf("after %d and a skip: id %d, and %d after maintenance", before, id, next)
		}
		return ""
	}, without("skipping", patch{file: "rotate.sql", old: "  perform posthaste.skip_ids();\n", new: ""}))
}

// Skipping ids marks no slot that the sequence did not enter, and hides no message.
func TestRuleSkippedSlotsStayFree(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sender := begin(t, url), connect(t, url)
		want := []int64{s.send(`{}`)}
		s.exec(`select setval('posthaste.positions', (1 << 22) + 5)`)
		want = append(want, s.send(`{}`))
		s.crash()
		want = append(want, sender.send(`{}`))
		later := connect(t, url)
		if got := later.receive(); !slices.Equal(got, want) {
			return fmt.Sprintf("received %v, want %v", got, want)
		}
		if live := list[int](s, `select slot::int from posthaste.slots where live order by slot`); !slices.Equal(live, []int{0, 1}) {
			return fmt.Sprintf("slots %v count as entered, want 0 and 1", live)
		}
		return ""
	}, without("where the sequence was", patch{file: "mark_entered.sql", old: "if v_from is null or v_from < v_newest or v_to > p_epoch then", new: "if true then"}))
}

// A sequence that ran around the ring by itself, without maintenance, has skipped nothing: all slots
// count as entered.
func TestRuleARunAroundTheRingSkipsNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		want := []int64{s.send(`{}`)}
		for epoch := int64(1); epoch <= 17; epoch += 4 {
			s.exec(`select setval('posthaste.positions', $1)`, epoch<<22+5)
			want = append(want, s.send(`{}`))
		}
		s.exec(`select posthaste.maintain()`)
		if got := s.receive(); !slices.Equal(got, want) {
			return fmt.Sprintf("received %v, want %v", got, want)
		}
		return ""
	}, without("asking whether anything was skipped", patch{file: "mark_entered.sql", old: " p where p.is_called;", new: " p;"}))
}

// ◆ After a crash the first claim moves the sequence. Concurrent claims wait until that is
// committed, and then run concurrently with all others: if each kept a key to the end of its
// transaction, a slow one would delay all queues.
func TestRuleAfterACrashNobodyWaitsInLine(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.exec(`select posthaste.create_queue('other')`)
		s.exec(`select posthaste.create_queue('third')`)
		s.crash()
		next := get[int64](s, `select last_value from posthaste.positions`)
		first, second, third := connect(t, url), connect(t, url), connect(t, url)
		first.exec(`begin`)
		first.exec(`select from posthaste.receive('q', 1, '1 hour')`)
		second.exec(`begin`)
		waits := func(asks *session, queue string) (asked <-chan answer, early bool) {
			asked = asks.start(`select count(*) from posthaste.receive($1, 1, '1 hour')`, queue)
			until(t, "it waits", func() bool {
				select {
				case <-asked:
					early = true
					return true
				default:
				}
				return get[bool](s, `select wait_event in ('PgSleep', 'advisory') is true from pg_stat_activity where pid = $1`, int32(asks.PgConn().PID()))
			})
			return asked, early
		}
		asked, early := waits(second, "other")
		if early {
			return "one claimed before the sequence had been moved for good"
		}
		also, _ := waits(third, "third")
		first.exec(`commit`)
		moved := get[int64](s, `select last_value from posthaste.positions`)
		if moved <= next {
			return fmt.Sprintf("the sequence is at %d and was at %d", moved, next)
		}
		for who, answered := range map[string]<-chan answer{"second": asked, "third": also} {
			select {
			case a := <-answered:
				if a.err != nil {
					t.Fatal(a.err)
				}
			case <-time.After(10 * time.Second):
				second.exec(`rollback`)
				return "the " + who + " one waited for the other's transaction"
			}
		}
		second.exec(`commit`)
		if now := get[int64](s, `select last_value from posthaste.positions`); now != moved {
			return fmt.Sprintf("the sequence was moved again, from %d to %d", moved, now)
		}
		return ""
	}, without("waiting for the commit", patch{file: "admit.sql", old: "perform pg_sleep(0.002);", new: "exit;"}),
		without("going on side by side", patch{file: "admit.sql", old: "if v_tries > 500 then", new: "if true then"}))
}
