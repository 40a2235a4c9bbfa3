package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// parkRows parks messages first to last of a queue, whose entries are gone.
func (s *session) parkRows(queue string, first, last int) {
	s.t.Helper()
	s.exec(`insert into posthaste.parked (subscriber, key, ord, message_id, lane, reason, created_at, attempt, failures, losses, losses_alone, reference, payload)
		select q.id::bigint << 10, 'k' || g % 10, (1000000 + g)::text::xid8, g, 0, 'busy', clock_timestamp(), 1, 0, 0, 0, 'r' || g, '1'
		  from posthaste.queue_settings q cross join generate_series($2::int, $3::int) g where q.name = $1`, queue, first, last)
}

// page lists up to most messages below an id, and returns the id to continue with.
func (s *session) page(search string, before int64, most int) (ids []int64, next int64) {
	s.t.Helper()
	s.exec(`begin`)
	ids = list[int64](s, `select message_id from posthaste.list_messages(`+search+` before => $1, max => $2)`, before, most)
	next = get[int64](s, `select coalesce(nullif(current_setting('posthaste.list_before'), '')::bigint, 0)`)
	s.exec(`commit`)
	if len(ids) == most {
		next = ids[most-1]
	}
	return ids, next
}

// A listing reads no more with very many parked messages than with some ten thousand, of whatever
// queue.
func TestRuleListingsBesideManyParked(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
		for _, queue := range []string{"few", "deep", "none"} {
			s.exec(`select posthaste.create_queue($1, '{"ordered": true}')`, queue)
		}
		s.parkRows("few", 101, 103)
		s.parkRows("deep", 1_001, 12_000)
		searches := []string{``, `'q',`, `'few',`, `'deep',`, `'none',`, `key => 'k3',`, `'q', key => 'k3',`}
		look := func() (pages []int) {
			s.exec(`vacuum analyze posthaste.parked`)
			for _, search := range searches {
				sql := `select * from posthaste.list_messages(` + search + ` max => 10)`
				pages = append(pages, s.reads(sql))
			}
			return pages
		}
		s.parkRows("q", 20_001, 50_000)
		some := look()
		s.parkRows("q", 50_001, 140_000)
		many := look()
		for i, search := range searches {
			t.Logf("list_messages(%s): %d pages with 30,000 parked, %d with 120,000", search, some[i], many[i])
			if many[i] > some[i]+some[i]/4+60 {
				return fmt.Sprintf("list_messages(%s) reads %d pages with 30,000 parked, and %d with 120,000", search, some[i], many[i])
			}
		}
		return ""
	}, without("a bound of entries looked through", patch{file: "parked_newest.sql", old: " limit c_most + 1", new: "", times: 4}),
		without("a bound of the way down", patch{file: "parked_newest.sql", old: "if v_looked >= c_most then", new: "if false then"}))
}

// A caller that pages through a listing that was cut among others' parked messages finds each once.
func TestListingsAmongParkedGoOn(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 1}`)
	s.exec(`select posthaste.create_queue('other', '{"ordered": true}')`)
	s.parkRows("q", 1_001, 12_500)
	s.parkRows("other", 12_501, 43_000)
	s.parkRows("q", 43_001, 43_004)
	for search, want := range map[string]int{`'q',`: 11_504, `'other', key => 'k1',`: 3_050} {
		before, pages := int64(1<<60), 0
		var got []int64
		for before > 0 {
			var ids []int64
			ids, before = s.page(search, before, 1000)
			got = append(got, ids...)
			pages++
		}
		descending := slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) })
		if n := len(slices.Compact(slices.Clone(got))); n != want || n != len(got) || !descending {
			t.Errorf("list_messages(%s) has %d in %d pages (%d different, descending: %v), want %d", search, len(got), pages, n, descending, want)
		}
	}
}

// Dead letters whose entries were reclaimed are listed beside those of the ring.
func TestListingsHaveDeadLetters(t *testing.T) {
	t.Parallel()
	s := keeping(t, testpg.New(t), `{"max_attempts": 1}`)
	var ids []int64
	for range 3 {
		ids = append(ids, s.send(`{}`))
		s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive('q', 1, '1 hour')), 'no')`)
	}
	if fault := reclaimAll(t, s); fault != "" {
		t.Fatal(fault)
	}
	if n := get[int](s, `select count(*)::int from posthaste.entries`); n != 0 {
		t.Fatalf("%d entries are left", n)
	}
	ids = append(ids, s.send(`{}`))
	slices.Reverse(ids)
	for search, want := range map[string][]int64{``: ids, `'q'`: ids, `max => 2`: ids[:2], fmt.Sprintf(`before => %d`, ids[1]): ids[2:], `state => 'dead'`: ids[1:], `state => 'ready'`: ids[:1]} {
		same(t, "listed by "+search, list[int64](s, `select message_id from posthaste.list_messages(`+search+`) where message_id > 0`), want...)
	}
}

