package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// sendOf sends n messages of a priority.
func (s *session) sendOf(priority, n int) []int64 {
	s.t.Helper()
	return list[int64](s, `select posthaste.send('q', '1', jsonb_build_object('priority', $1::int)) from generate_series(1, $2::int)`, priority, n)
}

// ways are the ways in which messages are handed out, at most most of them, as message ids. The
// random numbers are the session's own, and so always the same.
func (s *session) ways() map[string]func(most int) []int64 {
	s.t.Helper()
	s.exec(`select setseed(0.5)`)
	worker, number := s.register(), 0
	return map[string]func(most int) []int64{
		"receive": func(most int) []int64 {
			return list[int64](s, `select message_id from posthaste.receive('q', $1::int, '1 hour')`, most)
		},
		"claim": func(most int) []int64 {
			number++
			return list[int64](s, `select message_id from posthaste.claim($1, $2, 'q', 'default', $3::int, p_rows => 1000) where delivery_id is not null`, worker, number, most)
		},
		"claim and fetch": func(most int) []int64 {
			number++
			s.exec(`select posthaste.claim($1, $2, 'q', 'default', $3::int)`, worker, number, most)
			return list[int64](s, `select message_id from posthaste.fetch($1, $2)`, worker, number)
		},
	}
}

const noLots = "random() < 0.125"

// A claim takes the lowest priority number first and is filled with the next.
func TestRulePrioritiesAreObeyed(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		for name, take := range s.ways() {
			sent := map[int][]int64{}
			for _, priority := range []int{3, 1, 0, 2} {
				sent[priority] = s.sendOf(priority, 10)
			}
			want := slices.Concat(sent[0], sent[1], sent[2], sent[3])
			// All waiting messages in one claim, whichever priority it begins with, and each
			// priority in its own order; then in small claims, most of which begin with the first
			// priority.
			got := take(25)
			first := slices.IndexFunc([]int{0, 1, 2, 3}, func(p int) bool { return slices.Contains(sent[p], got[0]) })
			if first == 0 && !slices.Equal(got, want[:25]) {
				return fmt.Sprintf("%s: %v, want %v", name, got, want[:25])
			}
			for range 40 {
				if len(got) == 40 {
					break
				}
				got = append(got, take(4)...)
			}
			if !slices.Equal(ascending(got), ascending(want)) {
				return fmt.Sprintf("%s: %v, want all of %v", name, got, want)
			}
			// Over many claims of one.
			before, after := s.sendOf(3, 60), s.sendOf(0, 60)
			early := 0
			for range 60 {
				if m := take(1); len(m) == 1 && slices.Contains(before, m[0]) {
					early++
				}
			}
			if early > 20 { // an eighth of 60 is 7
				return fmt.Sprintf("%s: of 60 messages handed out %d had priority 3, and %d of priority 0 waited", name, early, len(after)-60+early)
			}
			for range 80 {
				take(10)
			}
		}
		return ""
	},
		without("their order in claims", patch{file: "lane_of_round.sql", old: "then p_first\n", new: "then 3 - p_first\n"}),
		without("their lanes", patch{file: "insert_entries.sql", old: "coalesce(p_priorities[n], 0) * v_steps[v_of[n]] +", new: "floor(random() * 4) * v_steps[v_of[n]] +"}))
}

// No priority is starved, however many messages of the others keep coming: messages of the others
// begin an eighth of the claims in total.
func TestRuleNoPriorityIsStarved(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		for name, take := range s.ways() {
			low := map[int]int64{}
			for priority := 1; priority < 4; priority++ {
				low[priority] = s.sendOf(priority, 1)[0]
			}
			got := map[int64]bool{}
			// One of three by one lot in 24 claims: missed in 300 three times in a million.
			for range 300 {
				s.sendOf(0, 2)
				for _, m := range take(1) {
					got[m] = true
				}
			}
			for priority, m := range low {
				if !got[m] {
					return fmt.Sprintf("%s: of priority %d nothing was handed out in 300 claims", name, priority)
				}
			}
			for range 50 {
				take(100)
			}
		}
		return ""
	}, without("lots", patch{file: "first_priority.sql", old: noLots, new: "false"}))
}

