package ledger_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The rules of the ledger's design: without each of them messages were lost, doubled or stopped in
// an experiment, and each is seen to fail here without its protection. Those of windows and claims
// are in this file, those of settling and rescue and those of the ring in the next two.

// The window's snapshot is taken after the reader's lock is held: otherwise it is older than the
// claim before it.
func TestRuleSnapshotIsTakenAfterTheLock(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first, second := connect(t, url), connect(t, url)
		m0 := s.send(`{"delay": "1 day"}`)
		first.exec(`begin`)
		first.receive() // nothing, but it holds the readers
		waiting := second.start(receiveAll)
		second.blocked(s)
		m1 := s.send(`{"delay": "1 microsecond"}`)
		if got := first.receive(); !slices.Equal(got, []int64{m1}) {
			t.Fatalf("the first received %v, want %d", got, m1)
		}
		// A day passes for m0.
		s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1`, m0)
		first.exec(`commit`)
		a := <-waiting
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got := append(a.values, s.receive()...); !slices.Equal(got, []int64{m0}) {
			return fmt.Sprintf("after message %d was handed out, %v were, want %d alone", m1, got, m0)
		}
		return ""
	}, without("the order of lock and snapshot",
		patch{file: "claim_lane.sql", old: "  s pg_snapshot;\n", new: "  s pg_snapshot := posthaste.snapshot_now();\n"},
		patch{file: "claim_lane.sql", old: "  s := posthaste.snapshot_now();\n", new: "", times: 2}))
}

// If the snapshot of a transaction is older than the lock, claiming fails; sending works.
func TestRuleClaimsNeedReadCommitted(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old := connect(t, url)
		for _, level := range []string{"repeatable read", "serializable"} {
			worker := s.register()
			m := s.send(`{}`)
			old.exec(`begin isolation level ` + level)
			old.exec(`select from posthaste.queue_settings`)
			if got := s.receive(); !slices.Equal(got, []int64{m}) {
				t.Fatalf("received %v, want %d", got, m)
			}
			sent := get[int64](old, `select posthaste.send('q', '2')`)
			old.exec(`savepoint before`)
			switch pg := old.refusal(receiveAll); {
			case pg == nil:
				return fmt.Sprintf("%s: message %d was handed out, and then %v", level, m, old.receive())
			case pg.Code != "PH400":
				return fmt.Sprintf("%s: receive ended with %s", level, pg.Code)
			}
			old.exec(`rollback to savepoint before`)
			if code := old.code(`select posthaste.claim($1, 1, 'q', 'default', 10)`, worker); code != "PH400" {
				return fmt.Sprintf("%s: claim ended with %q", level, code)
			}
			old.exec(`rollback to savepoint before`)
			old.exec(`commit`)
			if got := s.receive(); !slices.Equal(got, []int64{sent}) {
				return fmt.Sprintf("%s: received %v, want %d, which was sent there", level, got, sent)
			}
		}
		return ""
	}, without("the refusal", patch{file: "snapshot_now.sql",
		old: "if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then", new: "if false then"}))
}

// A claiming transaction's own id is recorded as in progress: messages that it appends after its
// claim are handed out later and not lost.
func TestRuleOwnTransactionIsRecordedAsInProgress(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		own := connect(t, url)
		own.exec(`begin`)
		sent := []int64{own.send(`{}`)}
		sent = append(sent, s.send(`{}`)) // a later id, so that the own one lies below xmax
		got := own.receive()
		sent = append(sent, own.send(`{}`), own.send(`{"delay": "1 microsecond"}`))
		own.exec(`commit`)
		got = append(got, s.receive()...)
		if !slices.Equal(ascending(got), sent) {
			return fmt.Sprintf("sent %v, received %v", sent, got)
		}
		return ""
	}, without("the own id", patch{file: "snapshot_now.sql", old: "if own is null or own >= pg_snapshot_xmax(s) then", new: "if true then"}))
}

// A reader of a slice requires as many rows as the claim has places: after a truncation the
// remaining rows would get other places.
func TestRuleSliceIsReadWholeOrNotAtAll(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old := connect(t, url)
		s.send(`{}`)
		s.send(`{}`)
		s.exec(`select setval('posthaste.positions', 1 << 22)`)
		third, fourth := s.send(`{}`), s.send(`{}`)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.claims`)
		worker := s.register()
		got := s.claim(worker, 1, 10, false)
		if len(got) != 4 {
			t.Fatalf("fetched %v, want 4", got)
		}
		claim := got[0] >> 12
		row := get[string](s, `select c::text from posthaste.claims c where id = $1`, claim)
		// Older than the claim: it sees all, one or none of its entries.
		if n := len(list[int64](old, `select numbered_from from posthaste.fetch($1, 1)`, worker)); n != 0 {
			return fmt.Sprintf("a fetch older than the claim read %d deliveries", n)
		}
		old.exec(`commit`)
		s.exec(`truncate posthaste.entries_plain_0`)
		if pg := s.refusal(`select from posthaste.fetch($1, 1)`, worker); pg == nil {
			places := list[int64](s, `select message_id from posthaste.fetch($1, 1)`, worker)
			return fmt.Sprintf("places 0 and 1 are now %v: %d and %d had places 2 and 3", places, third, fourth)
		} else if pg.Code != "PH409" {
			return "a fetch of a truncated slice ended with " + pg.Code
		}
		if pg := s.refusal(`select from posthaste.deliveries_of($1::text::posthaste.claims)`, row); pg == nil || pg.Code != "PH409" {
			return fmt.Sprintf("a reader of the claim's row ended with %v", pg)
		}
		return ""
	}, without("counting", patch{file: "fetch.sql", old: "if v_rows <> v_claim.places then", new: "if false then"}))
}