// A listing by reference reads only its result, with any statistics.
func TestListingsByReferenceReadLittle(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	n := rows(t, 50_000)
	const fill = `
		with put as (
			insert into posthaste.entries_plain (queue_id, lane, more, payload)
			select q.id, 0, posthaste.more_of(null, 'r' || g, null, jsonb_build_array('t' || g, 'all')), '1' from posthaste.queue_settings q cross join generate_series(1, $1::int) g where q.name = 'q'
			returning pos, xid, queue_id, lane, more)
		insert into posthaste.words (slot, message_id, pos, xid, queue_id, lane, word)
		select p.pos >> 22 & 15, p.pos, p.pos, p.xid, p.queue_id, p.lane, unnest(posthaste.words_of(p.more ->> 'reference', posthaste.texts_of(p.more -> 'terms'))) from put p`
	s.exec(fill, n)
	look := func(state string) {
		for _, search := range []string{`reference => 'r77'`, `'q', reference => 'r4077'`, `'q', reference => 'r4077', state => 'ready'`, `term => 't78'`, `reference => 'r78', term => 'all'`, `reference => 'none'`} {
			want := 1
			if search == `reference => 'none'` {
				want = 0
			}
			sql := `select * from posthaste.list_messages(` + search + `)`
			pages := s.reads(sql)
			t.Logf("%s: by %s it reads %d pages", state, search, pages)
			if pages > 400 {
				t.Errorf("%s: by %s it reads %d pages, want at most 400", state, search, pages)
			}
			if got := list[int64](s, `select message_id from posthaste.list_messages(`+search+`) where message_id > 0`); len(got) != want {
				t.Errorf("%s: by %s it finds %v", state, search, got)
			}
		}
	}
	look("without statistics")
	s.exec(`analyze posthaste.entries_plain, posthaste.words`)
	look("with statistics")
	// Statistics of messages that all have the same reference.
	s.exec(`begin; update posthaste.words set word = 'r'; analyze posthaste.words; commit`)
	s.exec(`truncate posthaste.entries_plain, posthaste.words`)
	s.exec(fill, n)
	look("with misleading statistics")
}

