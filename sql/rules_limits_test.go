package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// sendMany sends n messages with options.
func (s *session) sendMany(n int, options string) []int64 {
	s.t.Helper()
	return list[int64](s, `select posthaste.send('q', '1', $2) from generate_series(1, $1::int)`, n, options)
}

// Claims of a limited queue run one after the other: each sees the deliveries of the one before it,
// even while that is not committed yet.
func TestRuleConcurrencyHolds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"concurrency": 3, "lanes": 2}`)
		first, second := connect(t, url), connect(t, url)
		s.sendMany(10, `{}`)
		first.exec(`begin`)
		held := first.take(10)
		more := second.start(receiveAll)
		var a answer
		until(t, "the second waits or has answered", func() bool {
			select {
			case a = <-more:
				more = nil
				return true
			default:
				return second.waits(s)
			}
		})
		first.exec(`commit`)
		if more != nil {
			a = <-more
		}
		if n := len(held) + len(a.values); n != 3 || a.err != nil {
			return fmt.Sprintf("%d are handed out (%v), 3 may be", n, a.err)
		}
		worker := s.register()
		if n := len(s.claim(worker, 1, 10, false)); n != 0 {
			return fmt.Sprintf("a worker is handed %d more", n)
		}
		s.ack(held[0])
		if n := len(s.take(10)); n != 1 {
			return fmt.Sprintf("%d are handed out after one was settled", n)
		}
		if n := len(s.take(10)); n != 0 {
			return fmt.Sprintf("%d more are handed out after that", n)
		}
		return ""
	},
		without("waiting", patch{file: "claim_ruled.sql", old: "perform posthaste.lock_reader(posthaste.reader_key(p_queue, p_subscription, 511, 0), true);", new: ""},
			patch{file: "claim_ruled.sql", old: "coalesce(v_limits.id, 0) + 1, t, v_limits.tokens - handed", new: "pg_backend_pid(), t, v_limits.tokens - handed"}),
		without("earlier deliveries", patch{file: "claim_ruled.sql", old: "v_open.open || array(select x.id from unnest(made) x)", new: "array(select x.id from unnest(made) x)"}))
}

// Deliveries take tokens, for any caller; only time brings them back.
func TestRuleRateHolds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"rate_limit": {"limit": 2, "per": "1 hour", "burst": 3}}`)
		s.sendMany(10, `{}`)
		worker := s.register()
		n := len(s.take(2)) + len(s.claim(worker, 1, 10, false)) + len(s.take(10))
		if n != 3 {
			return fmt.Sprintf("%d are handed out at once, 3 may be", n)
		}
		if at := get[float64](s, `select next_due from posthaste.claim($1, 2, 'q', 'default', 10)`, worker); at < 1700 || at > 1800 {
			return fmt.Sprintf("the next one is announced in %v s, want 1,800", at)
		}
		s.exec(`update posthaste.limit_states set at = at - interval '31 minutes'`)
		if n := len(s.take(10)); n != 1 {
			return fmt.Sprintf("%d are handed out half an hour later, 1 may be", n)
		}
		s.exec(`update posthaste.limit_states set at = at - interval '1 day'`)
		if n := len(s.take(10)); n != 3 {
			return fmt.Sprintf("%d are handed out after a day, a burst of 3 may be", n)
		}
		if bad := get[int](s, `select count(*)::int from posthaste.entries where attempt > 1`); bad != 0 {
			return fmt.Sprintf("%d attempts were counted for waiting", bad)
		}
		return ""
	},
		without("taking", patch{file: "claim_ruled.sql", old: "t, v_limits.tokens - handed", new: "t, v_limits.tokens"}),
		without("the burst", patch{file: "key_tokens.sql", old: "least(p_burst, coalesce(", new: "greatest(p_burst, coalesce("}))
}

