package ledger_test

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// hotKeyed lists the statements on the path of messages through keyed queues or queues with
// limits.
var hotKeyed = []hotStatement{
	{"claim_keyed: whether keys wait or are in line", "z.waits), posthaste.has_line("},
	{"claim_keyed: keys of which a run has ended", "where b.n > coalesce(y.n, 0)"},
	{"claim_keyed: whether a lane has keys", "and z.lane >= 0"},
	{"claim_keyed: how far it was read ahead", "select * from posthaste.ahead z where"},
	{"has_line", "z.turn >= coalesce(p_turns[1], 0)"},
	{"line_of", "2 * row_number() over (order by z.turn)"},
	{"line_up", "update posthaste.keys z set turn = case"},
	{"lane_open", "filter (where k.open > 0)"},
	{"lane_busy", "select c.keys[g + 1] as hash"},
	{"lane_events, part 1: what became visible", "e.attempt, e.story from unnest(v_lo, v_hi)"},
	{"lane_events, part 2: what fell due", "e.story, pg_visible_in_snapshot(e.xid, w.s0) as before"},
	{"ordered_slice: the log", "and e.ord <= x1"},
	{"ordered_slice: what came late", "from unnest(v_late) r (x) cross join lateral ( (select e.ord, e.pos, e.key"},
	{"pass_log: why what may not start", "row_number() over (partition by u.key, u.out"},
	{"left_out", "select array_agg(case when (select x.xid from posthaste.cancelled x"},
	{"park", "from posthaste.keyed_rows(c, l) e where p_why[e.place + 1] is not null"},
	{"park: keys without tokens", "update posthaste.keys z -- Each by its key"},
	{"let_go: a key", "select * from posthaste.keys z where z.subscriber = v_subscriber and z.key = v_key"},
	{"let_go: what is parked of it", "select p.ord, p.message_id, p.not_before, p.losses"},
	{"let_go: from parked to the log", "delete from posthaste.parked p using (select u.n"},
	{"keyed_rows: the log", "select n.place, n.pos"},
	{"keyed_rows: what was let go", "e.xid = c.first_xid and e.pos >= c.first_pos"},
	{"fetch, keyed", "select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.pos, coalesce(e.message_id, e.pos), e.created_at"},
	{"read_ahead: a slice", "with known as materialized"},
	{"park_ahead", "with come as materialized ( select e.* from unnest(p_ords, p_poss)"},
	{"claim_ruled: where the limits stand", "select * from posthaste.limit_states z where"},
	{"settle_claim: limits", "select z.full_since from posthaste.limit_states z"},
}

// ruledQueues are the queues that useKeyed uses, with their options.
var ruledQueues = map[string]string{"ordered": `{"ordered": true, "lanes": 1}`, "fair": `{"fair": true}`, "runs": `{"key_concurrency": 1}`,
	"rated": `{"key_rate_limit": {"limit": 1, "per": "1 hour", "burst": 1}}`, "limited": `{"concurrency": 2}`}

