package ledger_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
)

// A slot is marked in a transaction that commits before the sequence moves there: until then no
// other session sees the mark.
func TestRuleSlotIsMarkedBeforeTheSequenceMoves(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		rotator := connect(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.send(`{}`)
		rotator.exec(`begin`)
		did := list[string](rotator, `select posthaste.rotate() from generate_series(1, 3)`)
		moved := get[int64](s, `select last_value >> 22 from posthaste.positions`)
		marks := get[int](s, `select count(*)::int from posthaste.slots where live`)
		rotator.exec(`commit`)
		if moved != 0 {
			return fmt.Sprintf("rotating %v moved the sequence while others see %d marked slot", did, marks)
		}
		if did := get[string](s, `select posthaste.rotate()`); did != "moved" {
			return fmt.Sprintf("after the commit rotating %s", did)
		}
		m := s.send(`{}`)
		if got := s.receive(); !slices.Contains(got, m) || m>>22 == 0 {
			return fmt.Sprintf("sent %d, received %v", m, got)
		}
		return ""
	}, without("waiting for the commit", patch{file: "rotate.sql", old: "if m.marked_by = pg_current_xact_id_if_assigned() then", new: "if false then"}))
}

// setval can turn a sequence back; a whole revolution ahead it cannot.
func TestRuleRotationNeverTurnsTheSequenceBack(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		rotated(s)
		// The sequence is near the end of its slot, and a rotator that has read it waits at a row
		// until others have run on into the next slot.
		s.exec(`select setval('posthaste.positions', ((last_value >> 22) << 22) + 4194300) from posthaste.positions`)
		return s.goesOnBehindARotator(url, `select length(posthaste.rotate())::bigint`, func() {})
	}, without("the revolution", patch{file: "slot_start.sql", old: "(p_last + 67108864 + 4194303) >> 22", new: "(p_last + 4194303) >> 22"}))
}

// turned is a database in which slot 0 could be reclaimed, except for the caller's next changes: its
// messages are settled, and all readers are past it.
func turned(t *testing.T, url string) *session {
	t.Helper()
	s := begin(t, url)
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.send(`{}`)
	s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
	turn(t, s)
	s.send(`{}`)
	s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
	return s
}

// turn moves the sequence into another slot, and marks the slots that it left.
func turn(t *testing.T, s *session) {
	t.Helper()
	before := get[int64](s, `select last_value >> 22 from posthaste.positions`)
	until(t, "the ring turned", func() bool {
		s.exec(`select posthaste.rotate()`)
		return get[int64](s, `select last_value >> 22 from posthaste.positions`) != before
	})
	s.exec(`update posthaste.slots set left_before = pg_current_xact_id() where live and left_before is null and slot <> (select (last_value >> 22) & 15 from posthaste.positions)`)
}

// reclaimFirstClaim turns the ring until the slot with the first claim of the queue's reader is
// reclaimed.
func reclaimFirstClaim(t *testing.T, s *session) {
	t.Helper()
	s.exec(`update posthaste.settings set slot_rows = 1`)
	turn(t, s)
	s.exec(`update posthaste.settings set slot_rows = 1000000`)
	s.send(`{}`)
	s.receive()
	until(t, "the claim's slot is reclaimed", func() bool {
		s.exec(`select posthaste.maintain()`)
		return get[bool](s, `select not exists (select from posthaste.claims where reader = posthaste.reader_key(1, 0, 0, 0) and seq = 1)`)
	})
}

