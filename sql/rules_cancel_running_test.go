package ledger_test

import (
	"fmt"
	"slices"
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
		without("seeing it", patch{file: "finish.sql", old: "case when counted.notes ? 'cancel_requested_at' then 'cancelled'", new: "case when false then 'cancelled'"}))
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

// A heartbeat does not wait for a transaction that cancels a message of its worker.
func TestR10_HeartbeatDoesNotWait(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, canceller := begin(t, url), connect(t, url)
		m, w := s.send(`{}`), s.register()
		d := s.claim(w, 1, 1, false)[0]
		canceller.exec(`begin`)
		canceller.exec(`select from posthaste.cancel($1)`, m)
		s.exec(`set lock_timeout = '2s'`)
		if code := s.code(`select posthaste.worker_heartbeat($1)`, w); code != "" {
			return "a heartbeat waited for the transaction, and ended with " + code
		}
		canceller.exec(`commit`)
		if told := get[[]int64](s, `select posthaste.worker_heartbeat($1)`, w); !slices.Equal(told, []int64{d}) {
			return fmt.Sprintf("the worker was told %v, want %d", told, d)
		}
		return ""
	}, without("a table of its own", patch{file: "request_cancel.sql", old: "  return true;\n", new: "  update posthaste.registrations w set looked = 0 where w.id = c.holder;\n  return true;\n"}),
		without("telling", patch{file: "worker_heartbeat.sql", old: "where x.worker = p_worker)", new: "where false)"}))
}

// A copy of the database does not hand out messages that were cancelled while they ran.
func TestR10_RebaseLeavesCancelled(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		cancelled, _ := s.running()
		other, _ := s.running()
		s.cancel(cancelled)
		// A restore makes the indexes after the rows.
		s.exec(`update pg_catalog.pg_index set indisclustered = indisclustered where indrelid in (select oid from pg_catalog.pg_class where relnamespace = 'posthaste'::regnamespace)`)
		s.rebase()
		if got := s.receive(); !slices.Equal(got, []int64{other}) {
			return fmt.Sprintf("after the rebase %v was received, want %d; %d was cancelled", got, other, cancelled)
		}
		s.exec(`select from posthaste.maintain()`)
		if n := get[int](s, `select count(*)::int from posthaste.cancel_requests`); n != 0 {
			return fmt.Sprintf("%d requests are left", n)
		}
		return ""
	}, without("asking for it", patch{file: "rebase_collect.sql", old: " and (n.notes ? 'cancel_requested_at') is not true", new: ""}))
}

// Upkeep removes requests of deliveries that ended, and no others.
func TestR10_RequestsAreForgotten(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		w := s.register()
		for n, single := range []bool{false, true} {
			ids := []int64{s.send(`{}`), s.send(`{}`)}
			d := s.claim(w, int64(n+1), 2, single)
			for _, id := range ids {
				s.cancel(id)
			}
			s.exec(`select from posthaste.settle('{}', '{}', array[$1::bigint], '{retried}', '{no}', '{0}', '{null}', '{1}')`, d[0])
			s.exec(`select posthaste.forget_rows()`)
			if left := list[int64](s, `select delivery from posthaste.cancel_requests where delivery >> 12 = $1::bigint >> 12`, d[0]); !slices.Equal(left, d[1:]) {
				return fmt.Sprintf("single %t: requests of %v are left, want %v", single, left, d[1:])
			}
		}
		return ""
	}, without("looking for the end", patch{file: "forget_rows.sql", old: "posthaste.delivery_open(x.delivery) is not true", new: "false"}),
		without("keeping the others", patch{file: "forget_rows.sql", old: "posthaste.delivery_open(x.delivery) is not true", new: "true"}))
}