// So does a reader whose snapshot is older than the claim.
func TestRuleOlderReaderOfASliceIsRefused(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		old := connect(t, url)
		s.send(`{}`)
		old.exec(`begin isolation level repeatable read`)
		old.exec(`select from posthaste.claims`)
		s.send(`{}`)
		got := s.claim(s.register(), 1, 10, false)
		row := get[string](s, `select c::text from posthaste.claims c where id = $1`, got[0]>>12)
		if pg := old.refusal(`select from posthaste.deliveries_of($1::text::posthaste.claims)`, row); pg == nil {
			return "one of the two places was read as if that were all"
		} else if pg.Code != "PH409" {
			return "it ended with " + pg.Code
		}
		return ""
	}, without("counting", patch{file: "fetch.sql", old: "if v_rows <> v_claim.places then", new: "if false then"}))
}

// An empty fetch after a lost reply proves nothing: a claim with the same number returns that
// number's deliveries, even while its first request still runs.
func TestRuleNumberIsClaimedOnce(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first := connect(t, url)
		worker := s.register()
		for range 10 {
			s.send(`{}`)
		}
		first.exec(`begin`)
		made := first.claim(worker, 1, 4, false)
		if got := s.fetch(worker, 1); len(got) != 0 {
			t.Fatalf("fetched %v before the claim was committed", got)
		}
		again := connect(t, url)
		second := again.start(`select handed from posthaste.claim($1, 1, 'q', 'default', 4)`, worker)
		again.blocked(s)
		first.exec(`commit`)
		a := <-second
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got := s.fetch(worker, 1); !slices.Equal(got, made) {
			return fmt.Sprintf("its first try got %v; after a second while that ran the number has %v", made, got)
		}
		if handed := get[int64](s, `select handed from posthaste.claim($1, 1, 'q', 'default', 4)`, worker); handed != 4 {
			return fmt.Sprintf("a third try answers %d, want 4", handed)
		}
		if got := s.fetch(worker, 1); !slices.Equal(got, made) {
			return fmt.Sprintf("its first try got %v; after a third the number has %v", made, got)
		}
		return ""
	},
		without("asking for its deliveries", patch{file: "claim.sql", old: "if p_again then\n", new: "if false then\n"}),
		without("waiting for the first try", patch{file: "claim.sql",
			old: "perform pg_advisory_xact_lock(posthaste.lock_key(8, p_worker * 1000003 + p_number));", new: "null;"}))
}