// Truncating checks again under its lock, in a new statement: a slot that was free may have been
// used since.
func TestRuleTruncationChecksUnderItsLock(t *testing.T) {
	// free returns the readers for a slot's truncation, once the slot is found free.
	free := func(t *testing.T, s *session) (readers []int64) {
		s.exec(`select posthaste.carry_slot(0)`)
		// Transactions of other databases count as possible writers, too.
		until(t, "slot 0 is free", func() bool {
			readers = get[[]int64](s, `select readers from posthaste.ring_seen()`)
			return get[*string](s, `select posthaste.slot_blocker(0)`) == nil
		})
		return readers
	}
	const truncate = `select posthaste.truncate_slot(0, $1)`
	t.Run("new_readers", func(t *testing.T) {
		rule(t, func(t *testing.T, url string) string {
			s := turned(t, url)
			readers := free(t, s)
			// Between that check and the lock a queue begins to need it: here by a subscription that
			// reads from the oldest kept message on.
			s.exec(`insert into posthaste.subscriptions (queue_id, number, name, since) values (1, 1, 'late', '3:3:')`)
			truncated := get[bool](s, truncate, readers)
			got := list[int64](s, `select message_id from posthaste.receive('q', 10, '1 hour', '{"subscription": "late"}')`)
			if truncated || len(got) != 2 {
				return fmt.Sprintf("truncated: %v, and the late subscription received %v of two messages", truncated, got)
			}
			return ""
		}, without("the second check", patch{file: "truncate_slot.sql",
			old: "if posthaste.slot_entered(p_slot) is not null or n.readers is distinct from p_readers then", new: "if false then"}),
			without("asking for readers", patch{file: "truncate_slot.sql", old: " or n.readers is distinct from p_readers then", new: " then"}))
	})
	t.Run("new_entries", func(t *testing.T) {
		rule(t, func(t *testing.T, url string) string {
			s := turned(t, url)
			readers := free(t, s)
			// Between them the sequence runs through the slot and out of it.
			var m int64
			through(s, func() { m = s.send(`{}`) })
			truncated := get[bool](s, truncate, readers)
			if truncated {
				return fmt.Sprintf("message %d was sent into the slot, and truncated", m)
			}
			return ""
		}, without("the second check", patch{file: "truncate_slot.sql",
			old: "if posthaste.slot_entered(p_slot) is not null or n.readers is distinct from p_readers then", new: "if false then"}),
			without("what the sequence did", patch{file: "slot_entered.sql", old: "least(v_newest + 1, v_epoch)", new: "v_epoch"}))
	})
}

// through makes the sequence enter slot 0 by itself, while f runs, and leave it.
func through(s *session, f func()) {
	epoch := (get[int64](s, `select last_value >> 22 from posthaste.positions`) + 15) &^ 15
	s.exec(`select setval('posthaste.positions', $1::bigint - 1)`, epoch<<22+4194304-1)
	f()
	s.exec(`select setval('posthaste.positions', $1::bigint)`, (epoch+1)<<22+5) // not as far as the slot that is announced
}