// A claim that is a moment late does not delay all later ones: tokens that accrued meanwhile are
// kept.
func TestRuleALateClaimLosesNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"rate_limit": {"limit": 2}}`)
		s.sendMany(10, `{}`)
		s.take(10)
		// One and a half accrue, and then half of one. The time of the test itself is added.
		for _, later := range []string{"0.75 s", "0.25 s"} {
			s.exec(`update posthaste.limit_states set at = at - $1::text::interval`, later)
			if len(s.take(1)) == 0 {
				return fmt.Sprintf("nothing is handed out %s later", later)
			}
		}
		return ""
	}, without("a burst of two", patch{file: "option_rate.sql", old: "case when rate > 1 then 2 else 1 end", new: "1"}))
}

// Each subscription counts for itself: deliveries and tokens of one do not affect another's limits.
func TestRuleLimitsAreOfEachSubscription(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"concurrency": 3, "rate_limit": {"limit": 1, "per": "1 hour", "burst": 4}}`)
		s.exec(`select posthaste.subscribe('q', 'second')`)
		s.sendMany(10, `{}`)
		for _, subscription := range []string{"default", "second"} {
			held := s.takeFor(subscription, 10)
			if n := len(held); n != 3 {
				return fmt.Sprintf("%d are handed out to subscription %s, its concurrency is 3", n, subscription)
			}
			s.ack(held...)
			if n := len(s.takeFor(subscription, 10)); n != 1 {
				return fmt.Sprintf("%d more are handed out to subscription %s, it has one token left", n, subscription)
			}
		}
		return ""
	}, without("a count of its own", patch{file: "claim_ruled.sql", old: "v_subscriber bigint := p_queue::bigint << 10 | p_subscription;", new: "v_subscriber bigint := p_queue::bigint << 10;"}))
}

