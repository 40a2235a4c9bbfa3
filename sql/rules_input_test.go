package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// takesMany lists the functions that take arrays, or a number of rows, each with its call: $1 is the
// number. They come in an order in which each has something to do.
var takesMany = []struct{ name, prepare, call string }{
	{"send_many", ``, `select count(*) from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1::int)))`},
	{"send_many, each with all there is", ``, `select count(*) from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'kind', 'k', 'reference', 'r' || g,
		'headers', '{"a": "b"}'::jsonb, 'terms', '["t"]'::jsonb, 'delay', '1 hour')) from generate_series(1, $1::int) g))`},
	{"send_many, with dedupe keys", ``, `select count(*) from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', 1, 'dedupe_key', 'd' || $1 || '-' || g)) from generate_series(1, $1::int) g))`},
	{"send_many, in order", ``, `select count(*) from posthaste.send_many('o', (select jsonb_agg(jsonb_build_object('payload', 1, 'key', 'k' || g)) from generate_series(1, $1::int) g))`},
	{"send_rows", ``, `select cardinality(posthaste.send_rows(x.q, x.p, x.n, x.n, x.n, x.n::jsonb[], x.n, x.n::jsonb[], x.n::float8[], x.n::timestamptz[], x.n, true))
		from (select array_agg('q'::text) as q, array_agg('1'::bytea) as p, array_agg(null::text) as n from generate_series(1, $1::int)) x`},
	{"extend", receives, `select count(*) from posthaste.extend(array(select id from received limit $1), '1 hour')`},
	{"release", receives, `select count(*) from posthaste.release(array(select id from received limit $1))`},
	{"ack", receives, `select count(*) from posthaste.ack(array(select id from received limit $1))`},
	{"replay", dies, `select count(*) from posthaste.replay(array(select message_id from posthaste.dead_letter_entries order by 1 limit least($1::int, 10000)))`},
	{"discard", dies, `select count(*) from posthaste.discard(array(select message_id from posthaste.dead_letter_entries order by 1 limit least($1::int, 10000)))`},
	{"purge", ``, `select count(*), $1::int from posthaste.purge('q')`},
}

// receives fills the table received, by one receive a message for the first 2,000: each of these is
// a claim of its own.
const receives = `
	select posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, %[1]d)));
	truncate received;
	do $$ begin
	  for i in 1..least(%[1]d, 2000) loop insert into received select delivery_id from posthaste.receive('q', 1, '1 hour'); end loop;
	  while (select count(*) from received) < %[1]d loop insert into received select delivery_id from posthaste.receive('q', 1000, '1 hour'); end loop;
	end $$`

const dies = `insert into posthaste.dead_letter_entries (queue_id, subscription, message_id, pos, created_at, attempt, lane, payload, story, error)
	select q.id, 0, 1000000 + g, 1000000 + g, now(), 1, 0, '1', '[]', 'no' from posthaste.queue_settings q cross join generate_series(1, %[1]d) g where q.name = 'q' on conflict do nothing`

// No call uses entries of the server's lock table in proportion to its input, which would fail the
// statements of other programs, and none takes more than linear time.
func TestFT5_NoCallGrowsBeyondItsInput(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 500}
	if testrun.Full() {
		sizes = []int{10, 1000, 100_000}
	}
	s := begin(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('o', '{"ordered": true}')`)
	s.exec(`create temp table received (id bigint)`)
	for _, f := range takesMany {
		var locks, took []float64
		for i, n := range append([]int{10, 10, 10}, sizes...) { // the first calls make plans
			if f.prepare != "" {
				s.exec(fmt.Sprintf(f.prepare, n))
			}
			s.exec(`begin`)
			began := time.Now()
			s.exec(f.call, n)
			if i > 2 {
				took = append(took, time.Since(began).Seconds())
				locks = append(locks, get[float64](s, `select count(*) from pg_locks where pid = pg_backend_pid()`))
			}
			s.exec(`commit`)
		}
		t.Logf("%s: %v locks, %.4f s, for %v", f.name, locks, took, sizes)
		for i := 1; i < len(sizes); i++ {
			// A session may have to plan again meanwhile, which takes some 200 for a moment.
			if locks[i] > locks[0]+250 {
				t.Errorf("%s takes %.0f locks for %d, and %.0f for %d", f.name, locks[0], sizes[0], locks[i], sizes[i])
			}
		}
		// The fixed cost of a call is in the smaller one, too: so the larger two are compared.
		if len(sizes) == 3 && took[2] > 3*took[1]*float64(sizes[2])/float64(sizes[1]) {
			t.Errorf("%s takes %.1f times as long for %d as for %d", f.name, took[2]/took[1], sizes[2], sizes[1])
		}
	}
}
