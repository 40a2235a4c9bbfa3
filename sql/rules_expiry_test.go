package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// grow makes messages two hours older.
func (s *session) grow(ids []int64) {
	s.t.Helper()
	s.exec(`update posthaste.entries_plain set created_at = created_at - interval '2 hours' where pos = any ($1)`, ids)
	s.exec(`update posthaste.entries_other set created_at = created_at - interval '2 hours', ages_from = coalesce(ages_from, case when message_id is null then due_at end) - interval '2 hours' where coalesce(message_id, pos) = any ($1)`, ids)
}

// expiryShapes are queues whose claims are of each part, with a message's options.
var expiryShapes = []struct{ name, queue, message string }{
	{"fresh", `{"max_age": "1 hour"}`, `{}`},
	{"filtered", `{"max_age": "1 hour"}`, `{"kind": "wanted"}`},
	{"due", `{"max_age": "1 hour"}`, `{"delay": "1 millisecond"}`},
	{"ordered", `{"max_age": "1 hour", "ordered": true, "lanes": 1}`, `{"key": "a"}`},
	{"limited", `{"max_age": "1 hour", "concurrency": 100}`, `{}`},
	{"keys", `{"max_age": "1 hour", "key_concurrency": 100}`, `{"key": "a"}`},
}

// expires sends ten messages to a queue of a shape, of which every other one is too old, and claims
// them. It returns a fault or "".
func (s *session) expires(w, number int64, queue, subscription, message string, single bool) string {
	s.t.Helper()
	var young, old []int64
	for i := range 10 {
		id := get[int64](s, `select posthaste.send($1, to_jsonb($2::int), $3)`, queue, i, message)
		if i%2 == 0 {
			old = append(old, id)
		} else {
			young = append(young, id)
		}
	}
	s.grow(old)
	until(s.t, "the messages are due", func() bool {
		return get[bool](s, `select coalesce(max(due_at) < clock_timestamp(), true) from posthaste.entries where coalesce(message_id, pos) = any ($1)`, append(young, old...))
	})
	const claim = `select c.handed || ': ' || c.delivery_id || ' of ' || c.message_id || ' is ' || convert_from(c.payload, 'UTF8') from posthaste.claim($1, $2, $3, $4, 100, $5, true, true, true, 100) c`
	told := list[string](s, claim, w, number, queue, subscription, single)
	again := list[string](s, claim, w, number, queue, subscription, single)
	if again == nil || len(told) != 5 || !slices.Equal(told, again) {
		return fmt.Sprintf("claimed was\n%v, and with the same number\n%v", told, again)
	}
	if got := list[int64](s, `select message_id from posthaste.fetch($1, $2) order by 1`, w, number); !slices.Equal(got, young) {
		return fmt.Sprintf("%v are fetched, want %v", got, young)
	}
	ids := list[int64](s, `select numbered_from + ordinality from posthaste.fetch($1, $2) with ordinality`, w, number)
	if n := get[int](s, `select count(*)::int from posthaste.settle('{}', '{}', $1, array_fill('done'::text, array[cardinality($1::bigint[])]),
		array_fill(null::text, array[cardinality($1::bigint[])]), array_fill(null::float8, array[cardinality($1::bigint[])]), array_fill(null::text, array[cardinality($1::bigint[])]),
		array_fill(null::real, array[cardinality($1::bigint[])])) where settled`, ids); n != 5 {
		return fmt.Sprintf("%d of the deliveries %v are settled", n, ids)
	}
	for state, want := range map[string][]int64{"done": young, "expired": old} {
		if got := list[int64](s, `select m.message_id from unnest($1::bigint[]) u (id) cross join posthaste.message(u.id) m where m.subscription = $2 and m.state = $3 order by 1`,
			append(slices.Clone(young), old...), subscription, state); !slices.Equal(got, want) {
			return fmt.Sprintf("%s are %v, want %v", state, got, want)
		}
	}
	if open := get[int](s, `select count(*)::int from posthaste.open_claims($1) k`, w); open != 0 {
		return fmt.Sprintf("%d claims of the worker are open", open)
	}
	return ""
}

// Messages that are too old are settled by the claim that reaches them, whatever the queue. The
// numbers of the other deliveries stay those of their places.
func TestRuleExpiredMessagesAreSettledByTheClaim(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		w, number := s.register(), int64(0)
		for _, shape := range expiryShapes {
			s.exec(`select posthaste.create_queue($1, $2)`, shape.name, shape.queue)
			subscription := "default"
			if shape.name == "filtered" {
				subscription = "some"
				s.exec(`select posthaste.subscribe($1, $2, '{"filter": {"kind": "wanted"}}')`, shape.name, subscription)
			}
			for _, single := range []bool{false, true} {
				number++
				if fault := s.expires(w, number, shape.name, subscription, shape.message, single); fault != "" {
					return fmt.Sprintf("in the queue %s, single %v: %s", shape.name, single, fault)
				}
			}
		}
		return ""
	}, without("leaving them out", patch{file: "fetch.sql", old: "if v_claim.expired is not null and p_worker is not null then", new: "if false then"}),
		without("settling them", patch{file: "settle_expired.sql", old: "  if not p_closed then", new: "  if false then"}),
		without("their time of the due track", patch{file: "expired_places.sql", old: "where c.part in (1, 2)", new: "where false"}),
		without("those of keyed queues", patch{file: "expired_places.sql", old: "where c.part >= 4", new: "where false"}),
		without("their number", patch{file: "claim.sql", old: " - coalesce(bit_count(c.expired), 0) as places", new: " as places"}))
}

