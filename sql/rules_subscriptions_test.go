package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// receiveFor receives all there is for one subscription, as message ids.
func (s *session) receiveFor(subscription string) []int64 {
	s.t.Helper()
	var all []int64
	for {
		got := list[int64](s, `select message_id from posthaste.receive('q', 1000, '1 hour', jsonb_build_object('subscription', $1::text))`, subscription)
		if all = append(all, got...); len(got) == 0 {
			return all
		}
	}
}

func (s *session) subscribe(name, options string) {
	s.t.Helper()
	s.exec(`select posthaste.subscribe('q', $1, $2)`, name, options)
}

// Each subscription begins where its options say. "now" includes messages that senders commit later,
// and "scheduled" those that were scheduled before.
func TestRuleSubscriptionsBegin(t *testing.T) {
	rule(t, func(t *testing.T, url string) (fault string) {
		s := begin(t, url)
		open := connect(t, url)
		fresh, soon, later := s.send(`{}`), s.send(`{"delay": "1 microsecond"}`), s.send(`{"delay": "1 day"}`)
		open.exec(`begin`)
		flying := open.send(`{}`)
		s.subscribe("now", `{}`)
		s.subscribe("planned", `{"scheduled": true}`)
		s.subscribe("oldest", `{"from": "oldest"}`)
		open.exec(`commit`)
		after, again := s.send(`{}`), s.send(`{"delay": "1 microsecond"}`)
		// A day passes for the message that waits for it.
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`, later)
		for _, c := range []struct {
			name string
			want []int64
		}{
			{"default", []int64{fresh, soon, later, flying, after, again}},
			{"now", []int64{flying, after, again}},
			{"planned", []int64{later, flying, after, again}},
			{"oldest", []int64{fresh, soon, later, flying, after, again}},
		} {
			if got := s.receiveFor(c.name); !slices.Equal(ascending(got), c.want) {
				return fmt.Sprintf("%s received %v, want %v", c.name, ascending(got), c.want)
			}
			s.exec(`select from posthaste.count_up()`)
			if n := get[int](s, `select depth::int from posthaste.queues where subscription = $1`, c.name); n != 0 {
				return fmt.Sprintf("%s: depth is %d after all was received", c.name, n)
			}
			if n := get[int](s, `select sent::int from posthaste.queues where subscription = $1`, c.name); n != len(c.want) {
				return fmt.Sprintf("%s: sent is %d, and it received %d", c.name, n, len(c.want))
			}
		}
		return ""
	}, without("those in flight", patch{file: "subscribe.sql",
		old: "then (select c.s from posthaste.counted c)",
		new: "then (select format('%s:%s:', pg_snapshot_xmax(c.s), pg_snapshot_xmax(c.s))::pg_snapshot from posthaste.counted c)"}))
}

// A filter accepts the messages that it names, on both tracks; retries bypass it because they passed
// it before; and excluded messages are neither counted nor kept.
func TestFilters(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	s.subscribe("paid", `{"filter": {"kind": "paid"}}`)
	s.subscribe("eu", `{"filter": {"kind": ["paid", "made"], "headers": {"region": ["eu", "uk"]}}}`)
	want := map[string][]int64{}
	for n := range 40 {
		kind, region := []string{"paid", "made", "gone", ""}[n%4], []string{"eu", "us"}[n/4%2]
		options := fmt.Sprintf(`"headers": {"region": %q, "n": "1"}`, region)
		if kind != "" {
			options += fmt.Sprintf(`, "kind": %q`, kind)
		}
		if n%3 == 0 {
			options += `, "delay": "1 microsecond"`
		}
		id := s.send("{" + options + "}")
		want["default"] = append(want["default"], id)
		if kind == "paid" {
			want["paid"] = append(want["paid"], id)
		}
		if (kind == "paid" || kind == "made") && region == "eu" {
			want["eu"] = append(want["eu"], id)
		}
	}
	for name, ids := range want {
		worker := s.register()
		var got []int64
		for number := 1; number < 100; number++ {
			handed := list[int64](s, `select coalesce(message_id, 0) from posthaste.claim($1, $2, 'q', $3, 3, p_rows => 100)`, worker, number, name)
			if handed[0] == 0 {
				break
			}
			got = append(got, handed...)
			if number == 1 { // failed, and comes again
				s.exec(`select from posthaste.settle('{}', '{}', array(select numbered_from + ordinality from posthaste.fetch($1, 1) with ordinality),
					array_fill('retried'::text, array[$2::int]), array_fill('again'::text, array[$2::int]), array_fill(0::float8, array[$2::int]), array_fill(null::text, array[$2::int]), array_fill(null::real, array[$2::int]))`,
					worker, len(handed))
				ids = append(ids, handed...)
			}
		}
		if !slices.Equal(ascending(got), ascending(ids)) {
			t.Errorf("%s was handed %v, want %v", name, ascending(got), ascending(ids))
		}
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select depth::int from posthaste.queues where subscription = $1`, name); n > 64 {
			t.Errorf("%s: %d wait, it is said", name, n)
		}
		// Each message has states in the subscriptions that it is for.
		for _, id := range want["default"] {
			told := get[int](s, `select count(*)::int from posthaste.message($1) where subscription = $2`, id, name)
			if (told == 1) != slices.Contains(want[name], id) {
				t.Errorf("%s: message %d is reported %d times", name, id, told)
			}
			if listed := get[int](s, `select count(*)::int from posthaste.messages where message_id = $1 and subscription = $2`, id, name); listed != told {
				t.Errorf("%s: message %d is reported %d times and listed %d times", name, id, told, listed)
			}
		}
		if s.exec(`select from posthaste.receive('q', 1, '1 hour', jsonb_build_object('subscription', $1::text))`, name); get[bool](s, `select ready from posthaste.worker_look($1, '{q}', array[$2])`, worker, name) {
			t.Errorf("%s: something is ready, it is said", name)
		}
	}
}