// Retries, releases and rescues keep their priority, and so do replays.
func TestPriorityIsKept(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	m := s.sendOf(2, 1)[0]
	lanes := func(what string) {
		t.Helper()
		if got := list[int16](s, `select distinct lane from posthaste.entries where pos = $1 or message_id = $1`, m); !slices.Equal(got, []int16{2}) {
			t.Errorf("%s: lanes %v, want 2", what, got)
		}
	}
	receive := `select delivery_id from posthaste.receive('q', 1, '1 hour')`
	s.exec(`select posthaste.release(array[$1::bigint])`, get[int64](s, receive))
	lanes("released")
	s.exec(`select posthaste.fail($1, 'no', '{"retry_after": "0"}')`, get[int64](s, receive))
	lanes("retried")
	get[int64](s, receive)
	s.endLeases()
	until(t, "it is rescued", func() bool { return get[int](s, `select posthaste.rescue()`) == 1 })
	lanes("lost")
	s.exec(`select posthaste.fail($1, 'no', '{"permanent": true}')`, get[int64](s, receive))
	s.exec(`select posthaste.replay(array[$1::bigint])`, m)
	lanes("replayed")
	if got := s.receive(); !slices.Equal(got, []int64{m}) {
		t.Errorf("received %v, want %d", got, m)
	}
}

// The first sender that needs a priority creates its lanes, and no sender waits for another's
// transaction: senders meanwhile send with priority 0.
func TestRulePrioritiesWaitForNobody(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, first, old := begin(t, url), connect(t, url), connect(t, url)
		s.exec(`set lock_timeout = '5s'`)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.queue_settings`)
		first.exec(`begin`)
		one := first.sendOf(3, 1)[0]
		code := s.code(`select posthaste.send('q', '1', '{"priority": 2}')`)
		if code != "" {
			return "a send beside the first one ended with " + code
		}
		first.exec(`rollback`)
		if n := get[int](s, `select lanes from posthaste.queue_settings`); n != 1 {
			return fmt.Sprintf("after a rollback there are %d lanes", n)
		}
		s.sendOf(1, 1)
		if code := old.code(`select posthaste.send('q', '1', '{"priority": 2}')`); code != "" {
			return "a send in an older snapshot ended with " + code
		}
		old.exec(`commit`)
		if n := len(s.receive()); n != 3 {
			return fmt.Sprintf("%d messages are handed out, want 3, and %d is not among them", n, one)
		}
		return ""
	},
		without("passing over", patch{file: "part_lanes.sql",
			old: "if pg_try_advisory_xact_lock(posthaste.lock_key(13, p_queue)) then", new: "perform posthaste.lock_queue(p_queue, 'settings');\n    if true then"}),
		without("the older snapshot", patch{file: "part_lanes.sql", old: "when serialization_failure then", new: "when division_by_zero then"}))
}

// The first sender with a priority changes its queue, until its transaction ends. Operators that
// change the queue meanwhile get an error that names the transaction, and neither wait forever nor
// delay others: claims continue.
func TestRuleAnOpenSenderStopsNoOperator(t *testing.T) {
	changes := []struct{ name, sql string }{
		{"pausing", `select posthaste.pause_queue('q')::int::bigint`},
		{"resuming", `select posthaste.resume_queue('q')::int::bigint`},
		{"limiting", `select 1::bigint from posthaste.update_queue('q', '{"concurrency": 9}')`},
		{"purging", `select purged from posthaste.purge('q')`},
	}
	rule(t, func(t *testing.T, url string) string {
		s, sender := begin(t, url), connect(t, url)
		s.asShipped()
		s.sendMany(2, `{}`)
		sender.exec(`set application_name = 'nightly import'`)
		sender.exec(`begin`)
		sender.sendOf(3, 1)
		var who []*session
		var ends []<-chan answer
		for i, change := range changes {
			who = append(who, connect(t, url))
			who[i].exec(`set lock_timeout = '10s'`) // longer than their own
			ends = append(ends, who[i].start(change.sql))
		}
		for i, change := range changes {
			// While it waits it blocks no claims, and no upkeep.
			held := 0
			until(t, change.name+" waits, or has ended", func() bool {
				held = get[int](s, `select count(*)::int from pg_locks where pid = $1 and locktype = 'advisory' and granted and (classid::bigint >> 12) & 15 in (1, 6)`, int32(who[i].PgConn().PID()))
				return held > 0 || len(ends[i]) > 0 || who[i].waits(s)
			})
			if held > 0 {
				return fmt.Sprintf("%s keeps %d locks of claims and upkeep while it waits for a sender", change.name, held)
			}
		}
		if n := len(s.receive()); n != 2 {
			return fmt.Sprintf("%d messages are handed out beside them, want 2", n)
		}
		for i, change := range changes {
			a := <-ends[i]
			if a.code() != "PH503" {
				return fmt.Sprintf("%s ended with %v, want PH503", change.name, a.err)
			}
			if named := fmt.Sprintf("process %d (nightly import,", sender.PgConn().PID()); !strings.Contains(a.err.Error(), named) {
				return fmt.Sprintf("%s: %q is not named in %q", change.name, named, a.err)
			}
		}
		sender.exec(`commit`)
		for i, change := range changes {
			if a := <-who[i].start(change.sql); a.err != nil {
				return fmt.Sprintf("%s after the sender had ended: %v", change.name, a.err)
			}
		}
		return ""
	},
		without("pausing's bound", patch{file: "pause_queue.sql", old: "  perform posthaste.lock_queue(v_id, 'settings');\n", new: ""}),
		without("resuming's bound", patch{file: "resume_queue.sql", old: "  perform posthaste.lock_queue(v_id, 'settings');\n", new: ""},
			patch{file: "resume_queue.sql", old: "q.dropped_at is null and q.paused_at is not null", new: "q.dropped_at is null"}),
		without("limiting's bound", patch{file: "update_queue.sql", old: "  perform posthaste.lock_queue(v_id, 'settings');\n", new: ""}),
		without("purging's order", patch{file: "purge.sql", old: "  perform posthaste.lock_queue(v_queue, 'settings');\n", new: ""}))
}

// A sender by SQL gets a notice if a priority is not kept.
func TestNoticeOfAPriorityThatIsNotKept(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	told := &session{Conn: conn, t: t}
	defer conn.Close(context.Background())
	s.exec(`begin`)
	s.sendOf(3, 1)
	told.exec(`select posthaste.send_many('q', jsonb_agg(jsonb_build_object('payload', g, 'priority', g % 2))) from generate_series(1, 9) g`)
	if len(notices) != 1 || !strings.Contains(notices[0], "priority 0") {
		t.Errorf("told %q, want one notice", notices)
	}
	s.exec(`commit`)
	told.sendOf(3, 1)
	told.sendOf(0, 1)
	if len(notices) != 1 {
		t.Errorf("told %q though it is kept", notices)
	}
}

// A queue with several lanes has them for each priority.
func TestPrioritiesOfAWideQueue(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('wide', '{"lanes": 3}')`)
	s.exec(`select posthaste.send_many('wide', jsonb_agg(jsonb_build_object('payload', g, 'priority', g % 4))) from generate_series(1, 400) g`)
	if bad := get[int](s, `select count(*)::int from posthaste.entries where lane / 3 <> convert_from(payload, 'UTF8')::int % 4`); bad != 0 {
		t.Errorf("%d of 400 messages are in another priority's lane", bad)
	}
	if n := get[int](s, `select count(distinct lane)::int from posthaste.entries`); n != 12 {
		t.Errorf("%d lanes are used, want 12", n)
	}
	if got := get[string](s, `select (lanes, depth >= 0)::text from posthaste.queues`); got != "(3,t)" {
		t.Errorf("the view shows %s, want the 3 lanes asked for", got)
	}
	s.exec(`select posthaste.create_queue('wide', '{"lanes": 3}')`)
	// Every lane is read, in the order of priorities.
	got := []int{}
	for len(got) < 400 {
		some := list[int](s, `select payload_json::int % 4 from posthaste.receive('wide', 1000, '1 hour')`)
		if len(some) == 0 {
			break
		}
		got = append(got, some...)
	}
	if len(got) != 400 {
		t.Errorf("%d messages came, want 400", len(got))
	}
}

