package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// Deliveries of an at-most-once queue are settled in the transaction that hands them out, which is
// flushed, and they are never handed out again: not by the number, not after the worker's death, not
// after any time.
func TestRuleAtMostOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select posthaste.create_queue('once', '{"mode": "at_most_once"}')`)
		s.exec(`select posthaste.send_many('once', jsonb_agg(jsonb_build_object('payload', g))) from generate_series(1, 6) g`)
		s.exec(`set synchronous_commit = off`) // the user's own
		worker := s.register()
		const claim = `select message_id from posthaste.claim($1, 1, 'once', 'default', 2) where delivery_id is not null`
		const flushed = `select current_setting('synchronous_commit') <> 'off'`
		s.exec(`begin`)
		first := list[int64](s, claim, worker)
		s.exec(`select posthaste.claim($1, 2, 'q', 'default', 2)`, worker)
		if !get[bool](s, flushed) {
			return "its commit does not wait for the flush"
		}
		s.exec(`commit`)
		// The reply was lost, and that of a fetch too.
		if got := s.fetch(worker, 1); len(got) != 0 {
			return fmt.Sprintf("%d deliveries can be read again by their number", len(got))
		}
		second := list[int64](s, claim, worker)
		s.exec(`begin`)
		third := list[int64](s, `select message_id from posthaste.receive('once', 2, '1 hour')`)
		if !get[bool](s, flushed) {
			return "the commit of a receive does not wait for the flush"
		}
		s.exec(`commit`)
		got := slices.Concat(first, second, third)
		if all := list[int64](s, `select pos from posthaste.entries where message_id is null order by pos`); !slices.Equal(got, all) {
			return fmt.Sprintf("handed out %v, want each of %v once", got, all)
		}
		s.exec(`select posthaste.worker_unregister($1)`, worker)
		s.exec(`update posthaste.registrations set lost_at = clock_timestamp()`)
		s.endLeases()
		for range 3 {
			if n := get[int](s, `select posthaste.rescue()`); n != 0 {
				return fmt.Sprintf("%d were rescued", n)
			}
		}
		id := get[int64](s, `select c.id * 4096 from posthaste.claims c where places > 0 and holder is null`)
		for _, settle := range []string{`ack(array[$1::bigint])`, `release(array[$1::bigint])`, `fail($1::bigint, 'no')`, `extend(array[$1::bigint], '1 hour')`} {
			if pg := s.refusal(`select posthaste.`+settle, id); pg == nil || pg.Code != "PH409" || pg.ColumnName != "mode" {
				return fmt.Sprintf("%s ended with %v", settle, pg)
			}
		}
		for _, m := range got {
			if state := get[string](s, `select state from posthaste.message($1)`, m); state != "handed_out" {
				return fmt.Sprintf("message %d was handed out and is %s", m, state)
			}
		}
		return ""
	},
		without("closing", patch{file: "put_claim.sql", old: "if p_closed and c.places > 0 then", new: "if false then"}),
		without("a number without an owner", patch{file: "claim.sql", old: "p_worker, case when not at_most_once then p_number end, null,", new: "p_worker, p_number, null,", times: 2}),
		without("the flush", patch{file: "must_flush.sql", old: "if current_setting('synchronous_commit') = 'off' then", new: "if false then"}),
		without("the flush of what follows", patch{file: "claim.sql", old: "case when current_setting('posthaste.must_flush', true) = 'yes' then current_setting('synchronous_commit') else 'off' end", new: "'off'"}),
		without("closing received messages", patch{file: "receive_rows.sql", old: "v_round = v_lanes, v_sub.at_most_once,", new: "v_round = v_lanes, false,"}),
		without("the refusal", patch{file: "refuse_at_most_once.sql", old: "if v_name is not null then", new: "if false then"}))
}

// The same holds for messages that wait for their key: parked messages that are released are settled
// in the step that hands them out, too.
func TestRuleAtMostOnceByKeys(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"mode": "at_most_once", "fair": true, "key_rate_limit": {"limit": 1000, "burst": 4}}')`)
		s.exec(`select posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', g, 'key', 'k' || g % 3)) from generate_series(1, 40) g))`)
		worker := s.register()
		seen := map[int64]bool{}
		number := int64(0)
		for try := 0; len(seen) < 40; try++ {
			if try == 1000 {
				return fmt.Sprintf("%d of 40 were handed out", len(seen))
			}
			var got []int64
			if try%2 == 0 {
				number++
				got = list[int64](s, `select message_id from posthaste.claim($1, $2, 'q', 'default', 5) where delivery_id is not null`, worker, number)
			} else {
				got = list[int64](s, `select message_id from posthaste.receive('q', 5, '1 hour')`)
			}
			for _, m := range got {
				if seen[m] {
					return fmt.Sprintf("message %d is handed out twice", m)
				}
				seen[m] = true
			}
			s.exec(`update posthaste.keys set tokens_at = tokens_at - interval '1 second'`)
			if n := get[int](s, `select coalesce(sum(c.places - coalesce((select bit_count(x.bits) from posthaste.settlements x where x.claim = c.id order by x.number desc limit 1), 0)), 0)::int from posthaste.claims c`); n > 0 {
				return fmt.Sprintf("%d places are handed out and not settled", n)
			}
		}
		if n := get[int](s, `select count(*)::int from posthaste.claims where places > 0 and part = 5`); n == 0 {
			t.Fatal("nothing was parked")
		}
		s.exec(`select posthaste.worker_unregister($1)`, worker)
		s.endLeases()
		if n := get[int](s, `select posthaste.rescue()`) + len(s.receive()); n != 0 {
			return fmt.Sprintf("%d came again", n)
		}
		s.exec(`select posthaste.maintain()`)
		if got := get[string](s, `select format('%s %s %s', depth, in_flight, done) from posthaste.queues`); got != "0 0 0" {
			return "depth, in flight and done are " + got
		}
		for m := range seen {
			if state := get[string](s, `select state from posthaste.message($1)`, m); state != "handed_out" {
				return fmt.Sprintf("message %d was handed out and is %s", m, state)
			}
		}
		for _, options := range []string{`{"concurrency": 1}`, `{"key_concurrency": 1}`} {
			if pg := s.refusal(`select posthaste.update_queue('q', $1)`, options); pg == nil || pg.Code != "PH400" {
				return fmt.Sprintf("limit %s ended with %v", options, pg)
			}
		}
		return ""
	},
		without("settling what claims hand out", patch{file: "claim_ruled.sql", old: "if p_closed and v.handed > 0 then", new: "if false then"}),
		without("settling messages let go", patch{file: "claim_ruled.sql", old: "          perform posthaste.settle_claim(v_claim,", new: "          continue when v_claim.part = 5;\n          perform posthaste.settle_claim(v_claim,"}))
}

