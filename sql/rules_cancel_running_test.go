package ledger_test

import (
	"fmt"
	"testing"
)

// runningEnds are the ways in which a delivery that was received ends without success.
var runningEnds = []struct{ name, end string }{
	{"failed", `select count(*) from posthaste.fail($1, 'no', '{"retry_after": "0"}')`},
	{"failed for good", `select count(*) from posthaste.fail($1, 'no', '{"permanent": true}')`},
	{"released", `select count(*) from posthaste.release(array[$1::bigint])`},
	{"lost", `select posthaste.rescue_claim($1 >> 12)::bigint`},
}

// running sends a message and receives it.
func (s *session) running() (message, delivery int64) {
	s.t.Helper()
	message = s.send(`{}`)
	return message, get[int64](s, `select delivery_id from posthaste.receive('q', 1, '1 hour')`)
}

// A running message that was cancelled is not handed out again, whatever ends its delivery and
// however the two meet: the end waits for a cancel in progress, and then sees it.
func TestR10_EndSeesTheCancelInProgress(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, canceller, ender := begin(t, url), connect(t, url), connect(t, url)
		for _, e := range runningEnds {
			m, d := s.running()
			if e.name == "lost" {
				s.endLeases()
			}
			canceller.exec(`begin`)
			if answer := canceller.cancel(m); answer != "default f running" {
				t.Fatalf("%s: cancel answered %q", e.name, answer)
			}
			ended := ender.start(e.end, d)
			if e.name != "lost" { // a rescue does not wait for long: it leaves the delivery to the next look
				ender.waitsOrEnds(s, ended)
			} else if a := <-ended; a.err != nil {
				t.Fatal(a.err)
			}
			canceller.exec(`commit`)
			if e.name != "lost" {
				if a := <-ended; a.err != nil {
					t.Fatal(a.err)
				}
			} else {
				s.exec(e.end, d)
			}
			if state := get[string](s, `select state from posthaste.message($1)`, m); state != "cancelled" {
				return fmt.Sprintf("%s: the message that was cancelled while it ran is %s", e.name, state)
			}
			if again := s.receive(); len(again) > 0 {
				return fmt.Sprintf("%s: it was handed out again", e.name)
			}
		}
		return ""
	},
		without("waiting for it when it is settled", patch{file: "settle.sql", old: "v_plain <> v_wanted and posthaste.close_notes(v_claim_row, v_wanted & ~v_plain)", new: "true"}),
		without("waiting for it when it is rescued", patch{file: "rescue_claim.sql", old: "v_noted := posthaste.close_notes(v_claim, v_wanted)", new: "v_noted := true"}),
		without("seeing it", patch{file: "finish.sql", old: "case when x.notes ? 'cancel_requested_at' then 'cancelled'", new: "case when false then 'cancelled'"}))
}

// A cancel that meets an end in progress waits for it, and withdraws the retry that the end left.
func TestR10_CancelSeesTheEndInProgress(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, canceller, ender := begin(t, url), connect(t, url), connect(t, url)
		for _, e := range runningEnds[:3] {
			m, d := s.running()
			ender.exec(`begin`)
			ender.exec(e.end, d)
			answered := canceller.start(`select cancelled::int::bigint * 2 + requested::int from posthaste.cancel($1)`, m)
			canceller.waitsOrEnds(s, answered)
			ender.exec(`commit`)
			a := <-answered
			want := int64(2)
			if e.name == "failed for good" {
				want = 0 // it is dead
			}
			if code := a.code(); a.err != nil && code != "PH503" {
				t.Fatal(a.err)
			} else if a.err != nil { // the machine was so busy that the wait ended
				a.values = []int64{get[int64](s, `select cancelled::int::bigint * 2 + requested::int from posthaste.cancel($1)`, m)}
			}
			if a.values[0] != want {
				return fmt.Sprintf("%s: cancel answered %d, want %d", e.name, a.values[0], want)
			}
			if again := s.receive(); len(again) > 0 {
				return fmt.Sprintf("%s: it was handed out again", e.name)
			}
		}
		return ""
	},
		without("looking again", patch{file: "cancel.sql", old: "exit when array_position(v_requests, null) is null;", new: "exit;"}),
		without("the note", patch{file: "request_cancel.sql", old: "  elsif not posthaste.put_note(v_delivery, null, null, null, null, true) then\n    return null;\n", new: ""}))
}

// A cancel waits briefly for a transaction that settles the delivery or notes something: the lane
// is locked meanwhile.
func TestR10_CancelWaitsBriefly(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, canceller, handler := begin(t, url), connect(t, url), connect(t, url)
		m, d := s.running()
		handler.exec(`begin`)
		handler.exec(`select posthaste.checkpoint($1, '7')`, d)
		canceller.exec(`set statement_timeout = '3s'`)
		if code := canceller.code(`select from posthaste.cancel($1)`, m); code != "PH503" {
			return fmt.Sprintf("beside a transaction that stored a checkpoint it ended with %q", code)
		}
		handler.exec(`commit`)
		if answer := canceller.cancel(m); answer != "default f running" {
			t.Fatalf("after that it answered %q", answer)
		}
		return ""
	}, without("the bound", patch{file: "request_cancel.sql", old: " set lock_timeout = '900ms'", new: ""}))
}
