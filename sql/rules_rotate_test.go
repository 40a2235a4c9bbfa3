package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// announced is a database whose sequence is in slot 0 near its end, while maintenance has announced
// slot 2: slot 1 was in use at that time.
func announced(t *testing.T, url string) *session {
	t.Helper()
	s := begin(t, url)
	s.exec(`update posthaste.settings set slot_rows = 1`)
	s.exec(`select setval('posthaste.positions', 32::bigint << 22)`)
	s.exec(`select posthaste.rotate()`)
	s.exec(`update posthaste.slots set live = slot in (0, 1, 15)`)
	if got := get[string](s, `select posthaste.rotate()`); got != "marked" {
		t.Fatalf("rotate %s, want marked", got)
	}
	if got := list[int](s, `select slot::int from posthaste.slots where live order by 1`); !slices.Equal(got, []int{0, 1, 2, 15}) {
		t.Fatalf("live are %v", got)
	}
	s.exec(`select setval('posthaste.positions', (33::bigint << 22) - 2)`)
	return s
}

// movedOn rotates until the sequence is in the announced slot, and compares the received messages,
// with those of before, with the sent ones.
func movedOn(t *testing.T, s *session, sent, got []int64) string {
	t.Helper()
	until(t, "the sequence is in the announced slot", func() bool {
		if get[int64](s, `select (last_value >> 22) & 15 from posthaste.positions`) == 2 {
			return true
		}
		s.exec(`select posthaste.rotate()`)
		return false
	})
	sent = append(sent, s.send(`{}`))
	got = append(got, s.receive()...)
	got = append(got, s.receive()...)
	if !slices.Equal(got, sent) {
		return fmt.Sprintf("sent %v, received %v", sent, got)
	}
	return ""
}

// A slot that the sequence entered is live even while the sequence is moved away: until that is
// committed no announced slot counts as reached.
func TestRuleSlotsRunInToAreLiveWhileTheSequenceMoves(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := announced(t, url)
		rotator := connect(t, url)
		s.exec(`update posthaste.slots set live = false where slot = 1`) // reclaimed
		var sent []int64
		for range 4 {
			sent = append(sent, s.send(`{}`))
		}
		rotator.exec(`begin`)
		rotator.exec(`select posthaste.rotate()`)
		got := s.receive()
		rotator.exec(`commit`)
		return movedOn(t, s, sent, got)
	}, without("waiting for the commit",
		patch{file: "live_slots.sql", old: "s.epoch <= v_epoch and s.marked_by is null", new: "s.epoch <= v_epoch"},
		patch{file: "live_slots.sql", old: "p.last_value >> 22 and s.marked_by is null", new: "p.last_value >> 22"}))
}

// The sequence may enter the next slot between being read and being moved: that slot is marked
// first.
func TestRuleNextSlotIsMarkedBeforeTheSequenceMoves(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := announced(t, url)
		rotator, holder := connect(t, url), connect(t, url)
		s.exec(`update posthaste.slots set live = false where slot = 1`) // reclaimed
		release := stopRotation(s, rotator, holder)
		var sent []int64
		for range 4 {
			sent = append(sent, s.send(`{}`))
		}
		release()
		return movedOn(t, s, sent, nil)
	}, without("the mark", patch{file: "rotate.sql", old: "if (v_last & 4194303) >= 3145728 and", new: "if false and"}))
}

