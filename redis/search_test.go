package redis

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// indexed tells by how many words messages of the queue are found, and how many are
// known by themselves.
func indexed(t *testing.T, e *Engine) (words, known int64) {
	t.Helper()
	words, err := e.client.ZCard(t.Context(), e.keys.of(jobs, "words")).Result()
	if err == nil {
		known, err = e.client.ZCard(t.Context(), e.keys.of(jobs, "known")).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	return words, known
}

// Forgotten messages are no longer found, and take no memory.
func TestForgottenWordsGo(t *testing.T) {
	for name, p := range map[string]patch{
		"words": {&settleScript, "many('ZREM', WORDS, gone)", ""},
		"known": {&settleScript, "many('ZREM', KNOWN, old)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				e.registry.kept = 10
				create(t, e, posthaste.QueueOptions{})
				w := register(t, e)
				for i := range 100 {
					_, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: i, Reference: fmt.Sprint(i), Terms: []string{"ada"}})
					if err != nil {
						t.Fatal(err)
					}
					done(t, e, claim(t, e, w, int64(i+1), 1)...)
				}
				found, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, Term: "ada"})
				if err != nil {
					t.Fatal(err)
				}
				if words, known := indexed(t, e); len(found.Items) != 10 || words != 20 || known != 10 {
					return fmt.Sprintf("%d are found, by %d words, %d are known", len(found.Items), words, known)
				}
				return ""
			}, p)
		})
	}
}

// A delayed message is listed like all others once it is handed out, and leaves nothing behind
// when it is settled.
func TestDueMessagesAreKnownUntilHandedOut(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		for range 3 {
			if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Delay: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
		}
		var d []posthaste.RawDelivery
		w, number := register(t, e), int64(0)
		until(t, "they are due", func() bool {
			number++
			d = append(d, claim(t, e, w, number, 3)...)
			return len(d) == 3
		})
		done(t, e, d...)
		if _, known := indexed(t, e); known != 0 {
			return fmt.Sprintf("%d are known", known)
		}
		return ""
	}, patch{&claimScript, "many('ZREM', KNOWN, plain)", ""})
}

// Messages that are still to be delivered are not erased, and erased messages are not
// replayed.
func TestErasedAreSettled(t *testing.T) {
	pending := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Terms: []string{"ada"}}); err != nil {
			t.Fatal(err)
		}
		d := claim(t, e, register(t, e), 1, 1)
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		became, err := e.Erase(posthaste.WithActor(t.Context(), "officer"), "ada", 0)
		if err != nil || len(became.Items) != 1 || !became.Items[0].Pending {
			return fmt.Sprintf("it became %+v: %v", became.Items, err)
		}
		return ""
	}
	t.Run("pending", func(t *testing.T) {
		rule(t, pending, patch{&eraseScript, " or st.z == 'waits'", ""})
	})
	t.Run("replayed", func(t *testing.T) {
		rule(t, func(t *testing.T, e *Engine) string {
			create(t, e, posthaste.QueueOptions{})
			if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Terms: []string{"ada"}}); err != nil {
				t.Fatal(err)
			}
			d := claim(t, e, register(t, e), 1, 1)
			if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Erase(posthaste.WithActor(t.Context(), "officer"), "ada", 0); err != nil {
				t.Fatal(err)
			}
			if were, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{d[0].MessageID}}); posthaste.CodeOf(err) != posthaste.CodeNotFound || len(were.Items) > 0 {
				return fmt.Sprintf("%v were replayed: %v", were.Items, err)
			}
			return ""
		}, patch{&buryScript, "st.e or ", ""})
	})
}

