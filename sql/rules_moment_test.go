package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Decisions that depend on several reads, and on their order: between two statements other sessions
// commit.

// gated makes a function of heads wait for the gate before it returns, in sessions that have an
// advisory lock, and closes the gate. Statements see the rows from before it.
func gated(s *session, function, arguments, returns, give string) (open func()) {
	s.t.Helper()
	const gate = 4711
	s.exec(fmt.Sprintf(`alter function posthaste.%s(%s) rename to %[1]s_ungated`, function, arguments))
	s.exec(fmt.Sprintf(`create function posthaste.%s(%s) returns %s language plpgsql stable as $$
		begin
		  if exists (select from pg_catalog.pg_locks where pid = pg_catalog.pg_backend_pid() and locktype = 'advisory') then
		    perform pg_catalog.pg_advisory_xact_lock_shared(%d);
		  end if;
		  %s posthaste.%[1]s_ungated($1);
		end $$`, function, arguments, returns, gate, give))
	s.exec(`select pg_advisory_lock($1)`, gate)
	return func() { s.exec(`select pg_advisory_unlock($1)`, gate) }
}

// A dead letter that is replayed while it is cancelled was not waiting when it was looked for, and
// is not withdrawn if it was handed out before it died.
func TestRuleWhatIsReplayedMeanwhileIsNotCancelled(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		canceller := connect(t, url)
		m := s.send(`{}`)
		s.exec(`select posthaste.fail(delivery_id, 'boom', '{"permanent": true}') from posthaste.receive('q', 1, '1 hour')`)
		open := gated(s, "other_heads", "bigint[]", "posthaste.head[]", "return")
		cancelled := canceller.start(`select cancelled::int::bigint from posthaste.cancel($1)`, m)
		canceller.blocked(s)
		s.exec(`select posthaste.replay(array[$1::bigint])`, m)
		open()
		a := <-cancelled
		if got := s.receive(); a.err != nil || !slices.Equal(a.values, []int64{0}) || !slices.Equal(got, []int64{m}) {
			return fmt.Sprintf("cancelling answered %v, %v, and received was %v", a.values, a.err, got)
		}
		return ""
	}, without("one look", patch{file: "hold_message.sql", old: `      select array_agg(m.h order by m.subscription), array_agg(m.subscription order by m.subscription), array_agg(m.subscription_name order by m.subscription),
             array_agg(m.state order by m.subscription), array_agg(p.lane order by m.subscription)
        into v_now, v_numbers, v_names, v_states, v_parked
        from posthaste.message_states(
               array(select e.head from posthaste.entries e
                      where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
               || posthaste.other_heads(array[p_id]), false) m
`, new: `      v_heads := array(select e.head from posthaste.entries e
                        where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
               || posthaste.other_heads(array[p_id]);
      select array_agg(m.h order by m.subscription), array_agg(m.subscription order by m.subscription), array_agg(m.subscription_name order by m.subscription),
             array_agg(m.state order by m.subscription), array_agg(p.lane order by m.subscription)
        into v_now, v_numbers, v_names, v_states, v_parked
        from posthaste.message_states(v_heads, false) m
`}))
}

// A message that is parked while a reschedule waits for it stays parked, with its attempts: whether
// it is parked is read under the lock.
func TestRuleWhatIsParkedMeanwhileIsRescheduledThere(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"fair": true}')`)
		mover, claimer := connect(t, url), connect(t, url)
		m := s.send(`{"key": "a"}`)
		d := list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
		claimer.exec(`begin`)
		claimer.receive()
		moved := mover.start(`select rescheduled::int::bigint from posthaste.reschedule($1, clock_timestamp() + '1 hour')`, m)
		mover.blocked(s)
		s.exec(`select posthaste.fail($1, 'boom', '{"retry_after": "2 hours"}')`, d[0])
		claimer.exec(`commit`)
		a := <-moved
		if n := get[int](s, `select count(*)::int from posthaste.parked where attempt = 2`); a.err != nil || !slices.Equal(a.values, []int64{1}) || n != 1 {
			return fmt.Sprintf("rescheduling answered %v, %v, and %d are parked for their second attempt", a.values, a.err, n)
		}
		return ""
	}, without("asking under the lock", patch{file: "put_again.sql", old: `    select x.*,
           bool_and((x.h).for_subscription is null and x.waits and x.parked is null) over ()
`, new: `    select x.h, x.subscription, x.name, x.state, x.waits, x.told, p.lane as parked,
           bool_and((x.h).for_subscription is null and x.waits and p.lane is null) over ()
`}, patch{file: "put_again.sql", old: `posthaste.hold_message(p_id) y) x
`, new: `posthaste.hold_message(p_id) y) x
      left join posthaste.parked p on p.message_id = p_id and p.subscriber = ((x.h).queue_id::bigint << 10 | x.subscription)
`}))
}

