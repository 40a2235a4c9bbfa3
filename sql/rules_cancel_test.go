package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// cancel cancels and returns the results as "subscription cancelled state".
func (s *session) cancel(id int64) string {
	s.t.Helper()
	return strings.Join(list[string](s, `select format('%s %s %s', subscription, cancelled, state) from posthaste.cancel($1, 'ada')`, id), ", ")
}

// Cancelling is exact for each subscription: it reports subscriptions that have handed the message
// out already, and no other one ever does.
func TestCancel(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	s.subscribe("b", `{}`)
	s.subscribe("c", `{"filter": {"kind": "x"}}`)
	for _, c := range []struct{ name, options string }{
		{"scheduled", `{"kind": "x", "delay": "1 day"}`}, {"due", `{"kind": "x", "delay": "1 microsecond"}`}, {"not for c", `{}`}, {"fresh", `{"kind": "x"}`},
	} {
		name, options := c.name, c.options
		before, m, after := s.send(`{}`), s.send(options), s.send(`{"kind": "x"}`)
		want := "default running, b cancelled"
		if name == "scheduled" {
			want = "default cancelled, b cancelled"
		}
		got := s.receiveFor("default")
		if handed := slices.Contains(got, m); handed == (name == "scheduled") || !slices.Contains(got, before) {
			t.Fatalf("%s: received %v", name, got)
		}
		if name != "not for c" {
			want += ", c cancelled"
		}
		answer := s.cancel(m)
		if plain := strings.NewReplacer(" t cancelled", " cancelled", " f running", " running").Replace(answer); plain != want {
			t.Errorf("%s: answered %q, want %q", name, plain, want)
		}
		if again := s.cancel(m); again != answer {
			t.Errorf("%s: repeated it answered %q, before %q", name, again, answer)
		}
		if state := get[string](s, `select string_agg(subscription || ' ' || state, ', ' order by subscription = 'default' desc, subscription) from posthaste.message($1)`, m); state != want {
			t.Errorf("%s: it is reported as %q, want %q", name, state, want)
		}
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at > clock_timestamp()`)
		for _, sub := range []string{"default", "b", "c"} {
			got := s.receiveFor(sub)
			if slices.Contains(got, m) {
				t.Errorf("%s: %s received it", name, sub)
			}
			if sub != "default" && !slices.Contains(got, after) {
				t.Errorf("%s: %s received %v and not %d, which came after it", name, sub, got, after)
			}
		}
		s.exec(ackAll)
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select sum(depth + in_flight)::int from posthaste.queues`); n != 0 {
			t.Errorf("%s: %d wait or are in flight, it is said", name, n)
		}
	}
	if part := get[int](s, `select part::int from posthaste.claims where reader = posthaste.reader_key(1, 1, 0, 0) order by seq desc limit 1`); part != 3 {
		t.Errorf("the last claim has part %d", part)
	}
	// Nothing is left to sift: the next window is a plain one.
	s.send(`{}`)
	s.receiveFor("b")
	if part := get[int](s, `select part::int from posthaste.claims where reader = posthaste.reader_key(1, 1, 0, 0) order by seq desc limit 1`); part != 0 {
		t.Errorf("the next claim has part %d", part)
	}
	if n := get[int](s, `select count(*)::int from posthaste.actions where action = 'cancel' and by = 'ada'`); n != 4 {
		t.Errorf("%d are on record, want 4", n)
	}
	for sql, want := range map[string]string{
		`select from posthaste.cancel(123456789)`:                                   "PH404",
		`select from posthaste.cancel(null)`:                                        "PH400",
		`select from posthaste.reschedule(123456789, now())`:                        "PH404",
		`select from posthaste.reschedule(1, null)`:                                 "PH400",
		`select from posthaste.reschedule(1, 'infinity')`:                           "PH400",
		`select from posthaste.purge('nowhere')`:                                    "PH404",
		`begin isolation level repeatable read; select posthaste.cancel(1)`:         "PH400",
		`rollback; begin isolation level serializable; select posthaste.purge('q')`: "PH400",
	} {
		if strings.Contains(sql, "begin") {
			s.exec(`rollback`)
			sql = strings.TrimPrefix(sql, "rollback; ")
			s.exec(strings.Split(sql, "; ")[0])
			sql = strings.Split(sql, "; ")[1]
		}
		if code := s.code(sql); code != want {
			t.Errorf("%s ended with %q, want %s", sql, code, want)
		}
		s.exec(`rollback`)
	}
}

