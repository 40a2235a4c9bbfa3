package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Deliveries that a worker settles in batches cannot be settled in a caller's transaction: that
// would block the worker's acknowledger until it ends.
func TestRuleOnlySinglesSettleInTheCallersTransaction(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.send(`{}`)
		got := s.claim(s.register(), 1, 10, false)
		caller := connect(t, url)
		for _, sql := range []string{
			`select from posthaste.ack(array[$1::bigint])`, `select from posthaste.fail($1, 'no')`,
			`select from posthaste.release(array[$1::bigint])`, `select from posthaste.extend(array[$1::bigint], '1 hour')`,
		} {
			caller.exec(`begin`)
			pg := caller.refusal(sql, got[0])
			if pg == nil {
				s.exec(`set lock_timeout = '200ms'`)
				return fmt.Sprintf("%s did not fail; the acknowledger then ended with %q", sql,
					s.code(`select from posthaste.settle(array[$1::bigint], array[B'01'])`, got[1]>>12))
			}
			if pg.Code != "PH400" || pg.ColumnName != "delivery_ids" {
				return fmt.Sprintf("%s ended with %s %q", sql, pg.Code, pg.ColumnName)
			}
			caller.exec(`rollback`)
		}
		// Singles can be.
		s.exec(`select from posthaste.settle(array[$1::bigint], array[B'11'])`, got[0]>>12)
		s.send(`{}`)
		single := s.claim(s.register(), 1, 10, true)
		caller.exec(`begin`)
		if !get[bool](caller, `select settled from posthaste.ack(array[$1::bigint])`, single[0]) {
			return "a single was not settled"
		}
		caller.exec(`rollback`)
		return ""
	}, without("the check", patch{file: "check_singles.sql", old: "    if exists (", new: "    if false and exists ("}))
}

// Singles are settled without reading settlements: under SERIALIZABLE a read would conflict with
// every concurrent settle.
func TestRuleSinglesSettleBlindly(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		const pairs = 10
		s := begin(t, url)
		for range 2 * pairs {
			s.send(`{}`)
		}
		got := s.claim(s.register(), 1, 4096, true)
		a, b := connect(t, url), connect(t, url)
		failed := 0
		for i := range pairs {
			a.exec(`begin isolation level serializable`)
			b.exec(`begin isolation level serializable`)
			a.exec(`select from posthaste.ack(array[$1::bigint])`, got[2*i])
			b.exec(`select from posthaste.ack(array[$1::bigint])`, got[2*i+1])
			for _, x := range []*session{a, b} {
				switch code := x.code(`commit`); code {
				case "":
				case "40001":
					failed++
				default:
					t.Fatalf("the commit ended with %s", code)
				}
			}
		}
		if failed > 0 {
			return fmt.Sprintf("%d of %d transactions could not be serialised", failed, 2*pairs)
		}
		return ""
	}, without("doing it blindly", patch{file: "settle_claim.sql", old: "    v_fresh := p_wanted & ~p_wanted;\n",
		new: "    perform from posthaste.settlements s where s.slot = c.slot and s.claim = c.id;\n    v_fresh := p_wanted & ~p_wanted;\n"}))
}

// Many at once, under SERIALIZABLE too: each settles its own, none fails.
func TestManySerializableSettlers(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		const settlers, each = 12, 12
		s := begin(t, url)
		for range settlers * each {
			s.send(`{}`)
		}
		got := s.claim(s.register(), 1, 4096, true)
		var answers []<-chan answer
		for i := range settlers {
			own := connect(t, url)
			own.exec(`set default_transaction_isolation = 'serializable'`)
			own.exec(`create temporary table effects (id bigint)`)
			c := make(chan answer, 1)
			answers = append(answers, c)
			go func() {
				var a answer
				for _, d := range got[i*each : (i+1)*each] {
					r := <-own.start(`with effect as (insert into effects values ($1)) select delivery_id from posthaste.ack(array[$1::bigint], '{"strict": true}')`, d)
					a.values = append(a.values, r.values...)
					if r.err != nil {
						a.err = r.err
					}
				}
				c <- a
			}()
		}
		settled, failed := 0, []string(nil)
		for _, c := range answers {
			a := <-c
			settled += len(a.values)
			if a.err != nil {
				failed = append(failed, a.code())
			}
		}
		if settled != settlers*each {
			return fmt.Sprintf("%d of %d were settled; ended with %v", settled, settlers*each, failed)
		}
		return ""
	})
}

