package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// The rules of ordered queues, each seen to fail without its protection.

// ordered is a session on a database whose queue q is ordered and has one lane.
func ordered(t *testing.T, url string) *session {
	t.Helper()
	return keyed(t, url, `{"ordered": true, "lanes": 1}`)
}

// claims claims for a worker, and returns deliveries and messages.
func (s *session) claims(worker, number int64, most int) (out []got) {
	s.t.Helper()
	ids := list[int64](s, `select unnest(array[delivery_id, message_id]) from posthaste.claim($1, $2, 'q', 'default', $3, false, true, true, true, 1000) where delivery_id is not null`, worker, number, most)
	for i := 0; i < len(ids); i += 2 {
		out = append(out, got{ids[i], ids[i+1]})
	}
	return out
}

func (s *session) settleAs(outcome string, g ...got) {
	s.t.Helper()
	for _, x := range g {
		s.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], array[$2::text], array['test'], array[0::float8], array[null::text], array[null::real])`, x.delivery, outcome)
	}
}

// wants reports a difference from the expected messages.
func wants(what string, have []got, want ...int64) string {
	if !slices.Equal(messages(have), want) {
		return fmt.Sprintf("%s: %v was handed out, want %v", what, messages(have), want)
	}
	return ""
}

// A send that began after another's commit comes later, even in a transaction that is older, and at
// an isolation level whose snapshot is older.
func TestRuleOrderIsThatOfSending(t *testing.T) {
	send := func(s *session) int64 { return s.sendKey("a") }
	many := func(s *session) int64 { return s.sendTogether("k", "a")[0] }
	for _, by := range []struct {
		name         string
		first, later func(*session) int64
		broken       patch
	}{
		{"sent", send, send, patch{file: "send.sql", old: "then posthaste.ord_now() end", new: "then pg_current_xact_id() end"}},
		{"many", many, many, patch{file: "insert_entries.sql", old: "v_ord := posthaste.ord_now();", new: "v_ord := pg_current_xact_id();"}},
		{"many after one", send, many, patch{file: "insert_entries.sql", old: "v_ord := posthaste.ord_now();", new: "v_ord := pg_current_xact_id();"}},
	} {
		for _, level := range []string{"read committed", "repeatable read"} {
			t.Run(by.name+", "+level, func(t *testing.T) {
				rule(t, func(t *testing.T, url string) string {
					s := ordered(t, url)
					old := connect(t, url)
					old.exec(`begin isolation level ` + level)
					old.exec(`select pg_current_xact_id()`)
					a1 := by.first(s)
					a2 := by.later(old)
					old.exec(`commit`)
					return wants("a worker's claim", s.claims(s.register(), 1, 10), a1, a2)
				}, without("the order of its own", by.broken))
			})
		}
	}
}

// An unfinished message blocks its key in the transaction that settles it.
func TestRuleUnfinishedBlocksItsKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, _ := s.sendKey("a"), s.sendKey("a")
		worker := s.register()
		first := s.claims(worker, 1, 1)
		if fault := wants("first", first, a1); fault != "" {
			t.Fatal(fault)
		}
		s.settleAs("retried", first...)
		s.exec(`update posthaste.parked set not_before = clock_timestamp() + interval '1 hour'`)
		return wants("while the first waits for its retry", s.claims(worker, 2, 10))
	}, without("the event", patch{file: "finish.sql", old: "'id', told.message_id)\n                     ||", new: "'id', null)\n                     ||"}),
		without("the check for blocked keys", patch{file: "pass_log.sql", old: "when z.blocked then 'behind'", new: "when false then 'behind'"}))
}

// No message of a key is released while another one is in flight, because that may come back, and is
// earlier.
func TestRuleNothingIsLetGoBesideWhatIsInFlight(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, a2, a3 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a")
		worker := s.register()
		g := s.claims(worker, 1, 3)
		if fault := wants("first", g, a1, a2, a3); fault != "" {
			t.Fatal(fault)
		}
		s.settleAs("done", g[0])
		s.settleAs("released", g[2])
		if fault := wants("while the second runs", s.claims(worker, 2, 10)); fault != "" {
			return fault
		}
		s.settleAs("released", g[1])
		return wants("afterwards", s.claims(worker, 3, 10), a2, a3)
	}, without("the question", patch{file: "let_go.sql", old: "if q.ordered and k.hash = any (busy) then", new: "if false then"}))
}

// A key whose messages arrive as fast as they are released does not stay blocked: a claim releases
// all parked ones, and then later ones come from the log.
func TestRuleABusyKeyDoesNotStayBlocked(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		var sent []int64
		send := func(n int) {
			for range n {
				sent = append(sent, s.sendKey("a"))
			}
		}
		send(4)
		worker := s.register()
		came := s.claims(worker, 1, 100)
		if fault := wants("first", came, sent...); fault != "" {
			t.Fatal(fault)
		}
		s.settleAs("released", came...)
		var all []got
		came = came[:1]
		for number := int64(2); number < 12; number++ {
			send(len(came))
			came = s.claims(worker, number, 100)
			s.settleAs("done", came...)
			all = append(all, came...)
		}
		if get[bool](s, `select exists (select from posthaste.keys where blocked)`) {
			return fmt.Sprintf("after ten claims, which handed out %d of %d messages, the key is still blocked", len(all), len(sent))
		}
		return wants("all", all, sent...)
	}, without("all that is parked", patch{file: "let_go.sql", old: "v_room := p_limit - cardinality(v_picked);", new: "v_room := least(1, p_limit - cardinality(v_picked));"}))
}

// Deliveries that the claiming transaction settled itself count as in flight, because the event of
// the settlement is not visible yet.
func TestRuleOwnSettlementsCountAsInFlight(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, _ := s.sendKey("a"), s.sendKey("a")
		if fault := wants("first", s.take(10), a1); fault != "" {
			t.Fatal(fault)
		}
		s.endLeases()
		s.exec(`begin`)
		got := s.take(10) // rescues the first
		s.exec(`commit`)
		if fault := wants("beside the rescue", got); fault != "" {
			return fault
		}
		return wants("after the rescue", s.take(10), a1)
	}, without("the snapshot", patch{file: "lane_busy.sql", old: "pg_visible_in_snapshot(s.xid, p_seen)", new: "true", times: 2},
		patch{file: "lane_open.sql", old: "pg_visible_in_snapshot(s.xid, p_seen)", new: "true", times: 2}))
}

// Which deliveries are in flight is read as of the snapshot up to which events are read: a delivery
// that was returned after it still counts.
func TestRuleInFlightIsAskedAsOfTheEvents(t *testing.T) {
	// The claim stops between its snapshot and that read.
	stop := patch{file: "due_idle.sql", old: "begin\n", new: "begin\n  perform pg_advisory_xact_lock(4711);\n"}
	rule(t, func(t *testing.T, url string) string {
		breakFunctions(t, url, []patch{stop})
		s := ordered(t, url)
		other, holder := connect(t, url), connect(t, url)
		a1, _ := s.sendKey("a"), s.sendKey("a")
		first := s.take(10)
		if fault := wants("first", first, a1); fault != "" {
			t.Fatal(fault)
		}
		holder.exec(`begin`)
		holder.exec(`select pg_advisory_xact_lock(4711)`)
		claiming := other.start(receiveAll)
		other.blocked(s)
		s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`, first[0].delivery)
		holder.exec(`commit`)
		a := <-claiming
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got := append(a.values, messages(s.take(10))...); !slices.Equal(got, []int64{a1}) {
			return fmt.Sprintf("%v was handed out, and %d had come back", got, a1)
		}
		return ""
	}, without("the snapshot of the events", patch{file: "claim_keyed.sql", old: "posthaste.lane_busy(v_open.open, s)", new: "posthaste.lane_busy(v_open.open, posthaste.snapshot_now())"}))
}

