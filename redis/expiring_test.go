package redis

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// ageCheck is the look at the age in both claims.
const ageCheck = "now - (st and (unpacked(st).g or tonumber(id)) or tonumber(due or id)) >= rules.a"

// A message that is too old is not handed out, is counted, and is told as expired, in every
// kind of queue.
func TestExpiredIsNotHandedOut(t *testing.T) {
	for name, o := range map[string]posthaste.QueueOptions{
		"plain": {}, "retained": {Retention: time.Hour}, "ordered": {Ordered: true}, "fair": {Fair: true},
		"once": {Mode: posthaste.AtMostOnce}, "retained once": {Mode: posthaste.AtMostOnce, Retention: time.Hour},
		"limited": {Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}}},
	} {
		o.MaxAge = time.Microsecond
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, o)
				ids := sendKeys(t, e, "a", "a", "b")
				if got := claim(t, e, register(t, e), 1, 10); len(got) != 0 {
					return fmt.Sprintf("%d were handed out", len(got))
				}
				if s := infoOf(t, e, posthaste.DefaultSubscription); s.Sent != 3 || s.Expired != 3 || s.Depth != 0 || s.Done != 0 {
					return fmt.Sprintf("after 3 expired it counts %+v", s)
				}
				for _, id := range ids {
					info, err := e.Message(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					s := info.Subscriptions[0]
					if s.State != posthaste.StateExpired || len(s.Attempts) != 1 || s.Attempts[0].Outcome != posthaste.OutcomeExpired || s.Attempts[0].Attempt != 1 {
						return fmt.Sprintf("message %d is told as %+v", id, s)
					}
				}
				return ""
			}, patch{&claimScript, ageCheck, "false"}, patch{&claimKeyedScript, ageCheck, "false"})
		})
	}
}

const (
	shortAge = 250 * time.Millisecond
	lateBy   = shortAge + 50*time.Millisecond
)

// bringing is a way in which a message is sent whose age counts from a later time. It returns
// a time that is not after that one, and the subscription that gets the message.
type bringing func(t *testing.T, e *Engine) (since time.Time, subscription string)

func bringScheduled(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	since = time.Now().Add(lateBy)
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Delay: lateBy}); err != nil {
		t.Fatal(err)
	}
	return since, ""
}

// bringLater also makes a subscription that is given the message.
func bringLater(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	since, _ = bringScheduled(t, e)
	subscription = fmt.Sprint("late", since.UnixNano())
	subscribe(t, e, subscription, posthaste.SubscriptionOptions{From: posthaste.FromOldest})
	return since, subscription
}

func bringMoved(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Delay: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	grow(t, shortAge)
	since = time.Now()
	if told, err := e.Reschedule(posthaste.WithActor(t.Context(), "ada"), ids[0], since); err != nil || !told[0].InTime {
		t.Fatalf("moving it: %+v, %v", told, err)
	}
	return since, ""
}

func bringReplayed(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	var got []posthaste.RawDelivery
	until(t, "a message is handed out before it is too old", func() bool {
		send(t, e, 1)
		got = receive(t, e, "", 1)
		return len(got) > 0
	})
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
		t.Fatal(err)
	}
	grow(t, shortAge)
	since = time.Now()
	if _, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{got[0].MessageID}}); err != nil {
		t.Fatal(err)
	}
	return since, ""
}

// bringPaused has the message set aside, because its kind is paused when it is due.
func bringPaused(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	kind := posthaste.OfKind{Queue: jobs, Kind: "sms"}
	update(t, e, posthaste.QueueOptions{}, "max_age")
	if err := e.Pause(t.Context(), kind, posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	since = time.Now().Add(lateBy)
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Kind: "sms", Payload: 1, Delay: lateBy}); err != nil {
		t.Fatal(err)
	}
	until(t, "the message is set aside", func() bool {
		if got := receive(t, e, "", 1); len(got) > 0 {
			t.Fatalf("%+v was handed out", got)
		}
		return len(infoOf(t, e, posthaste.DefaultSubscription).SetAside) == 1
	})
	update(t, e, posthaste.QueueOptions{MaxAge: shortAge})
	if err := e.Resume(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	return since, ""
}