// Listing page by page finds every message once, in whatever state, newest first.
func TestMessagesPageByPage(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{MaxAttempts: 2})
	var want []posthaste.MessageID
	for i := range 60 {
		var batch []posthaste.Message
		for n := range 1 + i%4 {
			m := posthaste.Message{Queue: jobs, Payload: n, Priority: n, Key: fmt.Sprint("key", i%2)}
			if i%7 == 0 {
				m.Delay = time.Hour
			}
			if i%5 == 0 {
				m.Terms = []string{"ada"}
			}
			batch = append(batch, m)
		}
		ids, err := posthaste.IDs(e.Send(t.Context(), batch...))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, ids...)
	}
	w := register(t, e)
	settlements := []posthaste.Settlement{{Outcome: posthaste.OutcomeDone}, {Outcome: posthaste.OutcomeRetried, Error: "x"}, {Outcome: posthaste.OutcomeDead, Error: "x"}, {Outcome: posthaste.OutcomeReleased}}
	for i, d := range claim(t, e, w, 1, 80) {
		if i%5 == 4 {
			continue // it stays handed out
		}
		s := settlements[i%5]
		s.Delivery = d.ID
		if r, err := e.Settle(t.Context(), []posthaste.Settlement{s}); err != nil || !r[0].Settled {
			t.Fatal(r, err)
		}
	}
	for _, id := range want[len(want)-10:] {
		if _, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), id); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	slices.Reverse(want)
	states := map[posthaste.State][]posthaste.MessageID{}
	var keyed []posthaste.MessageID
	got := listAll(t, e, 7, posthaste.MessageFilter{}, func(m posthaste.MessageInfo) {
		states[m.Subscriptions[0].State] = append(states[m.Subscriptions[0].State], m.ID)
		if m.Key == "key1" {
			keyed = append(keyed, m.ID)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("listed %d, want %d: %v, want %v", len(got), len(want), got, want)
	}
	for _, s := range []posthaste.State{posthaste.StateReady, posthaste.StateScheduled, posthaste.StateRetrying, posthaste.StateRunning, posthaste.StateDone, posthaste.StateDead, posthaste.StateCancelled} {
		if len(states[s]) == 0 {
			t.Errorf("no message is %s", s)
		}
		if got := listAll(t, e, 1+rand.N(9), posthaste.MessageFilter{State: s}, nil); !slices.Equal(got, states[s]) {
			t.Errorf("%s are %v, want %v", s, got, states[s])
		}
	}
	if got := listAll(t, e, 3, posthaste.MessageFilter{Key: "key1"}, nil); !slices.Equal(got, keyed) {
		t.Errorf("with the key %v are found, want %v", got, keyed)
	}
	if _, err := e.Messages(t.Context(), posthaste.MessageFilter{State: "odd"}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Errorf("an unknown state: %v", err)
	}
}

// counter counts the messages that an engine asks for.
type counter struct {
	plainHook
	n atomic.Int64
}

func (a *counter) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		args := cmd.Args()
		if len(args) < 3 {
			return next(ctx, cmd)
		}
		keys, _ := args[2].(int)
		switch args[1] {
		case tellScript.read().sha:
			a.n.Add(int64(len(args) - 3 - keys - 2))
		case tellScript.several().read().sha:
			for at := 3 + keys; at < len(args); { // two counts, and the arguments for a queue
				n, _ := args[at+1].(int)
				a.n.Add(int64(n - 2))
				at += 2 + n
			}
		}
		return next(ctx, cmd)
	}
}

// A list of all queues has the newest of all, page by page, and does not look at all
// messages of each queue's page for that.
func TestMessagesOfAllQueues(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	const queues, each = 30, 60
	var want []posthaste.MessageID
	for i := range queues {
		name := fmt.Sprint("queue-", i)
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range each {
		for i := range queues {
			ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: fmt.Sprint("queue-", (i+n)%queues), Payload: n}))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, ids...)
		}
	}
	slices.SortFunc(want, func(a, b posthaste.MessageID) int { return cmp.Compare(b, a) })
	var all counter
	e.client.AddHook(&all)
	var got []posthaste.MessageID
	f := posthaste.MessageFilter{Limit: 50}
	for page := 0; page == 0 || f.Before != 0; page++ {
		before := all.n.Load()
		found, err := e.Messages(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if n := all.n.Load() - before; n > 2*50 || n == 0 && len(found.Items) > 0 {
			t.Errorf("page %d: it looks at %d messages", page, n)
		}
		for _, m := range found.Items {
			got = append(got, m.ID)
		}
		f.Before = found.Next
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed are %d, want %d", len(got), len(want))
	}
}

// listAll lists all pages.
func listAll(t *testing.T, e *Engine, limit int, f posthaste.MessageFilter, each func(posthaste.MessageInfo)) (ids []posthaste.MessageID) {
	t.Helper()
	f.Queue, f.Limit = jobs, limit
	for {
		some, err := e.Messages(context.WithoutCancel(t.Context()), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range some.Items {
			ids = append(ids, m.ID)
			if each != nil {
				each(m)
			}
		}
		if f.Before = some.Next; f.Before == 0 {
			return ids
		}
	}
}