// Entries of messages that a claim releases may be in a slot that became live after it looked.
func TestRuleLetGoIsReadWhereItWasAppended(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1 := s.sendKey("a")
		worker := s.register()
		first := s.claims(worker, 1, 1)
		if fault := wants("first", first, a1); fault != "" {
			t.Fatal(fault)
		}
		s.settleAs("released", first...)
		s.exec(`select setval('posthaste.positions', (1 << 22) - 1)`)
		if pg := s.refusal(`select from posthaste.claim($1, 2, 'q', 'default', 10, p_rows => 1000)`, worker); pg != nil {
			return pg.Message
		}
		if n := get[int](s, `select count(*)::int from posthaste.entries where lane = 256 and pos = 1 << 22`); n != 1 {
			t.Fatalf("%d entries were appended where the next slot begins", n)
		}
		return ""
	}, without("the later slots", patch{file: "keyed_rows.sql", old: "      l := row((c.first_pos >> 22) & 15, (c.first_pos >> 22) & 15, 1, 0, 1, 0)::posthaste.live;\n", new: "      null;\n"}))
}

// The lowest parked message is the lowest by order, and not by position: a sender may have taken its
// place in the order and then been slow.
func TestRuleLowestIsByOrder(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		slow := connect(t, url)
		a1 := s.sendKey("a")
		first := s.take(10)
		if fault := wants("first", first, a1); fault != "" {
			t.Fatal(fault)
		}
		slow.exec(`begin`)
		ord := get[string](slow, `select posthaste.ord_now()::text`)
		s.exec(`select pg_current_xact_id()`)
		a3 := s.sendKey("a")
		s.take(10) // parks it
		a2 := get[int64](slow, `insert into posthaste.entries_other (ord, queue_id, lane, key, payload) select $1::text::xid8, id, 0, 'a', '1' from posthaste.queue_settings returning pos`, ord)
		slow.exec(`commit`)
		if fault := wants("behind the first", s.take(10)); fault != "" {
			t.Fatal(fault)
		}
		s.ack(first...)
		second := s.take(10)
		if fault := wants("second", second, a2); fault != "" {
			return fault
		}
		s.ack(second...)
		return wants("third", s.take(10), a3)
	}, without("the order", patch{file: "block_keys.sql", old: "(k.low_ord, k.low_id) <= (excluded.low_ord, excluded.low_id)", new: "k.low_id <= excluded.low_id", times: 2}))
}