// Whether a message was handed out is read under its readers' locks, in a later statement: a claim
// may be handing it out at this moment.
func TestRuleCancelAsksUnderTheLock(t *testing.T) {
	for name, options := range map[string]string{"fresh": `{}`, "due": `{"delay": "1 microsecond"}`} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				claimer, canceller := connect(t, url), connect(t, url)
				m := s.send(options)
				claimer.exec(`begin`)
				handed := claimer.receive()
				waiting := canceller.start(`select cancelled::int::bigint from posthaste.cancel($1)`, m)
				var a answer
				ended := false
				until(t, "it waits, or has ended", func() bool {
					select {
					case a = <-waiting:
						ended = true
					default:
					}
					return ended || canceller.waits(s)
				})
				claimer.exec(`commit`)
				if !ended {
					a = <-waiting
				}
				if a.err != nil {
					t.Fatal(a.err)
				}
				if slices.Contains(handed, m) && !slices.Equal(a.values, []int64{0}) {
					return fmt.Sprintf("it was handed out, and it is said that %v were cancelled", a.values)
				}
				return ""
			},
				without("the lock", patch{file: "hold_readers.sql", old: "    perform posthaste.lock_reader(v_reader, true);\n", new: "    null;\n"}))
		})
	}
}

// A reader that has a withdrawn entry ahead sifts up to it and no further; its claims and those of
// before are read again unchanged.
func TestRuleWithdrawnFreshEntriesAreSifted(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		var ids []int64
		for range 9 {
			ids = append(ids, s.send(`{}`))
		}
		const claim = `select from posthaste.claim($1, $2, 'q', 'default', $3)`
		s.exec(claim, worker, 1, 3)
		for _, n := range []int{4, 5, 8} {
			if a := s.cancel(ids[n]); a != "default t cancelled" {
				return a
			}
		}
		if a := s.cancel(ids[1]); a != "default f running" {
			return a
		}
		s.exec(claim, worker, 2, 2)
		s.exec(claim, worker, 3, 10)
		if pg := s.refusal(`select from generate_series(1, 3) n cross join lateral posthaste.fetch($1, n)`, worker); pg != nil {
			return pg.Message
		}
		got := list[int64](s, `select message_id from generate_series(1, 3) n cross join lateral posthaste.fetch($1, n) order by message_id`, worker)
		if want := []int64{ids[0], ids[1], ids[2], ids[3], ids[6], ids[7]}; !slices.Equal(got, want) {
			return fmt.Sprintf("handed out %v, want %v", got, want)
		}
		for _, c := range list[int64](s, `select id from posthaste.claims where places > 0`) {
			at := list[int64](s, `select message_id from posthaste.claims c cross join lateral posthaste.deliveries_at(c, array(select generate_series(0, c.places - 1))) d where c.id = $1 order by place`, c)
			of := list[int64](s, `select message_id from posthaste.claims c cross join lateral posthaste.deliveries_of(c) d where c.id = $1 order by place`, c)
			if !slices.Equal(at, of) {
				return fmt.Sprintf("claim %d has %v, and by places %v", c, of, at)
			}
		}
		return ""
	},
		without("the cursor's mark", patch{file: "withdraw.sql", old: "  if h.due_at is null and not v_keyed then\n    perform", new: "  if false then\n    perform"}),
		without("leaving out", patch{file: "sifted_slice.sql", old: "if not (v_withdrawn and exists", new: "if not (false and exists"}),
		without("leaving out where it is read", patch{file: "fetch.sql", old: "           and posthaste.passes(u.filter, e.kind, e.headers)\n", new: "", times: 1},
			patch{file: "fetch.sql", old: "           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)\n         order by e.xid, e.pos) e\n         where r.hi > v_claim.first_xid::text::bigint and r.lo <= v_claim.last_xid::text::bigint\n         limit v_claim.places;\n    elsif v_claim.part >= 4 then", new: "         order by e.xid, e.pos) e\n         where r.hi > v_claim.first_xid::text::bigint and r.lo <= v_claim.last_xid::text::bigint\n         limit v_claim.places;\n    elsif v_claim.part >= 4 then"}))
}

