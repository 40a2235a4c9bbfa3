package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// keeping is a database whose queue q keeps its history, and whose slots are reclaimed as soon as
// they can be.
func keeping(t *testing.T, url, options string) *session {
	t.Helper()
	s := connect(t, url)
	s.exec(`select posthaste.create_queue('q', $1)`, options)
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	return s
}

// reclaimAll turns the ring and reclaims all slots that can be, or returns the reason why the server
// cannot.
func reclaimAll(t *testing.T, s *session) (fault string) {
	t.Helper()
	turn(t, s)
	until(t, "all slots but the present one are reclaimed", func() bool {
		if pg := s.refusal(`select posthaste.reclaim()`); pg != nil {
			fault = pg.Message
			return true
		}
		return get[int](s, `select count(*)::int from posthaste.slots where live`) == 1
	})
	return fault
}

// settleMixed leaves one message for each way to end, and returns their ids and the expected state
// and outcomes of attempts.
func settleMixed(s *session) (ids []int64, want []string) {
	s.t.Helper()
	put := func(options, outcomes string, settle func(id int64)) {
		id := s.send(options)
		settle(id)
		ids, want = append(ids, id), append(want, fmt.Sprintf("%d %s", id, outcomes))
	}
	one := func(sql string) func(int64) {
		return func(int64) {
			s.exec(`select from posthaste.receive('q', 1, '1 hour') r cross join lateral ` + sql)
		}
	}
	ack, again := one(`posthaste.ack(array[r.delivery_id], jsonb_build_object('receipts', jsonb_build_array(jsonb_build_object('to', 'ada'))))`), one(`posthaste.fail(r.delivery_id, 'ada is away', '{"retry_after": "0 s"}')`)
	put(`{"reference": "r1", "key": "k", "terms": ["ada"], "headers": {"h": "ada"}}`, `done {done}`, ack)
	put(`{"reference": "r2", "key": "k", "terms": ["ada", "bob"]}`, `done {retried,retried,done}`, func(id int64) { again(id); again(id); ack(id) })
	put(`{"reference": "r3", "key": "k"}`, `done {done}`, ack)
	put(`{"reference": "r4", "delay": "1 microsecond"}`, `done {released,done}`, func(id int64) {
		one(`posthaste.release(array[r.delivery_id])`)(id)
		ack(id)
	})
	// A release leaves no trace in the story.
	want[3] = fmt.Sprintf("%d done {done}", ids[3])
	put(`{"reference": "r5"}`, `discarded {dead}`, func(id int64) {
		one(`posthaste.fail(r.delivery_id, 'never', '{"permanent": true}')`)(id)
		s.exec(`select posthaste.discard(array[$1::bigint])`, id)
	})
	put(`{"reference": "r6"}`, `done {dead,done}`, func(id int64) {
		one(`posthaste.fail(r.delivery_id, 'never', '{"permanent": true}')`)(id)
		s.exec(`select posthaste.replay(array[$1::bigint])`, id)
		ack(id)
	})
	cancel := func(id int64) { s.exec(`select from posthaste.cancel($1)`, id) }
	put(`{"reference": "r7"}`, `cancelled {}`, cancel)
	put(`{"reference": "r8", "delay": "1 day", "key": "later"}`, `cancelled {}`, cancel)
	// A worker settles many at once.
	worker := s.register()
	var many []int64
	for range 5 {
		many = append(many, s.send(`{"reference": "many"}`))
	}
	got := s.claim(worker, 1, 10, false)
	s.exec(`select from posthaste.settle(array[$1::bigint], array[B'10110'])`, got[0]>>12)
	s.exec(`select from posthaste.settle(array[$1::bigint], array[B'01001'])`, got[0]>>12)
	for _, id := range many {
		ids, want = append(ids, id), append(want, fmt.Sprintf("%d done {done}", id))
	}
	// Sent without terms, and found by those of its settlement.
	id := s.send(`{"reference": "found"}`)
	d := s.claim(worker, 2, 10, false)[0]
	s.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{done}', '{null}', '{null}', '{null}', '{null}', false, array['["eve"]'])`, d)
	ids, want = append(ids, id), append(want, fmt.Sprintf("%d done {done}", id))
	return ids, want
}