// One worker at a time holds a lane: another claims there when none of its claims is open, and then
// all its remaining messages come first.
func TestRuleALaneHasOneHolder(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, a2 := s.sendKey("a"), s.sendKey("a")
		one, two := s.register(), s.register()
		first := s.claims(one, 1, 1)
		if fault := wants("first", first, a1); fault != "" {
			t.Fatal(fault)
		}
		if fault := wants("another worker", s.claims(two, 1, 10)); fault != "" {
			return fault
		}
		if fault := wants("a receiver", s.take(10)); fault != "" {
			return fault
		}
		s.settleAs("released", first...)
		return wants("another worker afterwards", s.claims(two, 2, 10), a1, a2)
	}, without("the holder", patch{file: "claim_keyed.sql", old: "if v_open.other is not null or ", new: "if "}))
}

// A worker that never rests gives a lane to one that came later and asked for it.
func TestRuleLanesAreHandedOver(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 2}`)
		keys := list[string](s, `select distinct on (posthaste.key_lane(k, 2)) k from unnest(array['a','b','c','d','e','f','g','h','i','j']) k order by posthaste.key_lane(k, 2), k`)
		sendBoth := func() {
			for _, key := range keys {
				s.sendKey(key)
			}
		}
		sendBoth()
		one, two := s.register(), s.register()
		held := s.claims(one, 1, 10)
		if len(held) != 2 {
			t.Fatalf("the first worker got %v", held)
		}
		for number := int64(2); number < 12; number++ {
			sendBoth()
			if n := len(s.claims(two, number, 10)); n > 0 {
				return ""
			}
			more := s.claims(one, number, 10)
			s.settleAs("done", held...) // later claims stay open
			held = more
		}
		return "a worker that came later was given no lane"
	}, without("the wish", patch{file: "claim_keyed.sql", old: "and y.worker <> coalesce(p_holder, 0)", new: "and false"}))
}

// Only a claim parks, releases and unblocks, one after the other in a lane.
func TestRuleLettingGoIsOnesAtATime(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		one, two := connect(t, url), connect(t, url)
		a1, a2 := s.sendKey("a"), s.sendKey("a")
		one.exec(`begin`)
		if fault := wants("first", one.take(10), a1); fault != "" {
			t.Fatal(fault)
		}
		waiting := two.start(receiveAll)
		until(t, "the second waits, or has its answer", func() bool {
			return len(waiting) > 0 || two.waits(s)
		})
		one.exec(`commit`)
		a := <-waiting
		if a.err != nil {
			return a.err.Error()
		}
		if len(a.values) > 0 {
			return fmt.Sprintf("%v was handed out beside %d, want %d behind it", a.values, a1, a2)
		}
		return ""
	}, without("the lock", patch{file: "claim_keyed.sql", old: "if not posthaste.lock_reader(v_reader, p_wait) or not posthaste.lock_reader(v_reader + 1, p_wait) then", new: "if false then"}))
}

// Messages of a transaction that was open when the cursor passed are found when it ends: those sent
// first, whose place in the order is its id, and those sent after others had ended. They are handed
// out, read and counted once.
func TestRuleLateSendersAreRead(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		slow, worker := connect(t, url), s.register()
		var first, later int64
		until(t, "a place in the order is the transaction's id", func() bool {
			slow.exec(`begin`)
			first = slow.sendKey("a")
			if !get[bool](slow, `select ord = xid from posthaste.entries where pos = $1`, first) {
				slow.exec(`rollback`)
				return false
			}
			return true
		})
		between := s.sendKey("b")
		if later = slow.sendKey("c"); get[bool](slow, `select ord = xid from posthaste.entries where pos = $1`, later) {
			t.Fatal("a message sent after others had ended has the order of its transaction's beginning")
		}
		s.exec(`select pg_current_xact_id()`)
		if fault := wants("beside the late one", s.claims(worker, 1, 10), between); fault != "" {
			t.Fatal(fault)
		}
		s.exec(`select posthaste.maintain()`)
		slow.exec(`commit`)
		for number, want := range []int64{first, later} {
			pg := s.refusal(`select from posthaste.claim($1, $2, 'q', 'default', 1, p_rows => 1)`, worker, number+2)
			if pg != nil {
				return pg.Message
			}
			if got := list[int64](s, `select message_id from posthaste.fetch($1, $2)`, worker, number+2); !slices.Equal(got, []int64{want}) {
				return fmt.Sprintf("%v was handed out, want %d of a late sender", got, want)
			}
			if state := get[string](s, `select state from posthaste.message($1)`, want); state != "running" {
				return fmt.Sprintf("the state of message %d is %s", want, state)
			}
		}
		s.exec(`select posthaste.maintain()`)
		if n := get[int](s, `select sent::int from posthaste.counters where subscription = 0`); n != 3 {
			return fmt.Sprintf("%d of 3 are counted as sent", n)
		}
		return ""
	},
		without("its first messages", patch{file: "ordered_slice.sql", old: "and e.ord = r.x and e.pos > case", new: "and e.ord = r.x and false and e.pos > case"}),
		without("its later messages", patch{file: "ordered_slice.sql", old: "e.due_at is null and e.ord <> e.xid", new: "e.due_at is null and e.ord <> e.xid and false"}),
		without("reading its first messages", patch{file: "keyed_rows.sql", old: "and e.ord = r.x and e.pos >= case", new: "and e.ord = r.x and false and e.pos >= case"}),
		without("reading its later messages", patch{file: "keyed_rows.sql", old: "e.due_at is null and e.ord <> e.xid", new: "e.due_at is null and e.ord <> e.xid and false"}),
		without("counting its first messages", patch{file: "count_up.sql", old: "e.due_at is null and e.ord = e.xid", new: "e.due_at is null and e.ord = e.xid and false"}),
		without("counting its later messages", patch{file: "count_up.sql", old: "e.due_at is null and e.ord <> e.xid", new: "e.due_at is null and e.ord <> e.xid and false"}))
}