const ackAll = `select from posthaste.ack(array(select c.id * 4096 + g from posthaste.claims c cross join lateral generate_series(0, c.places - 1) g where c.places > 0))`

// The late success of a lost attempt withdraws the new entry, if that was not handed out yet; it
// returns false, and in strict form changes nothing.
func TestRuleLateDoneWithdrawsTheNewEntry(t *testing.T) {
	lost := func(s *session) (m, delivery int64) {
		m = s.send(`{}`)
		delivery = list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)[0]
		s.endLeases()
		until(s.t, "its lease has ended", func() bool {
			s.exec(`select posthaste.rescue()`)
			return get[int](s, `select count(*)::int from posthaste.entries where message_id = $1`, m) == 1
		})
		return m, delivery
	}
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		m, d := lost(s)
		if get[bool](s, `select settled from posthaste.ack(array[$1::bigint])`, d) {
			return "the late ack settled"
		}
		if state := get[string](s, `select state from posthaste.message($1)`, m); state != "done" {
			return fmt.Sprintf("the message is %s", state)
		}
		if got := s.receive(); len(got) != 0 {
			return fmt.Sprintf("%v was handed out again", got)
		}
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select (depth + in_flight)::int from posthaste.queues`); n != 0 {
			return fmt.Sprintf("%d wait or are in flight, it is said", n)
		}
		if said := get[string](s, `select format('%s done, %s withdrawn', done, withdrawn) from posthaste.queues`); said != "1 done, 0 withdrawn" {
			return "it is reported as " + said
		}
		// Handed out before: then it runs, whatever the late success says.
		m, d = lost(s)
		if got := s.receive(); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("received %v, want %d", got, m)
		}
		s.exec(`select from posthaste.ack(array[$1::bigint])`, d)
		if state := get[string](s, `select state from posthaste.message($1)`, m); state != "running" {
			return fmt.Sprintf("it runs again, and after a late ack is %s", state)
		}
		s.exec(ackAll)
		// Strict: no effect at all.
		m, d = lost(s)
		if code := s.code(`select from posthaste.ack(array[$1::bigint], '{"strict": true}')`, d); code != "PH409" {
			return fmt.Sprintf("the strict late ack ended with %q", code)
		}
		if got := s.receive(); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("after a strict late ack %v was received, want %d", got, m)
		}
		s.exec(ackAll)
		// A late failure changes nothing.
		m, d = lost(s)
		s.exec(`select from posthaste.fail($1, 'no')`, d)
		if got := s.receive(); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("after a late failure %v was received, want %d", got, m)
		}
		return ""
	},
		without("withdrawing", patch{file: "settle.sql", old: "    perform posthaste.late_done(v_late[v_place], v_bits[v_place]);\n", new: "    null;\n"}),
		without("asking whether it was handed out", patch{file: "late_done.sql", old: ".fate = 'waiting'\n", new: ".fate is not null\n"}),
		without("counting it as done", patch{file: "count_up.sql", old: "+ n.withdrawn, again = again - n.done, done = done + n.done", new: "+ n.withdrawn + n.done"}),
		without("done alone", patch{file: "settle.sql", old: "v_bits := v_bits || (v_plain & ~v_fresh);", new: "v_bits := v_bits || (v_wanted & ~v_fresh);"},
			patch{file: "settle.sql", old: "bit_count(v_plain & ~v_fresh) > 0", new: "true"}))
}

// settleAll settles all deliveries of a worker.
const settleAll = `select from posthaste.settle(array(select c.id from posthaste.claims c where c.places > 0 and c.holder = $1 order by c.id), array(select repeat('1', c.places)::bit varying from posthaste.claims c where c.places > 0 and c.holder = $1 order by c.id))`

// In an ordered queue the late success of a lost attempt counts only if nothing of its key comes
// before it: neither a waiting message nor one that was redelivered.
func TestRuleLateDoneKeepsOrder(t *testing.T) {
	type step struct{ handed, all bool }
	walk := func(steps ...step) func(t *testing.T, url string) string {
		return func(t *testing.T, url string) string {
			s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
			for n, step := range steps {
				ids := []int64{s.sendKey("a"), s.sendKey("a"), s.sendKey("a")}
				lost := s.register()
				d := s.claim(lost, 1, 3, false)
				if len(d) != 3 {
					t.Fatalf("%d were handed out", len(d))
				}
				s.exec(`select posthaste.worker_unregister($1)`, lost)
				s.exec(`select posthaste.rescue()`)
				w := s.register()
				var again []int64
				came := func(number int64, most int) {
					s.claim(w, number, most, false)
					again = append(again, list[int64](s, `select message_id from posthaste.fetch($1, $2)`, w, number)...)
				}
				if step.handed {
					came(1, 1)
				}
				late := "010"
				if step.all {
					late = "110"
				}
				s.exec(`select from posthaste.settle(array[$1::bigint], array[$2::text::bit varying])`, d[0]>>12, late)
				for number := int64(2); number < 5; number++ {
					s.exec(settleAll, w)
					came(number, 3)
				}
				s.exec(settleAll, w)
				want := ids
				if step.all {
					want = ids[2:]
				}
				if !slices.Equal(again, want) {
					return fmt.Sprintf("%d: %v came again, want %v", n, again, want)
				}
				s.exec(`select posthaste.worker_unregister($1)`, w)
			}
			return ""
		}
	}
	t.Run("waits", func(t *testing.T) {
		rule(t, walk(step{}, step{all: true}), without("what waits before it", patch{file: "late_done.sql", old: "(x.ord, x.message_id) < (p.ord, p.message_id)", new: "false"}))
	})
	t.Run("handed out", func(t *testing.T) {
		rule(t, walk(step{handed: true}), without("messages in flight", patch{file: "late_done.sql", old: "posthaste.key_hash(p.key) <> all (v_busy)", new: "true"}))
	})
}

// Rescheduling is cancelling and sending in one step, for subscriptions that have not handed the
// message out.
func TestReschedule(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.subscribe("b", `{"filter": {"kind": "x"}}`)
	answer := func(id int64, at string) string {
		return strings.Join(list[string](s, `select format('%s %s %s', subscription, rescheduled, state) from posthaste.reschedule($1, clock_timestamp() + $2::text::interval, 'ada')`, id, at), ", ")
	}
	m := s.send(`{"kind": "x"}`)
	if got := answer(m, "1 day"); got != "default t scheduled, b t scheduled" {
		t.Errorf("answered %q", got)
	}
	s.subscribe("now", `{}`)
	s.subscribe("oldest", `{"from": "oldest"}`)
	for _, sub := range []string{"default", "b", "now", "oldest"} {
		if got := s.receiveFor(sub); len(got) != 0 {
			t.Errorf("%s received %v before its time", sub, got)
		}
	}
	if got := answer(m, "-1 second"); got != "default t ready, b t ready, oldest t ready" {
		t.Errorf("answered %q", got)
	}
	for sub, want := range map[string]int{"default": 1, "b": 1, "now": 0, "oldest": 1} {
		if got := s.receiveFor(sub); len(got) != want {
			t.Errorf("%s received %v, want %d", sub, got, want)
		}
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select depth::int from posthaste.queues where subscription = $1`, sub); n != 0 {
			t.Errorf("%s: %d wait, it is said", sub, n)
		}
	}
	if got := answer(m, "1 day"); got != "default f running, b f running, oldest f running" {
		t.Errorf("handed out everywhere it answered %q", got)
	}
	// One has it, the other has not; and a retry keeps its attempts when it is moved.
	m = s.send(`{"kind": "x"}`)
	d := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
	if got := answer(m, "1 day"); got != "default f running, b t scheduled, now t scheduled, oldest t scheduled" {
		t.Errorf("answered %q", got)
	}
	s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "1 day"}')`, d)
	if got := answer(m, "0"); got != "default t retrying, b t ready, now t ready, oldest t ready" {
		t.Errorf("answered %q", got)
	}
	if got := list[int](s, `select attempt::int from posthaste.receive('q', 10, '1 hour')`); !slices.Equal(got, []int{2}) {
		t.Errorf("received attempts %v, want 2", got)
	}
	if got := s.receiveFor("b"); !slices.Equal(got, []int64{m}) {
		t.Errorf("b received %v, want %d", got, m)
	}
	s.exec(`select from posthaste.count_up()`)
	if n := get[int](s, `select sum(depth)::int from posthaste.queues where subscription in ('default', 'b')`); n != 0 {
		t.Errorf("%d wait, it is said", n)
	}
}