const toldAll = `select m.message_id || ' ' || m.state || ' ' || array(select a.value ->> 'outcome' from jsonb_array_elements(m.attempts) with ordinality a order by a.ordinality)::text
	from posthaste.list_messages('q', max => 1000) m order by m.message_id`

// Settled messages keep their state although the ring has reclaimed them: none is missing or
// doubled, and each is found by everything that it was found by before.
func TestRuleHistoryIsExact(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day", "retain_payload": true}`)
		ids, want := settleMixed(s)
		before := list[string](s, toldAll)
		if !slices.Equal(before, want) {
			t.Fatalf("in the ring it is\n%v, want\n%v", before, want)
		}
		stories := list[string](s, `select m.message_id || m.attempts::text || coalesce(m.terms::text, '') from posthaste.list_messages('q', max => 1000) m`)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		if n := get[int](s, `select count(*)::int from posthaste.entries`); n != 0 {
			t.Fatalf("%d entries are left", n)
		}
		if after := list[string](s, toldAll); !slices.Equal(after, want) {
			return fmt.Sprintf("in the history it is\n%v, want\n%v", after, want)
		}
		if rows := list[int64](s, `select message_id from posthaste.history order by 1`); !slices.Equal(rows, ids) {
			return fmt.Sprintf("the history has %v, want %v", rows, ids)
		}
		if after := list[string](s, `select m.message_id || m.attempts::text || coalesce(m.terms::text, '') from posthaste.list_messages('q', max => 1000) m`); !slices.Equal(after, stories) {
			return fmt.Sprintf("the stories are\n%v, and were\n%v", after, stories)
		}
		for search, want := range map[string][]int64{
			`reference => 'r2'`: ids[1:2], `key => 'k'`: {ids[2], ids[1], ids[0]}, `term => 'ada'`: {ids[1], ids[0]}, `term => 'eve'`: ids[13:],
			`key => 'k', term => 'bob'`: ids[1:2], `state => 'discarded'`: ids[4:5], `reference => 'many', max => 2`: {ids[12], ids[11]}, `state => 'cancelled'`: {ids[7], ids[6]}, `key => 'later'`: ids[7:8],
			fmt.Sprintf(`before => %d, max => 2`, ids[2]): {ids[1], ids[0]}, `state => 'dead'`: nil,
		} {
			if got := list[int64](s, `select message_id from posthaste.list_messages(queue => 'q', `+search+`)`); !slices.Equal(got, want) {
				return fmt.Sprintf("by %s %v are found, want %v", search, got, want)
			}
		}
		if got := list[int64](s, `select message_id from posthaste.messages where queue = 'q' and reference = 'r2' and state = 'done'`); !slices.Equal(got, ids[1:2]) {
			return fmt.Sprintf("the view has %v, want %v", got, ids[1:2])
		}
		if got := get[string](s, `select state || convert_from(payload, 'UTF8') || attempts::text from posthaste.message($1)`, ids[0]); got[:5] != "done1" {
			return fmt.Sprintf("the first message is reported as %s", got)
		}
		return ""
	}, without("what comes after the first claim", patch{file: "keep_history.sql", old: "where k.reader = v_reader and k.seq > v_from", new: "where k.reader = v_reader and k.seq = v_from + 1"}),
		without("withdrawn messages", patch{file: "keep_history.sql", old: "return posthaste.copy_withdrawn(p_slot, v_left) < v_left;", new: "return true;"}),
		without("the copy", patch{file: "reclaim.sql", old: "if not posthaste.keep_history(v_slot) then", new: "if false then"}),
		without("leaving out what lives on", patch{file: "copy_claim.sql", old: "where x.outcome in ('done', 'handed_out', 'cancelled', 'expired') and", new: "where"}),
		without("terms that were found later", patch{file: "copy_claim.sql", old: "coalesce(d.terms, o.terms) as all_terms", new: "d.terms as all_terms"}),
		without("discarded messages", patch{file: "discard.sql", old: "from gone g join posthaste.queue_settings q on q.id = g.queue_id and q.retention is not null", new: "from gone g join posthaste.queue_settings q on false"}))
}