// useKeyed runs every hot statement of these queues at least once.
func (p *planner) useKeyed(late *session, number *int64) {
	p.t.Helper()
	worker := p.register()
	send := func(queue, key string, n int) {
		p.exec(`select posthaste.send($1, '1', jsonb_build_object('key', $2::text)) from generate_series(1, $3::int)`, queue, key, n)
	}
	claim := func(queue string, most int) []int64 {
		*number++
		p.exec(`select from posthaste.claim($1, $2, $3, 'default', $4)`, worker, *number, queue, most)
		return p.fetch(worker, *number)
	}
	settle := func(outcome string, ids []int64) {
		for _, id := range ids {
			p.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], array[$2::text], array['test'], array[0::float8], array[null::text], array[null::real])`, id, outcome)
		}
	}
	// Messages of a transaction that stays open while a claim passes.
	late.exec(`begin`)
	late.exec(`select posthaste.send('ordered', '1', '{"key": "late"}')`)
	for _, queue := range []string{"ordered", "fair", "runs", "rated", "limited"} {
		// Different keys each time, with all their tokens and nothing parked.
		send(queue, fmt.Sprintf("a%d", *number), 3)
		send(queue, fmt.Sprintf("b%d", *number), 3)
		first := claim(queue, 2)
		settle("released", first)
		for range 3 {
			settle("done", claim(queue, 3))
		}
	}
	settle("done", claim("rated", 100)) // any number of earlier keys
	late.exec(`commit`)
	for {
		ids := claim("ordered", 10)
		if settle("done", ids); len(ids) == 0 {
			break
		}
	}
	send("ordered", "c", 3)
	settle("done", claim("ordered", 10))
	// More than a claim of a fair queue passes, so that it reads ahead, and again.
	for range 2 {
		p.exec(`insert into posthaste.entries_other (ord, queue_id, lane, key, payload)
			select (select posthaste.ord_now()), q.id, 0, 'k' || g % 50, '1' from posthaste.queue_settings q cross join generate_series(1, 2000) g where q.name = 'fair'`)
		claim("fair", 1)
	}
	for {
		if len(claim("fair", 1000)) == 0 {
			break
		}
	}
}

// The plans of the hot statements of keyed queues and queues with limits are the reviewed ones,
// whatever the statistics are.
func TestGoldenKeyedPlans(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	// A claim of a fair queue stops after one slice, so that entries lie ahead.
	breakFunctions(t, url, []patch{
		{file: "claim_keyed.sql", old: "then t + interval '50 milliseconds' else t end", new: "then t else t end"},
		{file: "claim_keyed.sql", old: "when q.fair and handed = p_max then 1024 when q.fair then 4096", new: "when q.fair then 64"},
	})
	s, late := begin(t, url), connect(t, url)
	for queue, options := range ruledQueues {
		s.exec(`select posthaste.create_queue($1, $2)`, queue, options)
	}
	var number int64
	shapes := shapes{hot: hotKeyed, of: map[string]string{}}
	compare := func(state string) {
		t.Helper()
		p := newPlanner(t, url, hotKeyed)
		p.useKeyed(late, &number)
		shapes.compare(state, p)
	}
	// Waiting messages of other queues, and of the fair queue's own keys.
	fillKeyed := func(from, n int) {
		s.exec(`insert into posthaste.keys (subscriber, key, lane, hash, turn)
			select case when g % 2 = 0 then 99::bigint << 10 else q.id::bigint << 10 end, 'x' || g, 1, g, g from posthaste.queue_settings q cross join generate_series($1::int, $2::int) g where q.name = 'fair'`, from, from+n)
		s.exec(`insert into posthaste.parked (subscriber, key, ord, message_id, lane, reason, created_at, attempt, failures, losses, losses_alone, payload)
			select z.subscriber, z.key, '1', -z.hash, 1, 'share', now(), 1, 0, 0, 0, '' from posthaste.keys z where z.hash between $1 and $2 and z.lane = 1`, from, from+n)
		s.exec(`insert into posthaste.cancelled (pos, subscriber, outcome, xid, copied) select -z.hash, z.subscriber, 'parked', '3', true from posthaste.keys z where z.hash between $1 and $2 and z.lane = 1`, from, from+n)
		s.exec(`insert into posthaste.ahead_keys select z.subscriber, 1, 1, z.key, 1, false from posthaste.keys z where z.hash between $1 and $2 and z.lane = 1`, from, from+n)
	}
	const everything = `analyze posthaste.entries, posthaste.claims, posthaste.settlements, posthaste.keys, posthaste.parked, posthaste.cancelled, posthaste.ahead, posthaste.ahead_keys, posthaste.limit_states`
	compare("empty")
	s.exec(`vacuum analyze`)
	compare("vacuumed while empty")
	fill(s, 1000)
	fillKeyed(1, 1000)
	compare("1,000 of each without statistics")
	n := rows(t, 20_000)
	fillKeyed(10_000, n)
	compare(fmt.Sprintf("%d keys without statistics", n))
	s.exec(everything)
	compare(fmt.Sprintf("%d keys with statistics", n))
	// Statistics of nearly empty tables.
	s.exec(`create table public.kept as select * from posthaste.keys where lane = 1`)
	s.exec(`delete from posthaste.keys where lane = 1`)
	s.exec(everything)
	columns := get[string](s, `select string_agg(attname, ', ') from pg_attribute where attrelid = 'posthaste.keys'::regclass and attnum > 0 and attgenerated = ''`)
	s.exec(`insert into posthaste.keys (` + columns + `) select ` + columns + ` from public.kept`)
	compare("misleading statistics")
	golden(t, "plans/keyed-"+testpg.Version(t)+".txt", shapes.write("The plans of the hot statements of queues that look at keys or have limits, as\npostgresql-"+testpg.Version(t)+".txt has those of others.\n"))
}
