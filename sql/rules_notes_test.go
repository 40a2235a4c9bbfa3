package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// receivedCheckpoint receives a message and returns its checkpoint.
const receivedCheckpoint = `select coalesce(checkpoint::text, 'none') from posthaste.receive('q', 1, '1 hour')`

// A checkpoint that was accepted is handed to the next attempt, whatever ends this one and however
// the two meet: the end of a delivery waits for a note in progress, and then reads it.
func TestJB5_AcceptedCheckpointReachesTheNextAttempt(t *testing.T) {
	ends := []struct{ name, end string }{
		{"failed", `select count(*) from posthaste.fail($1, 'no', '{"retry_after": "0"}')`},
		{"released", `select count(*) from posthaste.release(array[$1::bigint])`},
		{"lost", `select posthaste.rescue_claim($1 >> 12)::bigint`},
		{"dead", `select count(*) from posthaste.fail($1, 'no', '{"permanent": true}')`},
	}
	examine := func(t *testing.T, url string) string {
		s, handler, ender := begin(t, url), connect(t, url), connect(t, url)
		for _, e := range ends {
			s.send(`{}`)
			d := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
			if e.name == "lost" {
				s.endLeases()
			}
			handler.exec(`begin`)
			handler.exec(`select posthaste.checkpoint($1, '7')`, d)
			ended := ender.start(e.end, d)
			if e.name != "lost" { // a rescue does not wait for long: it leaves the delivery to the next look
				ender.waitsOrEnds(s, ended)
			} else if a := <-ended; a.err != nil {
				t.Fatal(a.err)
			}
			handler.exec(`commit`)
			if e.name != "lost" {
				if a := <-ended; a.err != nil {
					t.Fatal(a.err)
				}
			} else {
				s.exec(e.end, d)
			}
			if e.name == "dead" {
				s.exec(`select from posthaste.replay(filter => '{"all": true}')`)
			}
			if got := get[string](s, receivedCheckpoint); got != "7" {
				return fmt.Sprintf("%s: the checkpoint was accepted, and the next attempt got %s", e.name, got)
			}
			s.exec(`select from posthaste.ack(array(select id * 4096 from posthaste.claims where places > 0))`)
		}
		return ""
	}
	rule(t, examine,
		without("waiting for it when it is settled", patch{file: "settle.sql", old: "v_plain <> v_wanted and posthaste.close_notes(v_claim_row, v_wanted & ~v_plain)", new: "true"}),
		without("waiting for it when it is rescued", patch{file: "rescue_claim.sql", old: "v_noted := posthaste.close_notes(v_claim, v_wanted)", new: "v_noted := true"}),
		without("reading notes after the wait", patch{file: "close_notes.sql", old: "  return true;", new: "  return false;"}))
}

// A checkpoint that comes after the end of its delivery is refused, also while the end is in progress.
func TestJB5_LateCheckpointIsRefused(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, handler, ender := begin(t, url), connect(t, url), connect(t, url)
		for _, single := range []bool{true, false} {
			for _, end := range []string{"done", "retried"} {
				s.send(`{}`)
				d := s.claim(s.register(), 1, 1, single)[0]
				ender.exec(`begin`)
				if end == "done" {
					ender.exec(`select from posthaste.settle(array[$1::bigint >> 12], array[B'1'])`, d)
					ender.exec(`commit`)
				} else {
					ender.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{retried}', '{no}', '{0}', '{null}', '{1}')`, d)
				}
				late := handler.start(`select coalesce(recorded, false)::int::bigint from posthaste.note(array[$1::bigint], '{7}', '{null}', '{null}', '{null}')`, d)
				if end == "retried" {
					handler.waitsOrEnds(s, late)
					ender.exec(`commit`)
				}
				a := <-late
				if a.err != nil {
					t.Fatal(a.err)
				}
				if a.values[0] != 0 {
					return fmt.Sprintf("single %t: a checkpoint was accepted after its delivery had become %s", single, end)
				}
				if end == "retried" {
					if got := get[string](s, receivedCheckpoint); got != "none" {
						return "the next attempt got the checkpoint that was refused: " + got
					}
				}
				s.exec(`select from posthaste.ack(array(select c.id * 4096 from posthaste.claims c where c.places > 0 and c.single))`)
			}
		}
		return ""
	}, without("looking for the settlement of a single", patch{file: "put_note.sql", old: "not exists (select from posthaste.settlements s where", new: "not exists (select from posthaste.settlements s where false and"}),
		without("looking for the bits of a claim", patch{file: "put_note.sql", old: "get_bit(s.bits, v_place)", new: "0"}),
		without("closing the notes", patch{file: "close_notes.sql", old: "  get diagnostics v_rows = row_count;\n", new: "  delete from posthaste.notes n where n.claim = c.id and n.last;\n  return false;\n"}))
}