// A claim that is open when the ring comes round is copied when it is closed, and its messages are
// not lost; later claims are not delayed.
func TestRuleOpenClaimsAreCopiedWhenTheyAreClosed(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day"}`)
		first := s.send(`{}`)
		s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1, '1 hour')))`)
		turn(t, s)
		slow := s.send(`{}`)
		held := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
		later := s.send(`{}`)
		s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1, '1 hour')))`)
		turn(t, s)
		until(t, "the first slot is reclaimed", func() bool {
			s.exec(`select posthaste.carry_slot(0)`)
			s.exec(`select posthaste.reclaim()`)
			return !get[bool](s, `select live from posthaste.slots where slot = 0`)
		})
		if got := list[int64](s, `select message_id from posthaste.history order by 1`); !slices.Contains(got, first) || slices.Contains(got, slow) {
			return fmt.Sprintf("while %d is handled the history has %v", slow, got)
		}
		s.exec(`select from posthaste.ack(array[$1::bigint])`, held)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		if got, want := list[int64](s, `select message_id from posthaste.history order by 1`), []int64{first, slow, later}; !slices.Equal(got, want) {
			return fmt.Sprintf("the history has %v, want %v", got, want)
		}
		if n := get[int](s, `select count(*)::int from posthaste.history_aside`); n != 0 {
			return fmt.Sprintf("%d claims are still set aside", n)
		}
		return ""
	}, without("setting aside", patch{file: "keep_history.sql", old: "insert into posthaste.history_aside (reader, claim) values (v_reader, v_claim.id);", new: "null;"}),
		without("the question whether it is open", patch{file: "keep_history.sql", old: "        if posthaste.claim_open(v_claim) then\n", new: "        if false then\n"}))
}

// Rounds are bounded, and each is a transaction: if a crash ends the copy between two of them,
// nothing is copied twice.
func TestRuleHistoryIsCopiedInRounds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day"}`)
		const n = 25_000
		s.exec(`insert into posthaste.entries_plain (queue_id, payload) select id, '1' from posthaste.queue_settings, generate_series(1, $1::int) where name = 'q'`, n)
		worker := s.register()
		for number := int64(1); ; number++ {
			s.exec(`select posthaste.claim($1, $2, 'q', 'default', 4096, false, true)`, worker, number)
			claims := list[int64](s, `select id from posthaste.claims where holder = $1 and number = $2`, worker, number)
			if len(claims) == 0 {
				break
			}
			for _, c := range claims {
				s.exec(`select from posthaste.settle(array[$1::bigint], array[repeat('1', (select places from posthaste.claims where id = $1))::bit varying])`, c)
			}
		}
		turn(t, s)
		rounds, most, fault := 0, 0, ""
		until(t, "the slot is reclaimed", func() bool {
			before := get[int](s, `select count(*)::int from posthaste.history`)
			// A round that is rolled back leaves nothing.
			s.exec(`begin`)
			_ = s.refusal(`select posthaste.reclaim()`)
			s.exec(`rollback`)
			s.exec(`select posthaste.carry_slot(0)`)
			if pg := s.refusal(`select posthaste.reclaim()`); pg != nil {
				fault = pg.Message
				return true
			}
			if copied := get[int](s, `select count(*)::int from posthaste.history`) - before; copied > 0 {
				rounds, most = rounds+1, max(most, copied)
			}
			return !get[bool](s, `select live from posthaste.slots where slot = 0`)
		})
		if fault != "" {
			return fault
		}
		if got := get[int](s, `select count(distinct message_id)::int from posthaste.history`); got != n {
			return fmt.Sprintf("the history has %d messages, want %d", got, n)
		}
		if got := get[int](s, `select count(*)::int from posthaste.history`); got != n {
			return fmt.Sprintf("the history has %d rows, want %d", got, n)
		}
		if rounds < 2 || most > 10_000+4096 {
			return fmt.Sprintf("%d rounds copied up to %d each", rounds, most)
		}
		return ""
	}, without("the cursor", patch{file: "keep_history.sql", old: "values (v_reader, v_seq) on conflict", new: "values (v_reader, v_from) on conflict"}),
		without("the bound", patch{file: "keep_history.sql", old: "v_left int := 10000;", new: "v_left int := 10000000;"}),
		without("coming again", patch{file: "reclaim.sql", old: "if not posthaste.keep_history(v_slot) then", new: "if posthaste.keep_history(v_slot) is null then"}))
}