// All settles run in ascending order, so that opposite orders of callers do not deadlock.
func TestRuleSettlesAscend(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		var claims []int64
		for n := range int64(3) {
			for range 3 {
				s.send(`{}`)
			}
			claims = append(claims, s.claim(worker, n+1, 3, false)[0]>>12)
		}
		// One session holds the middle one; the others come from both ends.
		held := connect(t, url)
		held.exec(`begin`)
		held.exec(`select from posthaste.settle(array[$1::bigint], array[B'100'])`, claims[1])
		const settle = `select delivery_id from posthaste.settle($1::bigint[], array_fill($2::text::bit varying, array[3]))`
		up, down := connect(t, url), connect(t, url)
		first := up.start(settle, claims, "010")
		up.blocked(s)
		slices.Reverse(claims)
		second := down.start(settle, claims, "001")
		down.blocked(s)
		held.exec(`commit`)
		for name, c := range map[string]<-chan answer{"ascending": first, "descending": second} {
			if a := <-c; a.err != nil {
				return fmt.Sprintf("the %s one ended with %v", name, a.err)
			}
		}
		return ""
	}, without("order", patch{file: "settle.sql", old: "order by k.claim\n", new: "order by array_position(p_claims, k.claim)\n"}))
}

// The functions for received deliveries sort any order, too.
func TestRuleSinglesSettleAscending(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		var ids []int64
		for range 3 {
			s.send(`{}`)
			ids = append(ids, get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`))
		}
		held := connect(t, url)
		held.exec(`begin`)
		held.exec(`select from posthaste.ack($1::bigint[])`, ids[1:2])
		const fail = `select delivery_id from posthaste.ack($1::bigint[], '{"receipts": [1, 2, 3]}')`
		up, down := connect(t, url), connect(t, url)
		first := up.start(fail, ids)
		up.blocked(s)
		second := down.start(fail, []int64{ids[2], ids[1], ids[0]})
		down.blocked(s)
		held.exec(`rollback`)
		for name, c := range map[string]<-chan answer{"ascending": first, "descending": second} {
			a := <-c
			if a.err != nil {
				return fmt.Sprintf("the %s one ended with %v", name, a.err)
			}
			if !slices.Equal(a.values, ids) {
				return fmt.Sprintf("the %s one was answered %v", name, a.values)
			}
		}
		return ""
	}, without("order",
		patch{file: "settle_singles.sql", old: "from unnest(p_deliveries) with ordinality u (id, n) order by u.id, u.n) x;", new: "from unnest(p_deliveries) with ordinality u (id, n) order by u.id, u.n) x; v_ids := p_deliveries;"},
		patch{file: "settle_singles.sql", old: " order by u.id) filter", new: ") filter", times: 4},
		patch{file: "settle.sql", old: "if p_deliveries[i] <= p_deliveries[i - 1] then", new: "if false then"},
		patch{file: "settle.sql", old: "order by k.claim\n", new: "order by array_position(array(select d >> 12 from unnest(p_deliveries) d), k.claim)\n"}))
}

// One part that a settle in progress holds does not stop the rescue of the others.
func TestRuleHeldPartDoesNotStopRescue(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		for range 6 {
			s.send(`{}`)
		}
		first, second := s.register(), s.register()
		held := s.claim(first, 1, 3, true)
		s.claim(second, 1, 3, false)
		caller := connect(t, url)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.ack(array[$1::bigint])`, held[1])
		s.exec(`select posthaste.worker_unregister($1)`, first)
		s.exec(`select posthaste.worker_unregister($1)`, second)
		s.exec(`set statement_timeout = '20s'`)
		lost := 0
		for range 10 {
			if pg := s.refusal(`select set_config('test.lost', posthaste.rescue()::text, false)`); pg != nil {
				return fmt.Sprintf("after %d, rescue ended with %s %s", lost, pg.Code, pg.Message)
			}
			lost += get[int](s, `select current_setting('test.lost')::int`)
		}
		if lost != 5 {
			return fmt.Sprintf("%d of the 5 that are not held were rescued", lost)
		}
		caller.exec(`rollback`)
		s.exec(`update posthaste.held_claims set next_try = clock_timestamp()`) // its time comes
		if n := get[int](s, `select posthaste.rescue()`); n != 1 {
			return fmt.Sprintf("when the held one was let go, %d were rescued", n)
		}
		if got := s.receive(); len(got) != 6 {
			return fmt.Sprintf("received %v, want all 6 again", got)
		}
		return ""
	},
		without("the timeout", patch{file: "rescue_claim.sql", old: " set lock_timeout = '100ms'", new: ""},
			patch{file: "rescue_claim.sql", old: "set_config('lock_timeout'", new: "set_config('test.lock_timeout'", times: 3}),
		without("the subtransaction", patch{file: "rescue_claim.sql",
			old: "      exception when lock_not_available then\n        v_held := true;", new: "      exception when division_by_zero then\n        v_held := true;"}))
}

