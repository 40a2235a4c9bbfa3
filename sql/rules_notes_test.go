package ledger_test

import (
	"fmt"
	"testing"
)

// received is a delivery with its message and the checkpoint of earlier attempts, null if there is
// none.
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