// A filter and all other options are immutable: subscribing again changes nothing.
func TestSubscribeIsRepeatable(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.subscribe("a", `{"filter": {"kind": ["x", "y"]}, "max_lag": "1 hour"}`)
	before := get[string](s, `select string_agg(s::text, ' ') from posthaste.subscriptions s`)
	s.subscribe("a", `{"filter": {"kind": ["y", "x", "y"]}, "max_lag": "60 minutes"}`)
	s.subscribe("default", `{}`)
	for _, options := range []string{`{}`, `{"filter": {"kind": "x"}, "max_lag": "1 hour"}`, `{"filter": {"kind": ["x", "y"]}}`, `{"filter": {"kind": ["x", "y"]}, "max_lag": "1 hour", "from": "oldest"}`} {
		if code := s.code(`select posthaste.subscribe('q', 'a', $1)`, options); code != "PH409" {
			t.Errorf("%s: it ended with %q", options, code)
		}
	}
	if after := get[string](s, `select string_agg(s::text, ' ') from posthaste.subscriptions s`); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

// Adding a subscription and reclaiming exclude each other: reclaiming looks at the subscriptions
// that it sees.
func TestRuleSubscribingAndReclaimingExcludeEachOther(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := turned(t, url)
		maker := connect(t, url)
		maker.exec(`begin`)
		maker.exec(`select posthaste.subscribe('q', 'late', '{"from": "oldest"}')`)
		// As maintenance does, but without its other waits; transactions of other databases keep a
		// slot, too.
		testrun.Happens(20*time.Second, func() bool {
			s.exec(`begin`)
			mine := get[bool](s, `select pg_try_advisory_xact_lock(posthaste.lock_key(6, 0))`)
			if mine {
				s.exec(`select posthaste.reclaim()`)
			}
			s.exec(`commit`)
			return !mine || !get[bool](s, `select live from posthaste.slots where slot = 0`)
		})
		maker.exec(`commit`)
		if got := s.receiveFor("late"); len(got) != 2 {
			return fmt.Sprintf("two messages were kept when it was made, and it received %v", got)
		}
		return ""
	}, without("the maintenance key",
		patch{file: "subscribe.sql", old: "  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));\n", new: ""},
		// Counting reads the slots, and so keeps them, too.
		patch{file: "subscribe.sql", old: "  perform posthaste.count_up();\n", new: ""},
		patch{file: "subscribe.sql", old: "then posthaste.count_kept(u) else 0 end", new: "then 0 end"}))
}

