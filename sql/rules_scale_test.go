package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The cost of maintenance must not grow with history: with closed claims, with carried entries, with
// idle queues. This is checked by counting rows and index scans, never by time.

// touched runs a statement and counts its accesses to the tables of the ring that match a pattern:
// by column, idx_tup_fetch (rows) or idx_scan.
func (s *session) touched(column, tables, sql string, args ...any) int {
	s.t.Helper()
	counted := `select coalesce(sum(` + column + `), 0)::int from pg_stat_xact_user_tables where schemaname = 'posthaste' and relname ~ $1`
	s.exec(`begin`)
	before := get[int](s, counted, tables)
	s.exec(sql, args...)
	n := get[int](s, counted, tables) - before
	s.exec(`commit`)
	return n
}

// closed adds n claims like the worker's first one, with numbers from 2 on, of
// which all deliveries are settled.
func closed(s *session, worker int64, n int) {
	s.t.Helper()
	s.exec(`with made as materialized (
		    select c.*, nextval('posthaste.positions') as fresh, g from posthaste.claims c, generate_series(1, $2::int) g where c.holder = $1 and c.number = 1
		  ), claims as (
		    insert into posthaste.claims (slot, places, part, single, alone, ended, id, reader, seq, total, holder, number, first_xid, first_pos, last_xid, last_pos, s0, s1)
		    select (fresh >> 22) & 15, places, part, single, alone, ended, fresh, reader, seq + g, total, holder, number + g, first_xid, first_pos, last_xid, last_pos, s0, s1 from made
		  )
		  insert into posthaste.settlements (slot, claim, part, number, reader, fresh, done, bits)
		  select (m.fresh >> 22) & 15, m.fresh, p, 1, m.reader, 1, 1, case when m.single then B'1' else repeat('1', m.places)::bit varying end
		    from made m cross join generate_series(0, case when m.single then m.places - 1 else 0 end) p`, worker, n)
}

// A look for open claims does not walk over all later closed ones because one message is stuck; and
// the stuck one is not missed.
func TestRuleStuckClaimsAreSetAside(t *testing.T) {
	for name, single := range map[string]bool{"settled in batches": false, "settled one by one": true} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				s.send(`{}`)
				s.send(`{}`)
				worker := s.register()
				stuck := s.claim(worker, 1, 10, single)
				closed(s, worker, 12_000)
				// More than one step can process.
				until(t, "the mark has come to the end", func() bool {
					s.exec(`select from posthaste.worker_look($1, '{}', '{}')`, worker)
					before := get[int64](s, `select oldest_open from posthaste.registrations where id = $1`, worker)
					s.exec(`select from posthaste.worker_look($1, '{}', '{}')`, worker)
					return before == get[int64](s, `select oldest_open from posthaste.registrations where id = $1`, worker)
				})
				if got := list[int64](s, `select d from posthaste.worker_unsettled($1, 100000) d`, worker); !slices.Equal(got, stuck) {
					return fmt.Sprintf("it holds %v, and got %v", stuck, got)
				}
				const most = 200
				for what, sql := range map[string]string{
					"listing":              `select from posthaste.worker_unsettled($1, 100000)`,
					"moving the mark":      `select posthaste.move_mark($1)`,
					"asking about a slot":  `select posthaste.slot_held(5), $1::bigint`,
					"looking for the lost": `select posthaste.rescue_workers(), $1::bigint`,
				} {
					if n := s.touched("idx_tup_fetch", `^(claims|settlements)_`, sql, worker); n > most {
						return fmt.Sprintf("%s walks over %d rows of 12,000 closed claims", what, n)
					}
				}
				// The registration ends, and the stuck ones are rescued.
				s.exec(`select posthaste.worker_unregister($1)`, worker)
				if lost := get[int](s, `select posthaste.rescue()`); lost != len(stuck) {
					return fmt.Sprintf("%d of the %d stuck ones were rescued", lost, len(stuck))
				}
				s.exec(`select posthaste.rescue()`)
				if !get[bool](s, `select cleared and not exists (select from posthaste.stragglers) from posthaste.registrations where id = $1`, worker) {
					return "nothing is open, and the ended worker is looked at forever"
				}
				return ""
			},
				without("setting aside", patch{file: "move_mark.sql", old: "if v_behind * 8 > v_walked - 1024 then", new: "if true then"}),
				without("remembering", patch{file: "move_mark.sql", old: "where v_numbers[i] < v_new;", new: "where false;"}),
				without("reading claims set aside", patch{file: "open_claims.sql", old: "where s.worker = p_worker and", new: "where false and"}))
		})
	}
}

