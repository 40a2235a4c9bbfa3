package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// worker is a registration of a test, which numbers its claims.
type kindWorker struct {
	*session
	id, number int64
}

// knows registers a worker that handles the kinds in queue q, or all if there are none.
func (s *session) knows(kinds ...string) *kindWorker {
	s.t.Helper()
	if kinds == nil {
		return &kindWorker{session: s, id: s.register()}
	}
	return &kindWorker{session: s, id: get[int64](s, `select posthaste.worker_register('w', 'test', '1 hour', null,
		jsonb_build_object('q', jsonb_build_object('default', $1::text[])))`, kinds)}
}

// takes claims up to most messages and returns the message ids, of which those in back are set
// aside and the others acknowledged.
func (w *kindWorker) takes(most int, back ...int64) (ids []int64) {
	w.t.Helper()
	w.number++
	for _, g := range w.claims(w.id, w.number, most) {
		ids = append(ids, g.message)
		if slices.Contains(back, g.message) {
			w.settleAs("set_aside", g)
		} else {
			w.settleAs("done", g)
		}
	}
	slices.Sort(ids)
	return ids
}

// A message that was set aside is handed out to workers that handle its kind, and to no others,
// as the same attempt.
func TestRuleSetAsideForItsKind(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		for _, options := range []string{`{}`, `{"lanes": 3}`, `{"rate_limit": {"limit": 1000, "per": "1 second"}}`} {
			s := connect(t, url)
			s.exec(`select posthaste.create_queue('q', $1)`, options)
			old, other, new, all := s.knows("mail"), s.knows("fax"), s.knows("mail", "sms"), s.knows()
			var sms []int64
			for range 3 {
				sms = append(sms, s.send(`{"kind": "sms"}`))
			}
			for range 6 {
				old.takes(10, sms...)
			}
			for _, w := range []*kindWorker{old, other} {
				if got := w.takes(10); got != nil {
					return fmt.Sprintf("%s: %v were handed out to a worker that does not handle their kind", options, got)
				}
				if get[bool](s, `select ready from posthaste.worker_look($1, '{q}', '{default}')`, w.id) {
					return options + ": a worker is told of messages of a kind that it does not handle"
				}
			}
			if !get[bool](s, `select ready from posthaste.worker_look($1, '{q}', '{default}')`, new.id) {
				return options + ": the worker that handles the kind is not told"
			}
			if n := get[int](s, `select max(attempt)::int from posthaste.entries`); n != 1 {
				return fmt.Sprintf("%s: it is attempt %d", options, n)
			}
			if got := get[string](s, `select (set_aside - 'oldest_age')::text from (select jsonb_array_elements(set_aside) from posthaste.queues where queue = 'q') x (set_aside)`); got != `{"kind": "sms", "known": true, "paused": false, "waiting": 3}` {
				return options + ": told is " + got
			}
			got := new.takes(1)
			got = append(got, all.takes(1)...)
			got = append(got, list[int64](s, `select message_id from posthaste.receive('q', 10, '1 hour')`)...)
			slices.Sort(got)
			if !slices.Equal(got, sms) {
				return fmt.Sprintf("%s: handed out were %v of %v", options, got, sms)
			}
			s.exec(`select posthaste.drop_queue('q')`)
		}
		return ""
	}, without("the kinds of a worker", patch{file: "lanes_for.sql", old: "and (p_kinds is null or p_kinds ? u.kind)", new: ""}),
		without("lanes of kinds", patch{file: "finish.sql", old: "coalesce(case when counted.aside then aside_lane.lane end, v_lane)", new: "v_lane"}),
		without("the lanes of a look", patch{file: "worker_look.sql", old: "case when q.kinds_aside is null then", new: "case when true then"}))
}

// While messages that were set aside wait, other messages do not keep them from being handed out,
// nor the other way round.
func TestRuleKindsTakeTurns(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old, new := s.knows("mail"), s.knows("sms", "mail")
		var sms []int64
		for range 20 {
			sms = append(sms, s.send(`{"kind": "sms"}`))
		}
		old.takes(100, sms...)
		for range 20 {
			s.send(`{"kind": "mail"}`)
		}
		count := 0
		for range 20 {
			for _, id := range new.takes(1) {
				if slices.Contains(sms, id) {
					count++
				}
			}
		}
		// 20 coins that all fall on one side are one run in half a million.
		if count == 0 || count == 20 {
			return fmt.Sprintf("of 20 claims %d got messages that were set aside", count)
		}
		return ""
	}, without("turns", patch{file: "lanes_for.sql", old: "(x.side + p_start) % 2", new: "x.side"}))
}