// A claim that walked over many excluded messages keeps its progress, runs in bounded steps, and
// asks for another claim where it stopped; a look says so, too, though there is nothing to hand
// out.
func TestRuleSiftingKeepsItsProgress(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.subscribe("rare", `{"filter": {"kind": "rare"}}`)
		n := rows(t, 20_000)
		s.exec(`insert into posthaste.entries_plain (queue_id, payload, kind) select 1, '1', 'common' from generate_series(1, $1::int)`, n)
		m := s.send(`{"kind": "rare"}`)
		const step = 4096
		worker := s.register()
		if !get[bool](s, `select ready from posthaste.worker_look($1, '{q}', '{rare}')`, worker) {
			return "there is much to walk over, and the look says nothing of it"
		}
		claim := `select handed || ' ' || coalesce(next_due::text, 'nothing') from posthaste.claim(%d, %d, 'q', 'rare', 1000)`
		found := false
		for number := range n/step + 3 {
			if walked := s.walked(fmt.Sprintf(`select set_config('test.said', (`+claim+`), false)`, worker, number+1)); walked > 2*step {
				return fmt.Sprintf("one claim walked over %d entries, more than two steps of %d", walked, step)
			}
			said := get[string](s, `select current_setting('test.said')`)
			if found = said[0] == '1'; found {
				break
			}
			if said != "0 0" {
				return fmt.Sprintf("claim %d stopped on its way to message %d, and says %q", number+1, m, said)
			}
		}
		if !found {
			return fmt.Sprintf("message %d was not found", m)
		}
		s.exec(`insert into posthaste.entries_plain (queue_id, payload, kind) select 1, '1', 'common' from generate_series(1, 1000)`)
		s.exec(`select from posthaste.claim($1, 1000, 'q', 'rare', 1000)`, worker)
		if walked := s.walked(`select from posthaste.claim($1, 1001, 'q', 'rare', 1000)`, worker); walked > 64 {
			return fmt.Sprintf("an empty claim walks over %d entries that were left out before", walked)
		}
		return ""
	},
		without("keeping", patch{file: "claim_lane.sql", old: "if v_found = 0 and v_slice.walked > 64 then", new: "if false then"}),
		without("steps", patch{file: "sifted_slice.sql", old: "greatest(4096, 4 * p_max)", new: "2147483647"}),
		without("saying so", patch{file: "claim_lane.sql", old: "  if v_more and handed = 0 then", new: "  if false then"}),
		without("a look that says so", patch{file: "look.sql", old: "if (v_slice.c).places > 0 or not (v_slice.c).ended or v_slice.walked > 64 then", new: "if (v_slice.c).places > 0 then"}))
}

// A slot is kept as long as the slowest subscription has not passed it, and no longer by one that
// will hand out nothing of it.
func TestTruncationWaitsForTheSlowest(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.subscribe("slow", `{}`)
	s.subscribe("idle", `{"filter": {"kind": "never"}}`)
	m := s.send(`{}`)
	ack := `select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1000, '1 hour', jsonb_build_object('subscription', $1::text))))`
	s.exec(`insert into posthaste.entries_plain (queue_id, payload) select 1, '1' from generate_series(1, 10000)`)
	reclaimed := func() bool {
		return slices.Contains(list[string](s, `select task from posthaste.maintain()`), "reclaimed")
	}
	for range 11 {
		s.exec(ack, "default")
	}
	turn(t, s)
	s.send(`{}`)
	s.exec(ack, "default")
	for range 20 {
		if reclaimed() {
			t.Fatal("the slot was reclaimed while a subscription had not read it")
		}
	}
	// Transactions of other databases count as possible writers, too.
	until(t, "the slow one is named", func() bool {
		return get[string](s, `select posthaste.slot_blocker(0)`) == "subscription 'slow' of queue 'q' has not handed out all of it"
	})
	if got := s.receiveFor("slow"); got[0] != m {
		t.Errorf("it received %v, want %d first", got[:1], m)
	}
	s.exec(ackAll)
	for range 11 {
		s.exec(ack, "slow")
	}
	until(t, "the slot is reclaimed", reclaimed)
}