// A lost worker with many open claims: each is rescued in a call of its own, which does not walk
// over those of the calls before.
func TestRuleRescueDoesNotStartAnew(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		worker := s.register()
		s.claim(worker, 1, 10, false)
		s.exec(`select from posthaste.settle(array(select id from posthaste.claims where holder = $1), array[B'1'])`, worker)
		closed(s, worker, 3000)
		s.send(`{}`)
		s.send(`{}`)
		s.claim(worker, 3002, 1, false)
		s.claim(worker, 3003, 1, false)
		s.exec(`select posthaste.worker_unregister($1)`, worker)
		s.exec(`select posthaste.rescue()`)
		if n := s.touched("idx_tup_fetch", `^claims_`, `select posthaste.rescue()`); n > 200 {
			return fmt.Sprintf("the second call goes over %d claims", n)
		}
		if n := get[int](s, `select count(*)::int from posthaste.entries where losses = 1`); n != 2 {
			return fmt.Sprintf("%d of 2 were rescued", n)
		}
		return ""
	}, without("moving the mark first", patch{file: "rescue_workers.sql", old: "v_open := posthaste.move_mark(v_worker.id);", new: "v_open := false;"}))
}

// A slot is held by the open claims that hold its entries, wherever those claims are and however
// their entries were found; and by no settled claim.
func TestRuleOpenClaimsHoldTheirSlots(t *testing.T) {
	kinds := []struct{ name, options, age string }{
		{"fresh", `{}`, ``},
		{"due when it became visible", `{"delay": "1 microsecond"}`, ``},
		{"due later", `{"delay": "1 day"}`, `update posthaste.entries_other set due_at = clock_timestamp() where due_at is not null`},
	}
	for _, k := range kinds {
		t.Run(strings.ReplaceAll(k.name, " ", "_"), func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				s.exec(`update posthaste.settings set slot_rows = 1`)
				s.send(k.options)
				if k.age != "" {
					s.receive() // so that it was visible before it fell due
				}
				turn(t, s)
				s.send(k.options)
				if k.age != "" {
					s.exec(k.age)
				}
				got := s.claim(s.register(), 1, 10, false)
				if len(got) != 2 {
					t.Fatalf("claimed %v", got)
				}
				turn(t, s)
				// No other session writes here; transactions of other databases would count.
				s.exec(`update posthaste.slots set left_before = '3' where slot = 0`)
				s.exec(`select posthaste.carry_slot(0)`)
				want := fmt.Sprintf("claim %d of worker 1 is open", got[0]>>12)
				if blocker := get[string](s, `select coalesce(posthaste.slot_blocker(0), '')`); blocker != want {
					return fmt.Sprintf("slot 0 is said to be kept by %q, want %q", blocker, want)
				}
				if held := get[*string](s, `select posthaste.slot_held(7)`); held != nil {
					return fmt.Sprintf("slot 7, in which none of it lies, is said to be held: %s", *held)
				}
				s.exec(`select from posthaste.settle(array[$1::bigint], array[B'11'])`, got[0]>>12)
				if held := get[*string](s, `select posthaste.slot_held(0)`); held != nil {
					return fmt.Sprintf("all is settled, and %s", *held)
				}
				return ""
			}, without("asking for entries",
				patch{file: "holds_slot.sql", old: "return f.places > 0 and", new: "return false and"},
				patch{file: "holds_slot.sql", old: "    if v_window.places > 0 then\n", new: "    if v_window.places > 0 then return false; end if; if false then\n"}))
		})
	}
}