// A received delivery that a settle in progress holds, after its lease has ended, stops neither the
// rescue of others, however many ends lie between, nor its own once it is released; and its slot is
// kept until then.
func TestRuleHeldLeaseDoesNotStopRescue(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const between = 300 // more than one look examines
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1)))`, between+4)
		receive := func(most int) []int64 {
			return list[int64](s, `select delivery_id from posthaste.receive('q', $1, '1 hour')`, most)
		}
		held := receive(2)
		for range between {
			s.exec(`select from posthaste.ack($1::bigint[])`, receive(1))
		}
		receive(2) // by a caller that crashed
		caller := connect(t, url)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.ack($1::bigint[])`, held)
		s.endLeases()
		lost := 0
		for try := 0; lost < 2; try++ {
			if try == 20 {
				return fmt.Sprintf("%d of the 2 that are not held were rescued", lost)
			}
			lost += get[int](s, `select posthaste.rescue()`)
		}
		s.exec(`select from posthaste.ack($1::bigint[])`, receive(100))
		if got := get[*string](s, `select posthaste.slot_held(0)`); got == nil {
			return "its slot counts as free"
		}
		caller.exec(`rollback`)
		lost = 0
		for try := 0; lost < 2; try++ {
			if try == 20 {
				return fmt.Sprintf("when the held ones were let go, %d of 2 were rescued", lost)
			}
			s.exec(`update posthaste.held_claims set next_try = next_try - interval '1 minute'`) // which passes
			if get[bool](s, `select posthaste.leases_ended(1 << 10)`) {
				lost += get[int](s, `select posthaste.rescue()`)
			}
		}
		if got := receive(100); len(got) != 2 {
			return fmt.Sprintf("received %v, want the 2 that were held", got)
		}
		until(t, "nothing is kept of it", func() bool {
			return get[int](s, `select posthaste.rescue()`) == 0 && get[bool](s, `select count(*) = 0 from posthaste.held_claims`)
		})
		return ""
	},
		without("putting it aside", patch{file: "rescue_leases.sql",
			old: "      insert into posthaste.held_claims (subscriber, claim, next_try) values (p_subscriber, v_claim.id, clock_timestamp() + interval '1 second')\n      on conflict (subscriber, claim) do update set next_try = excluded.next_try;\n",
			new: "      v_reached := least(v_reached, v_end.until - interval '1 microsecond');\n"}),
		without("trying it again", patch{file: "rescue_leases.sql", old: "h.next_try <= t order", new: "false order"}),
		without("saying that it is due", patch{file: "leases_ended.sql", old: "h.next_try <= clock_timestamp()", new: "false"}),
		without("keeping its slot", patch{file: "slot_held.sql", old: "select h.claim from posthaste.held_claims h)", new: "select h.claim from posthaste.held_claims h where false)"}))
}

// One settle that stays open may hold very many deliveries whose leases have ended: they are not
// waited for one after the other.
func TestRuleManyHeldPlacesAreNotWaitedFor(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, 4001)))`)
		var held []int64
		for range 4 {
			held = append(held, list[int64](s, `select delivery_id from posthaste.receive('q', 1000, '1 hour')`)...)
		}
		caller := connect(t, url)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.ack($1::bigint[])`, held)
		s.endLeases()
		s.exec(`set statement_timeout = '10s'`)
		if pg := s.refusal(`select from posthaste.receive('q', 1, '1 hour')`); pg != nil {
			return fmt.Sprintf("a receive beside %d that are held ended with %s %s", len(held), pg.Code, pg.Message)
		}
		return ""
	}, without("an end of waiting", patch{file: "rescue_claim.sql", old: "exit when v_held and clock_timestamp() > v_stop;", new: ""},
		patch{file: "rescue_leases.sql", old: "v_waited and clock_timestamp() > v_stop", new: "false"}))
}

