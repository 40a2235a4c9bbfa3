package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A claim costs no more with very many parked messages than with few: when it finds nothing, a
// message of another key, or the next one of a key with most of them, and while an old snapshot
// keeps released messages from being cleaned up. At full size a million are parked.
func TestClaimBesideManyParked(t *testing.T) {
	t.Parallel()
	const few = 2_000
	many := testrun.Size(20_000, 1_000_000)
	what := []string{"nothing", "a message of another key", "the next of a key", "the next of a key, above what died"}
	pages := func(n int) (out [4]int) {
		url := testpg.New(t)
		s, old := keyed(t, url, `{"ordered": true, "lanes": 1}`), connect(t, url)
		// One key with half of all, and a hundred with the other half.
		s.sendKey("a")
		s.exec(`select posthaste.send('q', '1', jsonb_build_object('key', 'b' || g)) from generate_series(0, 99) g`)
		if got := s.take(1000); len(got) != 101 {
			t.Fatalf("%d are in flight", len(got))
		}
		s.exec(`insert into posthaste.entries_other (ord, queue_id, lane, key, payload)
			select (select posthaste.ord_now()), q.id, 0, case when g % 2 = 0 then 'a' else 'b' || g % 100 end, '1'
			  from posthaste.queue_settings q cross join generate_series(1, $1::int) g`, n)
		for parked := 0; parked < n; parked = get[int](s, `select count(*)::int from posthaste.parked`) {
			for range 10 {
				if got := s.take(1000); len(got) > 0 {
					t.Fatalf("received %v", messages(got))
				}
			}
		}
		s.exec(`vacuum posthaste.parked`)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.parked limit 1`)
		// The median of several, because a page may fill up under one of them.
		median := func(wanted int, before func()) int {
			var all []int
			for range 5 {
				before()
				claims := s.handings()
				all = append(all, s.buffers(`select * from posthaste.receive('q', 1, '1 hour')`))
				if made := s.handings() - claims; made != wanted {
					t.Fatalf("with %d parked: %d claims were made, want %d", n, made, wanted)
				}
			}
			slices.Sort(all)
			return all[2]
		}
		others := 0
		hot := get[int64](s, `select c.id * 4096 + p.place from posthaste.claims c cross join lateral posthaste.deliveries_of(c) p where c.places > 0 order by p.place limit 1`)
		goOn := func() {
			s.exec(`select from posthaste.ack(array[$1::bigint], '{"strict": true}')`, hot)
		}
		next := func() {
			goOn()
			got := s.take(1)
			if len(got) != 1 {
				t.Fatalf("with %d parked the key does not go on", n)
			}
			hot = got[0].delivery
		}
		newest := func() {
			hot = get[int64](s, `select max(id) * 4096 from posthaste.claims where places > 0`)
		}
		out[0] = median(0, func() {})
		out[1] = median(1, func() { others++; s.sendKey(fmt.Sprint("other ", others)) })
		for range 3 {
			next()
		}
		started := false
		again := func() {
			if started {
				newest()
			}
			started = true
			goOn()
		}
		out[2] = median(1, again)
		newest()
		for range 150 {
			next()
		}
		started = false
		out[3] = median(1, again)
		return out
	}
	least, most := pages(few), pages(many)
	for i := range what {
		t.Logf("%s: %d pages with %d parked, %d with %d", what[i], least[i], few, most[i], many)
		if most[i] > least[i]+least[i]/2+60 {
			t.Errorf("a claim that finds %s touches %d pages with %d parked, and %d with %d", what[i], most[i], many, least[i], few)
		}
	}
}

// A settle costs no more if messages of very many keys are parked.
func TestSettleBesideManyParkedKeys(t *testing.T) {
	t.Parallel()
	pages := func(n int) int {
		s := keyed(t, testpg.New(t), `{"key_concurrency": 1, "lanes": 1}`)
		s.sendKey("a")
		held := s.take(1)
		s.exec(`insert into posthaste.keys (subscriber, key, lane, hash, blocked)
			select q.id::bigint << 10, 'k' || g, 0, g, true from posthaste.queue_settings q cross join generate_series(1, $1::int) g where q.name = 'q'`, n)
		return s.buffers(`select from posthaste.ack(array[$1::bigint], '{"strict": true}')`, held[0].delivery)
	}
	if few, many := pages(100), pages(20_000); many > few+few/2+60 {
		t.Errorf("a settle touches %d pages beside 100 keys, and %d beside 20,000", few, many)
	}
}

// handings counts claims with deliveries.
func (s *session) handings() int {
	s.t.Helper()
	return get[int](s, `select count(*)::int from posthaste.claims where places > 0`)
}