// The claim that handed an entry out is accepted only if the entry lies in that claim's slice: rows
// before it may have been reclaimed.
func TestRuleClaimOfAnEntryIsSureOfIt(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		worker := s.register()
		m1 := s.send(`{}`)
		s.exec(`select setval('posthaste.positions', 1 << 22)`)
		claim1 := s.claim(worker, 1, 1, false)[0] >> 12
		s.send(`{}`)
		s.exec(`select setval('posthaste.positions', 2 << 22)`)
		s.claim(worker, 2, 1, false)
		look := func() string {
			return get[string](s, `select f.fate || coalesce(' ' || (f.c).id, '') from posthaste.entries e
				cross join lateral posthaste.find_claim(posthaste.reader_key(1, 0, 0, 0), e.xid, e.pos, null, posthaste.live_slots()) f where e.pos = $1`, m1)
		}
		if got, want := look(), fmt.Sprint("handed_out ", claim1); got != want {
			t.Fatalf("the claim of message %d is %q, want %q", m1, got, want)
		}
		s.exec(`truncate posthaste.claims_1`)
		if got := look(); got != "reclaimed" {
			return fmt.Sprintf("its claim was reclaimed, and it is said that %q", got)
		}
		return ""
	}, without("looking into the slice", patch{file: "find_claim.sql", old: "    else 'reclaimed' end;", new: "    else 'handed_out' end;"}))
}

// rows is the number of rows of a test of cost: few in CI, POSTHASTE_TEST_ROWS at night.
func rows(t testing.TB, few int) int {
	t.Helper()
	v := os.Getenv("POSTHASTE_TEST_ROWS")
	if v == "" {
		return few
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A claim that walks over many rows that are not for it runs in bounded steps, and keeps its
// progress though it hands nothing out.
func TestRuleEmptyClaimKeepsItsProgress(t *testing.T) {
	for name, values := range map[string]string{
		"scheduled for tomorrow":         `clock_timestamp() + '1 day', null`,
		"retries of other subscriptions": `clock_timestamp(), 1`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := begin(t, url)
				n := rows(t, 20_000)
				s.exec(`insert into posthaste.entries_other (queue_id, payload, due_at, for_subscription) select 1, '1', `+values+` from generate_series(1, $1::int)`, n)
				const step = 4096
				claims := 2*n/step + 4
				worker := s.register() // whose claims are one each; a receive may make several
				for number := range claims {
					if walked := s.walked(`select from posthaste.claim($1, $2, 'q', 'default', 1000)`, worker, number+1); walked > 4*step {
						return fmt.Sprintf("one claim walked over %d entries, more than four steps of %d", walked, step)
					}
				}
				// Other activity on the server may add to one of them.
				touched := s.buffers(receiveAll)
				for range 4 {
					touched = min(touched, s.buffers(receiveAll))
				}
				if touched > 300 {
					return fmt.Sprintf("after %d claims the next ones still touch %d pages", claims, touched)
				}
				m := s.send(`{"delay": "1 microsecond"}`)
				if got := s.receive(); !slices.Equal(got, []int64{m}) {
					return fmt.Sprintf("behind them %v was received, want %d", got, m)
				}
				return ""
			},
				without("keeping", patch{file: "claim_lane.sql", old: "if v_walked > 64 then", new: "if false then"}),
				without("steps", patch{file: "due_slice.sql", old: "greatest(4096, 4 * p_max)", new: "2147483647"}))
		})
	}
}

// The second part of a due window walks over the entries that the first part handed out: that also
// runs in bounded steps, and not again in each empty claim.
func TestRuleClaimAfterADueBacklogKeepsItsProgress(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		n := rows(t, 20_000)
		s.exec(`insert into posthaste.entries_other (queue_id, payload, due_at) select 1, '1', clock_timestamp() from generate_series(1, $1::int)`, n)
		const step = 4096
		handed := 0
		worker := s.register() // whose claims are one each; a receive may make several
		for number := range n/500 + n/step + 4 {
			if walked := s.walked(`select set_config('test.got', handed::text, false) from posthaste.claim($1, $2, 'q', 'default', 1000)`, worker, number+1); walked > 4*step {
				return fmt.Sprintf("after %d of %d one claim walked over %d entries, more than four steps of %d", handed, n, walked, step)
			}
			handed += get[int](s, `select current_setting('test.got')::int`)
		}
		if handed != n {
			return fmt.Sprintf("%d of %d were handed out", handed, n)
		}
		if walked := s.walked(receiveAll); walked > 200 {
			return fmt.Sprintf("an empty claim walks over %d entries that were handed out", walked)
		}
		return ""
	}, without("counting them",
		patch{file: "due_slice.sql", old: "               from posthaste.entries e\n              where", new: "               from posthaste.entries e\n              where pg_visible_in_snapshot(e.xid, w.s0) and"}))
}

