package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Parked messages can be looked up and withdrawn, and outlive their place in the ring.

func (s *session) states(id int64) []string {
	s.t.Helper()
	return list[string](s, `select subscription || ': ' || state from posthaste.message($1) order by 1`, id)
}

func (s *session) cancelled(id int64) []string {
	s.t.Helper()
	return list[string](s, `select subscription || ': ' || state || case when cancelled then '' else ', not in time' end from posthaste.cancel($1) order by 1`, id)
}

func (s *session) takeFor(subscription string, most int) (out []got) {
	s.t.Helper()
	ids := list[int64](s, `select unnest(array[delivery_id, message_id]) from posthaste.receive('q', $1, '1 hour', jsonb_build_object('subscription', $2::text))`, most, subscription)
	for i := 0; i < len(ids); i += 2 {
		out = append(out, got{ids[i], ids[i+1]})
	}
	return out
}

// same compares deliveries, or reported states.
func same[T comparable](t *testing.T, what string, have []T, want ...T) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Fatalf("%s: %v, want %v", what, have, want)
	}
}

// drain receives and settles all there is, as message ids.
func (s *session) drain(subscription string) (ids []int64) {
	s.t.Helper()
	for {
		g := s.takeFor(subscription, 10)
		if len(g) == 0 {
			return ids
		}
		ids = append(ids, messages(g)...)
		s.ack(g...)
	}
}

func (s *session) empty() {
	s.t.Helper()
	for what, sql := range map[string]string{"parked": `select count(*)::int from posthaste.parked`, "keys": `select count(*)::int from posthaste.keys`} {
		if n := get[int](s, sql); n != 0 {
			s.t.Errorf("%d %s stay", n, what)
		}
	}
}

func TestOrderedCancel(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 1}`)
	a1, a2, a3, a4 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a"), s.sendKey("a")
	first := s.take(10)
	same(t, "received", messages(first), a1)
	a5 := s.sendKey("a") // not reached yet
	same(t, "a parked one", s.states(a2), "default: ready")
	same(t, "cancelled while parked", s.cancelled(a2), "default: cancelled")
	same(t, "cancelled again", s.cancelled(a2), "default: cancelled")
	same(t, "told afterwards", s.states(a2), "default: cancelled")
	same(t, "cancelled before it is reached", s.cancelled(a5), "default: cancelled")
	s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "1 hour"}')`, first[0].delivery)
	same(t, "behind one that waits", messages(s.take(10)))
	same(t, "a retry", s.states(a1), "default: retrying")
	if due := get[bool](s, `select due_at > clock_timestamp() + interval '50 minutes' from posthaste.message($1)`, a1); !due {
		t.Error("a parked retry does not tell its time")
	}
	same(t, "cancelled while it waits", s.cancelled(a1), "default: cancelled")
	second := s.take(10)
	same(t, "received next", messages(second), a3)
	s.ack(second...)
	a6 := s.sendKey("a")
	same(t, "received last", s.drain("default"), a4, a6)
	same(t, "told at the end", s.states(a1), "default: cancelled")
	s.empty()
	s.exec(`select posthaste.maintain()`)
	if depth := get[int64](s, `select depth from posthaste.queues where queue = 'q'`); depth != 0 {
		t.Errorf("the queue's depth is %d", depth)
	}
}

func TestOrderedPurge(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 2}`)
	a1, a2, _, b1 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a"), s.sendKey("b")
	first := s.take(10)
	same(t, "received", ascending(messages(first)), a1, b1)
	a4 := s.sendKey("a")
	purged := list[int64](s, `select purged from posthaste.purge('q')`)
	same(t, "purged", purged, 3)
	same(t, "a parked one", s.states(a2), "default: cancelled")
	same(t, "one that was not reached", s.states(a4), "default: cancelled")
	same(t, "what runs", s.states(a1), "default: running")
	// It may be retried, and later sends come after it.
	for _, g := range first {
		if g.message == a1 {
			s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`, g.delivery)
		} else {
			s.ack(g)
		}
	}
	a5 := s.sendKey("a")
	same(t, "afterwards", s.drain("default"), a1, a5)
	s.empty()
	s.exec(`select posthaste.maintain()`)
	if depth := get[int64](s, `select depth from posthaste.queues where queue = 'q'`); depth != 0 {
		t.Errorf("the queue's depth is %d", depth)
	}
}

