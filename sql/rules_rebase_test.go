package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// A sender that took its place in the order before the rebase, and inserts its message after it,
// still comes after earlier sends.
func TestRuleRebaseKeepsTheOrderOfWaitingSenders(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sender, other := connect(t, url), connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"ordered": true, "lanes": 1}')`)
		first := s.send(`{"key": "k"}`)
		s.exec(`select posthaste.pause_key('q', 'k')`) // until both are parked
		sender.exec(`begin`)
		place := get[string](sender, `select posthaste.ord_now()::text`)
		// So that the rebase's id is not the next one.
		other.exec(`begin`)
		other.exec(`select pg_current_xact_id()`)
		s.rebase()
		second := get[int64](sender, `insert into posthaste.entries_other (ord, queue_id, key, payload) select $1::xid8, id, 'k', '2' from posthaste.queue_settings where name = 'q' returning pos`, place)
		sender.exec(`commit`)
		other.exec(`rollback`)
		until(t, "both are parked", func() bool {
			return len(s.receive()) == 0 && get[int](s, `select count(*)::int from posthaste.parked`) == 2
		})
		s.exec(`select posthaste.resume_key('q', 'k')`)
		if came := s.takeAll(2); !slices.Equal(came, []int64{first, second}) {
			return fmt.Sprintf("%d was sent first, then %d, and they came as %v", first, second, came)
		}
		return ""
	}, without("the lowest place", patch{file: "rebase_append.sql", old: "constant xid8 := '1'", new: "xid8 := pg_current_xact_id()"},
		patch{file: "rebase_keys.sql", old: "constant xid8 := '1'", new: "xid8 := pg_current_xact_id()"}))
}

// A sender of many takes its positions before it inserts them. A rebase waits for it: otherwise the
// messages would be where no reader looks any more.
func TestRuleRebaseWaitsForPositions(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sender, gate := begin(t, url), connect(t, url), connect(t, url)
		// A pause between the two.
		const take = `ids := array(select nextval('posthaste.positions') from generate_series(1, cardinality(p_payloads)));`
		s.exec(pauseAfter("insert_entries", take))
		gate.exec(`select pg_advisory_lock(77)`)
		sent := sender.start(`select count(*) from posthaste.send_many('q', '[{"payload": 1}, {"payload": 2}, {"payload": 3}]')`)
		until(t, "the sender has its positions", func() bool { return sender.waits(s) })
		rebaser := connect(t, url)
		rebaser.exec(`update posthaste.identity set database_oid = 1`)
		done := rebaser.start(`select waiting from posthaste.rebase()`)
		var early *answer
		until(t, "the rebase waits or is over", func() bool {
			select {
			case a := <-done:
				early = &a
				return true
			default:
				return rebaser.waits(s)
			}
		})
		gate.exec(`select pg_advisory_unlock(77)`)
		if a := <-sent; a.err != nil {
			t.Fatal(a.err)
		}
		if early == nil {
			a := <-done
			early = &a
		}
		if early.err != nil {
			t.Fatal(early.err)
		}
		if came := s.receive(); len(came) != 3 {
			return fmt.Sprintf("3 were sent, and %v came", came)
		}
		return ""
	}, without("the lock", patch{file: "insert_entries.sql", old: "lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;", new: "", times: 2}))
}

// pauseAfter is a statement that makes a function wait for advisory lock 77 after a part of its
// text.
func pauseAfter(function, part string) string {
	return fmt.Sprintf(`do $do$ declare v_body text := pg_get_functiondef('posthaste.%s'::regproc); begin
		assert position($part$%s$part$ in v_body) > 0;
		execute replace(v_body, $part$%[2]s$part$, $part$%[2]s perform pg_advisory_xact_lock(77);$part$); end $do$`, function, part)
}

