package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func (k *kindred) pause(kind string) {
	k.t.Helper()
	k.must(k.e.Pause(posthaste.WithActor(k.t.Context(), "ada"), posthaste.OfKind{Queue: jobs, Kind: kind}, posthaste.PauseOptions{}))
}

func (k *kindred) resume(kind string) {
	k.t.Helper()
	k.must(k.e.Resume(posthaste.WithActor(k.t.Context(), "ada"), posthaste.OfKind{Queue: jobs, Kind: kind}))
}

// pausedAside sends a message of a paused kind, which a claim sets aside.
func (k *kindred) pausedAside() (id posthaste.MessageID, all posthaste.WorkerID) {
	k.t.Helper()
	k.pause("sms")
	id, all = k.send("sms")[0], register(k.t, k.e)
	if said := unlessNone(k.claim(all, 1)); said != "" {
		k.t.Fatal(said)
	}
	return id, all
}

// kindRule is a rule of kinds. Each patch alone breaks it.
type kindRule struct {
	options posthaste.QueueOptions
	holds   func(k *kindred) string
	broken  []patch
}

func runKindRules(t *testing.T, rules map[string]kindRule) {
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			holds := func(t *testing.T, e *Engine) string { return r.holds(newKindred(t, e, r.options)) }
			rule(t, holds, r.broken[0])
			for _, p := range r.broken[1:] {
				breaks(t, holds, p)
			}
		})
	}
}

const (
	restsFresh = " and not (rules.q and rests(id, content[j]))"
	restsDue   = " and not (rules.q and rests(id, content[i], state[i], due))"
	restsKnown = "if not st or once == '1' then call('ZADD', KNOWN, id, id) end"
)

// No claim hands out a message of a paused kind, wherever it waits. The others come.
func TestR1_PausedKindStays(t *testing.T) { runKindRules(t, pausedKindRules) }

var pausedKindRules = map[string]kindRule{
	"new": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.pause("sms")
		k.send("sms")
		return unlessNone(k.claim(register(k.t, k.e), 1))
	}, []patch{{&claimScript, restsFresh, ""}}},
	"released": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.send("sms")
		all := register(k.t, k.e)
		held := k.claim(all, 1)
		k.pause("sms")
		_, err := k.e.Settle(k.t.Context(), []posthaste.Settlement{{Delivery: held[0].ID, Outcome: posthaste.OutcomeReleased}})
		k.must(err)
		return unlessNone(k.claim(all, 1))
	}, []patch{{&claimScript, restsDue, ""}}},
	"set aside, to a worker of the kind": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		k.pause("sms")
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, []patch{{&claimScript, " and not (paused and paused[kind])", ""}, {&claimScript, "handled(kinds, '0', rules.q)", "handled(kinds, '0')"}}},
	"set aside, to a worker of all kinds": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		k.pause("sms")
		return unlessNone(k.claim(register(k.t, k.e), 1))
	}, []patch{{&claimScript, "if not paused[kind] then", "if true then"}}},
	"to run alone": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.lone()
		k.pause("sms")
		return unlessNone(k.claimIdle(register(k.t, k.e)))
	}, []patch{{&claimScript, restsDue, ""}}},
	"to run alone, set aside": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.loneAside()
		k.pause("sms")
		return unlessNone(k.claimIdle(k.handles("sms")))
	}, []patch{{&claimScript, "handled(kinds, '1', rules.q)", "handled(kinds, '1')"}}},
	"another kind comes": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.pause("sms")
		k.send("mail")
		return unlessOne(k.claim(register(k.t, k.e), 1))
	}, []patch{{&claimScript, "if not rules.q[kindOf(content)] then return false end", ""}}},
	"no look tells of them": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		k.pause("sms")
		for _, w := range []posthaste.WorkerID{k.handles("sms"), register(k.t, k.e)} {
			beat, err := k.e.Heartbeat(k.t.Context(), posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{{Queue: jobs}}})
			if k.must(err); beat.Looks[0].Found {
				return "a worker is told that there is something"
			}
		}
		return ""
	}, []patch{{&beatScript, "paused ~= '' and unpacked(paused) or nil", "nil"}}},
	"no worker gets idle for them": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.lone()
		k.pause("sms")
		k.number++
		if reply := attempt(k.t, k.e, register(k.t, k.e), k.number, 1); reply.AloneWaiting {
			return "a worker is told that a message waits to run alone"
		}
		return ""
	}, []patch{{&claimScript, " or content and rules.q[kindOf(content)] then", " then"}}},
	"a look tells of one to run alone": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.loneAside()
		k.pause("fax")
		beat, err := k.e.Heartbeat(k.t.Context(), posthaste.Heartbeat{Worker: k.handles("sms"), Queues: []posthaste.QueueRef{{Queue: jobs}}})
		k.must(err)
		return unless(beat.Looks[0].Found, "a worker is told that there is nothing")
	}, []patch{{&beatScript, "for _, rank in ipairs({'0', '1'}) do", "for _, rank in ipairs({'0'}) do"}}},
	"their age is not told": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.pausedAside()
		elapses(k.t, k.e, time.Millisecond)
		if s := infoOf(k.t, k.e, posthaste.DefaultSubscription); s.Depth != 1 || s.OldestAge > 0 {
			return fmt.Sprintf("it counts %+v", s)
		}
		return ""
	}, []patch{{&countScript, " and not (rules.q and rules.q[kind])", ""}}},
	"no other kind starves": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.pause("fax")
		return k.inTurn(register(k.t, k.e))
	}, []patch{{&claimScript, "call('ZRANDMEMBER', APART)", "nil"}}},
}