// Each subscription has its own order, parks for itself, and gets the messages that pass its filter.
func TestOrderedSubscriptions(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 2}`)
	send := func(key, kind string) int64 {
		t.Helper()
		return get[int64](s, `select posthaste.send('q', '1', jsonb_build_object('key', $1::text, 'kind', $2::text))`, key, kind)
	}
	a1, a2 := send("a", "x"), send("a", "y")
	s.exec(`select posthaste.subscribe('q', 'later'), posthaste.subscribe('q', 'all', '{"from": "oldest"}'), posthaste.subscribe('q', 'xs', '{"from": "oldest", "filter": {"kind": "x"}}')`)
	a3, a4, a5 := send("a", "x"), send("a", "x"), send("a", "y")
	got := s.takeFor("default", 10)
	same(t, "default", messages(got), a1)
	same(t, "later", messages(s.takeFor("later", 10)), a3)
	same(t, "all", s.drain("all"), a1, a2, a3, a4, a5)
	same(t, "xs", s.drain("xs"), a1, a3, a4)
	same(t, "cancelled", s.cancelled(a4), "all: done, not in time", "default: cancelled", "later: cancelled", "xs: done, not in time")
	s.ack(got...)
	same(t, "default, the rest", s.drain("default"), a2, a3, a5)
	same(t, "to which it is not sent", s.states(a2), "all: done", "default: done")
	for _, sql := range []string{`select posthaste.maintain()`, `select posthaste.maintain()`} {
		s.exec(sql)
	}
	same(t, "depths", list[string](s, `select subscription || ' ' || depth from posthaste.queues order by 1`), "all 0", "default 0", "later 1", "xs 0")
	s.exec(`select posthaste.unsubscribe('q', 'later')`)
	s.empty()
}

// A message that was parked when its slot was reclaimed can still be handled in every way.
func TestParkedOutlivesItsSlot(t *testing.T) {
	t.Parallel()
	s := keeping(t, testpg.New(t), `{"ordered": true, "lanes": 1, "retention": "1 day", "retain_payload": true}`)
	turn := func() {
		t.Helper()
		s.drain("default") // nothing, and the readers advance
		if fault := reclaimAll(t, s); fault != "" {
			t.Fatal(fault)
		}
	}
	send := func(n int) int64 {
		t.Helper()
		return get[int64](s, `select posthaste.send('q', to_jsonb($1::int), '{"key": "a", "reference": "r", "terms": ["t"]}')`, n)
	}
	ids := []int64{send(1), send(2), send(3), send(4)}
	first := s.take(10)
	same(t, "received", messages(first), ids[0])
	s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "1 hour"}')`, first[0].delivery)
	same(t, "behind it", messages(s.take(10)))
	turn()
	for i, id := range ids {
		same(t, fmt.Sprint("message ", i), s.states(id), map[bool]string{true: "default: retrying", false: "default: ready"}[i == 0])
	}
	same(t, "its payload", list[string](s, `select convert_from(payload, 'UTF8') from posthaste.message($1)`, ids[1]), "2")
	same(t, "by reference", list[int64](s, `select message_id from posthaste.list_messages(reference => 'r') order by 1`), ids...)
	same(t, "by term", list[int64](s, `select message_id from posthaste.list_messages(term => 't') order by 1`), ids...)
	newest := []int64{ids[3], ids[2], ids[1], ids[0]}
	for search, want := range map[string][]int64{
		`'q', key => 'a'`: newest, `key => 'a'`: newest, `'q'`: newest, ``: newest, `state => 'ready'`: newest[:3], `state => 'retrying', key => 'a'`: newest[3:],
		`max => 2`: newest[:2], `key => 'a', max => 2`: newest[:2], fmt.Sprintf(`before => %d`, ids[2]): newest[2:], fmt.Sprintf(`key => 'a', before => %d, max => 1`, ids[2]): newest[2:3],
		`key => 'b'`: nil, `state => 'done'`: nil,
	} {
		same(t, "listed by "+search, list[int64](s, `select message_id from posthaste.list_messages(`+search+`) where message_id > 0`), want...)
	}
	same(t, "in the view", list[string](s, `select convert_from(payload, 'UTF8') || ' ' || subscription || ' ' || state from posthaste.messages where queue = 'q' and reference = 'r' and terms @> array['t'] and key = 'a' order by message_id`),
		"1 default retrying", "2 default ready", "3 default ready", "4 default ready")
	same(t, "erasing", list[string](s, `select outcome from posthaste.erase('t')`), "pending", "pending", "pending", "pending")
	same(t, "cancelled", s.cancelled(ids[0]), "default: cancelled")
	same(t, "received afterwards", s.drain("default"), ids[1:]...)
	turn()
	same(t, "in the history", s.states(ids[0]), "default: cancelled")
	same(t, "in the history", s.states(ids[2]), "default: done")
	s.empty()
}