// Carrying later messages runs in bounded rounds, and each continues where the one before it
// stopped; so does the check whether all of them are carried.
func TestRuleCarryingGoesOnWhereItStopped(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const n = 12_500 // more than one round carries, and enough to notice entries that are walked over again
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
		s.exec(`insert into posthaste.entries_other (queue_id, payload, due_at) select 1, '1', clock_timestamp() + '1 day' from generate_series(1, $1::int)`, n)
		for range 2*n/4096 + 2 {
			s.receive() // so that they were seen before they fall due
		}
		turn(t, s)
		s.exec(`update posthaste.settings set slot_rows = 1000000`) // otherwise the carried entries would turn it again
		// No other session writes here; transactions of other databases would count.
		s.exec(`update posthaste.slots set left_before = '3' where slot = 0`)
		carried := 0
		for round := range 5 {
			walked := s.walked(`do $$ begin perform set_config('test.carried', posthaste.carry_slot(0)::text, false); end $$`)
			got := get[int](s, `select current_setting('test.carried')::int`)
			if got > 10_010 || walked > 11_000 {
				return fmt.Sprintf("round %d carried %d and walked over %d entries", round+1, got, walked)
			}
			carried += got
		}
		if left := get[int](s, `select count(*)::int from posthaste.entries e where ((e.pos >> 22) & 15) = 0 and not exists (select from posthaste.cancelled x where x.pos = e.pos)`); left > 0 {
			return fmt.Sprintf("after carrying %d, %d are left", carried, left)
		}
		if again := get[int](s, `select count(*)::int from posthaste.entries e where ((e.pos >> 22) & 15) <> 0`); again != n {
			return fmt.Sprintf("%d were appended again, want %d", again, n)
		}
		walked := s.walked(`select posthaste.slot_blocker(0)`)
		if blocker := get[*string](s, `select posthaste.slot_blocker(0)`); blocker != nil {
			return "all is carried, and " + *blocker
		}
		if walked > 100 {
			return fmt.Sprintf("whether all is carried is asked by walking over %d entries", walked)
		}
		// The progress of the slot is removed with it.
		until(t, "the slot is reclaimed", func() bool {
			s.exec(`select from posthaste.maintain()`)
			return get[bool](s, `select not live from posthaste.slots where slot = 0`)
		})
		s.exec(`select posthaste.forget_cancelled() from generate_series(1, 3)`)
		if n := get[int](s, `select (select count(*) from posthaste.cancelled)::int + (select count(*) from posthaste.carried where slot = 0)::int`); n != 0 {
			return fmt.Sprintf("%d rows are kept about a reclaimed slot", n)
		}
		return ""
	},
		without("a bound", patch{file: "carry_slot.sql", old: "v_left int := 10000;", new: "v_left int := 2147483647;"}),
		without("going on", patch{file: "carry_slot.sql", old: "if k.slot is null or k.due_at <= v_reached then", new: "if true then"}),
		without("knowing carried entries", patch{file: "slot_unread.sql", old: "where y.slot = p_slot and y.queue_id", new: "where false and y.queue_id"}),
		without("forgetting", patch{file: "forget_cancelled.sql", old: "v_left int := 10000;", new: "v_left int := 0;"}))
}

// A look at very many lanes stops after a bounded number of probes, and the next one begins where it
// stopped: each queue has its turn.
func TestRuleLooksAreBounded(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const queues, lanes = 100, 64
		s.exec(`select posthaste.create_queue('many' || lpad(g::text, 3, '0'), '{"lanes": 64}') from generate_series(1, $1::int) g`, queues)
		worker := s.register()
		const look = `select coalesce(string_agg(n::text, ',') filter (where ready), '') from posthaste.worker_look($1,
			array(select 'many' || lpad(g::text, 3, '0') from generate_series(1, 100) g), array_fill(''::text, array[100])) with ordinality x (ready, next_due, maintain, rescue, n)`
		if got := get[string](s, look, worker); got != "" {
			t.Fatalf("ready are %q", got)
		}
		s.exec(`select posthaste.send('many050', '1'), posthaste.send('many100', '1')`)
		seen := map[string]bool{}
		for range 4 {
			if n := s.touched("idx_scan", `^(entries|claims)_`, `select from posthaste.worker_look($1,
				array(select 'many' || lpad(g::text, 3, '0') from generate_series(1, 100) g), array_fill(''::text, array[100]))`, worker); n > 6*4096 {
				return fmt.Sprintf("a look over %d lanes scanned indexes %d times", queues*lanes, n)
			}
		}
		for range 4 {
			for _, q := range strings.Split(get[string](s, look, worker), ",") {
				seen[q] = true
			}
		}
		if !seen["50"] || !seen["100"] {
			return fmt.Sprintf("two queues have a message, and the looks found %v", seen)
		}
		return ""
	},
		without("the bound", patch{file: "worker_look.sql", old: "where o.work <= 4096", new: "where true"}, patch{file: "worker_look.sql", old: "exit when v_work >= 4096;", new: "exit when false;"}),
		without("going on", patch{file: "worker_look.sql", old: "set looked = (v_first + v_seen) % v_count", new: "set looked = 0"}))
}