// In a keyed queue a subscription without readers keeps a slot as long as the slot has a message for
// it, and no longer. Skipped messages are not handed out, and later ones are.
func TestRuleIdleFiltersOfKeyedQueuesKeepNoSlot(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
		full := get[int64](s, `select slot_rows from posthaste.settings`)
		s.exec(`update posthaste.settings set spare_slots = 15`)
		// The ring does not turn by itself here, so that each round of upkeep reclaims.
		turn := func() {
			s.exec(`update posthaste.settings set slot_rows = 1`)
			turn(t, s)
			s.exec(`update posthaste.settings set slot_rows = $1`, full)
		}
		s.subscribe("idle", `{"filter": {"kind": "rare"}}`)
		send := func(kind string, n int) {
			s.exec(`select posthaste.send('q', '1', jsonb_build_object('key', 'k' || g % 10, 'kind', $1::text)) from generate_series(1, $2::int) g`, kind, n)
		}
		settle := func() {
			for range 6 {
				s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1000, '1 hour')))`)
			}
		}
		reclaimed := func() bool {
			return slices.Contains(list[string](s, `select task from posthaste.maintain()`), "reclaimed")
		}
		send("common", 30)
		settle()
		turn()
		send("common", 5)
		settle()
		rounds, blocker := 0, ""
		until(t, "the slot is reclaimed, or kept for the idle subscription alone", func() bool {
			if reclaimed() {
				return true
			}
			rounds++
			blocker = get[string](s, `select coalesce(posthaste.slot_blocker(0), '')`)
			return rounds > 20 && strings.Contains(blocker, "'idle'")
		})
		if strings.Contains(blocker, "'idle'") && rounds > 20 {
			return "a slot with nothing for the idle subscription is kept: " + blocker
		}
		send("common", 5)
		send("rare", 1)
		send("common", 5)
		slot := get[int](s, `select ((last_value >> 22) & 15)::int from posthaste.positions`)
		settle()
		turn()
		send("rare", 1)
		for range 20 {
			settle()
			if reclaimed() {
				return "a slot was reclaimed that has a message for the idle subscription"
			}
		}
		if blocker := get[*string](s, `select posthaste.slot_blocker($1)`, slot); blocker == nil {
			return "a slot that has a message for the idle subscription would be reclaimed"
		}
		for i := range 2 {
			got := s.receiveFor("idle")
			if len(got) != 1 {
				return fmt.Sprintf("the idle subscription received %v in round %d, want one message", got, i)
			}
			s.exec(`select from posthaste.ack(array(select claim * 4096 from posthaste.leases))`)
		}
		if got := s.receiveFor("idle"); len(got) != 0 {
			return fmt.Sprintf("the idle subscription received %v more", got)
		}
		return ""
	},
		without("passing on", patch{file: "sift_on.sql", old: "return posthaste.sift_keyed(v_cursor, v_filter, l);", new: "return false;"}),
		without("stopping", patch{file: "sift_keyed.sql", old: "coalesce(array_position(v_out, null) - 1, n)", new: "n"}))
}

// Ending a subscription releases everything that it kept.
func TestUnsubscribeLetsGo(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.subscribe("b", `{}`)
	s.subscribe("c", `{}`)
	worker := s.register()
	for range 3 {
		s.send(`{}`)
	}
	s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
	s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive('q', 1, '1 hour', '{"subscription": "b"}')), 'no', '{"permanent": true}')`)
	held := list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour', '{"subscription": "b"}')`)
	s.exec(`select from posthaste.claim($1, 1, 'q', 'b', 1)`, worker)
	turn(t, s)
	s.send(`{}`)
	s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
	s.exec(`select posthaste.unsubscribe('q', 'b', 'ada')`)
	s.exec(`select posthaste.unsubscribe('q', 'c', 'ada')`)
	until(t, "the slot is reclaimed", func() bool {
		return slices.Contains(list[string](s, `select task from posthaste.maintain()`), "reclaimed")
	})
	if n := get[int](s, `select count(*)::int from posthaste.dead_letter_entries`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	// A late failure in it appends nothing.
	s.exec(`select from posthaste.fail($1, 'again')`, held[0])
	if n := get[int](s, `select count(*)::int from posthaste.entries where for_subscription is not null`); n != 0 {
		t.Errorf("%d retries of an ended subscription", n)
	}
	for sql, want := range map[string]string{
		`select from posthaste.receive('q', 1, '1 hour', '{"subscription": "b"}')`: "PH404",
		`select posthaste.unsubscribe('q', 'b')`:                                   "PH404",
		`select posthaste.unsubscribe('q', 'default')`:                             "PH409",
		`select posthaste.unsubscribe('nowhere', 'default')`:                       "PH404",
	} {
		if code := s.code(sql); code != want {
			t.Errorf("%s ended with %q, want %s", sql, code, want)
		}
	}
	// Its name is free, its number is not; and another one can take the place of default.
	s.subscribe("b", `{}`)
	if n := get[int](s, `select number::int from posthaste.subscriptions where name = 'b' and dropped_at is null`); n != 3 {
		t.Errorf("the new one has number %d", n)
	}
	s.exec(`select posthaste.unsubscribe('q', 'default')`)
	m := s.send(`{}`)
	if got := s.receiveFor("b"); !slices.Equal(got, []int64{m}) {
		t.Errorf("received %v, want %d", got, m)
	}
	if got := list[string](s, `select action || ' ' || by || ' ' || (details ->> 'subscription') from posthaste.actions where by = 'ada' order by id`); !slices.Equal(got, []string{"unsubscribe ada b", "unsubscribe ada c"}) {
		t.Errorf("it is on record that %v", got)
	}
}