// A clock that is set back stops no limit: tokens accrue from then on as before, and none for the
// time that repeats.
func TestRuleRateGoesOnWhenTheClockIsSetBack(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"rate_limit": {"limit": 2, "per": "1 hour", "burst": 3}}`)
		s.sendMany(10, `{}`)
		worker := s.register()
		if n := len(s.take(10)); n != 3 {
			return fmt.Sprintf("%d are handed out at once, 3 may be", n)
		}
		// As if the clock had been set back by a day.
		s.exec(`update posthaste.limit_states set at = at + interval '1 day'`)
		if n := len(s.take(10)); n != 0 {
			return fmt.Sprintf("%d are handed out for that, none may be", n)
		}
		if at := get[float64](s, `select next_due from posthaste.claim($1, 1, 'q', 'default', 10)`, worker); at < 1700 || at > 1800 {
			return fmt.Sprintf("the next one is announced in %v s, want 1,800", at)
		}
		s.exec(`update posthaste.limit_states set at = at - interval '31 minutes'`)
		if n := len(s.take(10)); n != 1 {
			return fmt.Sprintf("%d are handed out half an hour later, 1 may be", n)
		}
		return ""
	},
		without("going on", patch{file: "claim_ruled.sql", old: "    t := clock_timestamp();\n    v_back", new: "    t := greatest(clock_timestamp(), v_limits.at);\n    v_back"}),
		without("writing it down", patch{file: "claim_ruled.sql", old: "if v_back or v_refund > 0 or v_full", new: "if v_refund > 0 or v_full"}),
		without("the tokens that were left", patch{file: "claim_ruled.sql", old: "      v_limits.at := t;\n", new: "      v_limits.at := t;\n      v_limits.tokens := null;\n"}))
}

// The same holds for the limits of keys, whose waiting an event at a certain time ends; that event
// still ends it when the clock has caught up.
func TestRuleKeyRateGoesOnWhenTheClockIsSetBack(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := connect(t, url)
		worker, number := s.register(), 0
		// clock sets the clock back, as far as the ledger can tell.
		clock := func(by string) {
			for table, columns := range map[string][]string{"keys": {"tokens_at", "wake_at"}, "claims": {"t0", "t1", "at"}, "entries_other": {"due_at"}} {
				for _, column := range columns {
					s.exec(`update posthaste.`+table+` set `+column+` = `+column+` - $1::text::interval where `+column+` is not null`, by)
				}
			}
		}
		ready := func() bool {
			return get[bool](s, `select ready from posthaste.worker_look($1, '{q}', '{default}')`, worker)
		}
		for before, what := range []string{"before the first event is read", "after an event was read"} {
			s.exec(`select posthaste.create_queue('q', '{"key_rate_limit": {"limit": 2, "per": "1 hour", "burst": 3}, "lanes": 1}')`)
			s.sendMany(11, `{"key": "a"}`)
			if n := len(s.take(10)); n != 3 {
				return fmt.Sprintf("%d are handed out at once, 3 may be", n)
			}
			s.take(10) // parks the rest
			if before > 0 {
				clock("30 minutes 1 second")
				if n := len(s.take(10)); n != 1 {
					return fmt.Sprintf("%d are handed out half an hour later, 1 may be", n)
				}
			}
			clock("-1 day")
			if !ready() {
				return what + ", a look says that nothing is to be done after the clock was set back"
			}
			for range 3 {
				if n := len(s.take(10)); n != 0 {
					return fmt.Sprintf("%s, %d are handed out for that, none may be", what, n)
				}
				number++
				if at := get[float64](s, `select coalesce(next_due, -1) from posthaste.claim($1, $2, 'q', 'default', 10)`, worker, number); at < 1700 || at > 1800 {
					return fmt.Sprintf("%s, the next one is announced in %v s, want 1,800", what, at)
				}
				if ready() {
					return what + ", a look says that something is ready"
				}
				// Messages of another key bring the lane's reader past all events of this one.
				if s.sendKey(fmt.Sprint("other ", number)); len(s.take(10)) != 1 {
					return what + ", a message of another key is not handed out"
				}
				if ready() {
					return what + ", a look says that something is ready after another key's message"
				}
				clock("30 minutes 1 second")
				if !ready() {
					return what + ", half an hour later a look says that nothing is ready"
				}
				if n := len(s.take(10)); n != 1 {
					return fmt.Sprintf("%s, %d are handed out half an hour later, 1 may be", what, n)
				}
			}
			// A key that began to wait meanwhile continues, too, when the clock has caught up.
			s.sendMany(4, `{"key": "late"}`)
			if n := len(s.take(10)) + len(s.take(10)); n != 3 {
				return fmt.Sprintf("%s, %d of a new key are handed out at once, 3 may be", what, n)
			}
			if s.sendKey("last"); len(s.take(10)) != 1 {
				return what + ", a message of another key is not handed out, or others are"
			}
			clock("1 day")
			if n := len(s.take(10)) + len(s.take(10)); n != 4 {
				return fmt.Sprintf("%s, %d are handed out when the clock has caught up, a burst of 3 of one key and 1 of another may be", what, n)
			}
			s.exec(`select posthaste.drop_queue('q')`)
		}
		return ""
	},
		without("going on", patch{file: "token_time.sql", old: "then v_now else t end", new: "then t else t end"}),
		without("starting over", patch{file: "claim_keyed.sql", old: "    perform posthaste.renew_tokens(", new: "    -- perform posthaste.renew_tokens("}),
		without("writing that down", patch{file: "claim_keyed.sql", old: "v_renewed := true", new: "v_renewed := false"}),
		without("looking for keys", patch{file: "claim_keyed.sql", old: "  if v_back then\n", new: "  if false then\n"}),
		without("telling when", patch{file: "claim_keyed.sql", old: "if v_back and handed = 0 then", new: "if false then"}),
		without("looks of workers", patch{file: "worker_look.sql", old: "(greatest(b.t1, b.at) > t + interval '2 seconds') is not true", new: "true"}),
		without("looks", patch{file: "look.sql", old: "if v_rated and greatest(v_due_cursor.t1, v_due_cursor.at) >", new: "if false and greatest(v_due_cursor.t1, v_due_cursor.at) >"}),
		without("the event for later", patch{file: "wake_key.sql", old: "greatest(p_at, t + interval '1 millisecond')", new: "p_at"}))
}

// A settle frees a place, and so does the rescue of a lost worker or an ended lease, and claims that
// found none are notified. Only those that found none within the last 50 ms are not: they look again
// by themselves.
func TestRuleFreedPlacesAreTold(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"concurrency": 1}`)
		waiting := connect(t, url)
		waiting.exec(`listen posthaste`)
		s.sendMany(4, `{}`)
		// told reports whether a notification has come since the last call: they come in the order
		// of their commits.
		told := func() (told bool) {
			s.exec(`select pg_notify('posthaste', 'no more')`)
			for {
				n, err := waiting.WaitForNotification(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n.Payload == "no more" {
					return told
				}
				told = true
			}
		}
		s.exec(`select posthaste.maintain()`)
		told()
		for i, free := range []func(got){
			func(g got) { s.ack(g) },
			func(g got) { s.exec(`select posthaste.fail($1, 'no', '{"retry_after": "1 day"}')`, g.delivery) },
			func(got) {
				s.endLeases()
				until(t, "it is rescued", func() bool { return get[int](s, `select posthaste.rescue()`) == 1 })
			},
		} {
			held := s.take(1)
			if len(held) != 1 {
				return fmt.Sprintf("round %d: nothing is handed out though nothing is in flight", i)
			}
			// The first time no claim has found the limit yet, but one may at this moment.
			if i > 0 {
				if n := len(s.take(1)); n != 0 {
					return fmt.Sprintf("round %d: %d beside the one that may be", i, n)
				}
			}
			s.exec(`update posthaste.limit_states set full_since = clock_timestamp() - interval '51 milliseconds' where full_since is not null`)
			free(held[0])
			if !told() {
				return fmt.Sprintf("round %d: no notification of the free place", i)
			}
		}
		s.sendMany(1, `{}`)
		held := s.take(1)
		s.exec(`update posthaste.limit_states set full_since = clock_timestamp() + interval '1 hour' where full_since is not null`)
		s.ack(held...)
		if told() {
			return "a place was notified though the last one was taken just now"
		}
		worker := s.register()
		if n := len(s.claim(worker, 1, 5, false)); n != 1 {
			return fmt.Sprintf("a worker gets %d", n)
		}
		if n := len(s.take(1)); n != 0 {
			return fmt.Sprintf("%d beside a worker's", n)
		}
		s.exec(`update posthaste.limit_states set full_since = full_since - interval '51 milliseconds' where full_since is not null`)
		s.exec(`update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where id = $1`, worker)
		until(t, "the worker's are rescued", func() bool { return get[int](s, `select posthaste.rescue()`) == 1 })
		if !told() {
			return "no notification of a dead worker's place"
		}
		if n := len(s.take(1)); n != 1 {
			return fmt.Sprintf("%d in place of a dead worker's", n)
		}
		return ""
	},
		without("the pace", patch{file: "settle_claim.sql", old: " <= clock_timestamp() - interval '50 milliseconds' then", new: " is not null then"}),
		without("telling", patch{file: "settle_claim.sql", old: "perform pg_notify(", new: "perform concat("}),
		without("knowing of the last place", patch{file: "claim_ruled.sql", old: "case when v_open.unsettled + handed >= q.concurrency then t end", new: "null"}),
		without("the mark on claims", patch{file: "claim_ruled.sql", old: "when q.concurrency is not null then '{}'::bigint[] end", new: "when false then '{}'::bigint[] end"}))
}

