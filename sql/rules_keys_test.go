package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// The rules for keys whose messages come back, die, are withdrawn, or reach a limit. Each rule is
// seen to fail without its protection.

// fails settles received deliveries as failed.
func (s *session) fails(options string, g ...got) {
	s.t.Helper()
	for _, x := range g {
		s.exec(`select from posthaste.fail($1, 'no', $2)`, x.delivery, options)
	}
}

// look makes the next claim look at a key.
func (s *session) look(key string) {
	s.t.Helper()
	s.exec(`select posthaste.pause_key('q', $1)`, key)
	s.exec(`select posthaste.resume_key('q', $1)`, key)
}

// expects takes the available messages, and reports a difference from the expected ones. One claim
// may hand out fewer than it could on a slow machine.
func (s *session) expects(what string, want ...int64) (g []got, fault string) {
	s.t.Helper()
	for n := 0; n < 3 || n < 20 && len(g) < len(want); n++ {
		g = append(g, s.take(10)...)
	}
	return g, wants(what, g, want...)
}

// handed counts deliveries.
func (s *session) handed() int {
	s.t.Helper()
	g, _ := s.expects("")
	return len(g)
}

// Of two messages with the same place in the order the one that was sent first has the lower
// position: a session takes no positions in advance.
func TestRulePositionsAreTakenOneByOne(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		one, other := connect(t, url), connect(t, url)
		other.sendKey("another") // takes positions in advance, if any are
		var a1, a2 int64
		// Another session that begins a transaction on this server gives the second another place.
		until(t, "two have the same place in the order", func() bool {
			one.exec(`begin`)
			one.exec(`select pg_current_xact_id()`)
			other.exec(`begin`)
			other.exec(`select pg_current_xact_id()`)
			s.exec(`select pg_current_xact_id()`)
			a1 = one.sendKey("a")
			one.exec(`commit`)
			a2 = other.sendKey("a")
			other.exec(`commit`)
			return get[int](s, `select count(distinct ord)::int from posthaste.entries where pos = any ($1)`, []int64{a1, a2}) == 1
		})
		g := s.claims(s.register(), 1, 4000)
		first := slices.IndexFunc(g, func(x got) bool { return x.message == a1 || x.message == a2 })
		return wants("in the order of sending", g[first:first+2], a1, a2)
	}, without("asking for each", patch{file: "ord_now.sql", old: "create or replace function posthaste.ord_now()",
		new: "alter sequence posthaste.positions cache 32;\ncreate or replace function posthaste.ord_now()"}))
}

// Messages of a dead worker come before later ones, because they are parked and are not entries that
// become due: those have a later place in the order.
func TestRuleRescuedComeFirst(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, a2, a3 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a")
		worker := s.register()
		if fault := wants("first", s.claims(worker, 1, 2), a1, a2); fault != "" {
			t.Fatal(fault)
		}
		s.exec(`update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where id = $1`, worker)
		until(t, "it is rescued", func() bool { return get[int](s, `select posthaste.rescue()`) > 0 })
		for i, want := range []int64{a1, a2, a3} {
			var g []got
			until(t, "something is handed out", func() bool { g = s.take(10); return len(g) > 0 })
			if fault := wants(fmt.Sprint("after the rescue, ", i), g, want); fault != "" {
				return fault
			}
			s.ack(g...)
		}
		return ""
	}, without("parking", patch{file: "finish.sql", old: "and v_kept and not v_settings.keyed", new: "and v_kept"},
		patch{file: "finish.sql", old: "and v_kept and v_settings.keyed\n    ), events", new: "and false\n    ), events"}))
}

// While the first of a key waits for its time, all others wait behind it, even if the key is looked
// at.
func TestRuleWaitingRetryHoldsItsKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1 := s.sendKey("a")
		g, fault := s.expects("first", a1)
		if fault != "" {
			t.Fatal(fault)
		}
		a2 := s.sendKey("a")
		s.fails(`{"retry_after": "1 hour"}`, g...)
		for range 3 {
			if _, fault = s.expects("while the first waits"); fault != "" {
				return fault
			}
			s.look("a")
		}
		// Nothing else may make a claim look at the key.
		if _, fault = s.expects("while the first waits"); fault != "" {
			return fault
		}
		s.cancelled(a1)
		_, fault = s.expects("after it was cancelled", a2)
		return fault
	}, without("waiting", patch{file: "let_go.sql", old: "exit when v_waits and q.ordered;", new: "exit when false;"}),
		without("a look after it was cancelled", patch{file: "unpark.sql", old: "where p_ids is not null group by g.lane", new: "where false group by g.lane"}))
}