// A message that is retried while it is erased is reported as pending.
func TestRuleWhatIsRetriedMeanwhileIsNotErased(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		eraser := connect(t, url)
		m := s.send(`{"terms": ["ada@example.com"]}`)
		d := list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
		open := gated(s, "later_heads", "bigint[]", "setof posthaste.head", "return query select * from")
		erased := eraser.start(`select (outcome = 'erased')::int::bigint from posthaste.erase('ada@example.com')`)
		eraser.blocked(s)
		s.exec(`select posthaste.fail($1, 'boom', '{"retry_after": "1 hour"}')`, d[0])
		open()
		a := <-erased
		if n := get[int](s, `select count(*)::int from posthaste.erased`); a.err != nil || !slices.Equal(a.values, []int64{0}) || n != 0 {
			return fmt.Sprintf("erasing message %d, which is retried, answered %v, %v", m, a.values, a.err)
		}
		return ""
	}, without("one look", patch{file: "erase.sql", old: `  v_pending := array(select distinct m.message_id
                       from posthaste.message_rows(
                              array(select x from unnest(v_heads) x where (x.message_id in (select i from unnest(v_ids) i)) is true)
                              || posthaste.other_heads(v_ids), v_ids, false) m
`, new: `  v_heads := array(select x from unnest(v_heads) x where (x.message_id in (select i from unnest(v_ids) i)) is true)
             || posthaste.other_heads(v_ids);
  v_pending := array(select distinct m.message_id from posthaste.message_rows(v_heads, v_ids, false) m
`}))
}

// A message that upkeep copies to the history while it is erased is erased there.
func TestRuleWhatIsCopiedMeanwhileIsErased(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, upkeep, eraser := connect(t, url), connect(t, url), connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"retention": "1 day", "retain_payload": true}')`)
		s.send(`{"terms": ["ada@example.com"]}`)
		s.exec(`select posthaste.ack(array(select delivery_id from posthaste.receive('q', 1, '1 hour')))`)
		upkeep.exec(`begin`)
		upkeep.exec(`select pg_advisory_xact_lock(posthaste.lock_key(6, 0))`) // as maintain does
		upkeep.exec(`select posthaste.keep_history(0)`)
		erased := eraser.start(`select (outcome = 'erased')::int::bigint from posthaste.erase('ada@example.com')`)
		eraser.waitsOrEnds(s, erased)
		upkeep.exec(`commit`)
		a := <-erased
		if n := get[int](s, `select count(*)::int from posthaste.history where terms is not null or payload is not null`); a.err != nil || n != 0 {
			return fmt.Sprintf("erasing answered %v, %v, and %d of the history tell still", a.values, a.err, n)
		}
		return ""
	}, without("waiting for upkeep", patch{file: "erase.sql", old: "  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));\n", new: ""}))
}

// Rebasing waits for a sender that has positions already and waits for a dedupe key.
func TestRuleRebasingWaitsForSendersThatWaitForAKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, first, second, rebaser := begin(t, url), connect(t, url), connect(t, url), connect(t, url)
		first.exec(`begin`)
		first.send(`{"dedupe_key": "k"}`)
		sent := second.start(`select posthaste.send_many('q', '[{"payload": 1, "dedupe_key": "k"}, {"payload": 2}]')`)
		second.blocked(s)
		rebaser.exec(`update posthaste.identity set database_oid = 1`) // as in a copy
		rebased := rebaser.start(`select waiting from posthaste.rebase()`)
		rebaser.blocked(s)
		first.exec(`commit`)
		if a := <-rebased; a.err != nil {
			t.Fatal(a.err)
		}
		if a := <-sent; a.err != nil {
			t.Fatal(a.err)
		}
		if got := connect(t, url).receive(); len(got) != 2 {
			return fmt.Sprintf("two were sent, and received %v", got)
		}
		return ""
	}, without("the lock", patch{file: "dedupe.sql", old: "  lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;\n", new: ""}))
}

// A claim needs a number, without which it could not be found again; and a lease is not extended by
// a snapshot that is older than its rescue.
func TestClaimsAndLeasesAreRefusedBlindly(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s, late := connect(t, url), connect(t, url)
	s.exec(`select posthaste.create_queue('q', '{"concurrency": 10}')`)
	worker := s.register()
	m := s.send(`{}`)
	for _, claim := range []string{`select posthaste.claim($1, null, 'q', 'default', 10)`, `select posthaste.claim(nullif($1::bigint, $1), 1, 'q', 'default', 10)`} {
		if code := s.code(claim, worker); code != "PH400" {
			t.Errorf("%s ended with %q", claim, code)
		}
	}
	d := list[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
	late.exec(`begin isolation level repeatable read`)
	late.exec(`select from posthaste.queue_settings`)
	s.endLeases()
	if n := get[int](s, `select posthaste.rescue()`); n != 1 {
		t.Fatalf("%d were rescued", n)
	}
	if code := late.code(`select from posthaste.extend(array[$1::bigint], '1 hour')`, d[0]); code != "PH400" {
		t.Errorf("extending by an old snapshot ended with %q", code)
	}
	if got := s.receive(); !slices.Equal(got, []int64{m}) {
		t.Errorf("received %v", got)
	}
}