// The same holds for the claims of a lost worker, each settled in part by a transaction that stays
// open: the claims after them have their turn.
func TestRuleManyHeldClaimsOfALostWorker(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const claims = 200
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1)))`, claims+1)
		worker := s.register()
		var held []int64
		for n := range int64(claims) {
			held = append(held, s.claim(worker, n+1, 1, true)...)
		}
		s.claim(worker, claims+1, 1, true)
		caller := connect(t, url)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.ack($1::bigint[])`, held)
		s.exec(`update posthaste.registrations set heartbeat_at = '-infinity', lease = '0'`)
		// A look ends after half a second, and each try waits for at least 10 ms: so it tries few,
		// and others than the looks before it, however slow the machine is.
		const most = 60
		aside := 0
		for {
			s.exec(`select posthaste.rescue_workers()`)
			n := get[int](s, `select count(*)::int from posthaste.held_claims`)
			if n > aside+most {
				return fmt.Sprintf("one look waited for %d of %d that are held", n-aside, len(held))
			}
			if got := s.receive(); len(got) == 1 {
				break
			}
			if n == aside {
				return fmt.Sprintf("the one that is not held was not rescued: a look tried only those %d that were held before", n)
			}
			aside = n
		}
		caller.exec(`rollback`)
		got := 0
		until(t, "the held ones are rescued", func() bool {
			s.exec(`select posthaste.rescue_workers()`)
			got += len(s.receive())
			return got == claims
		})
		until(t, "nothing is kept of it", func() bool {
			return get[int](s, `select posthaste.rescue()`) == 0 && get[bool](s, `select count(*) = 0 from posthaste.held_claims`)
		})
		return ""
	}, without("an end of waiting", patch{file: "rescue_workers.sql", old: "        exit when clock_timestamp() > v_stop;\n", new: ""}),
		without("putting them aside", patch{file: "rescue_workers.sql", old: "order by h.next_try nulls first, o.id", new: "order by o.id"},
			patch{file: "rescue_workers.sql", old: "if v_claim.next_try > clock_timestamp() then", new: "if false then"}))
}

// A message that kills its worker ends as a dead letter, and those prefetched with it do not.
func TestRulePoisonDiesAndInnocentsLive(t *testing.T) {
	alone := patch{file: "due_slice.sql", old: "if v.losses >= 2 then", new: "if false then", times: 2}
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"max_attempts": 2}')`)
		var sent []int64
		for range 6 {
			sent = append(sent, s.send(`{}`))
		}
		poison := sent[3]
		done := map[int64]bool{}
		for round := range 30 {
			worker := s.register()
			s.exec(`select posthaste.claim($1, 1, 'q', 'default', 10, false, true)`, worker)
			messages := list[int64](s, `select message_id from posthaste.fetch($1, 1)`, worker)
			ids := list[int64](s, `select numbered_from + ordinality from posthaste.fetch($1, 1) with ordinality`, worker)
			// All are started at once, as by a pool, and none is settled before
			// the poison has killed them all.
			if !slices.Contains(messages, poison) {
				for i, id := range ids {
					s.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{done}', '{null}', '{null}', '{null}', '{null}')`, id)
					done[messages[i]] = true
				}
			}
			s.exec(`select posthaste.worker_unregister($1)`, worker)
			for get[int](s, `select posthaste.rescue()`) > 0 {
			}
			dead := list[int64](s, `select message_id from posthaste.dead_letters`)
			if slices.ContainsFunc(dead, func(m int64) bool { return m != poison }) {
				return fmt.Sprintf("round %d: dead are %v, and only %d is poison", round, dead, poison)
			}
			if len(dead) == 1 && len(done) == len(sent)-1 {
				return ""
			}
		}
		return fmt.Sprintf("after 30 workers the poison is not dead; %d innocents are done", len(done))
	},
		without("being handed out alone", alone),
		without("counting losses while alone only", patch{file: "finish.sql",
			old: "delivery.losses_alone + (loss.counts and p_claim.alone)::int as losses_alone", new: "delivery.losses_alone + loss.counts::int as losses_alone"}))
}

