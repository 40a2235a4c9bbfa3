package redis

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Senders that knew the queue before a subscription was made send later messages to it, too.
func TestSendersKnowAllSubscriptions(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 1)
		subscribe(t, another(t, e), second, posthaste.SubscriptionOptions{})
		send(t, e, 3)
		if got := receive(t, e, second, 10); len(got) != 3 {
			return fmt.Sprintf("it got %d of 3", len(got))
		}
		return ""
	}, patch{&sendScript, "(meta[4] or '') ~= (all.v and all.v[q] or '') or", ""})
}

// Operators who knew the queue before deal with all subscriptions.
func TestOperatorsKnowAllSubscriptions(t *testing.T) {
	const known = "or (known[1] or nil) ~= rules.v or"
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		id := send(t, e, 1)[0]
		subscribe(t, another(t, e), second, posthaste.SubscriptionOptions{From: posthaste.FromOldest})
		told, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), id)
		if err != nil || len(told) != 2 || !told[1].InTime {
			return fmt.Sprintf("cancelled: %+v, %v", told, err)
		}
		return ""
	}, patch{&tellScript, known, "then"}, patch{&withdrawScript, known, "then"})
}

// fromOldest are the options of a subscription that gets all that is kept, as they are stored.
var fromOldest = func() string {
	b, _ := json.Marshal(posthaste.SubscriptionOptions{From: posthaste.FromOldest})
	return string(b)
}()

// A worker that knows a subscription that has ended works for a later one of the same name.
func TestClaimsKnowTheSubscription(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		subscribe(t, e, second, posthaste.SubscriptionOptions{})
		o := another(t, e)
		if err := o.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, second, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		subscribe(t, o, second, posthaste.SubscriptionOptions{})
		send(t, o, 1)
		reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: register(t, e), Number: 1, QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: second}, Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		if n := done(t, o, reply.Deliveries...); n != 1 {
			return fmt.Sprintf("of %+v %d were settled", reply.Deliveries, n)
		}
		return ""
	}, patch{&claimScript, "own[1] ~= number or own[4] or", ""}, patch{&beatScript, "if own[1] ~= number or own[3] then return 'gone' end", ""})
}

// cutShort sends messages, so many at a time, and makes a subscription from the oldest
// that was not given them yet.
func cutShort(t *testing.T, e *Engine, times, each int) (ids []posthaste.MessageID) {
	t.Helper()
	create(t, e, posthaste.QueueOptions{})
	for range times {
		ids = append(ids, send(t, e, each)...)
	}
	if _, _, err := e.subscribe(t.Context(), jobs, second, fromOldest, "1"); err != nil {
		t.Fatal(err)
	}
	return ids
}

// A subscription hands out nothing until it has all older messages: a claim continues a
// filling that was cut short.
func TestFilledBeforeItHandsOut(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		ids := cutShort(t, e, 1, 5)
		send(t, e, 1)
		got := receive(t, e, second, 3)
		if len(got) != 3 || got[0].MessageID > ids[4] && got[1].MessageID > ids[4] || !got[1].DueAt.IsZero() {
			return fmt.Sprintf("at first came %+v", got)
		}
		return ""
	}, patch{&claimScript, "if own[3] then return 'fill' end", ""})
}

// A subscription that was filled in part gets each message once when filling starts over.
func TestFilledOnce(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		cutShort(t, e, 5, 500)
		ref := posthaste.QueueRef{Queue: jobs, Subscription: second}
		reply, _, err := e.try(t.Context(), ref, func(q *queue) (any, error) {
			names := append(append([]string{}, q.keys...), e.keys.of(jobs, "st"), e.keys.of(jobs, "due"))
			return fillScript.run(t.Context(), e.client, names, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"filter", ""}, {"scheduled", ""}, {"letters", "@"}})
		})
		if err != nil || reply != "more" {
			t.Fatalf("a part was to be filled, and the answer is %q: %v", reply, err)
		}
		// As after a restart, which starts over.
		if n, err := e.client.HDel(t.Context(), e.keys.own(jobs, second, "tally"), "filled").Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if err := e.fill(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if s := infoOf(t, e, second); s.Sent != 2500 || s.Depth != 2500 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	}, patch{&fillScript, "or string.find(who, me, 1, true) ", ""})
}