// Numbers are not used again while any row mentions them.
func TestSubscriptionNumbers(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`insert into posthaste.subscriptions (queue_id, number, name, since, dropped_at) select 1, g, 's' || g, '3:3:', clock_timestamp() from generate_series(1, 1023) g`)
	if code := s.code(`select posthaste.subscribe('q', 'late')`); code != "PH409" {
		t.Fatalf("with all numbers mentioned it ended with %q", code)
	}
	s.exec(`update posthaste.subscriptions set dropped_at = clock_timestamp() - interval '2 hours' where number in (7, 8)`)
	s.exec(`update posthaste.slots set opened_at = clock_timestamp() - interval '3 hours'`)
	if code := s.code(`select posthaste.subscribe('q', 'late')`); code != "PH409" {
		t.Fatalf("with messages of before kept it ended with %q", code)
	}
	s.exec(`update posthaste.slots set opened_at = clock_timestamp()`)
	s.exec(`insert into posthaste.cancelled (pos, subscriber, outcome) values (1, (1 << 10) | 7, 'cancelled')`)
	s.subscribe("late", `{}`)
	if n := get[int](s, `select number::int from posthaste.subscriptions where name = 'late'`); n != 8 {
		t.Errorf("it has number %d, want the one that nothing mentions", n)
	}
}

