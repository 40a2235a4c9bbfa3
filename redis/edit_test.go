package redis

import (
	"fmt"
	"testing"

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
			now := posthaste.Message{Queue: jobs, Payload: 2, DedupeKey: "posthaste edit of " + m.ID.String()}
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
		}, patch{&buryScript, " or st.c", ""}, patch{&sendScript, "st.c = true", ""})
	})
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