// Counting reads all lanes in a handful of statements, each of which costs no more than its probes
// for a lane.
func TestRuleCountingCostsProbesOnly(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select posthaste.create_queue('many' || g, '{"lanes": 4}') from generate_series(1, 200) g`)
		s.exec(`select posthaste.count_up()`)
		counted := func() string { return get[string](s, `select s::text from posthaste.counted`) }
		before := counted()
		scans := s.touched("idx_scan", `^(entries|claims)_`, `select posthaste.count_up()`)
		// Each open transaction of the server, also of other databases, splits a window into one
		// more range.
		ranges := get[int](s, `select cardinality(lo) from posthaste.window_ranges($1::pg_snapshot, $2::pg_snapshot)`, before, counted())
		if most := 4 * 201 * (2 + 2*ranges); scans > most {
			return fmt.Sprintf("counting over 801 lanes in %d ranges scans indexes %d times, which is more than %d", ranges, scans, most)
		}
		s.exec(`select posthaste.send('many7', '1'), posthaste.send('many7', '1', '{"delay": "1 day"}')`)
		s.exec(`select posthaste.count_up()`)
		if n := get[int](s, `select sent::int from posthaste.queues where queue = 'many7'`); n != 2 {
			t.Errorf("of 2 messages %d were counted", n)
		}
		return ""
	}, without("naming the live slots", patch{file: "count_up.sql", old: "posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)", new: "true"}))
}

// A failed delivery costs the reading of its own entry and not of all others of its claim: entries
// that a settle reads in full must be stored.
func TestRuleFailureReadsOneEntry(t *testing.T) {
	for name, options := range map[string]string{"fresh": `{}`, "due": `{"delay": "1 microsecond"}`} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				s.exec(`select from posthaste.send_many('q', (select jsonb_agg(jsonb_build_object('payload', repeat(md5(g::text), 30), 'key', g::text) || $1) from generate_series(1, 1000) g))`, options)
				ids := s.claim(s.register(), 1, 1000, false)
				if len(ids) < 500 {
					t.Fatalf("claimed %d", len(ids))
				}
				id := ids[333]
				key := get[string](s, `select key from posthaste.fetch(1, 1) with ordinality where numbered_from + ordinality = $1`, id)
				s.exec(`set work_mem = '64kB'`)
				if n := s.spilled(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{retried}', '{no}', '{0}', '{null}', '{null}')`, id); n > 0 {
					return fmt.Sprintf("failing one of %d stored %d pages", len(ids), n)
				}
				if got := get[string](s, `select key from posthaste.entries where attempt = 2`); got != key {
					return fmt.Sprintf("message %s failed, and %s is tried again", key, got)
				}
				return ""
			}, without("asking for one", patch{file: "finish.sql", old: "posthaste.deliveries_at(p_claim, p_places)", new: "(select x.*, null::timestamptz as ages_from from posthaste.deliveries_of(p_claim) x)"}))
		})
	}
}

// Some places of a slice are read as part of the whole slice, or not at all.
func TestRulePartOfASliceIsReadOnlyFromAWholeOne(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.exec(`select setval('posthaste.positions', 1 << 22)`)
		s.send(`{}`)
		got := s.claim(s.register(), 1, 10, false)
		const second = `select message_id from posthaste.claims c cross join lateral posthaste.deliveries_at(c, '{1}') where c.id = $1`
		want := get[int64](s, second, got[0]>>12)
		s.exec(`truncate posthaste.entries_plain_0`)
		switch pg := s.refusal(second, got[0]>>12); {
		case pg == nil:
			return fmt.Sprintf("with the first of two gone, place 1 is %v and was %d", list[int64](s, second, got[0]>>12), want)
		case pg.Code != "PH409":
			return "it ended with " + pg.Code
		}
		return ""
	}, without("counting", patch{file: "deliveries_at.sql", old: "if v_rows <> c.places then", new: "if false then"}))
}