// Expired messages are not shown any more, and their part is truncated when the last of them has
// expired; the others stay.
func TestRuleHistoryExpires(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day"}`)
		s.exec(`select posthaste.create_queue('long', '{"retention": "30 days"}')`)
		short := s.send(`{"reference": "r"}`)
		long := get[int64](s, `select posthaste.send('long', '1', '{"reference": "r"}')`)
		for _, q := range []string{"q", "long"} {
			s.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive($1, 1, '1 hour')))`, q)
		}
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		both := `select message_id from posthaste.list_messages(reference => 'r') order by 1`
		if got := list[int64](s, both); !slices.Equal(got, []int64{short, long}) {
			t.Fatalf("found %v, want %d and %d", got, short, long)
		}
		if n := get[int](s, `select count(distinct part)::int from posthaste.history`); n != 2 {
			return fmt.Sprintf("messages that expire in a day and in a month are in %d parts", n)
		}
		// A day passes, less than a quarter too few for the part.
		pass := func(hours int) {
			s.exec(`update posthaste.history set expires_at = expires_at - $1 * interval '1 hour'`, hours)
			s.exec(`update posthaste.history_parts set until = until - $1 * interval '1 hour'`, hours)
			s.exec(`select posthaste.forget_history()`)
		}
		pass(25)
		if got := list[int64](s, both); !slices.Equal(got, []int64{long}) {
			return fmt.Sprintf("after a day %v are found, want %d alone", got, long)
		}
		if code := s.code(`select from posthaste.message($1)`, short); code != "PH404" {
			return fmt.Sprintf("after a day message %d is answered with %q", short, code)
		}
		if n := get[int](s, `select count(*)::int from posthaste.history`); n != 2 {
			return fmt.Sprintf("%d rows are there before the part has expired, want 2", n)
		}
		pass(6)
		if got := list[int64](s, `select message_id from posthaste.history`); !slices.Equal(got, []int64{long}) {
			return fmt.Sprintf("the history has %v, want %d alone", got, long)
		}
		return ""
	}, without("the look at the time", patch{file: "history_of.sql", old: " and h.expires_at > clock_timestamp()", new: ""}),
		without("parts of their own", patch{file: "history_part.sql", old: "h.until <= p_expires + p_retention / 4", new: "true"}, patch{file: "history_part.sql", old: "p_expires + p_retention / 4 from", new: "p_expires + interval '60 days' from"}),
		without("truncating", patch{file: "forget_history.sql", old: "execute format('truncate posthaste.history_%s', v_part);", new: "null;"}))
}

// A message of an at-most-once queue is kept with its own state, and not as done.
func TestHistoryOfWhatIsHandedOutAtMostOnce(t *testing.T) {
	t.Parallel()
	s := keeping(t, testpg.New(t), `{"retention": "1 day", "mode": "at_most_once"}`)
	id := s.send(`{}`)
	if got := s.receive(); !slices.Equal(got, []int64{id}) {
		t.Fatalf("received %v", got)
	}
	before := list[string](s, toldAll)
	if fault := reclaimAll(t, s); fault != "" {
		t.Fatal(fault)
	}
	if after := list[string](s, toldAll); !slices.Equal(after, before) || after[0] != fmt.Sprintf("%d handed_out {handed_out}", id) {
		t.Errorf("it is reported as %v, and was as %v", after, before)
	}
}

// If all parts are in use, rows go where they stay longest, and at least as long as they must.
func TestHistoryPartsNeverRunOut(t *testing.T) {
	t.Parallel()
	s := keeping(t, testpg.New(t), `{"retention": "1 day"}`)
	for days := 1; days <= 40; days++ {
		part := get[int](s, `select posthaste.history_part('2030-01-01'::timestamptz + $1 * interval '10 days', '1 day')`, days)
		if !get[bool](s, `select until >= '2030-01-01'::timestamptz + $1 * interval '10 days' from posthaste.history_parts where part = $2`, days, part) {
			t.Fatalf("rows that expire on day %d would be removed before, with part %d", days, part)
		}
	}
	if n := get[int](s, `select count(*)::int from posthaste.history_parts`); n != 16 {
		t.Errorf("%d parts are in use, want 16", n)
	}
}

// An erased message is not shown and not found by its content, in the ring, the dead letters and the
// history; messages that are still to be delivered stay.
func TestRuleErase(t *testing.T) {
	const secrets = `select count(*)::int from (
		select m::text from posthaste.list_messages('q', max => 1000) m union all select m::text from posthaste.messages m
		union all select d::text from posthaste.list_dead_letters('{"queue": "q"}') d union all select d::text from posthaste.dead_letters d
		union all select m::text from generate_series(1, 20) g cross join lateral posthaste.message(g) m where g in (select message_id from posthaste.messages)
		union all select h::text from posthaste.history h union all select a::text from posthaste.actions a) x (told)
		where told ~ 'ada' or told ~ encode('"ada"', 'hex')`
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day", "retain_payload": true}`)
		send := func(options string) int64 {
			return get[int64](s, `select posthaste.send('q', '"ada"', $1)`, options)
		}
		const of = `{"reference": "ada-1", "key": "ada", "kind": "k", "terms": ["ada", "bob"], "headers": {"to": "ada"}}`
		end := func(sql string) {
			s.exec(`select from posthaste.receive('q', 1, '1 hour') r cross join lateral ` + sql)
		}
		old := send(of)
		end(`posthaste.fail(r.delivery_id, 'ada is away', '{"retry_after": "0 s", "receipt": {"to": "ada"}}')`)
		end(`posthaste.ack(array[r.delivery_id], '{"receipts": [{"to": "ada"}]}')`)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		inRing := send(of)
		end(`posthaste.ack(array[r.delivery_id], '{"receipts": [{"to": "ada"}]}')`)
		dead := send(of)
		end(`posthaste.fail(r.delivery_id, 'ada is gone', '{"permanent": true}')`)
		waits := send(of)
		got := list[string](s, `select message_id || ' ' || queue || ' ' || outcome from posthaste.erase('ada', 'officer')`)
		want := []string{fmt.Sprint(waits, " q pending"), fmt.Sprint(dead, " q erased"), fmt.Sprint(inRing, " q erased"), fmt.Sprint(old, " q erased")}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("it says %v, want %v", got, want)
		}
		// The waiting one is delivered unchanged, and then erased, too.
		if n := get[int](s, `select count(*)::int from posthaste.list_messages(term => 'ada')`); n != 1 {
			return fmt.Sprintf("by the term %d are found, want the one that waits", n)
		}
		if body := get[string](s, `select payload_json::text from posthaste.receive('q', 1, '1 hour') r cross join lateral posthaste.ack(array[r.delivery_id])`); body != `"ada"` {
			return fmt.Sprintf("the one that waited was delivered as %q", body)
		}
		if got := list[string](s, `select message_id || ' ' || outcome from posthaste.erase('ada', 'officer')`); !slices.Equal(got, []string{fmt.Sprint(waits, " erased")}) {
			return fmt.Sprintf("the second time it says %v", got)
		}
		if n := get[int](s, secrets); n != 0 {
			return fmt.Sprintf("%d rows still tell of it", n)
		}
		if n := get[int](s, `select count(*)::int from posthaste.list_messages(reference => 'ada-1')`) + get[int](s, `select count(*)::int from posthaste.list_messages(key => 'ada')`) +
			get[int](s, `select count(*)::int from posthaste.list_messages(term => 'bob')`); n != 0 {
			return fmt.Sprintf("%d are found by their content", n)
		}
		// The facts stay.
		facts := list[string](s, `select message_id || ' ' || state || ' ' || kind || ' ' || jsonb_array_length(attempts) || ' ' || (erased_at is not null) from posthaste.list_messages('q') order by 1`)
		if want := []string{fmt.Sprint(old, " done k 2 true"), fmt.Sprint(inRing, " done k 1 true"), fmt.Sprint(dead, " dead k 1 true"), fmt.Sprint(waits, " done k 1 true")}; !slices.Equal(facts, want) {
			return fmt.Sprintf("the facts are %v, want %v", facts, want)
		}
		if code := s.code(`select posthaste.replay(array[$1::bigint])`, dead); code != "PH404" {
			return "an erased message was replayed: " + code
		}
		// On the way into the history, too, and after its slot is reclaimed.
		s.exec(`select posthaste.discard(array[$1::bigint])`, dead)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		if n := get[int](s, secrets); n != 0 {
			return fmt.Sprintf("%d rows tell of it after the ring turned", n)
		}
		if got := list[int64](s, `select message_id from posthaste.history where erased_at is not null order by 1`); !slices.Equal(got, []int64{old, inRing, dead, waits}) {
			return fmt.Sprintf("the history has %v as erased", got)
		}
		// As after a whole turn of the ring.
		s.exec(`update posthaste.slots set cleared_to = (select last_value from posthaste.positions)`)
		s.exec(`select posthaste.forget_rows()`)
		if n := get[int](s, `select count(*)::int from posthaste.erased`); n != 0 {
			return fmt.Sprintf("%d marks of messages that are not in the ring are left", n)
		}
		if by := list[string](s, `select by || ' ' || (details ->> 'term_sha256') from posthaste.actions where action = 'erase' group by 1`); len(by) != 1 ||
			by[0] != "officer "+get[string](s, `select encode(sha256('ada'), 'hex')`) {
			return fmt.Sprintf("on record is %v", by)
		}
		return ""
	}, without("the ring's marks", patch{file: "erase.sql", old: "from unnest(v_gone) x\n", new: "from unnest(v_gone) x where false\n"}),
		without("sparing pending messages", patch{file: "erase.sql", old: "where m.state in ('scheduled', 'ready', 'running', 'retrying') and", new: "where false and"}),
		without("blanking on the way", patch{file: "copy_claim.sql", old: "where y.message_id = x.message_id order by y.message_id limit 1) e on true", new: "where y.message_id = x.message_id order by y.message_id limit 1) e on false"}),
		without("bare stories", patch{file: "bare_story.sql", old: "(a.value - array['receipt', 'checkpoint', 'progress_text', 'log'])", new: "a.value"}),
		without("the history", patch{file: "erase.sql", old: "where h.message_id = any ($1) and h.erased_at is null', v_part)", new: "where false', v_part)"}))
}

