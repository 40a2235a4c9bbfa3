package redis

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// A claim that is repeated because its reply was lost returns the same deliveries, and hands
// out nothing more.
func TestRE7_ClaimRepeated(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 5)
		w := register(t, e)
		first := claim(t, e, w, 1, 3)
		again, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 3})
		if err != nil || len(again.Deliveries) != 3 || again.Deliveries[0].ID != first[0].ID {
			return fmt.Sprintf("the same number gave %d, then %d: %v", len(first), len(again.Deliveries), err)
		}
		return ""
	}, patch{&claimScript, "if before then", "if false then"})
}

// A claim that arrives after it was repeated and settled hands out nothing, because no worker
// reads its reply.
func TestRE7_LateClaimHandsOutNothing(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 2)
		w := register(t, e)
		done(t, e, claim(t, e, w, 1, 1)...)
		late, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1})
		if len(late.Deliveries) > 0 || posthaste.CodeOf(err) != posthaste.CodeInvalid {
			return fmt.Sprintf("it handed out %d: %v", len(late.Deliveries), err)
		}
		return ""
	}, patch{&claimScript, ">= tonumber(claim) then", "< 0 then"})
}

// What a reply that never came handed out is listed although the worker lives.
func TestRE7_UnsettledTellsWhatNobodyKnows(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 2)
		w := register(t, e)
		claim(t, e, w, 1, 2)
		ids, err := e.Unsettled(t.Context(), w, 1)
		if err != nil || len(ids) != 2 {
			return fmt.Sprintf("%d are told: %v", len(ids), err)
		}
		return ""
	}, patch{&claimScript, "call('ZADD', CLAIMS, worker, tag)", ""})
}

// The messages of a lost worker are redelivered once.
func TestRE2_RescuedOnce(t *testing.T) {
	holds := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 2)
		w := register(t, e)
		d := claim(t, e, w, 1, 2)
		done(t, e, d[0])
		if err := e.Unregister(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		var lost [2]int
		for i := range lost {
			reply, err := e.Maintain(t.Context(), posthaste.UpkeepRescue)
			if err != nil {
				t.Fatal(err)
			}
			lost[i] = reply.Rescued
		}
		again := claim(t, e, register(t, e), 1, 10)
		if late := done(t, e, d[1]); lost != [2]int{1, 0} || len(again) != 1 || again[0].MessageID != d[1].MessageID || late != 0 {
			return fmt.Sprintf("lost %v, came again %d, settled late %d", lost, len(again), late)
		}
		return ""
	}
	t.Run("listed", func(t *testing.T) { rule(t, holds, patch{&claimScript, "call('ZADD', CLAIMS, worker, tag)", ""}) })
	t.Run("fenced", func(t *testing.T) { rule(t, holds, patch{&rescueScript, "many('HDEL', RUN, left)", ""}) })
}

// A delivery that comes twice in one call is settled once.
func TestDS7_TwiceInOneCall(t *testing.T) {
	for name, c := range map[string]struct {
		with posthaste.Settlement
		old  string
		new  string
	}{
		"plainly":     {posthaste.Settlement{Outcome: posthaste.OutcomeDone}, "if not tag or twice[d] then", "if not tag then"},
		"with a word": {posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "x"}, "call('HDEL', RUN, s.d)", "local _"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{})
				send(t, e, 1)
				c.with.Delivery = claim(t, e, register(t, e), 1, 1)[0].ID
				results, err := e.Settle(t.Context(), []posthaste.Settlement{c.with, c.with})
				if err != nil || !results[0].Settled || results[1].Settled {
					return fmt.Sprintf("settled as %+v: %v", results, err)
				}
				return ""
			}, patch{&settleScript, c.old, c.new})
		})
	}
}

// An id is not given again where Redis has lost its last second.
func TestRE1_NoIDTwiceAfterLoss(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		meta := e.keys.of(jobs, "meta")
		last, err := e.client.HGet(t.Context(), meta, "last").Result()
		if err != nil {
			t.Fatal(err)
		}
		before := send(t, e, 3)
		if err := e.client.HSet(t.Context(), meta, "last", last).Err(); err != nil { // as its file had it
			t.Fatal(err)
		}
		for _, id := range send(t, e, 3) {
			if id <= before[2] {
				return fmt.Sprintf("message %d came after %d", id, before[2])
			}
		}
		return ""
	}, patch{&sendScript, "math.max(q.last + 1, now)", "q.last + 1"})
}

