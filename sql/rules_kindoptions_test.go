package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// A message of a paused kind is handed out to no worker and no receiver, also once it was set
// aside, and stays available for the time after the pause.
func TestRulePausedKind(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		for _, options := range []string{`{}`, `{"lanes": 2}`, `{"rate_limit": {"limit": 1000, "per": "1 second"}}`} {
			s := connect(t, url)
			s.exec(`select posthaste.create_queue('q', $1)`, options)
			s.exec(`select posthaste.pause_kind('q', 'sms')`)
			sms := s.send(`{"kind": "sms"}`)
			s.send(`{"kind": "mail"}`)
			all, knows := s.knows(), s.knows("sms", "mail")
			for range 6 {
				for _, w := range []*kindWorker{all, knows} {
					if got := w.takes(10); slices.Contains(got, sms) {
						return options + ": a worker got the message of the paused kind"
					}
				}
				if got := list[int64](s, `select message_id from posthaste.receive('q', 10, '1 hour')`); slices.Contains(got, sms) {
					return options + ": a receiver got the message of the paused kind"
				}
				s.exec(`select posthaste.maintain()`) // looks at the lanes of kinds
			}
			if got := get[string](s, `select coalesce((select jsonb_agg(x - 'oldest_age') from jsonb_array_elements(set_aside) x)::text, 'none') from posthaste.queues where queue = 'q'`); got != `[{"kind": "sms", "known": true, "paused": true, "waiting": 1}]` {
				return options + ": set aside are " + got
			}
			s.exec(`select posthaste.resume_kind('q', 'sms')`)
			var got []int64
			for range 6 {
				got = append(got, all.takes(10)...)
			}
			if !slices.Equal(got, []int64{sms}) {
				return fmt.Sprintf("%s: after the pause %v came, want %d", options, got, sms)
			}
			s.exec(`select posthaste.drop_queue('q')`)
		}
		return ""
	}, without("the places of claims", patch{file: "expired_places.sql", old: "u.kind = any (p_paused)", new: "false"}),
		without("leaving out its lane", patch{file: "lanes_for.sql", old: "(u.kind = any (p_paused)) is not true and", new: ""}),
		without("the new entry", patch{file: "set_paused_aside.sql", old: "from gone g order by g.place", new: "from gone g where false order by g.place"}))
}

// Options of a kind decide what becomes of deliveries that SQL settles, after those of the message
// and before those of the queue.
func TestRuleOptionsOfKind(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"max_attempts": 3, "backoff": {"base": "0 seconds", "max": "0 seconds"}, "kinds": {"sms": {"max_attempts": 1}}}')`)
		want := map[int64]int{s.send(`{"kind": "sms"}`): 1, s.send(`{"kind": "sms", "max_attempts": 2}`): 2, s.send(`{"kind": "mail"}`): 3, s.send(`{}`): 3}
		for range 20 {
			s.exec(`select posthaste.fail(delivery_id, 'broken') from posthaste.receive('q', 10, '1 hour')`)
		}
		for id, n := range want {
			if got := get[int](s, `select coalesce((select attempts from posthaste.dead_letters where message_id = $1), 0)::int`, id); got != n {
				return fmt.Sprintf("message %d died after %d attempts, want %d", id, got, n)
			}
		}
		return ""
	}, without("the options of kinds", patch{file: "attempt_options.sql", old: "coalesce(q.kind_options -> p_kind, '{}')", new: "'{}'::jsonb"}),
		without("the message's own", patch{file: "attempt_options.sql", old: "|| coalesce(p_headers -> '', '{}')", new: ""}))
}
