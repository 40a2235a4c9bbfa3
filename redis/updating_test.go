package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// oldRevision is what makes most scripts (current.lua) reject callers with other options.
const oldRevision = " or (known[2] or nil) ~= rules.w"

func update(t *testing.T, e *Engine, o posthaste.QueueOptions, reset ...string) {
	t.Helper()
	if err := e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.QueueUpdate{Options: o, Reset: reset}); err != nil {
		t.Fatal(err)
	}
}

// optionRule is a rule of a queue whose options change. Each patch alone breaks it.
type optionRule struct {
	options posthaste.QueueOptions
	holds   func(t *testing.T, e *Engine) string
	broken  []patch
}

func runOptionRules(t *testing.T, rules map[string]optionRule) {
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			holds := func(t *testing.T, e *Engine) string {
				t.Helper()
				create(t, e, r.options)
				return r.holds(t, e)
			}
			rule(t, holds, r.broken[0])
			for _, p := range r.broken[1:] {
				breaks(t, holds, p)
			}
		})
	}
}

func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func die(t *testing.T, e *Engine, d posthaste.RawDelivery) {
	t.Helper()
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
		t.Fatal(err)
	}
}

// Processes that have old options in memory follow the new ones with whatever they do next.
func TestJB6_EveryCallFollows(t *testing.T) {
	runOptionRules(t, map[string]optionRule{
		"a claim of a queue by keys": {posthaste.QueueOptions{Fair: true}, func(t *testing.T, e *Engine) string {
			send(t, e, 1)
			w := register(t, e)
			changed(t, another(t, e))
			got := claim(t, e, w, 1, 1)
			return unless(len(got) == 1 && got[0].Timeout == time.Hour, "it got %+v", got)
		}, []patch{{&claimKeyedScript, " or (meta[4] or nil) ~= rules.w", ""}}},
		"a rescue": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			id := send(t, e, 1)[0]
			lose(t, e, func() {})
			lose(t, e, func() {})
			lose(t, e, func() { changed(t, another(t, e)) }) // only one that ran alone counts
			return unlessState(t, e, id, posthaste.StateDead)
		}, []patch{{&rescueScript, " or (meta[2] or nil) ~= rules.w", ""}}},
		"discarding": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Kind: "sms", Payload: 1}))
			if err != nil {
				t.Fatal(err)
			}
			die(t, e, claim(t, e, register(t, e), 1, 1)[0])
			update(t, another(t, e), posthaste.QueueOptions{Retention: time.Hour})
			if _, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: ids}); err != nil {
				t.Fatal(err)
			}
			m, err := e.Message(t.Context(), ids[0]) // with a retention all but the payload is kept
			return unless(err == nil && m.Kind == "sms", "kept is %+v, %v", m, err)
		}, []patch{{&buryScript, oldRevision, ""}}},
		"forgetting": {posthaste.QueueOptions{Retention: time.Millisecond}, func(t *testing.T, e *Engine) string {
			id := send(t, e, 1)[0]
			done(t, e, claim(t, e, register(t, e), 1, 1)...)
			elapses(t, e, 2*time.Millisecond)
			before, err := e.registry.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			update(t, another(t, e), posthaste.QueueOptions{Retention: time.Hour})
			if _, err := e.expire(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			return unlessState(t, e, id, posthaste.StateDone)
		}, []patch{{&forgetScript, " or (call('HGET', META, 'rev') or nil) ~= rules.w", ""}}},
	})
}

func unlessState(t *testing.T, e *Engine, id posthaste.MessageID, want posthaste.State) string {
	t.Helper()
	m, err := e.Message(t.Context(), id)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		return "it is forgotten"
	}
	if err != nil {
		t.Fatal(err)
	}
	return unless(m.Subscriptions[0].State == want, "it is %s, want %s", m.Subscriptions[0].State, want)
}

// A queue takes over the options of the registry as of one change, and never of an earlier one.
func TestJB6_ChangesInOrder(t *testing.T) {
	runOptionRules(t, map[string]optionRule{
		"a change that is passed on late": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			send(t, e, 1)
			update(t, e, posthaste.QueueOptions{Timeout: time.Minute})
			slow, between := queueOf(t, e), another(t, e)
			update(t, e, posthaste.QueueOptions{Timeout: time.Hour})
			if _, err := e.renew(t.Context(), slow); err != nil {
				t.Fatal(err)
			}
			got := claim(t, between, register(t, between), 1, 1)
			return unless(len(got) == 1 && got[0].Timeout == time.Hour, "a claim after two changes got %+v", got)
		}, []patch{{&renewScript, "if tonumber(is[3] or 0) >= tonumber(rules.w) then return 'ok' end", ""}}},
		"a subscription that the caller does not know": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			update(t, e, posthaste.QueueOptions{Timeout: time.Minute})
			slow := queueOf(t, e)
			subscribe(t, another(t, e), second, posthaste.SubscriptionOptions{})
			reply, err := e.renew(t.Context(), slow)
			return unless(err == nil && reply == "gone", "it was passed on without it: %v, %v", reply, err)
		}, []patch{{&renewScript, " or (is[2] or nil) ~= rules.v", ""}}},
	})
}