// If the next slot was left long ago, it is left again: transactions that have taken a position
// there meanwhile are waited for, even if they have not written their row yet.
func TestRuleNextSlotIsLeftAnewWhenTheSequenceMoves(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := announced(t, url)
		rotator, holder, sender := connect(t, url), connect(t, url), connect(t, url)
		s.exec(`update posthaste.slots set left_before = '3' where slot = 1`)
		s.exec(`insert into posthaste.carried (slot, queue_id, lane, since, due_at, pos) values (1, 1, 0, '-infinity', 'infinity', 0)`)
		release := stopRotation(s, rotator, holder)
		sender.exec(`begin`)
		sender.exec(`select pg_current_xact_id()`)
		m := list[int64](sender, `select nextval('posthaste.positions') from generate_series(1, 2)`)[1]
		if (m>>22)&15 != 1 {
			t.Fatalf("position %d lies in slot %d", m, (m>>22)&15)
		}
		s.exec(`select pg_current_xact_id()`) // a later one that ends, so that snapshots list the sender
		release()
		for range 5 {
			s.exec(`select posthaste.rotate()`)
		}
		blocker := get[*string](s, `select posthaste.slot_blocker(1)`)
		sender.exec(`commit`)
		if blocker == nil || !strings.Contains(*blocker, "is still open") {
			return fmt.Sprintf("slot 1 may be reclaimed while the transaction that took position %d is still open", m)
		}
		if n := get[int](s, `select count(*)::int from posthaste.carried`); n > 0 {
			return fmt.Sprintf("%d of slot 1 are taken to be carried, whatever position %d is due", n, m)
		}
		return ""
	}, without("carrying again", patch{file: "rotate.sql", old: "delete from posthaste.carried k where k.slot = (v_epoch + 1) & 15;", new: "null;"}),
		without("leaving it again", patch{file: "rotate.sql", old: "set left_before = null where s.slot = (v_epoch + 1) & 15", new: "set left_before = s.left_before where s.slot = (v_epoch + 1) & 15"}))
}

// rotated sends a message and rotates until a slot has been left and the next is marked.
func rotated(s *session) {
	s.t.Helper()
	s.exec(`update posthaste.settings set slot_rows = 1`)
	s.send(`{}`)
	for _, want := range []string{"marked", "moved", "marked"} {
		if got := get[string](s, `select posthaste.rotate()`); got != want {
			s.t.Fatalf("rotate %s, want %s", got, want)
		}
	}
}

// goesOnBehindARotator stops a rotator at a row after it has read the sequence, and lets meanwhile
// run and positions be taken. It returns a fault if the sequence does not continue after these.
func (s *session) goesOnBehindARotator(url, rotate string, meanwhile func()) string {
	s.t.Helper()
	rotator, holder := connect(s.t, url), connect(s.t, url)
	s.exec(`update posthaste.slots set left_before = null where slot = 0`)
	holder.exec(`begin`)
	holder.exec(`select from posthaste.slots where slot = 0 for update`)
	done := rotator.start(rotate)
	rotator.blocked(s)
	meanwhile()
	last := get[int64](s, `select max(nextval('posthaste.positions')) from generate_series(1, 1000)`)
	holder.exec(`rollback`)
	if a := <-done; a.err != nil {
		s.t.Fatal(a.err)
	}
	if next := get[int64](s, `select nextval('posthaste.positions')`); next <= last {
		return fmt.Sprintf("after %d the sequence gave %d", last, next)
	}
	return ""
}

// Only one session rotates at a time: otherwise two that have read the sequence would set it to the
// same place, and positions given out in between would be given out again.
func TestRuleOneRotatesAtATime(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		second := connect(t, url)
		rotated(s)
		return s.goesOnBehindARotator(url, `select count(*) from posthaste.maintain()`, func() {
			// The second has an id already, so it does not come to that row.
			second.exec(`begin`)
			second.exec(`select pg_current_xact_id()`)
			second.exec(`select from posthaste.maintain()`)
			second.exec(`commit`)
		})
	}, withoutTakingTurns)
}

