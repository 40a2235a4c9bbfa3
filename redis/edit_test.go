package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A dead letter is replayed, or its edited copy is sent, and never both: whichever comes between the
// steps of the other.
func TestEditedOrReplayed(t *testing.T) {
	replay := func(t *testing.T, e *Engine, id posthaste.MessageID) error {
		_, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
		return err
	}
	waits := func(t *testing.T, e *Engine) string {
		infos, err := e.Queues(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		if n := infos[0].Subscriptions[0].Depth; n != 1 {
			return fmt.Sprintf("%d messages wait, want 1", n)
		}
		return ""
	}
	t.Run("replayed first", func(t *testing.T) {
		rule(t, func(t *testing.T, e *Engine) string {
			m, q := deadLetter(t, e)
			if err := replay(t, e, m.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := e.editDead(t.Context(), q, &m, posthaste.Message{Queue: jobs, Payload: 2}); posthaste.CodeOf(err) != posthaste.CodeConflict {
				return fmt.Sprintf("it was edited: %v", err)
			}
			return waits(t, e)
		}, patch{&sendScript, "st.z ~= 'dead' or", ""})
	})
	t.Run("copied first", func(t *testing.T) {
		rule(t, func(t *testing.T, e *Engine) string {
			m, q := deadLetter(t, e)
			// As editDead does, whose process dies before it discards the dead letter.
			now := posthaste.Message{Queue: jobs, Payload: 2}
			if _, err := e.sendAll(t.Context(), sendHead{copies: &editedCopy{}, Dead: place(int64(m.ID))}, "", []posthaste.Message{now}); err != nil {
				t.Fatal(err)
			}
			if err := replay(t, e, m.ID); posthaste.CodeOf(err) != posthaste.CodeNotFound {
				return fmt.Sprintf("it was replayed: %v", err)
			}
			if _, err := e.editDead(t.Context(), q, &m, now); posthaste.CodeOf(err) != posthaste.CodeConflict {
				return fmt.Sprintf("it was edited again: %v", err)
			}
			dead, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: jobs})
			if err != nil || len(dead.Items) != 0 {
				return fmt.Sprintf("%d dead letters are left: %v", len(dead.Items), err)
			}
			return waits(t, e)
		}, patch{&buryScript, " or st.c", ""}, patch{&sendScript, "st.c = ids[1]", ""}, patch{&sendScript, "if copy then", "if false then"})
	})
}

// A copy that was sent for one subscription does not discard the dead letter of another that came
// later.
func TestEditedForOneSubscription(t *testing.T) {
	t.Parallel()
	e, ctx := open(t, server.URL()), t.Context()
	create(t, e, posthaste.QueueOptions{})
	if err := e.Subscribe(ctx, jobs, "audit", posthaste.SubscriptionOptions{}); err != nil {
		t.Fatal(err)
	}
	id := send(t, e, 1)[0]
	die := func(subscription string) {
		t.Helper()
		reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: subscription}, Max: 1, Lease: time.Minute})
		if err != nil || len(reply.Deliveries) != 1 {
			t.Fatalf("%+v, %v", reply, err)
		}
		if _, err := e.Settle(ctx, []posthaste.Settlement{{Delivery: reply.Deliveries[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	die(posthaste.DefaultSubscription)
	q, err := e.registry.queue(ctx, jobs)
	if err != nil {
		t.Fatal(err)
	}
	letter := q.subs[0].letter
	// As editDead does, whose process dies before it discards the dead letter.
	if _, err := e.sendAll(ctx, sendHead{copies: &editedCopy{letters: letter}, Dead: place(int64(id)), Without: letter}, "", []posthaste.Message{{Queue: jobs, Payload: 2}}); err != nil {
		t.Fatal(err)
	}
	die("audit")
	edit := func() error {
		_, err := e.UpdateMessage(ctx, id, posthaste.MessageUpdate{Payload: 3})
		return err
	}
	left := func(want string) {
		t.Helper()
		dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: jobs})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range dead.Items {
			got += d.Subscription
		}
		if got != want {
			t.Errorf("it is dead in %q, want %q", got, want)
		}
	}
	if err := edit(); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("editing it again ended with %v", err)
	}
	left("audit")
	if err := edit(); err != nil {
		t.Errorf("editing it for the other ended with %v", err)
	}
	left("")
}

// deadLetter makes a queue with a dead letter.
func deadLetter(t *testing.T, e *Engine) (posthaste.MessageInfo, *queue) {
	t.Helper()
	create(t, e, posthaste.QueueOptions{})
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1}); err != nil {
		t.Fatal(err)
	}
	d := claim(t, e, register(t, e), 1, 1)
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
		t.Fatal(err)
	}
	m, err := e.Message(t.Context(), d[0].MessageID)
	if err != nil {
		t.Fatal(err)
	}
	q, err := e.registry.queue(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	return m, q
}