// With on_dead stop nothing of a key is handed out from a dead message on, parked or later, until it
// is replayed, which runs it first, or discarded.
func TestRuleDeadMessageStopsItsKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 1, "on_dead": "stop"}`)
		a1, b1 := s.sendKey("a"), s.sendKey("b")
		g, fault := s.expects("first", a1, b1)
		if fault != "" {
			t.Fatal(fault)
		}
		s.ack(g[1])
		s.fails(`{"permanent": true}`, g[0])
		a2, b2 := s.sendKey("a"), s.sendKey("b")
		if g, fault = s.expects("beside a stopped key", b2); fault != "" {
			return fault
		}
		s.ack(g...)
		a3 := s.sendKey("a")
		for range 2 {
			if _, fault = s.expects("of a stopped key"); fault != "" {
				return fault
			}
			s.look("a")
		}
		s.exec(`select posthaste.replay(array[$1::bigint])`, a1)
		if g, fault = s.expects("after the replay", a1); fault != "" {
			return fault
		}
		s.fails(`{"permanent": true}`, g...)
		if _, fault = s.expects("of a key that is stopped again"); fault != "" {
			return fault
		}
		s.exec(`select posthaste.discard(array[$1::bigint])`, a1)
		for _, want := range []int64{a2, a3} {
			if g, fault = s.expects("after it was discarded", want); fault != "" {
				return fault
			}
			s.ack(g...)
		}
		s.take(10)
		if n := get[int](s, `select count(*)::int from posthaste.keys`); n != 0 {
			return fmt.Sprintf("%d keys stay", n)
		}
		return ""
	}, without("stopping", patch{file: "finish.sql", old: "and v_settings.on_dead = 'stop' and", new: "and false and"}),
		without("asking in the log", patch{file: "pass_log.sql", old: "when z.stopped_by is not null then 'stopped'", new: "when false then 'stopped'"}),
		without("asking among the parked", patch{file: "let_go.sql", old: "or k.stopped_by is not null then", new: "or false then"}),
		without("going on when it is replayed", patch{file: "replay.sql", old: "'id', g.message_id, 'go', g.message_id", new: "'id', g.message_id"}),
		without("going on when it is discarded", patch{file: "discard.sql", old: "jsonb_build_object('key', g.key, 'go', g.message_id)", new: "jsonb_build_object('key', g.key)"}))
}

// A dead message does not stop its key, and comes before all waiting ones when it is replayed.
func TestRuleReplayedComesFirst(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		a1, a2, a3 := s.sendKey("a"), s.sendKey("a"), s.sendKey("a")
		g, fault := s.expects("first", a1)
		if fault != "" {
			t.Fatal(fault)
		}
		s.fails(`{"permanent": true}`, g...)
		if g, fault = s.expects("after a dead one", a2); fault != "" {
			return fault
		}
		s.exec(`select posthaste.replay(array[$1::bigint])`, a1)
		if _, fault = s.expects("beside the one that runs"); fault != "" {
			return fault
		}
		s.ack(g...)
		for _, want := range []int64{a1, a3} {
			if g, fault = s.expects("after the replay", want); fault != "" {
				return fault
			}
			s.ack(g...)
		}
		return ""
	}, without("its place", patch{file: "replay.sql", old: "coalesce(g.key, ''), g.ord, g.message_id, g.pos,", new: "coalesce(g.key, ''), posthaste.ord_now(), g.message_id, g.pos,"}),
		without("telling the key", patch{file: "replay.sql", old: "'id', g.message_id, 'go', g.message_id", new: "'id', null, 'go', g.message_id"}))
}

// Every message that comes back waits, and is counted as waiting, including replayed ones.
func TestRuleReplayedIsCounted(t *testing.T) {
	for _, options := range []string{`{}`, `{"fair": true}`, `{"ordered": true, "lanes": 1}`} {
		t.Run(options, func(t *testing.T) {
			broken := []twin{}
			if options != `{}` {
				broken = append(broken, without("a look at events", patch{file: "count_up.sql", old: "or e.story -> 0 ? 'id' and e.story -> 0 ? 'go')", new: "or false)"}))
			}
			rule(t, func(t *testing.T, url string) string {
				s := keyed(t, url, options)
				a1 := s.sendKey("a")
				g, fault := s.expects("first", a1)
				if fault != "" {
					t.Fatal(fault)
				}
				depth := func(want int64) string {
					s.exec(`select posthaste.maintain()`)
					if n := get[int64](s, `select depth from posthaste.queues`); n != want {
						return fmt.Sprintf("the depth is %d, want %d", n, want)
					}
					return ""
				}
				s.fails(`{"permanent": true}`, g...)
				if fault = depth(0); fault != "" {
					return "dead: " + fault
				}
				s.exec(`select posthaste.replay(array[$1::bigint])`, a1)
				if fault = depth(1); fault != "" {
					return "replayed: " + fault
				}
				if g, fault = s.expects("again", a1); fault != "" {
					return fault
				}
				if fault = depth(0); fault != "" {
					return "handed out again: " + fault
				}
				s.fails(`{"permanent": true}`, g...)
				s.exec(`select posthaste.replay(array[$1::bigint])`, a1)
				if n := get[int64](s, `select purged from posthaste.purge('q')`); n != 1 {
					return fmt.Sprintf("%d were purged", n)
				}
				return depth(0)
			}, broken...)
		})
	}
}

// Cancel and purge withdraw parked messages.
func TestRuleParkedIsTakenBack(t *testing.T) {
	for what, c := range map[string]struct {
		take   func(s *session, id int64)
		broken patch
	}{
		"cancelled": {func(s *session, id int64) { s.exec(`select from posthaste.cancel($1)`, id) }, patch{file: "withdraw.sql", old: "if v_keyed and posthaste.unpark(", new: "if false and posthaste.unpark("}},
		"purged": {func(s *session, _ int64) { s.exec(`select from posthaste.purge('q')`) }, patch{file: "purge.sql",
			old: "perform posthaste.unpark(v_queue::bigint << 10 | u.number, null, 'cancelled', v_purge);", new: "null;"}},
	} {
		t.Run(what, func(t *testing.T) {
			rule(t, func(t *testing.T, url string) string {
				s := ordered(t, url)
				a1, a2 := s.sendKey("a"), s.sendKey("a")
				g, fault := s.expects("first", a1)
				if fault != "" {
					t.Fatal(fault)
				}
				until(t, "the second is parked", func() bool {
					s.take(10)
					return get[int](s, `select count(*)::int from posthaste.parked`) == 1
				})
				c.take(s, a2)
				s.ack(g...)
				a3 := s.sendKey("a")
				_, fault = s.expects("after it was "+what, a3)
				return fault
			}, without("parked messages", c.broken))
		})
	}
}

// A delivery that fails while the queue is purged comes back, or is among the messages that the
// purge returns: settling parks without waiting for the purge.
func TestRulePurgeLeavesWhatIsParkedMeanwhile(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_concurrency": 1}`)
		s.exec(`select posthaste.subscribe('q', 'second')`)
		holder, purger := connect(t, url), connect(t, url)
		for range 3 {
			s.sendKey("a")
		}
		later := s.send(`{"key": "later", "delay": "1 day"}`)
		receive := `select delivery_id from posthaste.receive('q', 10, '1 hour', '{"subscription": "second"}')`
		handed := list[int64](s, receive)
		if len(handed) != 1 {
			t.Fatalf("%d messages of a key were handed out", len(handed))
		}
		// The purge has counted, and waits before it comes to the second subscription.
		holder.exec(`begin`)
		holder.exec(`insert into posthaste.cancelled (pos, subscriber, outcome, noted)
			select $1, q.id::bigint << 10 | u.number, 'cancelled', '3' from posthaste.queue_settings q join posthaste.subscriptions u on u.queue_id = q.id
			 where q.name = 'q' and u.name = 'default'`, later)
		purged := purger.start(`select purged from posthaste.purge('q') where subscription = 'second'`)
		purger.blocked(s)
		s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "0 seconds"}')`, handed[0])
		holder.exec(`rollback`)
		a := <-purged
		if a.err != nil || len(a.values) != 1 {
			t.Fatalf("purging: %v", a.err)
		}
		s.exec(`select posthaste.maintain()`)
		depth := get[int64](s, `select depth from posthaste.queues where queue = 'q' and subscription = 'second'`)
		again := 0
		for range 4 { // it is found by an event
			again += len(list[int64](s, receive))
		}
		if a.values[0] != 3 || depth != 1 || again != 1 {
			return fmt.Sprintf("%d were purged, %d wait, it is said, and %d came again; it is 3, 1 and 1", a.values[0], depth, again)
		}
		return ""
	},
		without("what the counters saw", patch{file: "unpark.sql", old: " and p.message_id not in (select x.id from late x where x.id is not null)", new: ""}))
}

