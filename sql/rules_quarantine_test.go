package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// ◆ One message that cannot be read keeps neither the messages beside it nor, once an operator has
// given it up, its slot: after ten tries the places of its claim are tried one by one, the doctor
// names the claim, and the unreadable message becomes a dead letter without content.
func TestRuleWhatCannotBeReadIsQuarantined(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`create function public.unreadable() returns trigger language plpgsql as $$
			begin if new.payload = 'bad' then raise exception using errcode = 'XX001', message = 'missing chunk number 0'; end if; return new; end $$`)
		for _, table := range []string{"entries_plain", "entries_other", "dead_letter_entries"} {
			s.exec(`create trigger unreadable before insert on posthaste.` + table + ` for each row execute function public.unreadable()`)
		}
		s.exec(`alter table posthaste.entries_plain disable trigger unreadable`)
		bad := get[int64](s, `select posthaste.send_bytes('q', 'bad')`)
		good := []int64{s.send(`{}`), s.send(`{}`)}
		s.exec(`alter table posthaste.entries_plain enable trigger unreadable`)
		s.receive()
		s.endLeases()
		tries := func(n int) {
			for range n {
				s.exec(`update posthaste.held_claims set next_try = clock_timestamp()`)
				s.exec(`select posthaste.rescue()`)
			}
		}
		tries(3)
		if n := get[int](s, `select count(*) from posthaste.doctor_ring() where "check" = 'quarantined'`); n != 0 {
			return "the doctor despairs after three tries"
		}
		tries(9)
		// A try that finds a lock taken, by autovacuum for example, does not count.
		for n := 0; n < 30 && get[int](s, `select coalesce(max(tries), 0) from posthaste.held_claims`) < 12; n++ {
			tries(1)
		}
		if got := ascending(s.receive()); !slices.Equal(got, good) {
			return fmt.Sprintf("the other messages %v came again as %v", good, got)
		}
		claim := get[int64](s, `select coalesce(max(claim), 0) from posthaste.held_claims where tries > 10 and next_try > clock_timestamp() + interval '50 minutes'`)
		if n := get[int](s, `select count(*) from posthaste.doctor_ring() where message ~ 'missing chunk number 0'`); n != 1 || claim == 0 {
			return fmt.Sprintf("the doctor names %d claims, and %d is tried hourly", n, claim)
		}
		if code := s.code(`select from posthaste.give_up($1)`, claim+1); code != "PH409" {
			return "another claim is given up: " + code
		}
		if code := s.code(`select from posthaste.give_up($1)`, claim); code != "" {
			return "giving up ends with " + code
		}
		dead, unnamed := get[int](s, `select (details ->> 'dead')::int from posthaste.list_actions() where action = 'give_up'`), get[int](s, `select (details ->> 'unnamed')::int from posthaste.list_actions() where action = 'give_up'`)
		if letters := list[int64](s, `select message_id from posthaste.list_dead_letters() where erased_at is not null`); dead != 1 || unnamed != 0 || !slices.Equal(letters, []int64{bad}) {
			return fmt.Sprintf("%d became dead letters, %d are unnamed; dead are %v", dead, unnamed, letters)
		}
		if n := get[int](s, `select count(*) from posthaste.doctor_ring() where "check" = 'quarantined'`); n != 0 {
			return "the doctor names a claim that was given up"
		}
		return ""
	},
		without("counting", patch{file: "rescue_claim.sql", old: "tries = h.tries + 1", new: "tries = h.tries"}),
		without("one by one", patch{file: "rescue_claim.sql", old: "return posthaste.rescue_apart(v_claim, v_open);", new: "null;"}),
		without("letters without content", patch{file: "give_up.sql", old: "        insert into posthaste.dead_letter_entries", new: "        raise exception 'no';\n        insert into posthaste.dead_letter_entries"}))
}

// Missing rows of a claim stop neither the rescue of other claims nor, once given up, the ring;
// and a claim with a temporary error is tried again.
func TestRowsThatAreGoneAreGivenUp(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	gone := s.send(`{}`)
	s.receive()
	other := s.send(`{}`)
	s.receive()
	s.exec(`delete from posthaste.entries_plain where pos = $1`, gone)
	s.endLeases()
	for range 12 {
		s.exec(`update posthaste.held_claims set next_try = clock_timestamp()`)
		s.exec(`select posthaste.rescue()`)
	}
	if got := s.receive(); !slices.Equal(got, []int64{other}) {
		t.Errorf("received %v, want %d", got, other)
	}
	claim := get[int64](s, `select claim from posthaste.held_claims where tries > 10`)
	if code := s.code(`select from posthaste.give_up($1)`, claim); code != "PH409" {
		t.Errorf("unknown messages are given up without unnamed_too: %q", code)
	}
	if n := get[int](s, `select unnamed from posthaste.give_up($1, unnamed_too => true)`, claim); n != 1 {
		t.Errorf("%d could not be named, want 1", n)
	}
	if n := get[int](s, `select count(*) from posthaste.held_claims`) + get[int](s, `select count(*) from posthaste.doctor_ring() where "check" = 'quarantined'`); n != 0 {
		t.Errorf("%d are left", n)
	}
}