// A claim passes over some 1,000 messages of a paused kind. The next claim is to come at once, and
// goes on.
func TestR1_PausedKindIsBounded(t *testing.T) {
	runKindRules(t, map[string]kindRule{"new": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.pause("sms")
		kinds := make([]string, 2501)
		for i := range kinds {
			kinds[i] = "sms"
		}
		kinds[2500] = "mail"
		k.send(kinds...)
		all, claims := register(k.t, k.e), 0
		for claims < 10 {
			k.number++
			claims++
			reply := attempt(k.t, k.e, all, k.number, 10)
			if len(reply.Deliveries) > 0 {
				break
			}
			if reply.NextDue != 0 {
				return fmt.Sprintf("after %d claims the next one is to come in %s", claims, reply.NextDue)
			}
		}
		if claims != 3 {
			return fmt.Sprintf("it took %d claims", claims)
		}
		return ""
	}, []patch{{&claimScript, "putApart(s.w)\n  passing = passing - 1", "putApart(s.w)"}, {&claimScript, "if passing <= 0 then due = now end", ""}}}})
}

// A message of a kind that is resumed comes as it would have come before.
func TestR1_ResumedKindComes(t *testing.T) {
	once := posthaste.QueueOptions{Mode: posthaste.AtMostOnce}
	runKindRules(t, map[string]kindRule{
		"it comes": {posthaste.QueueOptions{}, func(k *kindred) string {
			_, all := k.pausedAside()
			k.resume("sms")
			return unlessOne(k.claim(all, 1))
		}, []patch{{&claimScript, "putApart(s.w)", ""}, {&claimScript, "call('HSET', TALLY, 'apart', 1)", ""}}},
		"sleepers wake": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.pausedAside()
			return unlessRung(k.t, k.e, func() { k.resume("sms") })
		}, []patch{{&renewScript, renewRings, "return 'ok'"}}},
		"processes that know only the pause are told": {posthaste.QueueOptions{}, func(k *kindred) string {
			_, all := k.pausedAside()
			k.must(another(k.t, k.e).Resume(k.t.Context(), posthaste.OfKind{Queue: jobs, Kind: "sms"}))
			beat, err := k.e.Heartbeat(k.t.Context(), posthaste.Heartbeat{Worker: all, Queues: []posthaste.QueueRef{{Queue: jobs}}})
			if k.must(err); !beat.Looks[0].Found {
				return "a worker is told that there is nothing"
			}
			return unlessOne(k.claim(all, 1))
		}, []patch{{&beatScript, "(meta[3] or '') ~= revision or", "false or"}}},
		"it runs alone": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.lone()
			k.pause("sms")
			all := register(k.t, k.e)
			k.claimIdle(all)
			k.resume("sms")
			return unlessNone(k.claim(all, 1))
		}, []patch{{&claimScript, "(st.l >= 2 and '1' or '0')", "'0'"}}},
		"it has expired": {posthaste.QueueOptions{MaxAge: time.Hour}, func(k *kindred) string {
			id, all := k.pausedAside()
			k.resume("sms")
			k.age(id)
			return unlessNone(k.claim(all, 1))
		}, []patch{{&claimScript, "if content[i] and not (rules.a and expired(id, state[i])) then", "if content[i] then"}}},
		"at most once": {once, func(k *kindred) string {
			_, all := k.pausedAside()
			k.resume("sms")
			got := k.claim(all, 1)
			if len(got) != 1 || got[0].Attempt != 1 {
				return fmt.Sprintf("handed out is %+v", got)
			}
			for _, what := range []string{"st", "known", "apart"} {
				if n := k.e.client.Exists(k.t.Context(), k.e.keys.of(jobs, what)).Val(); n != 0 {
					return "something is left in " + what
				}
			}
			return ""
		}, []patch{{&claimScript, "call('HDEL', ST, id)", ""}, {&claimScript, "if once == '1' then many('ZREM', KNOWN, of) end", ""}}},
	})
}