// Cancel reads the states again if a delivery ends meanwhile. Its answer includes a message that it
// has withdrawn before, although nothing is left of that because its slot was reclaimed.
func TestCancelTellsWhatItWithdrewBefore(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 1}`)
	s.exec(`select posthaste.subscribe('q', 'audit')`)
	first, second := s.sendKey("a"), s.sendKey("a")
	same(t, "received", messages(s.take(10)), first)
	s.ack(s.takeFor("audit", 1)...)
	released := s.takeFor("audit", 1)
	s.exec(`select from posthaste.release(array[$1::bigint])`, released[0].delivery)
	same(t, "received from a later entry", messages(s.takeFor("audit", 1)), second)
	s.exec(`alter function posthaste.request_cancel rename to request_cancel_now`)
	s.exec(`create function posthaste.request_cancel(h posthaste.head, p_subscription int) returns boolean language plpgsql as $$
		begin
		  if current_setting('test.asked', true) is null then
		    perform set_config('test.asked', 'once', false);
		    delete from posthaste.entries_other where pos = (h).message_id;
		    delete from posthaste.cancelled where pos = (h).message_id;
		    return null;
		  end if;
		  return posthaste.request_cancel_now(h, p_subscription);
		end $$`)
	same(t, "cancelled", list[string](s, `select concat_ws(' ', subscription, cancelled, state, requested) from posthaste.cancel($1) order by 1`, second),
		"audit f running t", "default t cancelled f")
}

// A success that comes after its delivery was declared lost withdraws the waiting message, and its
// key continues.
func TestOrderedLateAck(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 1}`)
	a1, a2 := s.sendKey("a"), s.sendKey("a")
	worker := s.register()
	got := s.claim(worker, 1, 1, false)
	s.exec(`update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where id = $1`, worker)
	s.exec(`select posthaste.maintain()`)
	same(t, "lost", s.states(a1), "default: retrying")
	same(t, "the late ack", list[bool](s, `select settled from posthaste.settle(array[$1::bigint], array[B'1'])`, got[0]>>12), false)
	same(t, "after the late ack", s.states(a1), "default: done")
	same(t, "received", s.drain("default"), a2)
	s.empty()
}

func TestKeyedReschedule(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"key_concurrency": 1}`)
	a1, a2, a3 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a")
	first := s.take(10)
	same(t, "received", messages(first), a1)
	reschedule := func(id int64, in string) []string {
		t.Helper()
		return list[string](s, `select state || case when rescheduled then '' else ', not in time' end from posthaste.reschedule($1, clock_timestamp() + $2::text::interval)`, id, in)
	}
	same(t, "parked", reschedule(a2, "1 hour"), "scheduled")
	same(t, "told", s.states(a2), "default: scheduled")
	same(t, "what runs", reschedule(a1, "1 hour"), "running, not in time")
	s.ack(first...)
	same(t, "received meanwhile", s.drain("default"), a3)
	same(t, "back", reschedule(a2, "-1 hour"), "ready")
	same(t, "received", s.drain("default"), a2)
	s.empty()

	o := connect(t, testpg.New(t))
	o.exec(`select posthaste.create_queue('q', '{"ordered": true}')`)
	if code := o.code(`select posthaste.reschedule($1, now())`, o.sendKey("a")); code != "PH400" {
		t.Errorf("rescheduling in an ordered queue ended with %q", code)
	}
}

// Dropping, unsubscribing and purging leave nothing, even while a claim releases messages.
func TestParkedGoWithTheirQueue(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
	for range 5 {
		s.sendKey("a")
	}
	first := s.take(10)
	s.ack(first...)
	claiming, other := connect(t, url), connect(t, url)
	claiming.exec(`begin`)
	if n := len(claiming.take(10)); n != 1 {
		t.Fatalf("let go of %d", n)
	}
	dropping := other.start(`select 1::bigint from posthaste.drop_queue('q')`)
	other.blocked(s)
	claiming.exec(`commit`)
	if a := <-dropping; a.err != nil {
		t.Fatal(a.err)
	}
	s.empty()
}

func TestKeyedRefusals(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('q', '{"ordered": true}')`)
	for sql, field := range map[string]string{
		`select posthaste.create_queue('x', '{"ordered": true, "mode": "at_most_once"}')`:      "mode",
		`select posthaste.create_queue('x', '{"key_concurrency": 1, "mode": "at_most_once"}')`: "mode",
		`select posthaste.subscribe('q', 's', '{"max_lag": "1 hour"}')`:                        "max_lag",
		`select posthaste.send('q', '1', '{"key": "a", "priority": 1}')`:                       "priority",
	} {
		if pg := s.refusal(sql); pg == nil || pg.Code != "PH400" || pg.ColumnName != field {
			t.Errorf("%s: %v", sql, pg)
		}
	}
}