// A worker that was declared lost gets nothing more, although its process does not know yet.
func TestRE2_LostWorkerGetsNothing(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 2)
		w := register(t, e)
		claim(t, e, w, 1, 1)
		if err := another(t, e).Unregister(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil {
			t.Fatal(err)
		}
		reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 2, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1})
		if posthaste.CodeOf(err) != posthaste.CodeWorkerLost {
			return fmt.Sprintf("it got %d: %v", len(reply.Deliveries), err)
		}
		return ""
	}, patch{&claimScript, "if not call('ZSCORE', LEASES, worker) then return 'join' end", ""})
}

// A worker that sleeps is rung when a message is sent.
func TestLA3_SleepersAreRung(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		heard := e.client.Subscribe(t.Context(), e.keys.bell(jobs))
		defer heard.Close()
		if _, err := heard.Receive(t.Context()); err != nil { // that it listens
			t.Fatal(err)
		}
		if err := e.client.Set(t.Context(), e.keys.of(jobs, "asleep"), 1, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		send(t, e, 1)
		if err := e.client.Publish(t.Context(), e.keys.bell(jobs), "the end").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := heard.ReceiveMessage(t.Context()); err != nil || m.Payload != "" {
			return fmt.Sprintf("no sleeper was rung: %v", err)
		}
		return ""
	}, patch{&sendScript, "redis.pcall('PUBLISH', bell, '')", ""})
}

// A message that was moved to another time is not handed out from where it waited.
func TestMovedMessagesWait(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		ids := send(t, e, 3)
		if told, err := e.Reschedule(posthaste.WithActor(t.Context(), "ada"), ids[1], time.Now().Add(time.Hour)); err != nil || !told[0].InTime {
			t.Fatalf("moving it: %+v, %v", told, err)
		}
		if d := claim(t, e, register(t, e), 1, 3); len(d) != 2 {
			return fmt.Sprintf("%d of 2 were handed out", len(d))
		}
		return ""
	}, patch{&withdrawScript, "call('SADD', STALE, id)", "local _"})
}

// Of two who make a token of one name, one gets it: the other's secret is good for
// nothing, and he must know.
func TestTokenNameIsTakenOnce(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		want := posthaste.Token{Name: "shop", Scopes: []posthaste.Scope{posthaste.ScopeSend}}
		if _, err := e.CreateToken(posthaste.WithActor(t.Context(), "ada"), want); err != nil {
			t.Fatal(err)
		}
		if _, err := e.CreateToken(posthaste.WithActor(t.Context(), "bob"), want); posthaste.CodeOf(err) != posthaste.CodeConflict {
			return fmt.Sprintf("the second was answered %v", err)
		}
		return ""
	}, patch{&tokenScript, "if call('HEXISTS', TOKENS, name) == 1 then return 'exists' end", ""})
}

// If a handled delivery counts as lost before its outcome arrives, the late outcome withdraws
// the message, unless it was handed out again. The message then does not run twice. This holds
// in every kind of queue.
func TestDU5_LateDoneWithdraws(t *testing.T) {
	for name, o := range map[string]posthaste.QueueOptions{
		"plain": {}, "retained": {Retention: time.Hour}, "ordered": {Ordered: true}, "fair": {Fair: true},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, o)
				for _, key := range []string{"a", "a", "b", "c"} {
					if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Key: key, Payload: 1}); err != nil {
						t.Fatal(err)
					}
				}
				w := register(t, e)
				d := claim(t, e, w, 1, 4)
				if err := e.Unregister(t.Context(), w); err != nil || len(d) != 4 {
					t.Fatalf("%d were handed out: %v", len(d), err)
				}
				if lost, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil || lost.Rescued != 4 {
					t.Fatalf("%d were lost: %v", lost.Rescued, err)
				}
				results, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeDone},
					{Delivery: d[1].ID, Outcome: posthaste.OutcomeRetried, Error: "x"}, {Delivery: d[2].ID, Outcome: posthaste.OutcomeDone, Duration: time.Second}, {Delivery: d[3].ID, Outcome: posthaste.OutcomeReleased}})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					if r.Settled {
						return "a lost delivery was settled"
					}
				}
				again := claim(t, e, register(t, e), 1, 10)
				if len(again) != 2 {
					return fmt.Sprintf("%d came again, want those that were not done", len(again))
				}
				done(t, e, again...)
				done(t, e, d...) // nothing is there to be taken back any more
				for i, d := range d {
					info, err := e.Message(t.Context(), d.MessageID)
					if err != nil {
						t.Fatal(err)
					}
					s, want := info.Subscriptions[0], []int{1, 2, 1, 2}[i]
					if s.State != posthaste.StateDone || len(s.Attempts) != want || s.Attempts[0].Outcome != posthaste.OutcomeLost {
						return fmt.Sprintf("message %d is %s after %+v", i, s.State, s.Attempts)
					}
				}
				infos, err := e.Queues(t.Context(), jobs)
				if err != nil {
					t.Fatal(err)
				}
				if s := infos[0].Subscriptions[0]; s.Depth != 0 || s.InFlight != 0 || s.Done != 4 || s.Withdrawn != 0 {
					return fmt.Sprintf("the queue is told as %+v", s)
				}
				return ""
			}, patch{&settleScript, "local function lateDone(id)\n", "local function lateDone(id)\n  if true then return end\n"})
		})
	}
}

