package ledger_test

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// A claim that looks at the due track hands out due messages however many fresh ones wait.
func TestDS10_RuleDueBesideBacklog(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		due := s.send(`{"delay": "1 millisecond"}`)
		s.sendMany(2000, `{}`)
		until(t, "the message is due", func() bool {
			return get[bool](s, `select due_at < clock_timestamp() from posthaste.entries where pos = $1`, due)
		})
		worker := s.register()
		for number := range int64(2) { // the first one finds the end of the due track
			for _, id := range list[int64](s, `select coalesce(message_id, 0) from posthaste.claim($1, $2, 'q', 'default', 100, p_rows => 100)`, worker, number+1) {
				if id == due {
					return ""
				}
			}
		}
		return fmt.Sprintf("message %d, which is due, was not in the first two claims of 100", due)
	}, without("the turn of due messages", patch{file: "claim_lane.sql", old: "boolean := p_due and (p_max > 1 or random() < 0.5)", new: "boolean := false"}))
}

// A claim reads as many pages behind a long backlog as behind a short one.
func TestLP8_ClaimCostsTheSameBehindABacklog(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	worker, number := s.register(), int64(0)
	const some = 100
	least := func() int {
		best := 1 << 30
		for range 5 { // the first ones read the catalog as well
			number++
			best = min(best, s.buffers(`select posthaste.claim($1, $2, 'q', 'default', $3, true)`, worker, number, some))
			if got := len(s.fetch(worker, number)); got != some {
				t.Fatalf("a claim of %d handed out %d", some, got)
			}
		}
		return best
	}
	s.sendMany(10*some, `{}`)
	short := least()
	s.sendMany(10_000, `{}`)
	long := least()
	t.Logf("%d pages with 1,000 messages, %d with 10,000 more", short, long)
	if long > short+short/2 {
		t.Errorf("a claim reads %d pages behind a backlog of 10,000, and %d behind one of 1,000", long, short)
	}
}
