package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Between any two snapshots the ranges contain exactly the transactions that the second sees and the
// first does not: slices of the fresh track read nothing else.
func TestRuleRangesAreTheWindow(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		r := rand.New(rand.NewPCG(1, 2))
		var first, second []string
		for range 2000 {
			first, second = append(first, anySnapshot(r)), append(second, anySnapshot(r))
		}
		return strings.Join(list[string](s, `
			select format('between %s and %s the ranges have %s, and the window has %s', s0, s1, ranged, wanted)
			  from unnest($1::pg_snapshot[], $2::pg_snapshot[]) x (s0, s1)
			 cross join lateral posthaste.window_ranges(s0, s1) w
			 cross join lateral (
			   select array_agg(id order by id) filter (where pg_visible_in_snapshot(id::text::xid8, s1) and not pg_visible_in_snapshot(id::text::xid8, s0)) as wanted,
			          array_agg(id order by id) filter (where exists (select from unnest(w.lo, w.hi) g (lo, hi) where id >= g.lo and id < g.hi)) as ranged
			     from generate_series(1, 40) id) y
			 where ranged is distinct from wanted
			 limit 3`, first, second), "\n")
	}, without("those that were in progress", patch{file: "window_ranges.sql", old: "where pg_visible_in_snapshot(x, s1)", new: "where false"}),
		without("those that are in progress", patch{file: "window_ranges.sql", old: "where x >= x0\n", new: "where false\n"}))
}

// anySnapshot is one over transactions 3 to 32, in PostgreSQL's words.
func anySnapshot(r *rand.Rand) string {
	lowest := 3 + r.IntN(28)
	end := lowest + r.IntN(33-lowest)
	var open []string
	for id := lowest; id < end; id++ {
		if r.IntN(3) == 0 {
			open = append(open, fmt.Sprint(id))
		}
	}
	return fmt.Sprintf("%d:%d:%s", lowest, end, strings.Join(open, ","))
}