// A message that was carried to another slot, and from there to a third, is one message for later
// subscriptions, too, and none for those that began between its sending and the carrying; a
// cancelled one is no message for any.
func TestRuleCarriedMessagesAreSentOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`update posthaste.settings set spare_slots = 15`)
		m := s.send(`{"delay": "1 day"}`)
		s.subscribe("between", `{}`)
		s.subscribe("planned", `{"scheduled": true}`)
		newest := func() int64 {
			return get[int64](s, `select coalesce(max(pos), 0) from posthaste.entries where message_id = $1`, m)
		}
		for range 2 {
			before := newest()
			s.exec(`update posthaste.settings set slot_rows = 1`)
			turn(t, s)
			s.exec(`update posthaste.settings set slot_rows = 1000000`)
			until(t, "the message is carried", func() bool {
				s.exec(`select posthaste.maintain()`)
				return newest() > before
			})
		}
		cancelled := s.send(`{"delay": "1 day"}`)
		s.cancel(cancelled)
		s.subscribe("oldest", `{"from": "oldest"}`)
		s.subscribe("late", `{"scheduled": true}`)
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at > clock_timestamp()`)
		for _, c := range []struct {
			name string
			want int
		}{{"default", 1}, {"between", 0}, {"planned", 1}, {"oldest", 1}, {"late", 1}} {
			if got := s.receiveFor(c.name); len(got) != c.want || slices.Contains(got, cancelled) {
				return fmt.Sprintf("%s received %v: message %d, which was carried, is for it %d times, and %d was cancelled", c.name, got, m, c.want, cancelled)
			}
			s.exec(`select from posthaste.count_up()`)
			if n := get[int](s, `select depth::int from posthaste.queues where subscription = $1`, c.name); n != 0 {
				return fmt.Sprintf("%s: %d wait, it is said", c.name, n)
			}
		}
		return ""
	}, without("who began between", patch{file: "carry_slot.sql", old: "or x.sifts and f.for_subscription is null and", new: "or false and"}),
		without("for whom it was withdrawn", patch{file: "carry_slot.sql", old: "where z.pos is not null\n          or", new: "where"}),
		without("telling later ones of carried messages", patch{file: "subscribe.sql", old: "x.outcome in ('carried', 'cancelled')", new: "x.outcome = 'cancelled'"}),
		without("telling later ones of cancelled messages", patch{file: "subscribe.sql", old: "x.outcome in ('carried', 'cancelled')", new: "x.outcome = 'carried'"}))
}

// The same holds if it was parked behind others of its key, and was tried before.
func TestRuleWhatWasCancelledParkedIsNoneForLaterOnes(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
		first, behind, other := s.sendKey("a"), s.sendKey("a"), s.sendKey("b")
		s.exec(`select posthaste.fail(delivery_id, 'not now', '{"retry_after": "1 hour"}') from posthaste.receive('q', 10, '1 hour') where message_id = $1`, first)
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n != 2 {
			t.Fatalf("%d are parked", n)
		}
		s.cancel(first)
		s.cancel(behind)
		s.subscribe("late", `{"from": "oldest"}`)
		if got := s.receiveFor("late"); !slices.Equal(got, []int64{other}) {
			return fmt.Sprintf("received %v: %d and %d were cancelled", got, first, behind)
		}
		s.exec(`select from posthaste.count_up()`)
		if n := get[int](s, `select (sent + again - dropped - sifted - handed)::int from posthaste.counters where subscription = 1`); n != 0 {
			return fmt.Sprintf("%d wait, it is said", n)
		}
		return ""
	}, without("looking for its place in the log", patch{file: "subscribe.sql", old: "case when x.xid is null and v_keyed then", new: "case when false then"}))
}

// Subscribing from the oldest waits for transactions that are rescheduling: the entries that they
// append again would be second messages.
func TestRuleSubscribingWaitsForWhoReschedules(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		other, late := connect(t, url), connect(t, url)
		m := s.send(`{"delay": "1 day"}`)
		other.exec(`begin`)
		other.exec(`select posthaste.reschedule($1, clock_timestamp() + '1 microsecond')`, m)
		waiting := late.start(`select 1::bigint from posthaste.subscribe('q', 'late', '{"from": "oldest"}')`)
		until(t, "it waits, or did not have to", func() bool {
			return len(waiting) > 0 || late.waits(s)
		})
		other.exec(`commit`)
		if a := <-waiting; a.err != nil {
			t.Fatal(a.err)
		}
		// A day passes for the one that was withdrawn.
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`, m)
		if got := s.receiveFor("late"); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("received %v, want %d once", got, m)
		}
		return ""
	}, without("its key", patch{file: "subscribe.sql", old: "  perform posthaste.lock_queue(u.queue_id, 'withdrawn');\n", new: ""}))
}

// Subscribing waits for upkeep without blocking a transaction that withdraws: that one may hold a
// lock that upkeep waits for, and all three would wait forever.
func TestRuleSubscribingWaitsForUpkeepWithNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		upkeep, other, late := connect(t, url), connect(t, url), connect(t, url)
		m := s.send(`{"delay": "1 day"}`)
		upkeep.exec(`begin`)
		upkeep.exec(`select pg_advisory_xact_lock(posthaste.lock_key(6, 0))`)
		other.exec(`begin`)
		other.exec(`select posthaste.send('q', '1')`)
		made := late.start(`select 1::bigint from posthaste.subscribe('q', 'late')`)
		late.blocked(s)
		reclaims := upkeep.start(`do $$begin lock table posthaste.entries_plain in access exclusive mode; end$$`)
		upkeep.blocked(s)
		withdrawn := other.start(`select 1::bigint from posthaste.cancel($1)`, m)
		if a := <-withdrawn; a.err != nil {
			return fmt.Sprint("withdrawing: ", a.err)
		}
		other.exec(`commit`)
		if a := <-reclaims; a.err != nil {
			return fmt.Sprint("reclaiming: ", a.err)
		}
		upkeep.exec(`commit`)
		if a := <-made; a.err != nil {
			return fmt.Sprint("subscribing: ", a.err)
		}
		return ""
	}, without("the order",
		patch{file: "subscribe.sql", old: "  perform posthaste.lock_queue(u.queue_id, 'withdrawn');\n", new: ""},
		patch{file: "subscribe.sql", old: "  perform posthaste.refuse_copy();\n", new: "  perform posthaste.refuse_copy();\n  perform posthaste.lock_queue(u.queue_id, 'withdrawn');\n"}))
}