// So does a look-up: it returns no place of a slice with missing rows, and continues.
func TestRulePlacesAreThoseOfAWholeSlice(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.exec(`select setval('posthaste.positions', 1 << 22)`)
		second := s.send(`{}`)
		claim := s.claim(s.register(), 1, 10, false)[0] >> 12
		s.exec(`select from posthaste.settle(array[$1::bigint], array[B'01'::bit varying])`, claim) // the second
		const look = `select settled_at is not null from posthaste.ends_of($1, array[$2::bigint], true)`
		if got := list[bool](s, look, claim, second); !slices.Equal(got, []bool{true}) {
			t.Fatalf("the second is settled: %v", got)
		}
		s.exec(`truncate posthaste.entries_plain_0`)
		if code := s.code(look, claim, second); code != "" {
			return "with the first of two gone, the look-up ended with " + code
		}
		if got := list[bool](s, look, claim, second); len(got) > 0 {
			return fmt.Sprintf("with the first of two gone, the second is settled: %v, and was", got)
		}
		return ""
	}, without("counting", patch{file: "fetch.sql", old: "if v_rows <> v_claim.places then", new: "if false then"}),
		without("an answer", patch{file: "ends_of.sql", old: "exception when sqlstate 'PH409' then", new: "exception when sqlstate 'PH404' then"}))
}

// spilled runs a statement and counts the pages that it wrote to temporary files, because its data
// did not fit into work_mem.
func (s *session) spilled(sql string, args ...any) int {
	s.t.Helper()
	var plans []struct {
		Plan struct {
			Written int `json:"Temp Written Blocks"`
		}
	}
	if err := json.Unmarshal(get[[]byte](s, `explain (analyze, buffers, format json) `+sql, args...), &plans); err != nil {
		s.t.Fatal(err)
	}
	return plans[0].Plan.Written
}

// Receiving from a queue with lanes waits for a lane only while it holds none: two sessions that
// wait for each other's lanes would never end.
func TestRuleReceiveWaitsWithoutALaneInHand(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		s.exec(`select posthaste.create_queue('q', '{"lanes": 3}')`)
		const lock = `select posthaste.lock_reader(posthaste.reader_key(1, 0, $1, 0), true)`
		other := connect(t, url)
		other.exec(`begin`)
		other.exec(lock, 0)
		other.exec(lock, 2)
		// One lane is free and empty. Wherever the search begins, there is a result.
		for i := range 20 {
			receiver := connect(t, url)
			receiver.exec(`select setseed($1)`, float64(i)/20)
			done := receiver.start(receiveAll)
			var a *answer
			waits := false
			until(t, "it answers or waits", func() bool {
				select {
				case x := <-done:
					a = &x
				default:
					waits = receiver.waits(s)
				}
				return a != nil || waits
			})
			if a == nil {
				other.exec(`rollback`)
				return "a receiver that holds a lane waits for another"
			}
			if a.err != nil || len(a.values) != 0 {
				t.Fatalf("received %v, %v", a.values, a.err)
			}
			_ = receiver.Close(t.Context())
		}
		// With all lanes busy it waits for one.
		other.exec(lock, 1)
		receiver := connect(t, url)
		done := receiver.start(receiveAll)
		var early *answer
		until(t, "it waits", func() bool {
			select {
			case x := <-done:
				early = &x
			default:
			}
			return early != nil || receiver.waits(s)
		})
		if early != nil {
			return fmt.Sprintf("with all lanes busy it did not wait: %v", early.err)
		}
		other.exec(`rollback`)
		if a := <-done; a.err != nil {
			t.Fatal(a.err)
		}
		return ""
	},
		without("the rule", patch{file: "receive_rows.sql", old: "exit when v_held;", new: "exit when false;"}),
		without("waiting", patch{file: "receive_rows.sql", old: "exit when v_held;", new: "exit;"}))
}