// While a message waits for its kind it is listed, and can be edited.
func TestR1_PausedKindIsListed(t *testing.T) {
	runKindRules(t, map[string]kindRule{
		"new": {posthaste.QueueOptions{}, func(k *kindred) string {
			id, _ := k.pausedAside()
			return unlessListed(k, id)
		}, []patch{{&claimScript, restsKnown, ""}}},
		"scheduled at most once": {posthaste.QueueOptions{Mode: posthaste.AtMostOnce, MaxAge: time.Hour}, func(k *kindred) string {
			k.pause("sms")
			ids, err := posthaste.IDs(k.e.Send(k.t.Context(), posthaste.Message{Queue: jobs, Kind: "sms", Payload: 1, Delay: time.Millisecond}))
			k.must(err)
			elapses(k.t, k.e, 2*time.Millisecond)
			if said := unlessNone(k.claim(register(k.t, k.e), 1)); said != "" {
				return said
			}
			return unlessListed(k, ids[0])
		}, []patch{{&claimScript, restsKnown, "if not st then call('ZADD', KNOWN, id, id) end"}}},
		"edited, it comes as another kind": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.edit(k.sentAside("sms")[0], "fax")
			return unlessOne(k.claim(k.handles("fax"), 1))
		}, []patch{{&editScript, "if due or apart or priority", "if due or priority"}}},
		"edited, it comes once": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.edit(k.sentAside("sms")[0], "fax")
			all := register(k.t, k.e)
			return unlessOne(append(k.claim(all, 1), k.claim(all, 1)...))
		}, []patch{{&editScript, "call('ZREM', KEYS[sub.at + AT_APART], apart)", ""}}},
	})
}

func (k *kindred) edit(id posthaste.MessageID, kind string) {
	k.t.Helper()
	_, err := k.e.UpdateMessage(posthaste.WithActor(k.t.Context(), "ada"), id, posthaste.MessageUpdate{Kind: &kind})
	k.must(err)
}

func unlessListed(k *kindred, id posthaste.MessageID) string {
	k.t.Helper()
	if ids := listAll(k.t, k.e, 10, posthaste.MessageFilter{}, nil); len(ids) != 1 || ids[0] != id {
		return fmt.Sprintf("listed are %v, want %d", ids, id)
	}
	return ""
}

// A message that a worker sets aside has cost nothing: no attempt, and no token of a rate.
func TestJB1_SetAsideCostsNothing(t *testing.T) {
	hourly := posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}
	runKindRules(t, map[string]kindRule{
		"no attempt": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.sentAside("sms")
			if got := k.claim(k.handles("sms"), 1); len(got) != 1 || got[0].Attempt != 1 || len(got[0].Story) != 0 {
				return fmt.Sprintf("handed out is %+v", got)
			}
			return ""
		}, []patch{{&settleScript, "if outcome ~= 'released' then st.a", "if true then st.a"}, {&settleScript, "if outcome ~= 'released' or notes then", "if true then"}}},
		"a token of a key": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: hourly}}, func(k *kindred) string {
			k.sentAside("sms")
			k.send("mail")
			return unlessOne(k.claim(k.handles("mail"), 1))
		}, []patch{{&settleScript, "if not limits.s then return end", "if true then return end"}}},
		"a token of a key that has more messages": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: hourly}}, func(k *kindred) string {
			k.send("sms", "mail")
			k.aside(k.claim(k.old, 1)...)
			if got := came(k.claim(k.handles("mail"), 1)); len(got) != 1 || got[0] != "mail" {
				return fmt.Sprintf("%v were handed out, want the other message of the key", got)
			}
			return ""
		}, []patch{{&settleScript, "full and goOn(key)", "false"}}},
		"senders ring again": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: hourly}}, func(k *kindred) string {
			k.send("sms", "sms")
			held := k.claim(k.old, 1)
			k.claim(k.old, 1) // there is no token: senders need not ring
			k.aside(held...)
			return unlessRung(k.t, k.e, func() { k.send("mail") })
		}, []patch{{&settleScript, "call('HDEL', TALLY, 'mute')\n  end\n  if not limits.s", "end\n  if not limits.s"}}},
		"where keys take turns": {posthaste.QueueOptions{Fair: true}, func(k *kindred) string {
			k.sentAside("sms")
			if k.e.client.Exists(k.t.Context(), k.e.keys.of(jobs, "apart")).Val() != 0 {
				return "it waits where no claim finds it"
			}
			return ""
		}, []patch{{&settleScript, "outcome == 'set_aside' and not rules.y", "outcome == 'set_aside'"}}},
	})
}