// In an ordered queue it stays so that nothing of a key is on record as done before what
// comes before it, whether that waits or was handed out again.
func TestOD1_LateDoneKeepsOrder(t *testing.T) {
	for name, handed := range map[string]bool{"the message before it waits": false, "the message before it is handed out again": true} {
		t.Run(name, func(t *testing.T) {
			check := "waiting(key, 1)[1] ~= placed(key, id)"
			if handed {
				check = "tonumber(call('HGET', HELD, key) or 0) > 0"
			}
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{Ordered: true})
				for range 3 {
					if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Key: "a", Payload: 1}); err != nil {
						t.Fatal(err)
					}
				}
				w := register(t, e)
				d := claim(t, e, w, 1, 3)
				if err := e.Unregister(t.Context(), w); err != nil || len(d) != 3 {
					t.Fatalf("%d were handed out: %v", len(d), err)
				}
				if lost, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil || lost.Rescued != 3 {
					t.Fatalf("%d were lost: %v", lost.Rescued, err)
				}
				w = register(t, e)
				var again []posthaste.RawDelivery
				if handed {
					again = claim(t, e, w, 1, 1)
				}
				done(t, e, d[1])
				done(t, e, again...)
				again = append(again, claim(t, e, w, 2, 3)...)
				if len(again) != 3 || again[0].MessageID != d[0].MessageID || again[1].MessageID != d[1].MessageID || again[2].MessageID != d[2].MessageID {
					return fmt.Sprintf("%d came again, want all in their order", len(again))
				}
				done(t, e, again...)
				return ""
			}, patch{&settleScript, check, "false"})
		})
	}
}

// A worker that counts as lost settles between two steps of its rescue: no message of a
// key is on record before an earlier one.
func TestOD1_RescueInStepsKeepsOrder(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Ordered: true})
		for range 8 {
			if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Key: "a", Payload: 1}); err != nil {
				t.Fatal(err)
			}
		}
		w := register(t, e)
		d := claim(t, e, w, 1, 8)
		if more := claim(t, e, w, 2, 8); len(d) != 8 || len(more) != 0 {
			t.Fatalf("%d were handed out, and then %d: a key is to be held by one claim", len(d), len(more))
		}
		q, err := e.registry.find(t.Context(), posthaste.QueueRef{Queue: jobs})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.client.ZAdd(t.Context(), e.keys.of(jobs, "leases"), goredis.Z{Score: 1, Member: w.String()}).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := rescueScript.run(t.Context(), e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", 3}}); err != nil {
			t.Fatal(err)
		}
		var settled []int
		for i := len(d) - 1; i >= 0; i-- {
			results, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[i].ID, Outcome: posthaste.OutcomeDone}})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Settled {
				settled = append(settled, i+1)
			}
		}
		if len(settled) != 5 || settled[0] != 5 {
			return fmt.Sprintf("of 8 three were lost, and these could be settled then: %v", settled)
		}
		return ""
	}, patch{&rescueScript, "for i = #deliveries, 1, -1 do", "for i = 1, #deliveries do"})
}

// A subscription that may lag so far and no further is refused, and not made.
func TestMaxLagIsRefused(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	for _, name := range []string{"audit", posthaste.DefaultSubscription} {
		err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, name, posthaste.SubscriptionOptions{MaxLag: time.Hour})
		if posthaste.CodeOf(err) != posthaste.CodeUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	infos, err := e.Queues(t.Context(), jobs)
	if err != nil || len(infos[0].Subscriptions) != 1 {
		t.Errorf("%+v, %v", infos, err)
	}
}