// bringEarlier sends the message before the queue has a maximum age.
func bringEarlier(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	update(t, e, posthaste.QueueOptions{}, "max_age")
	since, _ = bringScheduled(t, e)
	update(t, e, posthaste.QueueOptions{MaxAge: shortAge})
	return since, ""
}

// bringTried also has the message handed out to a worker, and released, before that.
func bringTried(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	update(t, e, posthaste.QueueOptions{}, "max_age")
	since, _ = bringScheduled(t, e)
	release(t, e, 0)
	update(t, e, posthaste.QueueOptions{MaxAge: shortAge})
	return since, ""
}

// bringTriedAndMoved also moves its next attempt before that.
func bringTriedAndMoved(t *testing.T, e *Engine) (since time.Time, subscription string) {
	t.Helper()
	update(t, e, posthaste.QueueOptions{}, "max_age")
	send(t, e, 1)
	id := release(t, e, time.Hour)
	grow(t, shortAge)
	since = time.Now()
	if told, err := e.Reschedule(posthaste.WithActor(t.Context(), "ada"), id, since); err != nil || !told[0].InTime {
		t.Fatalf("moving it: %+v, %v", told, err)
	}
	update(t, e, posthaste.QueueOptions{MaxAge: shortAge})
	return since, ""
}

// release has a message handed out to a worker, which releases it.
func release(t *testing.T, e *Engine, wait time.Duration) posthaste.MessageID {
	t.Helper()
	var got []posthaste.RawDelivery
	w, number := register(t, e), int64(0)
	until(t, "it is handed out", func() bool {
		number++
		got = claim(t, e, w, number, 1)
		return len(got) == 1
	})
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeReleased, RetryAfter: wait}}); err != nil {
		t.Fatal(err)
	}
	return got[0].MessageID
}

// grow waits until the messages that were sent before have an age.
func grow(t *testing.T, age time.Duration) {
	t.Helper()
	begun := time.Now()
	until(t, "the messages are too old", func() bool { return time.Since(begun) > age+10*time.Millisecond })
}

// The age of a message that was scheduled, moved or replayed counts from then, also for a
// subscription that is given it later.
func TestAgeCountsFromItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		bring  bringing
		broken []patch
	}{
		"scheduled":   {bringScheduled, []patch{{&sendScript, "g = due}", "}"}}},
		"given later": {bringLater, []patch{{&fillScript, "if since then", "if false then"}, {&claimScript, "tonumber(due or id)", "tonumber(id)"}}},
		"moved":       {bringMoved, []patch{{&withdrawScript, "st.g = due", "st.g = nil"}}},
		"replayed":    {bringReplayed, []patch{{&buryScript, "st.g = now", "st.g = nil"}}},
		"paused":      {bringPaused, []patch{{&claimScript, ", g = tonumber(due or nil)}", "}"}}},
		// The queue gets its max_age later.
		"scheduled earlier":       {bringEarlier, []patch{{&claimScript, "tonumber(due or id)", "tonumber(id)"}}},
		"tried earlier":           {bringTried, []patch{{&settleScript, "if not before and h.dues then", "if false then"}}},
		"tried and moved earlier": {bringTriedAndMoved, []patch{{&withdrawScript, "if rules.a or before then st.g", "if rules.a then st.g"}}},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, agesFrom(c.bring, posthaste.QueueOptions{MaxAge: shortAge}), c.broken...)
		})
	}
}

// The same in a queue by keys, of which claims look at no due times.
func TestAgeOfKeysCountsFromItsTime(t *testing.T) {
	rule(t, agesFrom(bringEarlier, posthaste.QueueOptions{MaxAge: shortAge, Fair: true}),
		patch{&claimKeyedScript, "if rules.a then -- those that were scheduled before", "if false then --"})
}

