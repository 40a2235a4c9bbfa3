package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// attempt is one claim, whatever it says.
func attempt(t *testing.T, e *Engine, w posthaste.WorkerID, number int64, most int) posthaste.ClaimReply {
	t.Helper()
	reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: most})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// No more is handed out and not settled than the queue's concurrency, to workers and
// receivers together; a place that is free again wakes who sleeps.
func TestLI_ConcurrencyHolds(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 3}})
		send(t, e, 10)
		received, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 2, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(received.Deliveries) + len(claim(t, e, register(t, e), 1, 10)); n != 3 {
			return fmt.Sprintf("%d are handed out", n)
		}
		return ""
	}, patch{&claimScript, "limits.c - call('HLEN', RUN)", "limits.c"})
}

func TestLI_FreePlaceWakes(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 1}})
		send(t, e, 2)
		w := register(t, e)
		held := claim(t, e, w, 1, 10)
		asleep := e.keys.of(jobs, "asleep")
		if err := e.client.Set(t.Context(), asleep, 1, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if reply := attempt(t, e, w, 2, 10); !reply.AtLimit || reply.NextDue != -1 {
			return fmt.Sprintf("at the limit a claim says %+v", reply)
		}
		send(t, e, 1)
		if e.client.Exists(t.Context(), asleep).Val() == 0 {
			return "sending at the limit rang"
		}
		done(t, e, held...)
		if e.client.Exists(t.Context(), asleep).Val() == 1 {
			return "settling did not ring"
		}
		if got := claim(t, e, w, 3, 10); len(got) != 1 {
			return fmt.Sprintf("then %d are handed out", len(got))
		}
		if send(t, e, 1); e.client.Exists(t.Context(), asleep).Val() == 1 {
			return "it was not to be armed"
		}
		return ""
	}, patch{&settleScript, "    wake = true\n  end\n  if wake", "  end\n  if wake"})
}

// A rate lets through what came in the time, to a message: neither more nor less,
// however long the machine took.
func TestLI_RateHolds(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		const perSecond, burst = 2000, 3000 // bears pauses of more than a second
		create(t, e, posthaste.QueueOptions{Mode: posthaste.AtMostOnce, Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: perSecond, Burst: burst}}})
		for range 5 {
			send(t, e, 1000)
		}
		w := register(t, e)
		number := int64(0)
		take := func() (n int) {
			number++
			return len(claim(t, e, w, number, 1000))
		}
		before := time.Now()
		total := take() + take() + take()
		first := time.Now()
		if total != burst {
			return fmt.Sprintf("%d are handed out at once, want %d", total, burst)
		}
		var from, to time.Time
		for total < 4000 {
			from = time.Now()
			total += take()
			to = time.Now()
			if most := burst + perSecond*to.Sub(before).Seconds() + 1; float64(total) > most {
				return fmt.Sprintf("%d are handed out after %s, %.0f may be", total, to.Sub(before), most)
			}
		}
		if least := burst + perSecond*from.Sub(first).Seconds() - 1; to.Sub(before) < time.Second && float64(total) < least {
			return fmt.Sprintf("%d are handed out after %s, %.0f should be", total, from.Sub(first), least)
		}
		return ""
	}, patch{&claimScript, "exactly(taken(limits.r, full, #deliveries))", "exactly(taken(limits.r, full, #deliveries - 1))"})
}

// Waiting for a rate burns no attempt, and says when the next token comes.
func TestLI_RateTellsWhen(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: time.Hour}}})
		send(t, e, 2)
		w := register(t, e)
		done(t, e, claim(t, e, w, 1, 10)...)
		beat, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{{Queue: jobs}}})
		if err != nil {
			t.Fatal(err)
		}
		reply := attempt(t, e, w, 2, 10)
		for _, look := range []posthaste.LookReply{beat.Looks[0], {Found: len(reply.Deliveries) > 0, NextDue: reply.NextDue, AtLimit: reply.AtLimit}} {
			if look.Found || !look.AtLimit || look.NextDue < 50*time.Minute || look.NextDue > time.Hour {
				return fmt.Sprintf("at the limit a look says %+v", look)
			}
		}
		return ""
	}, patch{&beatScript, "if most < 1 then return", "if false then return"})
}