// Without waiting claims there is no notification, and that a claim waits is written once.
func TestFreedPlacesOfAQuietQueue(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := keyed(t, url, `{"concurrency": 2}`)
	waiting := connect(t, url)
	s.sendMany(3, `{}`)
	held := s.take(2)
	for range 3 {
		s.take(1)
	}
	if n := get[int](s, `select count(*)::int from posthaste.limit_states where full_since is not null`); n != 1 {
		t.Errorf("%d rows say that the places are used up, want 1", n)
	}
	s.ack(held...)
	s.ack(s.take(2)...)
	waiting.exec(`listen posthaste`)
	s.take(2) // does not reach the limit
	s.sendMany(1, `{"wake": false}`)
	held = s.take(2)
	s.ack(held...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := waiting.WaitForNotification(ctx); err == nil {
		t.Error("a settle in a queue without waiting claims has notified")
	}
	s.exec(`select posthaste.maintain()`)
	until(t, "maintenance removes old rows", func() bool {
		s.exec(`select posthaste.maintain()`)
		return get[int](s, `select count(*)::int from posthaste.limit_states`) == 1
	})
}

// Limits are set, changed and removed while messages wait.
func TestLimitsOfAQueueChange(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.sendMany(20, `{}`)
	if n := len(s.take(2)); n != 2 {
		t.Fatalf("%d without a limit", n)
	}
	s.exec(`select posthaste.update_queue('q', '{"concurrency": 3}', 'ada')`)
	held := s.take(10)
	if n := len(held); n != 3 {
		t.Errorf("%d with a concurrency of 3", n)
	}
	s.exec(`select posthaste.update_queue('q', '{"concurrency": 5, "rate_limit": {"limit": 1, "per": "1 day"}}')`)
	held = append(held, s.take(10)...)
	if n := len(held); n != 4 {
		t.Errorf("%d with a concurrency of 5 and one token", n)
	}
	if got := get[string](s, `select rate_limit::text from posthaste.queues`); got != `{"per": "1 day", "burst": 1, "limit": 1}` {
		t.Errorf("shown as %s", got)
	}
	s.exec(`select posthaste.update_queue('q', '{"concurrency": null, "rate_limit": null}')`)
	if n := len(s.take(100)); n != 14 {
		t.Errorf("%d of 14 without limits", n)
	}
	s.ack(held...)
	if got := list[string](s, `select by || ' ' || action from posthaste.actions where action = 'update' order by id`); len(got) != 3 || got[0] != "ada update" {
		t.Errorf("recorded as %v", got)
	}
	if code := s.code(`select posthaste.update_queue('q', '{"key_concurrency": 1}')`); code != "PH501" {
		t.Errorf("limits of keys of a queue without keys end with %q", code)
	}
}

// A raised limit of keys applies at once to messages that wait for the old one.
func TestLimitOfKeysRaised(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"key_rate_limit": {"limit": 1, "per": "1 day"}}`)
	s.sendMany(5, `{"key": "a"}`)
	if n := len(s.take(10)); n != 1 {
		t.Fatalf("%d, want 1", n)
	}
	s.exec(`select posthaste.update_queue('q', '{"key_rate_limit": {"limit": 1000, "burst": 1000}}')`)
	n := 0
	until(t, "the rest is handed out", func() bool { n += len(s.take(10)); return n == 4 })
	if code := s.code(`select posthaste.update_queue('q', '{"key_rate_limit": null}')`); code != "PH501" {
		t.Errorf("taking the last limit of keys away ends with %q", code)
	}
	// Buckets that were full again five minutes ago are removed.
	s.exec(`update posthaste.keys set tokens_at = tokens_at - interval '11 minutes'`)
	until(t, "the bucket is forgotten", func() bool {
		s.exec(`select posthaste.maintain()`)
		return get[int](s, `select count(*)::int from posthaste.keys`) == 0
	})
}

// Taking tokens changes a key's row in place: it writes none of the indexes of keys.
func TestTokensAreTakenInPlace(t *testing.T) {
	t.Parallel()
	for name, index := range map[string]string{"holds": "", "with an index of the time": `create index on posthaste.keys (tokens_at)`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := keyed(t, testpg.New(t), `{"key_rate_limit": {"limit": 1000, "burst": 1000}}`)
			if index != "" {
				s.exec(index)
			}
			s.sendMany(20, `{"key": "a"}`)
			s.exec(`begin`)
			for range 10 {
				s.exec(`select from posthaste.receive('q', 1, '1 hour')`)
			}
			updates, inPlace := get[int](s, `select n_tup_upd::int from pg_stat_xact_user_tables where relid = 'posthaste.keys'::regclass`),
				get[int](s, `select n_tup_hot_upd::int from pg_stat_xact_user_tables where relid = 'posthaste.keys'::regclass`)
			s.exec(`commit`)
			// One claim may lie in the next five minutes.
			if updates < 9 || (inPlace >= updates-1) != (index == "") {
				t.Errorf("%d of %d updates in place", inPlace, updates)
			}
		})
	}
}

// A hot key, with any limit, slows no other key.
func TestHotKeysSlowNobody(t *testing.T) {
	t.Parallel()
	for _, options := range []string{`{"key_concurrency": 1}`, `{"key_rate_limit": {"limit": 1, "per": "1 hour"}}`, `{"fair": true}`} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			s := keyed(t, testpg.New(t), options)
			s.sendMany(rows(t, 500), `{"key": "hot"}`)
			var others []int64
			for i := range 10 {
				others = append(others, s.sendKey(fmt.Sprint("cold ", i)))
			}
			var got []int64
			for range 20 { // and not only after the hot key's, most of which wait for hours
				got = append(got, messages(s.take(40))...)
			}
			for _, m := range others {
				if !slices.Contains(got, m) {
					t.Errorf("message %d of another key is not handed out", m)
				}
			}
		})
	}
}

// Once pause_key has returned nothing of the key is handed out any more, not even by a concurrent
// claim; other keys continue.
func TestRulePausedKeysWait(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 1}`)
		claiming, pausing := connect(t, url), connect(t, url)
		a1, a2, b1 := s.sendKey("a"), s.sendKey("a"), s.sendKey("b")
		claiming.exec(`begin`)
		if got := messages(claiming.take(1)); !slices.Equal(got, []int64{a1}) {
			t.Fatalf("received %v", got)
		}
		paused := pausing.start(`select posthaste.pause_key('q', 'a', 'ada')::int::bigint`)
		stop := time.After(300 * time.Millisecond)
		select {
		case <-paused:
			return "the key was paused while a claim was on its way"
		case <-stop:
		}
		claiming.exec(`commit`)
		if a := <-paused; a.err != nil || a.values[0] != 1 {
			return fmt.Sprintf("pausing ended with %v", a)
		}
		s.exec(`select posthaste.release(array(select claim * 4096 from posthaste.leases))`)
		if got := messages(s.take(10)); !slices.Equal(got, []int64{b1}) {
			return fmt.Sprintf("received %v beside a paused key, want %d alone", got, b1)
		}
		if got := list[string](s, `select unnest(paused_keys) from posthaste.queues`); !slices.Equal(got, []string{"a"}) {
			return fmt.Sprintf("paused are %v", got)
		}
		if get[bool](s, `select posthaste.pause_key('q', 'a')`) {
			return "pausing twice changed something"
		}
		if !get[bool](s, `select posthaste.resume_key('q', 'a', 'bob')`) || get[bool](s, `select posthaste.resume_key('q', 'a')`) {
			return "resuming does not tell whether it changed something"
		}
		for _, m := range []int64{a1, a2} {
			g := s.take(10)
			if !slices.Equal(messages(g), []int64{m}) {
				return fmt.Sprintf("received %v of a resumed key, want %d", messages(g), m)
			}
			s.ack(g...)
		}
		if got := list[string](s, `select by || ' ' || action || ' ' || (details ->> 'key') from posthaste.actions where action <> 'create' order by id`); !slices.Equal(got, []string{"ada pause_key a", "bob resume_key a"}) {
			return fmt.Sprintf("recorded are %v", got)
		}
		if n := get[int](s, `select count(*)::int from posthaste.keys`); n != 0 {
			return fmt.Sprintf("%d keys stay", n)
		}
		return ""
	},
		without("the lane's lock", patch{file: "key_readers.sql", old: "posthaste.lock_reader(v_reader, true)", new: "posthaste.lock_reader(v_reader, false)"},
			patch{file: "key_readers.sql", old: "posthaste.lock_reader(v_reader + 1, true)", new: "posthaste.lock_reader(v_reader + 1, false)"}),
		without("looking at it when it is resumed", patch{file: "resume_key.sql", old: "perform posthaste.lane_event(", new: "perform concat("}))
}