// A checkpoint writes at most 1.5 times as much to the log as a plain insert of the same values,
// and ten thousand leave nothing to be vacuumed.
func TestJB5_CheckpointsCostNoBloat(t *testing.T) {
	t.Parallel()
	const all, measured = 10_000, 101
	s := begin(t, testpg.New(t))
	s.send(`{}`)
	d := s.claim(s.register(), 1, 1, false)[0]
	s.exec(`create table plain_inserts (job bigint, number serial, at timestamptz default clock_timestamp(), value jsonb, primary key (job, number))`)
	const value = `{"row": 123456, "file": "customers-2026-11.csv", "offset": 987654321, "seen": ["a", "b", "c"]}`
	written := func(sql string, args ...any) int {
		var bytes []int // the median counts, because some statements write whole pages
		for range measured {
			var plans []struct {
				Plan struct {
					Bytes int `json:"WAL Bytes"`
				}
			}
			if err := json.Unmarshal(get[[]byte](s, `explain (analyze, wal, format json) `+sql, args...), &plans); err != nil {
				t.Fatal(err)
			}
			bytes = append(bytes, plans[0].Plan.Bytes)
		}
		slices.Sort(bytes)
		return bytes[measured/2]
	}
	const note = `select recorded from posthaste.note(array[$1::bigint], array[$2::jsonb], array[null::real], array[null::text], array[null::text])`
	for range all - measured {
		s.exec(note, d, value)
	}
	notes, inserts := written(note, d, value), written(`insert into plain_inserts (job, value) values ($1, $2::jsonb)`, d, value)
	t.Logf("a checkpoint writes %d bytes, an insert %d", notes, inserts)
	if notes > inserts*3/2 || notes < 100 {
		t.Errorf("a checkpoint writes %d bytes, want at most 1.5 times the %d of an insert", notes, inserts)
	}
	if n := get[int](s, `select count(*)::int from posthaste.notes`); n != all {
		t.Fatalf("%d notes, want %d", n, all)
	}
	s.exec(`analyze posthaste.notes_0, posthaste.claims_0`) // which counts dead rows
	until(t, "the statistics are there", func() bool {
		return get[bool](s, `select n_live_tup >= $1 from pg_stat_user_tables where relname = 'notes_0'`, all)
	})
	for _, table := range []string{"notes_0", "claims_0"} {
		if dead := get[int](s, `select (n_dead_tup + n_tup_upd + n_tup_del)::int from pg_stat_user_tables where relname = $1`, table); dead != 0 {
			t.Errorf("%s has %d dead rows", table, dead)
		}
	}
}

// The cost of a checkpoint does not grow with those that its delivery has.
func TestRuleNotesAreFoundByTheirIndex(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		d := s.claim(s.register(), 1, 1, false)[0]
		const note = `select posthaste.put_note($1, '1', null, null, null)`
		for range 6 { // the plans are made
			s.exec(note, d)
		}
		few := s.buffers(note, d)
		s.exec(`insert into posthaste.notes (slot, claim, place, number, checkpoint) select 0, $1::bigint >> 12, 0, g, '1' from generate_series(1000, 20000) g`, d)
		if many := s.buffers(note, d); many > few+20 {
			return fmt.Sprintf("%d pages with 20,000 notes, %d with few", many, few)
		}
		return ""
	}, without("the index's order", patch{file: "put_note.sql", old: "order by x.slot, x.claim, x.place, x.number desc limit 1", new: "order by x.number::text::int desc limit 1"}))
}

// Above READ COMMITTED a note and the end of its delivery that do not see each other fail: neither
// loses the other.
func TestRuleNotesAboveReadCommitted(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, old := begin(t, url), connect(t, url)
		for _, level := range []string{"repeatable read", "serializable"} {
			for _, c := range []struct{ first, second string }{
				{`select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`, `select posthaste.checkpoint($1, '7')`},
				{`select posthaste.checkpoint($1, '7')`, `select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`},
			} {
				s.send(`{}`)
				d := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
				old.exec(`begin isolation level ` + level)
				old.exec(`select from posthaste.queue_settings`) // its snapshot
				s.exec(c.first, d)
				if code := old.code(c.second, d); code != "40001" {
					return fmt.Sprintf("%s: after %q, %q ended with %q", level, c.first, c.second, code)
				}
				old.exec(`rollback`)
				s.exec(`select from posthaste.ack(array[$1::bigint])`, d)
				s.exec(`select from posthaste.purge('q')`)
			}
			// A handler's own transaction may be at any level.
			s.send(`{}`)
			d := get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
			old.exec(`begin isolation level ` + level)
			old.exec(`select posthaste.checkpoint($1, '7')`, d)
			old.exec(`select posthaste.checkpoint($1, '8')`, d)
			old.exec(`select from posthaste.ack(array[$1::bigint], '{"strict": true}')`, d)
			old.exec(`commit`)
		}
		return ""
	}, without("closing the notes", patch{file: "settle.sql", old: "v_plain <> v_wanted and posthaste.close_notes(v_claim_row, v_wanted & ~v_plain)", new: "true"}))
}