// A process that has a queue's old options in memory follows the new ones from its next call on.
func TestJB6_OtherProcessesFollow(t *testing.T) {
	type caller struct {
		do      func(t *testing.T, e *Engine, held posthaste.RawDelivery) string
		patches []patch
	}
	for name, c := range map[string]caller{
		"a claim has the new timeout": {func(t *testing.T, e *Engine, held posthaste.RawDelivery) string {
			got := claim(t, e, register(t, e), 1, 1)
			if len(got) != 1 || got[0].Timeout != time.Hour {
				return fmt.Sprintf("it got %+v", got)
			}
			return ""
		}, []patch{{&claimScript, " or (meta[4] or nil) ~= rules.w", ""}}},
		"a failure has the new number of attempts": {func(t *testing.T, e *Engine, held posthaste.RawDelivery) string {
			results, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: held.ID, Outcome: posthaste.OutcomeRetried}})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Outcome != posthaste.OutcomeDead {
				return "it ended as " + string(results[0].Outcome)
			}
			return ""
		}, []patch{{&settleScript, " or (meta[2] or nil) ~= rules.w", ""}}},
		"a send has the new limit of the payload": {func(t *testing.T, e *Engine, held posthaste.RawDelivery) string {
			_, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: "more than ten bytes"})
			if posthaste.CodeOf(err) != posthaste.CodeTooLarge {
				return fmt.Sprintf("it ended with %v", err)
			}
			return ""
		}, []patch{{&sendScript, " or (meta[5] or '') ~= (all.w and all.w[q] or '')", ""}}},
		"a send with a unique key does, too": {func(t *testing.T, e *Engine, held posthaste.RawDelivery) string {
			_, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: "more than ten bytes", Unique: &posthaste.Unique{Key: "k"}})
			if posthaste.CodeOf(err) != posthaste.CodeTooLarge {
				return fmt.Sprintf("it ended with %v", err)
			}
			return ""
		}, []patch{{&sendUniqueScript, " or (meta[5] or '') ~= (all.w and all.w[q] or '')", ""}}},
		"an operator is told the new options": {func(t *testing.T, e *Engine, held posthaste.RawDelivery) string {
			infos, _, err := e.count(t.Context(), map[string]*queue{jobs: e.registry.byName[jobs]}) // as it was read before
			if err != nil || len(infos) != 1 {
				t.Fatal(infos, err)
			}
			if info := infos[0]; info.Options.Timeout != time.Hour {
				return fmt.Sprintf("the timeout is %s", info.Options.Timeout)
			}
			return ""
		}, []patch{{&countScript, " or (known[2] or nil) ~= rules.w", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{})
				send(t, e, 2)
				held := receive(t, e, "", 1)
				changed(t, another(t, e))
				return c.do(t, e, held[0])
			}, c.patches...)
		})
	}
}

// changed gives the queue other options.
func changed(t *testing.T, e *Engine) {
	t.Helper()
	update := posthaste.QueueUpdate{Options: posthaste.QueueOptions{Timeout: time.Hour, MaxAttempts: 1, MaxPayload: 10}}
	if err := e.UpdateQueue(t.Context(), jobs, update); err != nil {
		t.Fatal(err)
	}
}

// If the process that changes options is killed between the registry and the queue, the next call
// of a process that has read the registry since passes them on; upkeep does so in each round.
func TestJB6_InterruptedChange(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	send(t, e, 1)
	o := another(t, e)
	q, err := o.registry.queue(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	next, changes, err := posthaste.QueueUpdate{Options: posthaste.QueueOptions{Timeout: time.Hour}}.Apply(jobs, q.options.QueueOptions)
	if err != nil {
		t.Fatal(err)
	}
	is := q.options
	is.QueueOptions = next
	if reply, err := o.revise(t.Context(), q, is, posthaste.Action{Action: "update", Details: posthaste.ChangeDetails(changes)}, 0); err != nil || reply != "ok" {
		t.Fatalf("%v, %v", reply, err)
	}
	if n := e.client.HExists(t.Context(), e.keys.of(jobs, "meta"), "rev").Val(); n {
		t.Fatal("the change was passed on already")
	}
	if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
		t.Fatal(err)
	}
	if rev := e.client.HGet(t.Context(), e.keys.of(jobs, "meta"), "rev").Val(); rev != "1" {
		t.Errorf("after a round of upkeep the queue has revision %q", rev)
	}
	if got := claim(t, e, register(t, e), 1, 1); len(got) != 1 || got[0].Timeout != time.Hour {
		t.Errorf("the next claim got %+v", got)
	}
}

// Of two processes that change different options at once, neither undoes the other's change: here
// one changes them between the other's reading and writing.
func TestJB6_ConcurrentChanges(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		o := another(t, e)
		reads := 0
		err := e.change(t.Context(), jobs, 0, func(q *queue) (stored, bool, posthaste.Action, error) {
			if reads++; reads == 1 {
				if err := o.UpdateQueue(t.Context(), jobs, posthaste.QueueUpdate{Options: posthaste.QueueOptions{MaxAttempts: 7}}); err != nil {
					return stored{}, false, posthaste.Action{}, err
				}
			}
			is := q.options
			is.Timeout = time.Hour
			return is, true, posthaste.Action{Action: "update"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		infos, err := e.Queues(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		if o := infos[0].Options; o.Timeout != time.Hour || o.MaxAttempts != 7 {
			return fmt.Sprintf("%+v", o)
		}
		return ""
	}, patch{&reviseScript, "if call('HGET', QUEUES, name) ~= was then return 'changed' end", ""})
}