// What a queue tells of messages that were set aside counts those that must run alone, too.
func TestJB2_SetAsideIsTold(t *testing.T) {
	const wait = 50 * time.Millisecond
	told := func(k *kindred) posthaste.SetAside {
		k.t.Helper()
		k.loneAside()
		elapses(k.t, k.e, wait)
		k.sentAside("sms", "sms")
		all := infoOf(k.t, k.e, posthaste.DefaultSubscription).SetAside
		if len(all) != 1 {
			k.t.Fatalf("told is %+v", all)
		}
		return all[0]
	}
	runKindRules(t, map[string]kindRule{
		"how many": {posthaste.QueueOptions{}, func(k *kindred) string {
			is := told(k)
			return unless(is.Kind == "sms" && is.Waiting == 3, "told is %+v", is)
		}, []patch{{&countScript, "aside[at + 2] = aside[at + 2] + call", "aside[at + 2] = call"}}},
		"since when": {posthaste.QueueOptions{}, func(k *kindred) string {
			is := told(k)
			return unless(is.OldestAge >= wait, "told is %+v", is)
		}, []patch{{&countScript, "math.min(aside[at + 3], since)", "aside[at + 3]"}}},
	})
}

// A message that is cancelled while a worker has it, and then set aside, does not come.
func TestJB1_CancelledAndSetAside(t *testing.T) {
	runKindRules(t, map[string]kindRule{"cancelled": {posthaste.QueueOptions{}, func(k *kindred) string {
		id := k.send("sms")[0]
		held := k.claim(k.old, 1)
		_, err := k.e.Cancel(posthaste.WithActor(k.t.Context(), "ada"), id)
		k.must(err)
		_, err = k.e.Settle(k.t.Context(), []posthaste.Settlement{{Delivery: held[0].ID, Outcome: posthaste.OutcomeSetAside}})
		k.must(err)
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, []patch{{&settleScript, "if notes and notes.q and outcome ~= 'done' then", "if notes and notes.q and outcome ~= 'done' and not apart then"}}}})
}

// Of two purges at once each message that was set aside before is cancelled.
func TestR1_PurgedTwice(t *testing.T) {
	runKindRules(t, map[string]kindRule{"set aside": {posthaste.QueueOptions{}, func(k *kindred) string {
		first := k.sentAside("sms")[0]
		_, _, err := k.e.together(k.t.Context(), asideScript, jobs) // as the first purge
		k.must(err)
		second := k.sentAside("sms")[0]
		_, _, err = k.e.together(k.t.Context(), asideScript, jobs) // as the second one
		k.must(err)
		_, err = k.e.PurgeQueue(posthaste.WithActor(k.t.Context(), "ada"), jobs)
		k.must(err)
		for _, id := range []posthaste.MessageID{first, second} {
			if said := unlessState(k.t, k.e, id, posthaste.StateCancelled); said != "" {
				return said
			}
		}
		return ""
	}, []patch{{&asideScript, "call('EXISTS', KEYS[at + AT_ASIDE_APART], unpack(", "call('EXISTS', unpack("}}}})
}

// unlessRung returns a violation unless do wakes a process that sleeps at the queue.
func unlessRung(t *testing.T, e *Engine, do func()) string {
	t.Helper()
	asleep := e.keys.of(jobs, "asleep")
	if err := e.client.Set(t.Context(), asleep, 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if do(); e.client.Exists(t.Context(), asleep).Val() != 0 {
		return "it does not ring"
	}
	return ""
}

const renewRings = "ring(ASLEEP, BELL)\nreturn 'ok'"