// At most the limit of a key is in flight, however its messages are handed out.
func TestRuleKeyConcurrencyHolds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_concurrency": 2}`)
		for range 5 {
			s.sendKey("a")
		}
		g, _ := s.expects("at once")
		if len(g) != 2 {
			return fmt.Sprintf("%d are handed out at once, 2 may be", len(g))
		}
		s.sendKey("a")
		s.look("a")
		if n := s.handed(); n != 0 {
			return fmt.Sprintf("%d are handed out beside 2", n)
		}
		s.ack(g[0])
		if n := s.handed(); n != 1 {
			return fmt.Sprintf("%d are handed out in place of one that was settled", n)
		}
		s.look("a")
		if n := len(s.claim(s.register(), 1, 10, false)); n != 0 {
			return fmt.Sprintf("a worker is handed %d beside 2", n)
		}
		return ""
	}, without("counting in the log", patch{file: "pass_log.sql", old: "when q.key_concurrency - coalesce(b.n, 0) < e.nth then 'busy'", new: "when false then 'busy'"}),
		without("messages in flight", patch{file: "let_go.sql", old: "v_n := q.key_concurrency - coalesce(cardinality(array_positions(busy, k.hash)), 0);", new: "v_n := q.key_concurrency;"}),
		without("counting messages let go", patch{file: "let_go.sql", old: "made.keys := case when q.key_concurrency is not null or q.ordered then v_hashes", new: "made.keys := case when false then v_hashes"}))
}