// A backlog of messages that are too old is passed by few claims, however small these are.
func TestRuleABacklogExpiresQuickly(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"max_age": "1 hour"}')`)
		old := list[int64](s, `select posthaste.send('q', '1') from generate_series(1, 30)`)
		s.grow(old)
		young := s.send(`{}`)
		for range 10 {
			if got := list[int64](s, `select message_id from posthaste.receive('q', 1, '1 hour')`); len(got) > 0 {
				if got[0] != young {
					t.Fatalf("message %d was handed out", got[0])
				}
				return ""
			}
		}
		return "ten calls did not get past 30 messages that are too old"
	}, without("reading on", patch{file: "claim_lane.sql", old: "exit when v_gone = 0 or v_left = 0;", new: "exit;"}))
}

// An expired message of a queue with a retention is kept as that.
func TestRuleExpiredMessagesAreInTheHistory(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day", "max_age": "1 hour"}`)
		old, young := s.send(`{"reference": "r1"}`), s.send(`{}`)
		s.grow([]int64{old})
		s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 10, '1 hour')))`)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		const told = `select m.message_id || ' ' || m.state || ' ' || jsonb_path_query_array(m.attempts, '$[*].outcome')::text from posthaste.list_messages('q') m order by 1`
		want := []string{fmt.Sprintf(`%d expired ["expired"]`, old), fmt.Sprintf(`%d done ["done"]`, young)}
		if got := list[string](s, told); !slices.Equal(got, want) {
			return fmt.Sprintf("the history has %q, want %q", got, want)
		}
		if got := get[string](s, `select format('%s done, %s expired, %s withdrawn, %s wait', done, expired, withdrawn, depth) from posthaste.queues where queue = 'q'`); got != "1 done, 1 expired, 0 withdrawn, 0 wait" {
			return "counted were " + got
		}
		return ""
	}, without("copying them", patch{file: "copy_claim.sql", old: "'cancelled', 'expired')", new: "'cancelled')"}),
		without("counting them", patch{file: "count_up.sql", old: "expired = expired + n.expired,\n", new: "\n"}))
}

// A claim that finds old messages in very many lanes ends soon, with a part of them, instead of
// holding all lanes until it is cancelled.
func TestRuleAClaimOfOldMessagesEndsSoon(t *testing.T) {
	for _, options := range []string{`{"max_age": "1 hour", "lanes": 64}`, `{"max_age": "1 hour", "lanes": 64, "concurrency": 100}`} {
		file := "claim.sql"
		if strings.Contains(options, "concurrency") {
			file = "claim_ruled.sql"
		}
		t.Run(file, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := connect(t, url)
				s.exec(`select posthaste.create_queue('q', $1)`, options)
				s.grow(list[int64](s, `select posthaste.send('q', '1') from generate_series(1, 3000)`))
				w := s.register()
				due := get[float64](s, `select next_due from posthaste.claim($1, 1, 'q', 'default', 1)`, w)
				if n := get[int](s, `select count(distinct reader)::int from posthaste.claims where places > 0`); n == 64 || n == 0 || due != 0 {
					return fmt.Sprintf("a claim expired messages of %d lanes, and the next is to come after %v s", n, due)
				}
				return ""
			}, without("ending", patch{file: file, old: "if v_expired > 0 and clock_timestamp() > v_stop then", new: "if false then"}))
		})
	}
}

// A claim all of whose messages expired keeps no slot, and the other claims of its number can be
// read without it.
func TestRuleExpiredClaimsNeedNoEntries(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"max_age": "1 hour"}')`)
		w, number := s.register(), 0
		until(t, "a claim expires messages and hands one out", func() bool {
			// One place at a time, so that old messages have claims of their own.
			s.grow(list[int64](s, `select posthaste.send('q', '1') from generate_series(1, 2)`))
			s.send(`{}`)
			number++
			return get[int](s, `select handed from posthaste.claim($1, $2, 'q', 'default', 1)`, w, number) == 1 &&
				get[int](s, `select count(*)::int from posthaste.claims where holder = $1 and number = $2 and places > 0`, w, number) > 1
		})
		young := get[int64](s, `select message_id from posthaste.fetch($1, $2)`, w, number)
		s.exec(`delete from posthaste.entries_plain where pos <> $1`, young) // as reclaiming does
		if pg := s.refusal(`select posthaste.fetch($1, $2)`, w, number); pg != nil {
			return pg.Message
		}
		if got := list[int64](s, `select message_id from posthaste.fetch($1, $2)`, w, number); !slices.Equal(got, []int64{young}) {
			return fmt.Sprintf("%v are fetched, want %d", got, young)
		}
		return ""
	}, without("leaving out closed claims", patch{file: "fetch.sql", old: "continue when bit_count(v_claim.expired)", new: "continue when false and bit_count(v_claim.expired)"}))
}