// A claim that is repeated after a lost reply returns its deliveries, even if other priorities could
// fill it.
func TestRuleRepeatedClaimStaysAsItWas(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		const claim = `select message_id from posthaste.claim($1, 1, 'q', 'default', 10, p_rows => 10) where delivery_id is not null`
		sent := s.sendOf(1, 2)
		worker := s.register()
		first := list[int64](s, claim, worker)
		s.sendOf(2, 2)
		if again := list[int64](s, claim, worker); !slices.Equal(first, sent) || !slices.Equal(again, sent) {
			return fmt.Sprintf("handed out %v, and then %v, want %v both times", first, again, sent)
		}
		return ""
	}, without("its end", patch{file: "claim.sql", old: "      v_lanes := 0;\n      v_order", new: "      null;\n      v_order"}))
}

// A claim that is filled from several priorities hands out no more than it was asked for.
func TestRuleClaimOfSeveralPrioritiesKeepsItsMax(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		for range 5 {
			s.send(`{"priority": 3}`)
			s.send(`{}`)
		}
		const most = 7
		got := s.claim(worker, 1, most, false)
		if len(got) < most {
			t.Fatalf("%d of 10 were handed out, want %d, of both priorities", len(got), most)
		}
		if len(got) > most {
			return fmt.Sprintf("%d were handed out, at most %d may be", len(got), most)
		}
		return ""
	}, without("counting those of the lane before", patch{file: "claim.sql", old: "v_first, p_number)), p_max - handed,", new: "v_first, p_number)), p_max,"}))
}