// All who fill, one after the other, share one iteration, which comes to its end; and so do all
// who go on with an end.
func TestIterationsGoOn(t *testing.T) {
	steps := func(what string, step func() (any, error)) string {
		for range 20 {
			switch reply, err := step(); {
			case err != nil:
				return err.Error()
			case reply == "":
				return ""
			}
		}
		return what + " comes to no end"
	}
	rule(t, func(t *testing.T, e *Engine) string {
		cutShort(t, e, 5, 500)
		all, err := e.registry.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q, s := all[jobs], all[jobs].subs[0]
		names := append(append([]string{}, s.keys...), e.keys.of(jobs, "st"), e.keys.of(jobs, "due"))
		broken := steps("filling", func() (any, error) {
			return fillScript.run(t.Context(), e.client, names, arguments{{"number", s.numberArg}, {"rules", s.rules}, {"filter", ""}, {"scheduled", ""}, {"letters", "@"}})
		})
		if n := infoOf(t, e, second).Depth; n != 2500 {
			broken += fmt.Sprintf(" it has %d", n)
		}
		return broken + steps("the end", func() (any, error) {
			return leaveScript.run(t.Context(), e.client, q.keys, arguments{{"queue", q.numberArg}, {"rules", q.rules}, {"number", "@"}})
		})
	}, patch{&fillScript, "iteration_cursor('filled')", "'0'"}, patch{&leaveScript, "iteration_cursor('left')", "'0'"})
}

// An iteration that continues on another server starts over, because that server has another order.
func TestFilledAtAnotherServer(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		cutShort(t, e, 3, 500)
		if err := e.client.HSet(t.Context(), e.keys.own(jobs, second, "tally"), "filled", "1@abc").Err(); err != nil {
			t.Fatal(err)
		}
		if err := e.fill(t.Context(), posthaste.QueueRef{Queue: jobs, Subscription: second}); err != nil {
			t.Fatal(err)
		}
		if s := infoOf(t, e, second); s.Depth != 1500 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	}, patch{&fillScript, "of == server and cursor", "cursor"})
}

// A slow subscriber creates nothing if the subscription has ended meanwhile.
func TestSlowSubscriber(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		is, err := e.enroll(t.Context(), enrolled(jobs, second))
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, e, second, posthaste.SubscriptionOptions{})
		if err := e.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, second, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		var number, at string
		if _, err := fmt.Sscan(is, &number, &at); err != nil {
			t.Fatal(err)
		}
		q, err := e.registry.queue(t.Context(), jobs)
		if err == nil {
			_, err = subscribeScript.run(t.Context(), e.client, e.keys.subscription(jobs, second, false), arguments{{"queue", q.numberArg}, {"name", second}, {"number", number}, {"enrolled", at}, {"options", fromOldest}, {"older", ""}, {"most", 50}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs}); err != nil {
			return err.Error()
		}
		subscribe(t, e, second, posthaste.SubscriptionOptions{})
		send(t, e, 1)
		if got := receive(t, e, second, 10); len(got) != 1 || done(t, e, got...) != 1 {
			return fmt.Sprintf("it got %+v", got)
		}
		return ""
	}, patch{&subscribeScript, "if tonumber(enrolled) <= tonumber(meta[5] or -1) then return 'late' end", ""})
}