// The lane of a kind is looked at as long as it has messages, and upkeep ends that. A message
// that comes to a lane after that is found by the next upkeep.
func TestRuleLanesOfKindsEnd(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old, new := s.knows("mail"), s.knows("sms")
		id := s.send(`{"kind": "sms"}`)
		old.takes(10, id)
		s.exec(`select posthaste.maintain()`)
		const aside = `select coalesce(kinds_aside::text, 'none') from posthaste.queue_settings where name = 'q'`
		if got := get[string](s, aside); got != "{sms}" {
			return "with a message that waits: " + got
		}
		// It fails and waits for its next attempt.
		new.number++
		s.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{retried}', '{test}', '{3600}', '{null}', '{null}')`, new.claims(new.id, new.number, 10)[0].delivery)
		s.exec(`select posthaste.maintain()`)
		if got := get[string](s, aside); got != "{sms}" {
			return "with a message that waits for its next attempt: " + got
		}
		s.exec(`update posthaste.queue_settings set kinds_aside = null`)
		s.exec(`select posthaste.maintain()`)
		if got := get[string](s, aside); got != "{sms}" {
			return "a message in the lane was not found: " + got
		}
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where attempt = 2`)
		until(t, "its next attempt", func() bool { return len(new.takes(10)) == 1 })
		s.exec(`select posthaste.maintain()`)
		if got := get[string](s, aside); got != "none" {
			return "with no message: " + got
		}
		return ""
	}, without("an end", patch{file: "maintain.sql", old: "  perform posthaste.check_kinds();\n", new: ""}),
		without("those that wait for a time", patch{file: "check_kinds.sql", old: "(x.ready or x.next_due is not null)", new: "x.ready"}))
}

// A message that was set aside gives its token back.
func TestRuleSetAsideTakesNoToken(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"rate_limit": {"limit": 2, "per": "1 day", "burst": 2}}')`)
		old, new := s.knows("mail"), s.knows("mail", "sms")
		sms := []int64{s.send(`{"kind": "sms"}`), s.send(`{"kind": "sms"}`)}
		if got := old.takes(10, sms...); len(got) != 2 {
			t.Fatalf("handed out were %v", got)
		}
		mail := s.send(`{"kind": "mail"}`)
		got := append(new.takes(1), new.takes(1)...)
		if len(got) != 2 || slices.Contains(got, mail) && got[0] == got[1] {
			return fmt.Sprintf("handed out were %v", got)
		}
		if got := new.takes(1); got != nil {
			return fmt.Sprintf("%v is over the limit", got)
		}
		return ""
	}, without("the refund", patch{file: "claim_ruled.sql", old: "v_limits.tokens := least(q.burst, v_limits.tokens + v_refund);", new: ""}))
}

// In a keyed queue there is no place apart: the message comes back after a while, and messages of
// its key in an ordered queue stay behind it.
func TestRuleSetAsideOfKeyedQueues(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"ordered": true, "lanes": 1}')`)
		old, new := s.knows("mail"), s.knows("mail", "sms")
		first, second := s.send(`{"kind": "sms", "key": "a"}`), s.send(`{"kind": "mail", "key": "a"}`)
		if got := old.takes(1, first); !slices.Equal(got, []int64{first}) {
			t.Fatalf("handed out was %v", got)
		}
		if got := old.takes(10); got != nil {
			return fmt.Sprintf("%v were handed out before the wait was over", got)
		}
		var got []int64
		until(t, "the messages come back", func() bool {
			got = append(got, new.takes(1)...)
			return len(got) == 2
		})
		if !slices.Equal(got, []int64{first, second}) {
			return fmt.Sprintf("%v came back, want %d before %d", got, first, second)
		}
		return ""
	}, without("the wait", patch{file: "finish.sql", old: "when aside_lane.lane is null then 1 else 0 end", new: "else 0 end"}))
}

// A message's own options decide how often it is tried and how long it waits.
func TestRuleOptionsOfOneMessage(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"max_attempts": 5, "backoff": {"base": "1 hour", "max": "1 hour"}}')`)
		const options = `{"max_attempts": 2, "backoff": {"base": "0 seconds", "max": "0 seconds"}, "headers": {"h": "v"}}`
		ids := []int64{s.send(options), get[int64](s, `select posthaste.send_many('q', jsonb_build_array(jsonb_build_object('payload', 1) || $1::jsonb))`, options)}
		for handed := 0; handed < 4; {
			const receive = `select delivery_id || ' ' || headers from posthaste.receive('q', 10, '1 hour')`
			for _, got := range list[string](s, receive) {
				id, headers, _ := strings.Cut(got, " ")
				if headers != `{"h": "v"}` {
					return "its headers are " + headers
				}
				s.exec(`select posthaste.fail($1::text::bigint, 'broken')`, id)
				handed++
			}
			if n := get[int](s, `select count(*)::int from posthaste.dead_letters`); n > 0 && handed < 3 {
				return fmt.Sprintf("dead after %d attempts of 4", handed)
			}
		}
		if got := list[int64](s, `select message_id from posthaste.dead_letters where headers = '{"h": "v"}' order by 1`); !slices.Equal(got, ids) {
			return fmt.Sprintf("dead are %v, want %v", got, ids)
		}
		s.exec(`select posthaste.replay($1::bigint[])`, ids)
		if got := list[int64](s, `select message_id from posthaste.receive('q', 10, '1 hour')`); !slices.Equal(got, ids) {
			return fmt.Sprintf("replayed were %v, want %v", got, ids)
		}
		return ""
	}, without("the maximum", patch{file: "attempt_options.sql", old: "coalesce((o ->> 'attempts')::int, q.max_attempts)", new: "q.max_attempts"}),
		without("hiding them", patch{file: "all_headers.sql", old: "case when headers ? '' then nullif(headers - '', '{}') else headers end", new: "headers"}))
}