// A purge withdraws waiting messages only.
func TestPurge(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	open := connect(t, url)
	worker := s.register()
	s.subscribe("b", `{"filter": {"kind": "x"}}`)
	var fresh []int64
	for range 10 {
		fresh = append(fresh, s.send(`{"kind": "x"}`))
	}
	later, retried := s.send(`{"kind": "x", "delay": "1 day"}`), s.send(`{"kind": "x"}`)
	s.claim(worker, 1, 3, false) // in the middle of a window
	var inFlight = list[int64](s, `select message_id from posthaste.fetch($1, 1)`, worker)
	s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive('q', 1, '1 hour')), 'no', '{"retry_after": "1 day"}')`)
	open.exec(`begin`)
	flying := open.send(`{"kind": "x"}`)
	if got := list[string](s, `select subscription || ' ' || purged from posthaste.purge('q', 'ada')`); !slices.Equal(got, []string{"b 12", "default 9"}) {
		t.Errorf("it took back %v", got)
	}
	open.exec(`commit`)
	after := s.send(`{"kind": "x", "delay": "1 microsecond"}`)
	s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at > clock_timestamp()`)
	s.subscribe("oldest", `{"from": "oldest"}`)
	for _, sub := range []string{"default", "b", "oldest"} {
		if got, want := s.receiveFor(sub), []int64{flying, after}; !slices.Equal(ascending(got), want) {
			t.Errorf("%s received %v, want %v", sub, got, want)
		}
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select depth::int from posthaste.queues where subscription = $1`, sub); n != 0 {
			t.Errorf("%s: %d wait, it is said", sub, n)
		}
	}
	for _, id := range append(fresh, later, retried) {
		want := "cancelled"
		if slices.Contains(inFlight, id) {
			want = "running"
		}
		if id == fresh[3] {
			want = "cancelled" // its retry was withdrawn
		}
		if got := get[string](s, `select state from posthaste.message($1) where subscription = 'default'`, id); got != want {
			t.Errorf("message %d is %s, want %s", id, got, want)
		}
	}
	if got := get[string](s, `select by || ' ' || (details ->> 'default') from posthaste.actions where action = 'purge'`); got != "ada 9" {
		t.Errorf("on record is %q", got)
	}
}

// A subscription that is further behind than its max_lag is skipped where space is needed, and
// nowhere else; skipped messages are counted and recorded.
func TestMaxLag(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.subscribe("bounded", `{"max_lag": "1 hour", "filter": {"kind": "x"}}`)
	ack := `select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1000, '1 hour')))`
	for range 5 {
		s.send(`{"kind": "x"}`)
	}
	s.send(`{"kind": "y"}`)
	s.send(`{"kind": "x", "delay": "1 microsecond"}`)
	later := s.send(`{"kind": "x", "delay": "1 day"}`)
	for range 3 {
		s.exec(ack)
	}
	s.receiveFor("bounded")
	s.exec(ackAll)
	for range 4 {
		s.send(`{"kind": "x"}`)
	}
	s.send(`{"kind": "x", "delay": "1 microsecond"}`)
	for range 3 {
		s.exec(ack)
	}
	turn(t, s)
	s.exec(`update posthaste.settings set slot_rows = 1000000`)
	after := s.send(`{"kind": "x"}`)
	s.exec(ack)
	skipped := func() int {
		return get[int](s, `select coalesce(sum((details ->> 'messages')::int), 0)::int from posthaste.actions where action = 'skip'`)
	}
	for range 10 {
		s.exec(`select posthaste.maintain()`)
	}
	if n := skipped(); n != 0 {
		t.Fatalf("%d were skipped at once", n)
	}
	// More than an hour passes.
	s.exec(`update posthaste.slots set opened_at = opened_at - interval '61 minutes'`)
	until(t, "the slot is reclaimed", func() bool {
		return slices.Contains(list[string](s, `select task from posthaste.maintain()`), "reclaimed")
	})
	if n := skipped(); n != 5 {
		t.Errorf("%d were skipped, it is said, want 5", n)
	}
	s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at > clock_timestamp()`)
	if got := s.receiveFor("bounded"); !slices.Equal(ascending(got), []int64{later, after}) {
		t.Errorf("then it received %v, want %v", got, []int64{later, after})
	}
	s.exec(`select from posthaste.count_up()`)
	if n := get[int](s, `select depth::int from posthaste.queues where subscription = 'bounded'`); n != 0 {
		t.Errorf("%d wait, it is said", n)
	}
}