// A slot that the sequence entered and left since the last marks is not reclaimed before the next
// marks: a position of it may be taken and not written to yet, and once it counts as emptied,
// withdrawals from it are removed too early.
func TestRuleSlotRunThroughIsNotReclaimed(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := turned(t, url)
		s.exec(`select posthaste.rotate()`)
		until(t, "slot 0 is free", func() bool {
			s.exec(`select posthaste.carry_slot(0)`)
			return get[bool](s, `select posthaste.slot_blocker(0) is null`)
		})
		writer := connect(t, url)
		writer.exec(`begin`)
		var m int64
		through(s, func() { m = writer.position() })
		slot := get[*int](s, `select slot from posthaste.reclaim()`)
		writer.exec(`insert into posthaste.entries_other (pos, queue_id, lane, payload, due_at) values ($1, 1, 0, '1', clock_timestamp() + interval '1 day')`, m)
		writer.exec(`commit`)
		s.exec(`select posthaste.rotate() from generate_series(1, 3)`)
		if !get[bool](s, `select cancelled from posthaste.cancel($1)`, m) {
			t.Fatal("it was not cancelled")
		}
		until(t, "it was counted", func() bool {
			s.exec(`select posthaste.count_up()`)
			return get[bool](s, `select pg_visible_in_snapshot(x.noted, c.s) from posthaste.cancelled x, posthaste.counted c where x.pos = $1`, m)
		})
		s.exec(`select posthaste.forget_cancelled() from generate_series(1, 3)`)
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`, m)
		if got := s.receive(); len(got) > 0 {
			return fmt.Sprintf("received %v, which was cancelled; reclaimed: %v", got, slot != nil)
		}
		return ""
	}, without("what the sequence did", patch{file: "slot_entered.sql", old: "least(v_newest + 1, v_epoch)", new: "v_epoch"}))
}

// The progress of carrying a slot does not cover messages sent into it later, when the sequence
// enters it again before it was reclaimed.
func TestRuleSlotRunIntoIsCarriedAnew(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15, carry_after = '1 minute'`)
		s.send(`{"delay": "1 day"}`)
		s.send(`{}`)
		pin := list[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 hour')`)
		turn(t, s)
		s.exec(`update posthaste.settings set slot_rows = 1000000`)
		until(t, "it was carried", func() bool {
			s.exec(`select posthaste.carry_slot(0)`)
			return get[int](s, `select count(*)::int from posthaste.carried`) == 1
		})
		var m int64
		through(s, func() { m = s.send(`{"delay": "1 hour"}`) })
		s.exec(`select posthaste.rotate() from generate_series(1, 3)`)
		// A message becomes due meanwhile, so that the cursor moves past the other.
		s.send(`{"delay": "1 millisecond"}`)
		var got []int64
		until(t, "it came", func() bool {
			got = list[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 hour')`)
			return len(got) == 1
		})
		s.exec(`select posthaste.ack($1::bigint[])`, slices.Concat(pin, got))
		until(t, "slot 0 was reclaimed", func() bool {
			s.exec(`select posthaste.maintain()`)
			return get[bool](s, `select not live from posthaste.slots where slot = 0`)
		})
		if left := list[int64](s, `select coalesce(message_id, pos) from posthaste.entries where due_at > clock_timestamp()`); !slices.Contains(left, m) {
			return fmt.Sprintf("of the scheduled ones %v are left, and %d is gone", left, m)
		}
		return ""
	}, without("forgetting", patch{file: "mark_entered.sql", old: "where k.slot = x.epoch & 15;", new: "where false;"}))
}

// After a crash the sequence jumps, and then nothing shows which unmarked slots it entered before:
// they are marked first.
func TestRuleSlotsRunIntoAreMarkedBeforeAJump(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.receive()
		s.exec(`select setval('posthaste.positions', (1 << 22) + 5)`)
		m := s.send(`{}`)
		s.exec(`select setval('posthaste.positions', (2 << 22) + 5)`)
		s.crash()
		later := connect(t, url)
		got := later.receive()
		later.exec(`select posthaste.maintain() from generate_series(1, 5)`)
		if got = append(got, later.receive()...); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("received %v, want %d", got, m)
		}
		return ""
	}, without("the marks", patch{file: "mark_entered.sql", old: "select generate_series(greatest(v_newest + 1, v_from - 15), v_from) union all", new: ""}))
}

// Withdrawals from a slot are kept for as long as the slot has its entries, even if the sequence
// went all around the ring without maintenance meanwhile.
func TestRuleWithdrawnIsForgottenWithItsEntries(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, carry_after = '0'`)
		pin := s.send(`{}`)
		if got := s.receive(); !slices.Equal(got, []int64{pin}) { // and keeps slot 0
			t.Fatalf("received %v", got)
		}
		m := s.send(`{"delay": "1 day"}`)
		until(t, "the ring turned", func() bool {
			s.exec(`select posthaste.rotate()`)
			return get[int64](s, `select last_value >> 22 from posthaste.positions`) != 0
		})
		s.exec(`update posthaste.settings set slot_rows = 1000000`)
		until(t, "it was carried", func() bool {
			s.exec(`select posthaste.rotate()`)
			s.exec(`select posthaste.carry_slot(0)`)
			return get[int](s, `select count(*)::int from posthaste.cancelled`) == 1
		})
		s.exec(`select setval('posthaste.positions', 40::bigint << 22)`)
		s.send(`{"delay": "1 day"}`)
		s.exec(`select posthaste.rotate() from generate_series(1, 3)`)
		// No withdrawal is removed before it was counted.
		until(t, "it was counted", func() bool {
			s.exec(`select posthaste.count_up()`)
			return get[bool](s, `select pg_visible_in_snapshot(x.noted, c.s) from posthaste.cancelled x, posthaste.counted c`)
		})
		s.exec(`select posthaste.forget_cancelled() from generate_series(1, 3)`)
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at is not null and coalesce(message_id, pos) = $1`, m)
		if got := s.receive(); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("received %v, want message %d once", got, m)
		}
		return ""
	}, without("checking that the slot was emptied", patch{file: "forget_cancelled.sql",
		old: "s.cleared_to >= ((v_epoch + 1) << 22) - 1", new: "s.epoch > v_epoch"}))
}