// A message that was lost twice waits until nothing else runs in the process.
func TestRuleSuspectWaitsForAnIdleProcess(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		suspect := s.send(`{}`)
		for range 2 {
			worker := s.register()
			s.claim(worker, 1, 10, false)
			s.exec(`select posthaste.worker_unregister($1)`, worker)
			if n := get[int](s, `select posthaste.rescue()`); n != 1 {
				t.Fatalf("%d were rescued", n)
			}
		}
		worker := s.register()
		const claim = `select handed || ' ' || wants_idle from posthaste.claim($1, $2, 'q', 'default', 10, false, $3)`
		if got := get[string](s, claim, worker, 1, false); got != "0 true" {
			return fmt.Sprintf("a busy worker was answered %q, want none, and that one wants to run alone", got)
		}
		if got := get[string](s, claim, worker, 2, true); got != "1 false" {
			return fmt.Sprintf("an idle worker was answered %q", got)
		}
		if got := list[string](s, `select message_id || ' ' || alone from posthaste.fetch($1, 2)`, worker); !slices.Equal(got, []string{fmt.Sprint(suspect, " true")}) {
			return fmt.Sprintf("it was handed %v", got)
		}
		return ""
	}, without("asking", patch{file: "due_slice.sql", old: "if w.places > 0 or not p_alone then", new: "if w.places > 0 then", times: 2}))
}

// A claim may commit and its reply get lost while the worker lives on: the worker asks for its
// unsettled deliveries, and the mark of its oldest open claim never passes one in flight.
func TestRuleClaimWithLostReplyIsFound(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select posthaste.create_queue('other')`)
		m := s.send(`{}`)
		s.exec(`select posthaste.send('other', '1')`)
		worker := s.register()
		flight := connect(t, url)
		flight.exec(`begin`)
		flight.exec(`select posthaste.claim($1, 1, 'q', 'default', 10)`, worker)
		// The next one is settled while that is in flight.
		s.exec(`select posthaste.claim($1, 2, 'other', 'default', 10)`, worker)
		s.exec(`select from posthaste.settle(array[$1::bigint], array[B'1'])`, s.fetch(worker, 2)[0]>>12)
		s.exec(`set statement_timeout = '10s'`)
		s.exec(`select from posthaste.worker_look($1, '{}', '{}')`, worker)
		flight.exec(`commit`) // and its reply is lost
		unsettled := list[int64](s, `select d from posthaste.worker_unsettled($1, 10) d`, worker)
		if len(unsettled) != 1 {
			return fmt.Sprintf("it holds one delivery, and got %v", unsettled)
		}
		s.exec(`select from posthaste.settle('{}', '{}', $1, '{released}', '{null}', '{null}', '{null}', '{null}')`, unsettled)
		if got := s.receive(); !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("released, it was received as %v, want %d", got, m)
		}
		return ""
	}, without("waiting for claims in flight", patch{file: "move_mark.sql",
		old: "if not pg_try_advisory_xact_lock(posthaste.lock_key(5, p_worker)) then", new: "if false then"}))
}

// A claim of a worker that was declared lost cannot commit afterwards.
func TestRuleLostWorkerClaimsNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		worker := get[int64](s, `select posthaste.worker_register('w', 'test', '1 hour')`)
		flight := connect(t, url)
		flight.exec(`begin`)
		flight.exec(`select posthaste.claim($1, 1, 'q', 'default', 10)`, worker)
		s.exec(`update posthaste.registrations set heartbeat_at = '-infinity', lease = '0'`)
		s.exec(`update posthaste.registrations set lease = '-100 years'`)
		s.exec(`select posthaste.rescue()`)
		declared := get[bool](s, `select lost_at is not null from posthaste.registrations where id = $1`, worker)
		flight.exec(`commit`)
		if declared {
			return "a worker was declared lost while a claim of it was in flight"
		}
		if n := get[int](s, `select posthaste.rescue()`); n != 1 {
			return fmt.Sprintf("%d were rescued after the claim's end", n)
		}
		if code := s.code(`select posthaste.claim($1, 2, 'q', 'default', 10)`, worker); code != "PH410" {
			return fmt.Sprintf("its next claim ended with %q", code)
		}
		return ""
	}, without("the worker's key", patch{file: "claim.sql", old: "perform pg_advisory_xact_lock_shared(posthaste.lock_key(5, p_worker));", new: "null;"}))
}

// Extending applies to one delivery: the others of the same receive keep their ends.
func TestRuleLeasesAreExtendedOneByOne(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		for range 3 {
			s.send(`{}`)
		}
		ids := list[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 millisecond')`)
		if !get[bool](s, `select settled from posthaste.extend(array[$1::bigint], '1 hour')`, ids[1]) {
			return "a lease that was not rescued was not extended"
		}
		until(t, "the lease is over", func() bool {
			return get[bool](s, `select max(until) < clock_timestamp() from posthaste.leases where place is null`)
		})
		lost := 0
		for range 5 {
			lost += get[int](s, `select posthaste.rescue()`)
		}
		if lost != 2 {
			return fmt.Sprintf("%d were rescued, want the two that were not extended", lost)
		}
		if got := list[bool](s, `select settled from posthaste.ack($1::bigint[])`, ids); !slices.Equal(got, []bool{false, true, false}) {
			return fmt.Sprintf("settling all three was answered %v", got)
		}
		return ""
	}, without("each delivery's own end", patch{file: "overdue_places.sql",
		old: "coalesce((select max(e.until) from posthaste.leases e where e.slot = c.slot and e.claim = c.id and e.place = o), v_until)", new: "v_until"}))
}

