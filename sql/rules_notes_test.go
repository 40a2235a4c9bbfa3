package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
				late := handler.start(`select (recorded)::int::bigint from posthaste.note(array[$1::bigint], '{7}', '{null}', '{null}', '{null}')`, d)
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

// Ten thousand checkpoints write at most 1.5 times as much as plain inserts of the same values,
// each in a transaction of its own, and leave nothing to be vacuumed.
func TestJB5_CheckpointsCostNoBloat(t *testing.T) {
	t.Parallel()
	const turns, each = 20, 500
	s := begin(t, testpg.New(t))
	s.send(`{}`)
	d := s.claim(s.register(), 1, 1, false)[0]
	s.exec(`create table plain_inserts (job bigint, number int, at timestamptz default clock_timestamp(), value jsonb, primary key (job, number))`)
	const value = `{"row": 123456, "file": "customers-2026-11.csv", "offset": 987654321, "seen": ["a", "b", "c"]}`
	var took [2]time.Duration // the fastest turn of each
	bytes := func(which int, sql string, args func(n int) []any) (written int64) {
		before := get[string](s, `select pg_current_wal_insert_lsn()::text`)
		began := time.Now()
		for n := range each {
			s.exec(sql, args(n)...)
		}
		if one := time.Since(began); took[which] == 0 || one < took[which] {
			took[which] = one
		}
		return get[int64](s, `select (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint`, before)
	}
	var ratios []float64 // others also write to the log, so the median counts
	for turn := range turns {
		inserts := bytes(0, `insert into plain_inserts (job, number, value) values ($1, $2, $3)`, func(n int) []any { return []any{d, turn*each + n, value} })
		notes := bytes(1, `select recorded from posthaste.note(array[$1::bigint], array[$2::jsonb], array[null::real], array[null::text], array[null::text])`,
			func(int) []any { return []any{d, value} })
		ratios = append(ratios, float64(notes)/float64(inserts))
	}
	slices.Sort(ratios)
	t.Logf("%.2f times the log of plain inserts; %s against %s each at best", ratios[turns/2], took[1]/each, took[0]/each)
	if ratios[turns/2] > 1.5 {
		t.Errorf("a checkpoint writes %.2f times as much as an insert", ratios[turns/2])
	}
	if n := get[int](s, `select count(*)::int from posthaste.notes`); n != turns*each {
		t.Fatalf("%d notes, want %d", n, turns*each)
	}
	s.exec(`analyze posthaste.notes_0, posthaste.claims_0`) // which counts dead rows
	until(t, "the statistics are there", func() bool {
		return get[bool](s, `select n_live_tup >= 10000 from pg_stat_user_tables where relname = 'notes_0'`)
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