// A message that is not committed yet when it is cancelled is unknown, even if it is committed
// meanwhile: its readers are not locked then, and the cursor that leaves it out would be a second
// one beside theirs.
func TestRuleWhatIsCommittedMeanwhileIsNotCancelled(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		sender, canceller, receiver := connect(t, url), connect(t, url), connect(t, url)
		// Before the first of its locks, if it takes one, it waits for this test.
		const gate = 4711
		s.exec(fmt.Sprintf(`create or replace function posthaste.hold_readers(p_heads posthaste.head[])
			returns void language sql volatile as 'select pg_catalog.pg_advisory_xact_lock(%d)'`, gate))
		s.exec(`select pg_advisory_lock($1)`, gate)
		sender.exec(`begin`)
		m := sender.send(`{}`)
		cancelled := canceller.start(`select cancelled::int::bigint from posthaste.cancel($1)`, m)
		canceller.waitsOrEnds(s, cancelled)
		sender.exec(`commit`)
		receiver.exec(`begin`)
		got := receiver.receive()
		s.exec(`select pg_advisory_unlock($1)`, gate)
		a := <-cancelled
		receiver.exec(`commit`)
		if a.err == nil || !slices.Contains(got, m) {
			return fmt.Sprintf("received %v, and cancelling %d says %v, %v", got, m, a.values, a.err)
		}
		return ""
	}, without("leaving it at the first look", patch{file: "hold_message.sql", old: "if v_heads <> '{}' then", new: "if true then"},
		patch{file: "hold_message.sql", old: "exit when (select bool_and((x).lane & 255 = any (v_lanes)) from unnest(v_heads) x) is not false;", new: "exit;"}))
}

