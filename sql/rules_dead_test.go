package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// bury creates n dead letters in queue q, with ids from 1 on: each has a key and a reference of its
// own, ten kinds, a term for each thousand, and one in ten thousand a rare error.
func bury(s *session, n int) {
	s.t.Helper()
	s.exec(`insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, attempt, created_at, died_at, key, kind, reference, terms, error, story, payload)
		select g, 0, 1, 0, g, 1, now(), timestamptz '2030-01-01' + g * interval '1 second', 'k' || g, 'kind' || g % 10, 'r' || g, array['t' || g / 1000, 'all'],
		       case when g % 10000 = 7 then 'A rare ERROR' else 'it did not work' end, '[{"attempt": 1}]', 'x'
		  from generate_series(1, $1::int) g`, n)
}

// The pages that a search of dead letters reads do not grow with their number, by any filter and
// with any statistics.
func TestSearchesOfDeadLettersReadLittle(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	n := rows(t, 50_000)
	bury(s, n)
	s.exec(`select posthaste.create_queue('other')`)
	look := func(state string) {
		for _, c := range []struct {
			filter string
			pages  int // at most
			want   int64
			count  int
		}{
			{`{"all": true}`, 1000, int64(n), 100},
			{`{"queue": "q"}`, 1000, int64(n), 100},
			{`{"queue": "other"}`, 60, 0, 0},
			{`{"queue": "q", "reference": "r77"}`, 100, 77, 1},
			{`{"reference": "r77"}`, 120, 77, 1},
			{`{"key": "k78", "kind": "kind8"}`, 120, 78, 1},
			{`{"key": "k78", "kind": "kind9"}`, 120, 0, 0},
			{`{"queue": "q", "kind": "kind3"}`, 1000, 0, 100},
			{`{"term": "t4"}`, 3000, 4999, 100},
			{`{"died_from": "2030-01-01T00:01:00Z", "died_before": "2030-01-01T00:02:00Z"}`, 1000, 0, 60},
			// Cut after 10,000, of which one or two match.
			{`{"queue": "q", "error": "rare error"}`, 30000, 0, 1},
		} {
			if testpg.Version(t) == "14" {
				c.pages *= 2 // it descends an index again for each of several ids
			}
			if pages := s.reads(`select * from posthaste.list_dead_letters($1)`, c.filter); pages > c.pages {
				t.Errorf("%s: by %s it reads %d pages, want at most %d", state, c.filter, pages, c.pages)
			} else {
				t.Logf("%s: by %s it reads %d pages", state, c.filter, pages)
			}
			got := list[int64](s, `select message_id from posthaste.list_dead_letters($1)`, c.filter)
			if len(got) != c.count || c.want != 0 && got[0] != c.want || !slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) }) {
				t.Errorf("%s: by %s it finds %d, %v, want %d from %d on", state, c.filter, len(got), got[:min(3, len(got))], c.count, c.want)
			}
		}
	}
	look("without statistics")
	s.exec(`analyze posthaste.dead_letter_entries`)
	look("with statistics")
	// Statistics of letters that all have the same key and reference.
	s.exec(`create table public.kept as select * from posthaste.dead_letter_entries`)
	s.exec(`update posthaste.dead_letter_entries set key = 'k', reference = 'r', kind = 'k', terms = '{t}', died_at = '2030-01-01'`)
	s.exec(`analyze posthaste.dead_letter_entries`)
	s.exec(`delete from posthaste.dead_letter_entries`)
	s.exec(`insert into posthaste.dead_letter_entries select * from public.kept`)
	// The row versions that died above are read as well as long as they are not vacuumed, which
	// is not the point here. Vacuum leaves the statistics of columns alone.
	s.exec(`vacuum posthaste.dead_letter_entries`)
	look("with misleading statistics")
}

// A search that was cut says where, and a caller that pages on finds each letter once.
func TestCutSearchesOfDeadLettersGoOn(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	n := 30_000
	bury(s, n)
	s.exec(`update posthaste.dead_letter_entries set queue_id = 1`)
	var got []int64
	before, pages := int64(1<<60), 0
	for before > 0 {
		s.exec(`begin`)
		got = append(got, list[int64](s, `select message_id from posthaste.list_dead_letters('{"error": "Rare"}', before => $1)`, before)...)
		before = get[int64](s, `select coalesce(nullif(current_setting('posthaste.list_before'), ''), '0')::bigint`)
		s.exec(`commit`)
		pages++
	}
	if want := []int64{20007, 10007, 7}; !slices.Equal(got, want) || pages < 3 {
		t.Errorf("in %d pages %v were found, want %v", pages, got, want)
	}
}

// Replaying by a filter descends by id, so that it ends although replayed messages die again, and
// takes only letters that match and were not erased.
func TestRuleReplayByFilter(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`insert into posthaste.subscriptions (queue_id, number, name, since) values (1, 1, 'second', pg_current_snapshot())`)
		s.exec(`insert into posthaste.counters (queue_id, subscription) values (1, 1)`)
		s.exec(`insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, attempt, created_at, error, story, payload, erased_at)
			select g, u, 1, 0, g, 1, now(), 'e' || g % 2, '[]', '1', case when g = 5 then now() end from generate_series(1, 9) g, generate_series(0, 1) u`)
		var all []int64
		before := int64(1 << 60)
		for rounds := 0; before > 0; rounds++ {
			if rounds > 20 {
				return fmt.Sprintf("it does not end: %v", all)
			}
			s.exec(`begin`)
			all = append(all, list[int64](s, `select posthaste.replay(filter => '{"queue": "q", "subscription": "second", "error": "E1"}', before => $1, max => 2)`, before)...)
			before = get[int64](s, `select coalesce(nullif(current_setting('posthaste.list_before'), ''), '0')::bigint`)
			s.exec(`commit`)
			// They die again.
			s.exec(`insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, attempt, created_at, error, story, payload)
				select g, 1, 1, 0, g, 2, now(), 'e1', '[]', '1' from unnest($1::bigint[]) g on conflict do nothing`, all)
		}
		if want := []int64{1, 3, 7, 9}; !slices.Equal(ascending(all), want) {
			return fmt.Sprintf("replayed %v, want %v", all, want)
		}
		if first := get[int](s, `select count(*)::int from posthaste.dead_letter_entries where subscription = 0`); first != 9 {
			return fmt.Sprintf("of the other subscription %d dead letters are left, want 9", first)
		}
		if n := get[int](s, `select count(*)::int from posthaste.entries where for_subscription = 1`); n != 4 {
			return fmt.Sprintf("%d entries were made, want 4", n)
		}
		if by := list[string](s, `select distinct by from posthaste.actions where action = 'replay' and queue = 'q'`); !slices.Equal(by, []string{get[string](s, `select session_user::text`)}) {
			return fmt.Sprintf("the record says it was by %v", by)
		}
		return ""
	}, without("going down", patch{file: "dead_chosen.sql", old: "posthaste.dead_found(f, null, p_before, p_max::int)", new: "posthaste.dead_found(f, null, null, p_max::int)"}),
		without("the filter", patch{file: "replay.sql", old: " and posthaste.dead_matches(d, v_chosen.f)", new: ""}),
		without("the check for erased letters", patch{file: "replay.sql", old: " and d.erased_at is null", new: ""}))
}