// A message that is dead, or done, for one subscription and still to be delivered to another is
// pending, and stays for both: nothing is recorded as erased. Afterwards it is erased completely.
func TestRuleErasingSparesWhatAnotherSubscriptionGets(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day", "retain_payload": true}`)
		s.exec(`select posthaste.subscribe('q', 'b')`)
		send := func() int64 {
			return get[int64](s, `select posthaste.send('q', '"ada"', '{"terms": ["ada"], "headers": {"to": "ada"}}')`)
		}
		take := func(subscription, settle string) {
			s.exec(`select from posthaste.receive('q', 1, '1 hour', jsonb_build_object('subscription', $1::text)) r cross join lateral `+settle, subscription)
		}
		done := send()
		take("default", `posthaste.ack(array[r.delivery_id], '{"receipts": [{"to": "ada"}]}')`)
		take("b", `posthaste.fail(r.delivery_id, 'ada is away', '{"retry_after": "1 day"}')`)
		if fault := reclaimAll(t, s); fault != "" {
			return fault
		}
		dead := send()
		take("default", `posthaste.fail(r.delivery_id, 'ada is gone', '{"permanent": true}')`)
		const erase = `select message_id || ' ' || outcome from posthaste.erase('ada', 'officer')`
		if got, want := list[string](s, erase), []string{fmt.Sprint(dead, " pending"), fmt.Sprint(done, " pending")}; !slices.Equal(got, want) {
			return fmt.Sprintf("it says %v, want %v", got, want)
		}
		if n := get[int](s, `select count(*)::int from posthaste.list_dead_letters('{"queue": "q"}') d where d.error = 'ada is gone' and d.terms = '{ada}' and d.erased_at is null`); n != 1 {
			return "the dead letter was blanked though its message is pending"
		}
		if n := get[int](s, `select count(*)::int from posthaste.history h where h.erased_at is null and h.headers is not null`); n != 1 {
			return "the history was blanked though its message is pending"
		}
		if n := get[int](s, `select count(*)::int from posthaste.actions where action = 'erase'`); n != 0 {
			return fmt.Sprintf("%d erasures are on record though there was none", n)
		}
		s.exec(`select posthaste.unsubscribe('q', 'b')`)
		if got, want := list[string](s, erase), []string{fmt.Sprint(dead, " erased"), fmt.Sprint(done, " erased")}; !slices.Equal(got, want) {
			return fmt.Sprintf("once no subscription is to get them it returns %v, want %v", got, want)
		}
		if n := get[int](s, `select count(*)::int from (select d::text from posthaste.dead_letters d union all select h::text from posthaste.history h) x (told) where told ~ 'ada'`); n != 0 {
			return fmt.Sprintf("%d rows still tell of it", n)
		}
		return ""
	},
		without("sparing dead letters", patch{file: "erase.sql", old: "d.message_id = any (v_gone)", new: "d.message_id = any (v_ids)"}),
		without("sparing the history", patch{file: "erase.sql", old: "using v_gone, v_now", new: "using v_ids, v_now"}))
}

