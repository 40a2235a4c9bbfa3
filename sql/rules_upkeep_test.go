package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// Upkeep that writes a reader's cursor again looks for it among the slots that are live once the
// reader is locked: the sequence may have entered a slot since upkeep began, and the reader with it.
// Written from an older row, a cursor would move back.

// runOn takes the sequence to the last position of its slot, as it happens without maintenance: the
// next is the first one of the slot after it.
func (s *session) runOn() {
	s.t.Helper()
	s.exec(`select setval('posthaste.positions', ((last_value >> 22) << 22) + 4194303) from posthaste.positions`)
}

// held makes upkeep wait for a lock, calls meanwhile, and releases the lock.
func (s *session) held(holder, upkeep *session, lock, work string, meanwhile func()) {
	s.t.Helper()
	holder.exec(`begin`)
	holder.exec(lock)
	done := upkeep.start(work)
	upkeep.blocked(s)
	meanwhile()
	holder.exec(`rollback`)
	if a := <-done; a.err != nil {
		s.t.Fatalf("%s: %v", work, a.err)
	}
}

// When an idle reader's cursor is carried.
func TestRuleCarriedCursorIsTheNewest(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.send(`{}`)
		s.receive()
		turn(t, s)
		var m int64
		s.held(connect(t, url), connect(t, url), `lock table posthaste.settings in access exclusive mode`, `select posthaste.carry_slot(0)::bigint`, func() {
			s.runOn()
			m = s.send(`{}`)
			s.receives(m)
		})
		return s.receivesNoMore(m)
	}, without("the marks of then", patch{file: "carry_slot.sql",
		old: "      l := posthaste.live_slots();\n      v_cursor := posthaste.cursor_of(v_reader, l);\n      if", new: "      v_cursor := posthaste.cursor_of(v_reader, l);\n      if"}))
}

// When it is read up to which time a reader has handed out due messages: only later ones are
// carried.
func TestRuleHandedOutIsNotCarried(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1, carry_after = '0'`)
		m := s.send(`{"delay": "1 day"}`)
		turn(t, s)
		// No other session writes here; transactions of other databases would count.
		s.exec(`update posthaste.slots set left_before = '3' where slot = 0`)
		upkeep := connect(t, url)
		upkeep.exec(`select posthaste.carry_slot(15)`) // which is free; otherwise it would wait for the lock before it has begun
		s.held(connect(t, url), upkeep, `lock table posthaste.carried in access exclusive mode`, `select posthaste.carry_slot(0)::bigint`, func() {
			s.runOn()
			// A day passes.
			s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`, m)
			s.receives(m)
		})
		return s.receivesNoMore(m)
	}, without("the marks of then", patch{file: "carry_slot.sql",
		old: "        l := posthaste.live_slots();\n        v_cursor := posthaste.cursor_of(v_reader, l);\n        v_reached", new: "        v_cursor := posthaste.cursor_of(v_reader, l);\n        v_reached"}))
}

// When messages that a subscription may not keep any more are skipped.
func TestRuleSkippingBeginsAtTheNewestCursor(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.subscribe("a", `{"max_lag": "1 hour"}`)
		s.subscribe("b", `{"max_lag": "1 hour"}`)
		want := []int64{s.send(`{}`)}
		turn(t, s)
		s.exec(`update posthaste.slots set opened_at = opened_at - interval '2 hours'`)
		until(t, "all older transactions have ended", func() bool { // also those of other databases
			return get[bool](s, `select posthaste.slot_entered(0) is null`)
		})
		// Upkeep waits at the first subscription, and comes to the second later.
		s.held(connect(t, url), connect(t, url), `select from posthaste.counters where subscription = 1 for update`, `select posthaste.skip_slot(0)`, func() {
			s.runOn()
			want = append(want, s.send(`{}`))
			if got := s.receiveFor("b"); !slices.Equal(got, want) {
				t.Fatalf("received %v, want %v", got, want)
			}
		})
		if got := s.receiveFor("b"); len(got) > 0 {
			return fmt.Sprintf("after %v were handed out, %v were", want, got)
		}
		if got := list[string](s, `select details ->> 'subscription' from posthaste.actions where action = 'skip'`); !slices.Equal(got, []string{"a"}) {
			return fmt.Sprintf("messages of %v were skipped, it is said, and b had all", got)
		}
		return ""
	}, without("the marks of then", patch{file: "skip_slot.sql", old: "    l := posthaste.live_slots(); -- their newest", new: "    -- their newest"}))
}

// When a reader that sifts is moved forward.
func TestRuleSiftingOnBeginsAtTheNewestCursor(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.subscribe("rare", `{"filter": {"kind": "rare"}}`)
		s.exec(`insert into posthaste.entries_plain (queue_id, payload, kind) select 1, '1', 'common' from generate_series(1, 100)`)
		m := s.send(`{"kind": "rare"}`)
		before := get[string](s, `select posthaste.live_slots()::text`)
		s.runOn()
		if got := s.receiveFor("rare"); !slices.Equal(got, []int64{m}) {
			t.Fatalf("received %v, want %d", got, m)
		}
		s.exec(`select posthaste.sift_on(posthaste.reader_key(1, 1, 0, 0), $1::text::posthaste.live)`, before)
		if got := s.receiveFor("rare"); len(got) > 0 {
			return fmt.Sprintf("after message %d was handed out, %v were", m, got)
		}
		return ""
	}, without("the marks of then", patch{file: "sift_on.sql", old: "  l := posthaste.live_slots(); -- its newest", new: "  -- its newest"}))
}

// A subscription that had a message and has no claim left that shows it is not reported when the
// message is rescheduled: the entry that is appended again is not for it.
func TestRuleRescheduledIsForThoseWhoWait(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set spare_slots = 15, carry_after = '0'`)
		s.subscribe("slow", `{}`)
		s.subscribe("none", `{"filter": {"kind": "none"}}`)
		m := s.send(`{}`)
		s.runOn()
		if got := s.receive(); !slices.Equal(got, []int64{m}) { // by a claim of the next slot
			t.Fatalf("received %v, want %d", got, m)
		}
		s.exec(ackAll)
		reclaimFirstClaim(t, s)
		if got := list[string](s, `select subscription from posthaste.reschedule($1, clock_timestamp())`, m); !slices.Equal(got, []string{"slow"}) {
			t.Fatalf("rescheduling tells of %v", got)
		}
		if got := s.receive(); len(got) > 0 {
			return fmt.Sprintf("message %d was done, and %v came when it was rescheduled for another", m, got)
		}
		if got := s.receiveFor("slow"); !slices.Contains(got, m) {
			return fmt.Sprintf("for whom it was rescheduled received %v, and not message %d", got, m)
		}
		return ""
	}, without("asking who had it", patch{file: "handed_long_ago.sql", old: "posthaste.is_for(s, null, h.xid, h.due_at, h.kind, h.headers)", new: "false"}))
}