// A rebase empties the ring of the old entries: their ids may be given out here one day, and then
// they would be delivered again.
func TestRuleRebaseEmptiesTheRing(t *testing.T) {
	for name, broken := range map[string]twin{
		"with a free slot": without("truncating", patch{file: "rebase_ring.sql", old: "truncate posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s,", new: "truncate"}),
		"with none":        without("deleting", patch{file: "rebase_ring.sql", old: "delete from posthaste.entries_plain_%s where pos < $1", new: "delete from posthaste.entries_plain_%s where pos < $1 and false"}),
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				s.exec(`select setval('posthaste.positions', 2::bigint << 22)`)
				first, second := s.send(`{}`), s.send(`{}`)
				s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1, '1 hour')))`)
				s.exec(`select posthaste.rotate()`) // marks the slots that the sequence entered
				if name == "with none" {
					s.exec(`select setval('posthaste.positions', 17::bigint << 22)`) // the next slot has theirs
					s.exec(`update posthaste.slots set live = true, epoch = case when slot < 2 then 16 + slot else slot end`)
				}
				// A dump of a server that was so many ids ahead.
				const ahead = 20_000
				s.exec(`update posthaste.entries_plain set xid = (xid::text::bigint + $1)::text::xid8`, ahead)
				s.exec(`update posthaste.claims set s1 = format('%1$s:%1$s:', pg_snapshot_xmax(s1)::text::bigint + $1)::pg_snapshot where s1 is not null`, ahead)
				s.exec(`update posthaste.claims set first_xid = (first_xid::text::bigint + $1)::text::xid8, last_xid = (last_xid::text::bigint + $1)::text::xid8 where places > 0`, ahead)
				s.rebase()
				if got := s.receive(); !slices.Equal(got, []int64{second}) {
					// A fault may also show at once, if other sessions use ids fast.
					return fmt.Sprintf("after the rebase %v was received; %d was settled, and %d was not", got, first, second)
				}
				s.exec(`create temp table given (n int)`)
				s.exec(fmt.Sprintf(`do $$ begin for n in 1..%d loop begin insert into given values (n); exception when division_by_zero then null; end; end loop; end $$`, ahead))
				s.exec(`select setval('posthaste.positions', posthaste.slot_start(last_value, 2), false) from posthaste.positions`)
				third := s.send(`{}`)
				if got := s.receive(); !slices.Equal(got, []int64{third}) {
					return fmt.Sprintf("%d was sent, and %v was received", third, got)
				}
				return ""
			}, broken)
		})
	}
}

// If only the server's identifier differs, as after pg_upgrade, an operator may declare the
// transaction ids to be the same: then nothing is handed out again. If another transaction wrote the
// row, as in a restored dump, that fails.
func TestRuleRebaseSameIDs(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first, second := s.send(`{}`), s.send(`{}`)
		if came := list[int64](s, `select message_id from posthaste.receive('q', 1, '1 hour')`); len(came) != 1 || came[0] != first {
			t.Fatalf("%v came first, and %d was sent", came, first)
		}
		s.exec(`begin`)
		s.exec(`update posthaste.identity set system_identifier = 1`)
		s.exec(`update posthaste.identity set written_by = xmin`)
		s.exec(`commit`)
		copied := connect(t, url)
		if code := copied.code(receiveAll); code != "PH503" {
			return fmt.Sprintf("in a copy receive ends with %q", code)
		}
		if code := copied.code(`select posthaste.rebase(same_ids => true)`); code != "" {
			return "a database upgraded by pg_upgrade fails: " + code
		}
		if came := copied.receive(); !slices.Equal(came, []int64{second}) {
			return fmt.Sprintf("%d was left to be handed out, and %v came", second, came)
		}
		s.exec(`update posthaste.identity set system_identifier = 1`)
		if code := s.code(`select posthaste.rebase(same_ids => true)`); code != "PH409" {
			return fmt.Sprintf("same ids in a restored dump end with %q", code)
		}
		return ""
	}, without("a difference", patch{file: "rebase.sql", old: "if rebase.same_ids then", new: "if false then"}),
		without("a refusal", patch{file: "rebase.sql", old: "if not v_same then\n      raise", new: "if false then\n      raise"}))
}

// rebase makes the database a copy and rebases it.
func (s *session) rebase() {
	s.t.Helper()
	s.exec(`update posthaste.identity set database_oid = 1`)
	if !get[bool](s, `select rebased from posthaste.rebase()`) {
		s.t.Fatal("nothing was rebased")
	}
}

// takeAll receives and acknowledges until n messages came, and returns them.
func (s *session) takeAll(n int) (came []int64) {
	s.t.Helper()
	until(s.t, "all messages came", func() bool {
		came = append(came, s.receive()...)
		s.exec(`select posthaste.ack(array(select c.id * 4096 + g from posthaste.claims c cross join lateral generate_series(0, c.places - 1) g where c.places > 0))`)
		return len(came) >= n
	})
	return came
}

// Senders lock the tables of the ring in any order: none of them, and no rebase, ends in a deadlock.
func TestRuleRebaseGivesWayToSenders(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sender, rebaser := begin(t, url), connect(t, url), connect(t, url)
		sender.exec(`begin`)
		sender.exec(`select posthaste.send('q', '1', '{"delay": "1 day"}')`)
		rebaser.exec(`update posthaste.identity set database_oid = 1`)
		done := rebaser.start(`select waiting from posthaste.rebase()`)
		rebaser.blocked(s)
		if a := <-sender.start(`select posthaste.send('q', '2')`); a.err != nil {
			return fmt.Sprint("sending: ", a.err)
		}
		sender.exec(`commit`)
		if a := <-done; a.err != nil || !slices.Equal(a.values, []int64{2}) {
			return fmt.Sprintf("rebasing: %v", a)
		}
		return ""
	}, without("giving way", patch{file: "rebase.sql", old: "set_config('lock_timeout', '300ms', true)", new: "set_config('lock_timeout', '0', true)"}))
}