// A cancelled message that was carried has no history in a subscription from the oldest on: with one
// row for each place that it was in, upkeep would stop for good.
func TestRuleWithdrawnIsRememberedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keeping(t, url, `{"retention": "1 day"}`)
		later := s.send(`{"delay": "1 day"}`)
		s.send(`{"delay": "1 day"}`) // for which the slot is carried
		s.subscribe("gone", `{"from": "oldest"}`)
		s.exec(`select posthaste.cancel($1)`, later)
		s.exec(`select posthaste.unsubscribe('q', 'gone')`)
		s.subscribe("now", `{}`) // it may need these messages, for all that upkeep knows
		turn(t, s)
		until(t, "both are carried on", func() bool { // transactions of other databases count as possible writers, too
			s.exec(`select posthaste.carry_slot(0)`)
			return get[bool](s, `select count(*) > 1 from posthaste.entries where message_id is not null`)
		})
		s.subscribe("late", `{"from": "oldest"}`)
		for range 2 {
			if fault := reclaimAll(t, s); fault != "" {
				return fault
			}
		}
		if n := get[int](s, `select count(*)::int from posthaste.history where message_id = $1`, later); n != 1 {
			return fmt.Sprintf("the history has it %d times", n)
		}
		return ""
	}, without("telling copies from withdrawals", patch{file: "subscribe.sql", old: "else x.xid end, true\n", new: "else x.xid end, false\n"}))
}