// Live slots are named as scalars, so that the planner's leaves are pruned.
func TestRuleOnlyLiveSlotsAreRead(t *testing.T) {
	inSlots := "posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)"
	asArray := "((e.pos >> 22) & 15) = any (array(select generate_series(l.a, l.b) union select generate_series(l.c, l.d) union select generate_series(l.e, l.f)))"
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.exec(`begin`)
		s.receive()
		leaves := list[string](s, `select relname::text from pg_stat_xact_user_tables
			where schemaname = 'posthaste' and relname ~ '^(entries_.*|claims)_\d+$' and coalesce(idx_scan, 0) + coalesce(seq_scan, 0) > 0 order by 1`)
		s.exec(`commit`)
		if !slices.Equal(leaves, []string{"claims_0", "entries_other_0", "entries_plain_0"}) {
			return fmt.Sprintf("one slot is live, and these were read: %v", leaves)
		}
		return ""
	}, without("scalars", patch{file: "fresh_slice.sql", old: inSlots, new: asArray}))
}

// The sequence may enter the next slot without maintenance: every slot from the newest mark to the
// sequence's slot counts as live.
func TestRuleSlotsRunInToAreLive(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`select setval('posthaste.positions', (1 << 22) - 3)`)
		var sent []int64
		for range 6 {
			sent = append(sent, s.send(`{}`))
		}
		if got := s.receive(); !slices.Equal(got, sent) {
			return fmt.Sprintf("sent %v, received %v", sent, got)
		}
		return ""
	}, without("counting on",
		patch{file: "live_slots.sql", old: "v_newest = v_epoch and ", new: ""},
		patch{file: "live_slots.sql", old: "from marked m cross join", new: "from marked m join"},
		patch{file: "live_slots.sql", old: "m.epoch) g) x (slot)", new: "m.epoch) g on false) x (slot)"}))
}

// The marks are read after the window's snapshot: otherwise a slot that was begun in between would
// never be read.
func TestRuleMarksAreReadAfterTheSnapshot(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		first, second := connect(t, url), connect(t, url)
		first.exec(`begin`)
		first.receive()
		waiting := second.start(receiveAll)
		second.blocked(s)
		s.exec(`update posthaste.settings set slot_rows = 1`)
		s.send(`{}`)
		for _, want := range []string{"marked", "moved"} {
			if got := get[string](s, `select posthaste.rotate()`); got != want {
				t.Fatalf("rotate %s, want %s", got, want)
			}
		}
		m := s.send(`{}`)
		first.exec(`commit`)
		a := <-waiting
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got := append(a.values, s.receive()...); !slices.Contains(got, m) {
			return fmt.Sprintf("received %v: message %d in the new slot never is", got, m)
		}
		return ""
	}, without("the order of snapshot and marks",
		patch{file: "claim_lane.sql", old: "  live := posthaste.live_slots();\n", new: "", times: 2},
		patch{file: "claim_lane.sql", old: "  handed := -1;\n", new: "  handed := -1;\n  live := posthaste.live_slots();\n"}))
}

// A claim in a long transaction blocks its reader: the others get its process after 5 s, and do not
// wait forever.
func TestRuleClaimInALongTransactionIsNamed(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.asShipped()
		long := connect(t, url)
		s.send(`{}`)
		long.exec(`set application_name = 'nightly report'`)
		long.exec(`begin`)
		long.receive()
		// The same reader of another database has the same key.
		stranger := begin(t, testpg.New(t))
		stranger.exec(`begin`)
		stranger.receive()
		s.exec(`set statement_timeout = '15s'`)
		pg := s.refusal(receiveAll)
		if pg == nil || pg.Code != "PH503" {
			return fmt.Sprintf("beside it receiving ended with %v", pg)
		}
		if who := fmt.Sprintf("process %d (nightly report,", long.PgConn().PID()); !strings.Contains(pg.Message, who) {
			return fmt.Sprintf("%q is not named in %q", who, pg.Message)
		}
		if who := fmt.Sprintf("process %d ", stranger.PgConn().PID()); strings.Contains(pg.Message, who) {
			return fmt.Sprintf("%q claims from another database and is named in %q", who, pg.Message)
		}
		if s.send(`{}`); len(list[int64](long, receiveAll)) != 1 {
			return "senders were held up"
		}
		return ""
	},
		without("the timeout", patch{file: "await_key.sql", old: " set lock_timeout = '5s'", new: " set lock_timeout = 0"}),
		without("the name", patch{file: "await_key.sql", old: "and k.granted\n", new: "and not k.granted\n"}),
		without("the database", patch{file: "await_key.sql",
			old: "k.database = (select d.oid from pg_database d where d.datname = current_database())", new: "true"}))
}