// agesFrom is the rule that a message that was brought expires shortAge after its time, and not earlier.
func agesFrom(bring bringing, o posthaste.QueueOptions) func(t *testing.T, e *Engine) string {
	return func(t *testing.T, e *Engine) string {
		t.Helper()
		create(t, e, o)
		for {
			since, subscription := bring(t, e)
			got := 0
			until(t, "the message is handed out or expires", func() bool {
				got = len(receive(t, e, subscription, 10))
				return got > 0 || infoOf(t, e, cmp.Or(subscription, posthaste.DefaultSubscription)).Depth == 0
			})
			switch {
			case got > 0:
				return ""
			case time.Since(since) < shortAge: // or this process was slow
				return "it expired before its time"
			}
		}
	}
}

// A claim passes over some 1,000 messages that are too old. What waits behind them is not
// forgotten, and the next claim is to come at once.
func TestExpiredAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		options posthaste.QueueOptions
		broken  patch
	}{
		"plain":   {posthaste.QueueOptions{}, patch{&claimScript, "if passing <= 0 then due = now end", ""}},
		"ordered": {posthaste.QueueOptions{Ordered: true}, patch{&claimKeyedScript, "elseif cut then", "elseif false then"}},
		"fair":    {posthaste.QueueOptions{Fair: true}, patch{&claimKeyedScript, "if passing <= 0 then return fit, true end", ""}},
	} {
		c.options.MaxAge = time.Microsecond
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, c.options)
				sendKeys(t, e, slices.Repeat([]string{"a"}, 2500)...)
				grow(t, 0) // the ids of one call are up to a millisecond ahead
				w, claims, again := register(t, e), int64(0), true
				for again && claims < 10 {
					claims++
					reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: claims, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10})
					if err != nil || len(reply.Deliveries) > 0 {
						t.Fatalf("%d were handed out: %v", len(reply.Deliveries), err)
					}
					again = reply.NextDue == 0
				}
				if s := infoOf(t, e, posthaste.DefaultSubscription); s.Depth != 0 || s.Expired != 2500 || claims < 3 {
					return fmt.Sprintf("after %d claims it counts %+v", claims, s)
				}
				return ""
			}, c.broken)
		})
	}
}

// A message of an ordered queue that gets too old while it waits for its retry holds up its
// key no longer, and leaves nothing.
func TestExpiredRetryLetsItsKeyGo(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Ordered: true, MaxAge: shortAge})
		var got []posthaste.RawDelivery
		take := func() bool {
			sendKeys(t, e, "a")
			got = receive(t, e, "", 1)
			return len(got) > 0
		}
		until(t, "a message is handed out", take)
		retried := got[0].MessageID
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		grow(t, shortAge)
		until(t, "a later message is handed out", take)
		if got[0].MessageID == retried {
			t.Errorf("message %d was handed out, attempt %d", retried, got[0].Attempt)
		}
		if n := e.client.Exists(t.Context(), e.keys.of(jobs, "due")).Val(); n != 0 {
			return "its retry is still due"
		}
		return ""
	}, patch{&claimKeyedScript, "call('ZREM', DUE, '0:' .. messages[j])", ""})
}

// A message that was due later in an at-most-once queue with a max_age leaves nothing of that
// when it is handed out.
func TestAgedAtMostOnce(t *testing.T) {
	for name, broken := range map[string]patch{
		"its state": {&claimScript, "call('HDEL', ST, id)", ""},
		"its index": {&claimScript, "if not state[i] or once == '1' then", "if not state[i] then"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{Mode: posthaste.AtMostOnce, MaxAge: time.Hour})
				ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Delay: time.Millisecond}))
				if err != nil {
					t.Fatal(err)
				}
				var got []posthaste.RawDelivery
				until(t, "it is handed out", func() bool {
					got = receive(t, e, "", 1)
					return len(got) > 0
				})
				info, err := e.Message(t.Context(), ids[0])
				if err != nil || got[0].MessageID != ids[0] || got[0].Attempt != 1 || len(info.Subscriptions[0].Attempts) != 1 || info.Subscriptions[0].State != posthaste.StateHandedOut {
					return fmt.Sprintf("handed out as %+v it is told as %+v, %v", got[0], info, err)
				}
				for _, what := range []string{"st", "known", "due"} {
					if n := e.client.Exists(t.Context(), e.keys.of(jobs, what)).Val(); n != 0 {
						return "something is left in " + what
					}
				}
				return ""
			}, broken)
		})
	}
}