// No more messages of a key are handed out than it has tokens, from the log or parked.
func TestRuleKeyRateHolds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"key_rate_limit": {"limit": 1, "per": "1 hour", "burst": 2}}`)
		s.sendKey("a")
		if n := s.handed(); n != 1 {
			t.Fatalf("%d of 1 are handed out", n)
		}
		for range 5 {
			s.sendKey("a")
		}
		if n := s.handed(); n != 1 {
			return fmt.Sprintf("after one, %d are handed out at once, 1 may be", n)
		}
		s.look("a")
		if n := s.handed(); n != 0 {
			return fmt.Sprintf("without a token %d are handed out", n)
		}
		s.exec(`update posthaste.keys set tokens_at = tokens_at - interval '61 minutes'`)
		for _, want := range []int{1, 0} {
			s.look("a")
			if n := s.handed(); n != want {
				return fmt.Sprintf("an hour later %d are handed out, want %d", n, want)
			}
		}
		return ""
	}, without("asking in the log", patch{file: "pass_log.sql", old: "< e.nth then 'tokens'", new: "< 0 then 'tokens'"}),
		without("taking in the log", patch{file: "pass_log.sql", old: "- (q.key_burst - excluded.tokens), tokens_at", new: ", tokens_at"},
			patch{file: "pass_log.sql", old: "q.key_burst - count(*), v_now\n", new: "q.key_burst, v_now\n"}),
		without("asking among the parked", patch{file: "let_go.sql", old: "if floor(v_tokens) < v_room then", new: "if false then"}),
		without("taking among the parked", patch{file: "let_go.sql", old: "tokens = case when v_tokens is not null then v_tokens - v_n else", new: "tokens = case when v_tokens is not null then v_tokens else"}))
}