// A transaction that took a position of a slot keeps it until it has ended, even if a snapshot would
// not list it, because no later transaction has finished yet, and even if it has written nothing so
// far.
func TestRuleOpenWriterKeepsItsSlot(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		writer := connect(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
		s.send(`{}`)
		s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
		janitor := connect(t, url)
		janitor.exec(`begin`)
		janitor.exec(`select pg_current_xact_id()`)
		writer.exec(`begin`)
		pos := writer.position()
		until(t, "the ring turned", func() bool {
			s.exec(`select posthaste.rotate()`)
			return get[int64](s, `select last_value >> 22 from posthaste.positions`) != 0
		})
		// In a transaction whose id is older than the writer's, then in one of its own.
		janitor.exec(`select posthaste.rotate()`)
		janitor.exec(`commit`)
		s.exec(`select posthaste.rotate()`)
		s.exec(`select posthaste.carry_slot(0)`)
		// Transactions of other databases are waited for, too, but none of later ids.
		until(t, "all older ones have ended", func() bool {
			return get[bool](s, `select pg_snapshot_xmin(pg_current_snapshot()) >= least((select left_before from posthaste.slots where slot = 0), $1::text::xid8)`,
				get[string](writer, `select pg_current_xact_id()::text`))
		})
		truncated := get[bool](s, `select posthaste.truncate_slot(0, readers) from posthaste.ring_seen()`)
		writer.exec(`insert into posthaste.entries_plain (pos, queue_id, lane, payload) values ($1, 1, 0, '1')`, pos)
		writer.exec(`commit`)
		if got := s.receive(); truncated || !slices.Equal(got, []int64{pos}) {
			return fmt.Sprintf("truncated: %v, received %v, want %d", truncated, got, pos)
		}
		return ""
	}, without("waiting", patch{file: "slot_entered.sql", old: "if pg_snapshot_xmin(v_now) < m.left_before then", new: "if false then"}),
		without("an id taken since", patch{file: "rotate.sql", old: "if pg_current_xact_id_if_assigned() is null", new: "if true"}))
}