// The oldest waiting message of a keyed queue was not withdrawn from its log, as is a
// message that was parked before its turn; and the look for it costs no more if very many were.
func TestRuleOldestThatWaitsWasNotWithdrawn(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true, "lanes": 1}`)
		// Statistics between two looks would change the plan, and so the pages.
		s.exec(`alter table posthaste.cancelled set (autovacuum_enabled = false)`)
		send := func(n int, age string) {
			s.exec(`insert into posthaste.entries_other (ord, queue_id, lane, key, payload, created_at)
				select (select posthaste.ord_now()), q.id, 0, 'a', '1', clock_timestamp() - $2::interval from posthaste.queue_settings q cross join generate_series(1, $1::int) g where q.name = 'q'`, n, age)
		}
		withdraw := func() {
			s.exec(`insert into posthaste.cancelled (pos, subscriber, outcome, xid, copied)
				select e.pos, e.queue_id::bigint << 10, 'parked', e.xid, true from posthaste.entries e on conflict do nothing`)
		}
		const sql = `select coalesce(oldest_age > $1::interval, false) from posthaste.queues where queue = 'q'`
		older := func(than string) bool { return get[bool](s, sql, than) }
		send(3, "5 days")
		if !older("4 days") {
			return "the oldest is not found"
		}
		withdraw()
		if older("0") {
			return "nothing waits, and something is reported"
		}
		send(2, "3 days")
		if older("4 days") || !older("2 days") {
			return "the oldest is one that was withdrawn"
		}
		s.exec(`select posthaste.cancel(e.pos) from posthaste.entries e where e.created_at > clock_timestamp() - interval '4 days'`)
		send(1, "1 day")
		if older("2 days") || !older("23 hours") {
			return "the oldest is one that was cancelled"
		}
		send(6_000, "1 hour")
		withdraw()
		few := s.reads(sql, "1 day")
		send(12_000, "1 hour")
		withdraw()
		send(1, "1 minute")
		if many := s.reads(sql, "1 day"); many > 2*few+100 {
			return fmt.Sprintf("behind 6,000 that were withdrawn a look touches %d pages, and behind 18,000 %d", few, many)
		}
		return ""
	},
		without("passing over", patch{file: "oldest_fresh.sql", old: "where e.k = 1024 or not exists (select from posthaste.cancelled y where y.pos = e.pos and y.subscriber = c.subscriber)", new: ""}),
		without("a bound", patch{file: "oldest_fresh.sql", old: "order by e.ord, e.pos limit 1024", new: "order by e.ord, e.pos"},
			patch{file: "oldest_fresh.sql", old: "where e.k = 1024 or not exists", new: "where not exists"}))
}

// A receiver by SQL can name the terms of a message that was sent without any.
func TestTermsOfReceivers(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	ids := []int64{s.send(`{}`), s.send(`{}`), s.send(`{"terms": ["sent"]}`), s.send(`{}`), s.send(`{}`)}
	got := list[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 hour')`)
	for _, c := range []struct{ options, want string }{
		{`{"terms": 1}`, "terms must be an array with one array of strings for each delivery id"},
		{`{"terms": [["a"]]}`, "terms must be an array with one array of strings for each delivery id"},
		{`{"terms": ["a", null, null]}`, "terms must be an array of strings"},
		{`{"terms": [["a", 1], null, null]}`, "terms must be an array of strings"},
		{fmt.Sprintf(`{"terms": [[%q], null, null]}`, strings.Repeat("x", 256)), "terms must be strings of at most 255 bytes"},
	} {
		if pg := s.refusal(`select from posthaste.ack($1::bigint[], $2)`, got[:3], c.options); pg == nil || pg.Code != "PH400" || pg.ColumnName != "terms" || pg.Message != c.want {
			t.Errorf("%s: %v, want %s", c.options, pg, c.want)
		}
	}
	same(t, "acknowledged", list[bool](s, `select settled from posthaste.ack($1::bigint[], '{"terms": [["ada", "bob"], null, ["ada"]], "receipts": [null, 1, 2]}')`, got[:3]), true, true, true)
	same(t, "failed", list[string](s, `select outcome from posthaste.fail($1, 'no', '{"terms": ["ada"], "permanent": true}')`, got[3]), "dead")
	same(t, "failed", list[string](s, `select outcome from posthaste.fail($1, 'no', '{"terms": ["eve"], "retry_after": "1 hour"}')`, got[4]), "retried")
	for term, want := range map[string][]int64{"ada": {ids[3], ids[0]}, "bob": ids[:1], "sent": ids[2:3], "eve": ids[4:5]} {
		same(t, "found by "+term, list[int64](s, `select message_id from posthaste.list_messages(term => $1)`, term), want...)
	}
}

// A listing by a term of a handler looks up messages that are near one another at once.
func TestRuleListingsByFoundTerm(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, 3000)))`)
		for range 3 {
			s.exec(`select from (select array_agg(delivery_id) as ids from posthaste.receive('q', 1000, '1 hour')) r
				cross join lateral posthaste.ack(r.ids, jsonb_build_object('terms', (select jsonb_agg(case when i % 2 = 0 then '["ada"]'::jsonb end order by i) from generate_series(1, 1000) i)))`)
		}
		const sql = `select posthaste.named_heads(array[1], null, 'ada', null, $1)`
		few, many := s.reads(sql, 10), s.reads(sql, 1000)
		t.Logf("ten cost %d pages, and 1,000 cost %d", few, many)
		if n := len(list[int64](s, `select message_id from posthaste.list_messages(term => 'ada', max => 1000)`)); n != 1000 {
			return fmt.Sprintf("%d are found", n)
		}
		if many > 10*few {
			return fmt.Sprintf("ten cost %d pages, and 1,000 cost %d", few, many)
		}
		return ""
	}, without("looking them up at once", patch{file: "named_heads.sql", old: "group by w.pos >> 10)", new: "group by w.pos)"}))
}

// A message that waits for its retry is found behind any number of newer ones.
func TestRuleRetryingIsFoundBehindManyOthers(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		id := s.send(`{}`)
		s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive('q', 1, '1 hour')), 'no')`)
		s.exec(`insert into posthaste.entries_plain (queue_id, payload) select id, '1' from posthaste.queue_settings cross join generate_series(1, 6000) where name = 'q'`)
		if found, next := s.page(`state => 'retrying',`, 1<<62, 10); !slices.Equal(found, []int64{id}) || next != 0 {
			return fmt.Sprintf("retrying are %v, and it goes on below %d", found, next)
		}
		return ""
	}, without("a way of its own", patch{file: "list_messages.sql", old: "if v_state = 'retrying' then", new: "if false then"}))
}