// A subscription that is made while its queue is dropped leaves no keys behind.
func TestDropWithNewSubscription(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 1) // so that it knows the queue
		created, err := dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", ""}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.subscribe(t.Context(), jobs, second, fromOldest, ""); posthaste.CodeOf(err) != posthaste.CodeNotFound && err != nil {
			t.Fatal(err)
		}
		if reply, err := clearScript.run(t.Context(), e.client, e.keys.queue(jobs, true), arguments{{"created", created}, {"readers", ""}}); err != nil || reply == "ok" {
			return fmt.Sprintf("its keys are left: %v", err)
		}
		if err := e.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		left, err := e.client.Keys(t.Context(), "{"+e.keys.prefix+":"+jobs+"}*").Result()
		if err != nil || len(left) > 0 {
			return fmt.Sprintf("left are %v: %v", left, err)
		}
		if fields, err := e.client.HExists(t.Context(), e.keys.queues(), enrolled(jobs, second)).Result(); err != nil || fields {
			return fmt.Sprintf("the registry has it still: %v", err)
		}
		return ""
	}, patch{&clearScript, "if made and (version or '') ~= readers then return 'changed' end", ""})
}

// What one subscription has settled is not erased while another is to deliver it.
func TestErasedWhenAllAreThrough(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Retention: time.Hour})
		subscribe(t, e, second, posthaste.SubscriptionOptions{})
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Terms: []string{"ada"}, Key: "k"}); err != nil {
			t.Fatal(err)
		}
		done(t, e, receive(t, e, "", 1)...)
		if became, err := e.Erase(posthaste.WithActor(t.Context(), "officer"), "ada", 0); err != nil || len(became.Items) != 1 || !became.Items[0].Pending {
			return fmt.Sprintf("it became %+v: %v", became.Items, err)
		}
		d := receive(t, e, second, 1)
		if len(d) != 1 || d[0].Key != "k" {
			return fmt.Sprintf("the other got %+v", d)
		}
		done(t, e, d...)
		became, err := e.Erase(posthaste.WithActor(t.Context(), "officer"), "ada", 0)
		if err != nil || len(became.Items) != 1 || became.Items[0].Pending {
			return fmt.Sprintf("in the end it became %+v: %v", became.Items, err)
		}
		if m, err := e.Message(t.Context(), became.Items[0].MessageID); err != nil || m.Key != "" || len(m.Terms) != 0 || len(m.Subscriptions) != 2 || m.ErasedAt.IsZero() {
			return fmt.Sprintf("it is told as %+v: %v", m, err)
		}
		return ""
	}, patch{&eraseScript, "if content and markOf(held, s[1]) and", "if content and s[1] == '@' and"})
}

// A key that is resumed, and limits that are lifted, are so for all subscriptions at once.
func TestResumedForAllSubscriptions(t *testing.T) {
	holds := func(limited posthaste.QueueLimits) func(t *testing.T, e *Engine) string {
		return func(t *testing.T, e *Engine) string {
			create(t, e, posthaste.QueueOptions{Limits: limited, Fair: true})
			subscribe(t, e, second, posthaste.SubscriptionOptions{})
			if limited == (posthaste.QueueLimits{}) {
				if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}, posthaste.PauseOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			sendKeys(t, e, "a", "a", "a")
			had := map[string]int{}
			for range 2 { // a key that may not have anything goes out of the line
				for _, of := range []string{"", second} {
					had[of] += len(receive(t, e, of, 10))
				}
			}
			if had[""] != had[second] || had[""] > 1 {
				t.Fatalf("%v came before", had)
			}
			if limited == (posthaste.QueueLimits{}) {
				if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}); err != nil {
					t.Fatal(err)
				}
			} else if err := e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 5}}}); err != nil {
				t.Fatal(err)
			}
			for _, of := range []string{"", second} {
				if had[of] += len(receive(t, e, of, 10)); had[of] != 3 {
					return fmt.Sprintf("%q got %d of 3", of, had[of])
				}
			}
			return ""
		}
	}
	t.Run("key", func(t *testing.T) {
		rule(t, holds(posthaste.QueueLimits{}), patch{&pauseKeyScript, "for at = 0, #KEYS - 2, AT_ASIDE_WAIT", "for at = 0, 0"})
	})
	t.Run("limits", func(t *testing.T) {
		rule(t, holds(posthaste.QueueLimits{KeyConcurrency: 1}), patch{&renewScript, "for at = 0, #KEYS - 1,", "for at = 0, 0,"})
	})
}