// A backup may hold locks on everything for hours: upkeep then tries later, and stops neither
// senders nor claims.
func TestRuleReclaimingGivesWayToABackup(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := turned(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1000`) // no more rotation
		// Transactions of other databases keep a slot too; until they have ended no lock is taken
		// and nothing is examined here.
		until(t, "only a lock is in the way", func() bool {
			s.exec(`select posthaste.carry_slot(0)`)
			return get[bool](s, `select posthaste.slot_blocker(0) is null`)
		})
		backup, janitor := connect(t, url), connect(t, url)
		backup.exec(`begin`)
		for _, table := range list[string](s, `select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'posthaste'`) {
			backup.exec(`lock table ` + table + ` in access share mode`)
		}
		s.exec(`set statement_timeout = '10s'`)
		janitor.exec(`set statement_timeout = '15s'`)
		for range 3 {
			done := janitor.start(`select 1::bigint from posthaste.maintain()`)
			for range 3 {
				sent := <-s.start(`select posthaste.send('q', '1')`)
				if sent.err != nil {
					return fmt.Sprintf("a send beside a backup ended with %v", sent.err)
				}
				var got []int64
				var stopped error
				// Maintenance locks readers for moments; a claim waits for those.
				until(t, "a claim got through", func() bool {
					a := <-s.start(receiveAll)
					got, stopped = append(got, a.values...), a.err
					return stopped != nil || len(got) > 0
				})
				if stopped != nil {
					return fmt.Sprintf("a claim beside a backup ended with %v", stopped)
				}
				if !slices.Equal(got, sent.values) {
					return fmt.Sprintf("beside a backup %v was received, want %v", got, sent.values)
				}
			}
			if a := <-done; a.err != nil {
				return fmt.Sprintf("maintenance beside a backup ended with %v", a.err)
			}
		}
		if get[bool](s, `select not live from posthaste.slots where slot = 0`) {
			return "a slot was truncated under a backup"
		}
		backup.exec(`commit`)
		until(t, "the slot is reclaimed", func() bool {
			s.exec(`select from posthaste.maintain()`)
			return get[bool](s, `select not live or epoch > 0 from posthaste.slots where slot = 0`)
		})
		return ""
	}, without("giving up",
		patch{file: "truncate_slot.sql", old: " set lock_timeout = '50ms'", new: " set lock_timeout = 0"},
		patch{file: "reclaim.sql", old: " set lock_timeout = '50ms'", new: " set lock_timeout = 0"}))
}

// The same in a database that was cloned with its messages in it.
func TestClonesHandNothingOut(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	worker := s.register()
	name := s.Config().Database + "_clone"
	_ = s.Close(t.Context())
	admin := connect(t, testpg.Superuser(t))
	admin.exec(`create database ` + name + ` template ` + strings.TrimSuffix(name, "_clone"))
	dropLater(t, name)
	if fault := handsOut(connect(t, in(t, url, name)), worker); fault != "" {
		t.Error(fault)
	}
}

// The same in a database that was restored from a dump.
func TestRestoredDumpsHandNothingOut(t *testing.T) {
	t.Parallel()
	u := testpg.New(t)
	s := begin(t, u)
	worker := s.register()
	file := t.TempDir() + "/dump.sql"
	name := s.Config().Database + "_restored"
	connect(t, testpg.Superuser(t)).exec(`create database ` + name)
	dropLater(t, name)
	testdb.Run(t, "pg_dump", "--file", file, "--dbname", u)
	dropNewerSettings(t, s, file)
	testdb.Run(t, "psql", "-qX", "--set", "ON_ERROR_STOP=1", "--file", file, "--dbname", in(t, u, name))
	if fault := handsOut(connect(t, in(t, u, name)), worker); fault != "" {
		t.Error(fault)
	}
	// Messages sent there get no id that was used here after the dump.
	lost := s.send(`{}`)
	if id := connect(t, in(t, u, name)).send(`{}`); id <= lost {
		t.Errorf("message %d is lost by the restore, and the next one is %d", lost, id)
	}
}

// dropNewerSettings removes the settings at the top of a dump that the server does not know. The
// tools are those of PostgreSQL 18, and the server may be older.
func dropNewerSettings(t *testing.T, s *session, dump string) {
	t.Helper()
	text, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^SET (\w+) = .*;\n`)
	text = setting.ReplaceAllFunc(text, func(line []byte) []byte {
		if get[bool](s, `select current_setting($1, true) is null`, string(setting.FindSubmatch(line)[1])) {
			return nil
		}
		return line
	})
	if err := os.WriteFile(dump, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// in is the URL of another database of the same server.
func in(t *testing.T, server, database string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

func dropLater(t *testing.T, database string) {
	server := testpg.Superuser(t)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), server)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), `drop database `+database+` with (force)`); err != nil {
			t.Error(err)
		}
	})
}

// Settlements since the last count are counted before their slot is reclaimed.
func TestRuleSettledIsCountedBeforeItsSlotGoes(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
		s.send(`{}`)
		got := list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
		turn(t, s)
		s.exec(`select posthaste.count_up()`)
		s.exec(`select from posthaste.ack($1::bigint[])`, got)
		until(t, "its slot is reclaimed", func() bool {
			s.exec(`select posthaste.reclaim()`)
			return !get[bool](s, `select live from posthaste.slots where slot = 0`)
		})
		s.exec(`select posthaste.count_up()`)
		if n := get[int](s, `select (in_flight * 100 + done)::int from posthaste.queues`); n != 1 {
			return fmt.Sprintf("%d are in flight and %d done, it is said", n/100, n%100)
		}
		return ""
	}, without("the count", patch{file: "reclaim.sql", old: "      perform posthaste.count_up();\n", new: ""}))
}