// A key without waiting messages is paused: later messages of it wait.
func TestPausedKeyWithoutMessages(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"fair": true, "lanes": 3}`)
	s.exec(`select posthaste.pause_key('q', 'a')`)
	s.sendKey("a")
	b := s.sendKey("b")
	got := s.take(10)
	got = append(got, s.take(10)...)
	if !slices.Equal(messages(got), []int64{b}) {
		t.Errorf("received %v, want %d alone", messages(got), b)
	}
	s.exec(`select posthaste.resume_key('q', 'a')`)
	n := 0
	until(t, "the resumed key's message comes", func() bool { n += len(s.take(10)); return n == 1 })
}

// A receiver by SQL is told when to call again.
func TestReceiversAreToldWhenToAskAgain(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]struct {
		send     string
		low, top float64 // seconds; below zero: nothing is known
		limit    string
	}{
		`{"rate_limit": {"limit": 1, "per": "1 hour"}}`:               {`{}`, 3500, 3600, "yes"},
		`{"concurrency": 1}`:                                          {`{}`, 0, 10, "yes"},
		`{"key_rate_limit": {"limit": 1, "per": "1 hour"}}`:           {`{"key": "a"}`, 3500, 3600, ""},
		`{"key_concurrency": 1}`:                                      {`{"key": "a"}`, 0, 10, ""},
		`{"lanes": 3}`:                                                {`{"delay": "1 hour"}`, 3500, 3600, ""},
		`{"fair": true}`:                                              {`{"delay": "1 hour", "key": "a"}`, 3500, 3600, ""},
		`{"max_attempts": 3}`:                                         {``, -1, -1, ""},
		`{"ordered": true, "backoff": {"base": "1 h", "max": "9 h"}}`: {``, -1, -1, ""},
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			s := keyed(t, testpg.New(t), options)
			told := func() string {
				return get[string](s, `select coalesce(current_setting('posthaste.next_due', true), 'unset') || ' ' || coalesce(current_setting('posthaste.at_limit', true), 'unset')`)
			}
			s.exec(`begin`)
			if want.send != "" {
				s.sendMany(2, want.send)
			}
			s.exec(`commit`)
			s.exec(`begin`)
			if got := s.take(1); len(got) > 0 {
				if told := told(); told != " " {
					t.Errorf("with messages it is told %q", told)
				}
			}
			s.exec(`commit`)
			for round := range 3 {
				s.exec(`begin`)
				if got := s.take(10); len(got) != 0 {
					t.Fatalf("received %v", got)
				}
				due, limit, _ := strings.Cut(told(), " ")
				s.exec(`commit`)
				seconds, err := strconv.ParseFloat(due, 64)
				if due == "" {
					seconds, err = -1, nil
				}
				if err != nil || seconds < want.low || seconds > want.top || limit != want.limit {
					t.Errorf("round %d: told %q and %q, want %v to %v s and %q", round, due, limit, want.low, want.top, want.limit)
				}
			}
		})
	}
}
