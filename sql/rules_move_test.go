package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// A message of a keyed queue that is rescheduled to a later time comes then, and not before: a
// parked one waits in its row, and another one is withdrawn from its place.
func TestRuleMovedOfAKeyWaits(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_concurrency": 1, "lanes": 1}`)
		first, parked, fresh := s.sendKey("a"), s.sendKey("a"), s.sendKey("b")
		got := s.take(1)
		if !slices.Equal(messages(got), []int64{first}) {
			t.Fatalf("received %v", messages(got))
		}
		move := func(id int64) {
			if !get[bool](s, `select rescheduled from posthaste.reschedule($1, now() + interval '1 hour')`, id) {
				t.Fatalf("message %d was not moved", id)
			}
		}
		move(fresh)
		if more := s.take(10); len(more) > 0 { // parks the second
			return fmt.Sprintf("received %v, which was moved or waits for its key", messages(more))
		}
		if n := get[int](s, `select count(*)::int from posthaste.parked where message_id = $1`, parked); n != 1 {
			t.Fatalf("the second message is parked %d times", n)
		}
		move(parked)
		s.ack(got...)
		if more := s.take(10); len(more) > 0 {
			return fmt.Sprintf("received %v, which was moved", messages(more))
		}
		for _, id := range []int64{parked, fresh} {
			if !get[bool](s, `select rescheduled from posthaste.reschedule($1, now())`, id) {
				t.Fatalf("message %d was not moved back", id)
			}
		}
		var all []int64
		for range 3 {
			all = append(all, messages(s.take(10))...)
		}
		slices.Sort(all)
		if want := []int64{parked, fresh}; !slices.Equal(all, want) {
			return fmt.Sprintf("received %v as both were moved back, want %v", all, want)
		}
		return ""
	},
		without("the time of parked messages", patch{file: "put_again.sql", old: "set not_before = coalesce(p_due, p.not_before)", new: "set not_before = null"}),
		without("taking it from its place", patch{file: "put_again.sql", old: "        perform posthaste.withdraw(v.h, v.subscription, case when v_all then 'carried' else 'moved' end);\n", new: "        null;\n"}))
}

// Unsubscribing removes the parked messages of the subscription at once.
func TestRuleUnsubscribingLetsGoOfWhatIsParked(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_concurrency": 1, "lanes": 1}`)
		s.exec(`select posthaste.subscribe('q', 'second')`)
		s.sendKey("a")
		s.sendKey("a")
		for range 2 {
			s.exec(`select from posthaste.receive('q', 1, '1 hour', '{"subscription": "second"}')`)
		}
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n != 1 {
			t.Fatalf("%d are parked", n)
		}
		s.exec(`select posthaste.unsubscribe('q', 'second')`)
		if n := get[int](s, `select count(*)::int from posthaste.parked`); n > 0 {
			return fmt.Sprintf("%d are parked still", n)
		}
		return ""
	}, without("letting go of it", patch{file: "unsubscribe.sql", old: "  delete from posthaste.parked p where p.subscriber = v_subscriber;\n", new: ""}))
}