// A message that must run alone is handed out alone, also if an expired one came before it. The
// claims of a new session are slow, so that they stop before they come to the next lane: later
// queues count.
func TestRuleAloneAfterAnExpiredMessage(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		w := s.register()
		for try := range 8 {
			q := fmt.Sprint("q", try)
			s.exec(`select posthaste.create_queue($1, '{"max_age": "1 hour", "concurrency": 100, "lanes": 2}')`, q)
			s.exec(`insert into posthaste.entries_other (message_id, due_at, ages_from, queue_id, lane, for_subscription, attempt, losses, payload)
				select 7, clock_timestamp() - interval '2 hours', clock_timestamp() - interval '2 hours', id, 0, 0, 1, 0, '1' from posthaste.queue_settings where name = $1`, q)
			s.exec(`insert into posthaste.entries_other (message_id, due_at, queue_id, lane, for_subscription, attempt, losses, payload)
				select 8, clock_timestamp() - interval '1 minute', id, 0, 0, 3, 2, '1' from posthaste.queue_settings where name = $1`, q)
			s.exec(`insert into posthaste.entries_plain (queue_id, lane, payload) select id, 1, '1' from posthaste.queue_settings, generate_series(1, 3) where name = $1`, q)
			for number := range 8 {
				got := list[string](s, `select message_id || ' ' || alone from posthaste.claim($1, $2, $3, 'default', 10, false, true, true, true, 10) where delivery_id is not null`, w, 8*try+number, q)
				for _, told := range got {
					if strings.HasSuffix(told, "true") && len(got) > 1 {
						return fmt.Sprintf("handed out together: %v", got)
					}
				}
			}
		}
		if n := get[int](s, `select count(*)::int from posthaste.outcomes where message_id = 7 and outcome = 'expired'`); n != 8 {
			t.Fatalf("%d of 8 old messages are expired", n)
		}
		return ""
	}, without("looking at the last claim", patch{file: "claim_ruled.sql", old: "(v.made)[cardinality(v.made)].alone;", new: "(v.made)[1].alone;"}))
}

// A claim after one whose messages expired, or were set aside by a pause, hands out its own messages,
// although nothing expires or is paused any more.
func TestRuleClaimAfterExpiredOnes(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		for what, c := range map[string][2]string{
			"expired": {`select posthaste.update_queue('q', '{"max_age": "1 microsecond"}')`, `select posthaste.update_queue('q', '{"max_age": null}')`},
			"paused":  {`select posthaste.pause_kind('q', 'sms')`, `select posthaste.resume_kind('q', 'sms')`},
		} {
			for _, options := range []string{`{"kind": "sms"}`, `{"kind": "sms", "delay": "1 millisecond"}`} {
				s := connect(t, url)
				s.exec(`select posthaste.create_queue('q')`)
				s.exec(c[0])
				s.send(options)
				w := s.knows()
				until(t, "a claim finds the first message", func() bool {
					if got := w.takes(10); len(got) > 0 {
						t.Fatalf("%v came", got)
					}
					return get[bool](s, `select exists (select from posthaste.claims where expired is not null)`)
				})
				s.exec(c[1])
				want := []int64{s.send(options), s.send(options)}
				var got []int64
				for tries := 0; tries < 3; {
					if pg := s.refusal(`select posthaste.claim($1, $2, 'q', 'default', 10, false, true, true, true, 1000)`, w.id, w.number+1); pg != nil {
						return fmt.Sprintf("%s, %s: claiming ended with %s", what, options, pg.Message)
					}
					got = append(got, w.takes(10)...) // the same claim again
					if get[bool](s, `select count(*) = 0 from posthaste.entries where pos = any ($1) and due_at > clock_timestamp()`, want) {
						tries++
					}
				}
				if !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
					return fmt.Sprintf("%s, %s: %v came of %v", what, options, got, want)
				}
				s.exec(`select posthaste.drop_queue('q')`)
			}
		}
		return ""
	}, without("those of fresh messages", patch{file: "claim_lane.sql", old: "          v_cursor.expired := null;\n", new: ""}),
		without("those of due messages", patch{file: "claim_lane.sql", old: "            v_due.expired := null; -- it had those of the claim before\n", new: ""}))
}