// The same holds when three rotate as often as they can, beside many nextvals.
func TestRuleManyRotatorsGiveNoPositionTwice(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 500, spare_slots = 15`)
		var takers, rotators []*session
		for range 3 {
			takers, rotators = append(takers, connect(t, url)), append(rotators, connect(t, url))
		}
		seen := map[int64]bool{}
		moved, trouble := int64(0), ""
		for end := time.Now().Add(4 * patience); moved < 30; {
			if time.Now().After(end) {
				return fmt.Sprintf("the sequence was moved %d times only: %s", moved, trouble)
			}
			var taken, rotated []<-chan answer
			for i := range takers {
				taken = append(taken, takers[i].start(`select nextval('posthaste.positions') from generate_series(1, 1500)`))
				rotated = append(rotated, rotators[i].start(`select (task = 'moved')::int::bigint from posthaste.maintain()`))
			}
			for _, c := range rotated {
				a := <-c
				if a.err != nil {
					trouble = a.err.Error()
				}
				for _, n := range a.values {
					moved += n
				}
			}
			twice := ""
			for _, c := range taken {
				a := <-c
				if a.err != nil {
					t.Fatal(a.err)
				}
				for _, v := range a.values {
					if seen[v] {
						twice = fmt.Sprintf("position %d was given twice", v)
					}
					seen[v] = true
				}
			}
			if twice != "" {
				return twice
			}
		}
		return trouble
	}, withoutTakingTurns)
}

var withoutTakingTurns = without("taking turns", patch{file: "maintain.sql", old: "if not pg_try_advisory_xact_lock(posthaste.lock_key(6, 0)) then", new: "if false then"})

// If a transaction's snapshot is older than the lock, upkeep fails as claiming does, and does no
// harm: neither to a new subscription nor to positions.
func TestRuleUpkeepNeedsReadCommitted(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := turned(t, url)
				old := connect(t, url)
				// With the ring about to be turned,
				old.exec(`begin isolation level ` + level)
				old.exec(`select from posthaste.slots`)
				turn(t, s)
				last := s.send(`{}`)
				s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
				turning := old.code(`select posthaste.maintain()`)
				old.exec(`rollback`)
				if next := s.send(`{}`); next <= last {
					return fmt.Sprintf("after %d the sequence gave %d", last, next)
				}
				s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
				// and with a slot about to be reclaimed.
				s.exec(`update posthaste.settings set slot_rows = 1000`)
				until(t, "slot 0 is free", func() bool {
					s.exec(`select posthaste.carry_slot(0)`)
					return get[bool](s, `select posthaste.slot_blocker(0) is null`)
				})
				old.exec(`begin isolation level ` + level)
				old.exec(`select from posthaste.slots`)
				s.exec(`select posthaste.subscribe('q', 'late', '{"from": "oldest"}')`)
				reclaiming := old.code(`select posthaste.maintain()`)
				old.exec(`commit`)
				got := list[int64](s, `select message_id from posthaste.receive('q', 10, '1 hour', '{"subscription": "late"}')`)
				if len(got) != 4 {
					return fmt.Sprintf("upkeep ended with %q and %q, and the new subscription received %v of four messages", turning, reclaiming, got)
				}
				if reclaiming != "PH400" {
					return fmt.Sprintf("upkeep ended with %q", reclaiming)
				}
				return ""
			}, without("the refusal", patch{file: "snapshot_now.sql",
				old: "if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then", new: "if false then"}))
		})
	}
}

// stopRotation starts a rotation and stops it at the row of slot 15, after it has read the sequence,
// until release.
func stopRotation(s, rotator, holder *session) (release func()) {
	s.t.Helper()
	s.exec(`update posthaste.slots set left_before = null where slot = 15`)
	holder.exec(`begin`)
	holder.exec(`select from posthaste.slots where slot = 15 for update`)
	done := rotator.start(`select coalesce(length(posthaste.rotate()), 0)::bigint`)
	rotator.blocked(s)
	return func() {
		s.t.Helper()
		holder.exec(`rollback`)
		if a := <-done; a.err != nil {
			s.t.Fatal(a.err)
		}
	}
}

// Truncating takes its locks in the order in which receiving and settling take them: otherwise each
// would wait for the other's locks.
func TestRuleTruncationLocksInTheOrderOfSettling(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := turned(t, url)
		until(t, "slot 0 is free", func() bool {
			s.exec(`select posthaste.carry_slot(0)`)
			return get[bool](s, `select posthaste.slot_blocker(0) is null`)
		})
		// Only the right order avoids the deadlock.
		s.exec(`alter function posthaste.truncate_slot set lock_timeout = 0`)
		s.send(`{}`)
		s.send(`{}`)
		caller, janitor := connect(t, url), connect(t, url)
		ids := list[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 hour')`)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.ack(array[$1::bigint])`, ids[0])
		truncated := janitor.start(`select posthaste.truncate_slot(0, n.readers)::int::bigint from posthaste.ring_seen() n`)
		janitor.blocked(s)
		failed := caller.start(`select settled::int::bigint from posthaste.fail($1, 'again')`, ids[1])
		if a := <-failed; a.err != nil {
			return fmt.Sprintf("settling ended with %v", a.err)
		}
		caller.exec(`commit`)
		if a := <-truncated; a.err != nil {
			return fmt.Sprintf("truncating ended with %v", a.err)
		}
		return ""
	}, without("the order", patch{file: "truncate_slot.sql",
		old: "lock table posthaste.leases_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.outcomes_%1$s, posthaste.notes_%1$s in",
		new: "lock table posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s in"}))
}

// ◆ An announced slot that the sequence passed by itself, a whole revolution without upkeep, does
// not show how far the sequence has come: the slots in between are read, before upkeep and after.
func TestRuleAnnouncedAndOvertakenLosesNothing(t *testing.T) {
	ranPast := func(upkeep int) func(t *testing.T, url string) string {
		return func(t *testing.T, url string) string {
			s := announced(t, url)
			var sent []int64
			for _, epoch := range []int64{35, 44, 53} { // slot 2 was announced as epoch 50
				s.exec(`select setval('posthaste.positions', $1::bigint << 22)`, epoch)
				sent = append(sent, s.send(`{}`))
			}
			for range upkeep {
				s.exec(`select from posthaste.maintain()`)
			}
			if got := append(s.receive(), s.receive()...); !slices.Equal(got, sent) {
				return fmt.Sprintf("sent %v, received %v", sent, got)
			}
			return ""
		}
	}
	t.Run("read", func(t *testing.T) {
		rule(t, ranPast(0), without("telling it from one that was reached",
			patch{file: "live_slots.sql", old: "s.epoch <= v_epoch and s.marked_by is null", new: "s.epoch <= v_epoch"},
			patch{file: "live_slots.sql", old: "p.last_value >> 22 and s.marked_by is null", new: "p.last_value >> 22"}))
	})
	t.Run("marked", func(t *testing.T) {
		rule(t, ranPast(1), without("telling it from one that was reached", patch{file: "mark_entered.sql", old: " and s.marked_by is null", new: ""}))
	})
}

// ◆ Behind a long lock, such as a backup's, upkeep waits for one slot a round and not for each,
// because claims wait behind it.
func TestRuleABackupIsWaitedForOnceARound(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		backup := connect(t, url)
		s.exec(`update posthaste.settings set spare_slots = 15`)
		s.exec(`update posthaste.slots set live = true, left_before = '3', epoch = slot - 16 where slot > 0`)
		backup.exec(`begin`)
		backup.exec(`lock table posthaste.entries in access share mode`)
		for range 6 {
			waited := map[string]bool{}
			round := s.start(`select (reason !~ 'lock')::int::bigint from posthaste.reclaim()`)
			for going := true; going; {
				select {
				case a := <-round:
					if a.err != nil || !slices.Equal(a.values, []int64{0}) {
						t.Fatalf("reclaiming beside a backup: %v", a)
					}
					going = false
				default:
					for _, table := range list[string](backup, `select relation::regclass::text from pg_locks where pid = $1 and not granted and relation is not null`, int32(s.PgConn().PID())) {
						waited[table] = true
					}
				}
			}
			if len(waited) > 1 {
				return fmt.Sprintf("one round waited for %d locks: %v", len(waited), waited)
			}
		}
		backup.exec(`rollback`)
		until(t, "slots are given back", func() bool {
			return get[*int](s, `select slot from posthaste.reclaim()`) != nil
		})
		return ""
	}, without("once", patch{file: "reclaim.sql", old: "v_wait := not v_waited and random() < 0.5;", new: "v_wait := true;"}))
}