// queueOf is the queue as this process has it.
func queueOf(t *testing.T, e *Engine) *queue {
	t.Helper()
	q, err := e.registry.queue(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// The next claim follows new limits, and sleepers wake.
func TestJB6_Limits(t *testing.T) {
	one := posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 1}}
	more := posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 5}}
	runOptionRules(t, map[string]optionRule{
		"a limit that is removed": {one, func(t *testing.T, e *Engine) string {
			send(t, e, 3)
			w := register(t, e)
			claim(t, e, w, 1, 10)
			update(t, e, posthaste.QueueOptions{}, "concurrency")
			got := claim(t, e, w, 2, 10)
			return unless(len(got) == 2, "%d are handed out", len(got))
		}, []patch{{&renewScript, "if limits == '' then call('HDEL', META, 'limits') else", "if limits ~= '' then"}}},
		"a limit that is new": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			send(t, e, 3)
			update(t, e, one)
			got := claim(t, e, register(t, e), 1, 10)
			return unless(len(got) == 1, "%d are handed out", len(got))
		}, []patch{{&renewScript, "else call('HSET', META, 'limits', limits) end", "end"}}},
		"a rate that is new again": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}}}, func(t *testing.T, e *Engine) string {
			send(t, e, 2)
			w := register(t, e)
			claim(t, e, w, 1, 10)
			update(t, e, posthaste.QueueOptions{}, "rate_limit")
			update(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}}})
			got := claim(t, e, w, 2, 10)
			return unless(len(got) == 1, "%d are handed out", len(got))
		}, []patch{{&renewScript, "limits == '' and 'full' or 'mute'", "'mute'"}}},
		"sleepers wake": {one, func(t *testing.T, e *Engine) string {
			send(t, e, 2)
			w := register(t, e)
			claim(t, e, w, 1, 10)
			claim(t, e, w, 2, 10)
			return unlessRung(t, e, func() { update(t, e, more) })
		}, []patch{{&renewScript, renewRings, "return 'ok'"}}},
		"senders ring again": {one, func(t *testing.T, e *Engine) string {
			send(t, e, 2)
			w := register(t, e)
			claim(t, e, w, 1, 10)
			claim(t, e, w, 2, 10) // there is no place: senders need not ring
			update(t, e, more)
			claim(t, e, w, 3, 10)
			return unlessRung(t, e, func() { send(t, e, 1) })
		}, []patch{{&renewScript, "'mute', limits == '' and 'full' or 'mute'", "limits == '' and 'full' or 'none'"}}},
	})
}

// A key that a dead letter has stopped stays so when dead letters do not stop keys any more.
func TestJB6_StoppedKeys(t *testing.T) {
	runOptionRules(t, map[string]optionRule{"stopped": {posthaste.QueueOptions{Ordered: true, StopOnDead: true}, func(t *testing.T, e *Engine) string {
		sendKeys(t, e, "a")
		w := register(t, e)
		die(t, e, claim(t, e, w, 1, 1)[0])
		update(t, e, posthaste.QueueOptions{}, "on_dead")
		sendKeys(t, e, "a")
		return unlessNone(claim(t, e, w, 2, 1))
	}, []patch{{&claimKeyedScript, "(rules.x or rules.z)", "rules.x"}}}})
}

// Keys that wait for their rate come after two changes as well, though one claim checked only some
// of them in between.
func TestJB6_LimitsOfKeys(t *testing.T) {
	hourly := func(n int) posthaste.QueueOptions {
		return posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: n, Per: time.Hour, Burst: 1}}}
	}
	runOptionRules(t, map[string]optionRule{"rate": {hourly(1), func(t *testing.T, e *Engine) string {
		const keys = 250
		names := make([]string, 2*keys)
		for i := range names {
			names[i] = fmt.Sprint("k", i%keys)
		}
		sendKeys(t, e, names...)
		w, number := register(t, e), int64(0)
		take := func(most int) (n int) {
			t.Helper()
			number++
			return len(claim(t, e, w, number, most))
		}
		for taken := 0; taken < keys; {
			n := take(keys)
			if taken += n; n == 0 {
				t.Fatalf("%d are handed out by the first rate", taken)
			}
		}
		update(t, e, hourly(2))
		take(1)
		update(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 5}}, "key_rate_limit")
		left := keys
		for rounds := 0; left > 0 && rounds < 10; rounds++ {
			left -= take(keys)
		}
		return unless(left == 0, "%d do not come", left)
	}, []patch{{&renewScript, "if call('EXISTS', AGAIN) == 1 then", "if false then"}}}})
}