// A paused queue hands out nothing to any caller, and continues where it stopped.
func TestRulePausedQueueHandsOutNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		sent := []int64{s.send(`{}`), s.send(`{"delay": "1 microsecond"}`)}
		s.exec(`select posthaste.send('q', '1', '{"priority": 1, "delay": "1 day"}')`) // more lanes
		if !get[bool](s, `select posthaste.pause_queue('q', 'ada')`) || get[bool](s, `select posthaste.pause_queue('q', 'ada')`) {
			t.Fatal("pausing twice does not say that it changed something once")
		}
		sent = append(sent, s.send(`{}`))
		if got := s.receive(); len(got) != 0 {
			return fmt.Sprintf("received %v", got)
		}
		if got := s.claim(worker, 1, 10, false); len(got) != 0 {
			return fmt.Sprintf("claimed %v", got)
		}
		if get[bool](s, `select ready or next_due is not null from posthaste.worker_look($1, '{q}', '{default}')`, worker) {
			return "a worker's look finds something"
		}
		s.exec(`select posthaste.resume_queue('q', 'ada')`)
		if got := ascending(s.receive()); !slices.Equal(got, sent) {
			t.Fatalf("received %v after it was resumed, want %v", got, sent)
		}
		if got := list[string](s, `select by || ' ' || action from posthaste.actions where action <> 'create' order by id`); !slices.Equal(got, []string{"ada pause", "ada resume"}) {
			t.Errorf("on record are %v", got)
		}
		return ""
	},
		without("asking in claims", patch{file: "claim.sql", old: "case when q.paused_at is null then q.width * case when q.prioritized then 4 else 1 end else 0 end", new: "q.width * case when q.prioritized then 4 else 1 end"}),
		without("asking in receives", patch{file: "find_subscription.sql", old: "case when q.paused_at is null then q.width * case when q.prioritized then 4 else 1 end else 0 end", new: "q.width * case when q.prioritized then 4 else 1 end"}),
		without("asking in looks", patch{file: "worker_look.sql", old: "if v.idle or v.paused then", new: "if v.idle then"}))
}