// Rescue reads the ends under the lock that extending takes.
func TestRuleRescueLeavesWhatIsBeingExtended(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		id := get[int64](s, `select delivery_id from posthaste.receive('q', 10, '1 millisecond')`)
		caller := connect(t, url)
		caller.exec(`begin`)
		caller.exec(`select from posthaste.extend(array[$1::bigint], '1 hour')`, id)
		until(t, "the lease is over", func() bool {
			return get[bool](s, `select max(until) < clock_timestamp() from posthaste.leases where place is null`)
		})
		lost := get[int](s, `select posthaste.rescue()`)
		caller.exec(`commit`)
		lost += get[int](s, `select posthaste.rescue()`)
		if lost > 0 {
			return "a delivery was rescued whose holder had just been told that it was extended"
		}
		return ""
	}, without("the claim's lock", patch{file: "rescue_claim.sql",
		old: " for no key update skip locked", new: ""}))
}

// The ends of leases are examined once each: not again in every look.
func TestRuleEndsAreExaminedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const n = 300
		s.exec(`select from posthaste.send_many('q', (select jsonb_agg('{"payload": 1}'::jsonb) from generate_series(1, $1)))`, n)
		ids := make([]int64, 0, n)
		for range n {
			ids = append(ids, get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`))
		}
		s.exec(`select from posthaste.ack($1::bigint[])`, ids)
		s.endLeases()
		examined := func() int {
			const counted = `select coalesce(sum(idx_tup_fetch), 0)::int from pg_stat_xact_user_tables where schemaname = 'posthaste' and relname ~ '^leases_'`
			s.exec(`begin`)
			before := get[int](s, counted)
			s.exec(`select posthaste.rescue_leases(1 << 10)`)
			after := get[int](s, counted)
			s.exec(`commit`)
			return after - before
		}
		// In steps, so that one look does not take long.
		total := 0
		for range 6 {
			total += examined()
		}
		if total < n {
			return fmt.Sprintf("only %d of %d ends were examined", total, n)
		}
		if again := examined(); again > 20 {
			return fmt.Sprintf("after %d ends were examined, %d are again", n, again)
		}
		return ""
	}, without("keeping how far", patch{file: "rescue_leases.sql", old: "if v_reached > k.t + interval '100 milliseconds' or v_reached > k.t and t < v_now then", new: "if false then"}))
}

// A database that is a copy hands nothing out until an operator rebases it: its transaction ids
// differ. Sending works.
func TestRuleCopiesHandNothingOut(t *testing.T) {
	for name, other := range map[string]string{
		"another database": `update posthaste.identity set database_oid = 1`,
		"another cluster":  `update posthaste.identity set system_identifier = system_identifier + 1`,
		"no identity":      `delete from posthaste.identity`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				worker := s.register()
				s.exec(other)
				return handsOut(connect(t, url), worker)
			}, without("the check", patch{file: "is_original.sql", old: "return exists (", new: "return true or exists ("}))
		})
	}
}

// handsOut describes what a copy hands out, "" if it sends and everything else fails.
func handsOut(s *session, worker int64) string {
	s.t.Helper()
	s.send(`{}`)
	for _, sql := range []string{
		receiveAll, fmt.Sprintf(`select posthaste.claim(%d, 1, 'q', 'default', 10)`, worker), `select posthaste.worker_register('w', 'test', '1 minute')`,
	} {
		if code := s.code(sql); code != "PH503" {
			return fmt.Sprintf("%s ended with %q in a copy", sql, code)
		}
	}
	if n := get[int](s, `select count(*)::int from posthaste.entries`); n != 1 {
		return fmt.Sprintf("%d messages are stored, want the one sent", n)
	}
	return ""
}