// A withdrawn message costs its reader a look at those before it, and not at each of the millions
// that may follow in the same window; messages that are withdrawn later, or of an older transaction
// that commits late, are left out all the same.
func TestRuleSiftingEndsBehindWhatWasWithdrawn(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old := connect(t, url)
		old.exec(`begin`)
		late := old.send(`{}`)
		ids := list[int64](s, `select posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, 300)))`)
		worker := s.register()
		number := int64(0)
		var got []int64
		claim := func(n int) int {
			number++
			s.claim(worker, number, n, false)
			got = append(got, list[int64](s, `select message_id from posthaste.fetch($1, $2)`, worker, number)...)
			return get[int](s, `select part from posthaste.claims where reader = posthaste.reader_key(1, 0, 0, 0) order by seq desc limit 1`)
		}
		want := slices.Clone(ids)
		cancel := func(id int64) {
			s.exec(`select from posthaste.cancel($1)`, id)
			want = slices.DeleteFunc(want, func(w int64) bool { return w == id })
		}
		claim(10)
		cancel(ids[15])
		if claim(10) != 3 {
			return "nothing is left out where something was taken back"
		}
		if claim(10) == 3 {
			return "each of the rest of the window is looked at"
		}
		cancel(ids[45])
		claim(10)
		claim(10)
		if claim(10) == 3 {
			return "each of the rest of the window is looked at after another one"
		}
		old.exec(`commit`)
		cancel(late)
		for range 40 {
			claim(10)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("of 300 %d were handed out, and not those that were left: %v", len(got), got)
		}
		return ""
	},
		without("the end of it", patch{file: "sifted_slice.sql", old: "if not c.ended and v_filter is null\n", new: "if false and v_filter is null\n"}),
		without("what comes later", patch{file: "sifted_slice.sql", old: "x.xid >= pg_snapshot_xmin(c.s1) and", new: "false and"}),
		without("entries ahead", patch{file: "sifted_slice.sql", old: "x.xid >= greatest(c.last_xid, pg_snapshot_xmin(c.s0)) and", new: "false and"}))
}
