package browsertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// die sends messages to a queue and settles them as dead.
func (s *shop) die(queue string, n int, text string) {
	s.Helper()
	for n > 0 {
		some := min(n, 500)
		messages := make([]posthaste.Message, some)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: queue, Kind: "charge", Payload: n - i}
		}
		settle := map[posthaste.MessageID]posthaste.Settlement{}
		for i, id := range s.send(messages...) {
			settle[id] = posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: fmt.Sprintf(text, n-i)}
		}
		s.settle(queue, settle)
		n -= some
	}
}

// letters returns how many dead letters of a queue were tried how often.
func (s *shop) letters(queue string) map[int]int {
	s.Helper()
	tried, f := map[int]int{}, posthaste.DeadLetterFilter{Queue: queue, Limit: 1000}
	for {
		found, err := s.engine.DeadLetters(s.Context(), f)
		s.must(err)
		for _, d := range found.Items {
			tried[len(d.Attempts)]++
		}
		if f.Before = found.Next; f.Before == 0 {
			return tried
		}
	}
}

// A person chooses dead letters by their error, reads the exact number, replays them at a rate with
// progress, and finds the action in the audit log. Messages that die again meanwhile stay dead.
func TestDB2_ReplayByFilter(t *testing.T) {
	t.Parallel()
	n := testrun.Size(400, 10_000)
	s := newShop(t)
	s.must(s.engine.CreateQueue(t.Context(), "payments", posthaste.QueueOptions{MaxAttempts: 1}))
	s.die("payments", 5, "no such customer %d")
	s.die("payments", n, "gateway timeout after %d ms")
	s.work(func(w *worker.Worker) {
		worker.Handle(w, "payments", func(_ context.Context, d posthaste.Delivery[int]) error {
			return fmt.Errorf("gateway timeout after %d ms", d.Payload)
		})
	})
	count := thousands(n)

	b := newTab(t)
	s.enter(b)
	b.follow("Dead letters")
	b.follow("gateway timeout after … ms")
	b.lacks("no such customer")
	b.follow("Replay all that match")
	b.sees("Exactly "+count+" dead letters will change.", "A message that dies again is not replayed again.")
	b.click("At most per second")
	b.types(fmt.Sprint(n / 2))
	b.follow("Replay")
	b.sees("At most "+thousands(n/2)+" messages per second.", "Left") // while it runs
	b.sees(count+" of "+count, "Replayed "+count+" messages.")
	b.lacks("Replay the rest")

	testrun.Until(t, patience, "all have died again, once", func() bool { return s.letters("payments")[2] == n })
	if tried := s.letters("payments"); tried[1] != 5 || len(tried) != 2 {
		t.Errorf("dead letters by their attempts: %v", tried)
	}
	b.follow("Audit log")
	b.sees("http:ada", "Replay "+count+" dead letters")
}

// thousands returns a number as pages show it.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// A person pauses one key with a reason and an end: its messages wait, those of other keys do not,
// colleagues read why, and at the end it goes on without a click.
func TestKeyIsPausedForATime(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(s.engine.CreateQueue(t.Context(), "accounts", posthaste.QueueOptions{Fair: true}))
	key := strings.Repeat("long-key-", 28) // 252 bytes
	s.work(func(w *worker.Worker) {
		worker.Handle(w, "accounts", func(context.Context, posthaste.Delivery[int]) error { return nil })
	})
	b := newTab(t)
	b.look(narrow, light)
	s.enter(b)
	b.open(s.url + "/queues/accounts")
	b.click("Key")
	b.types(key)
	b.click("Reason")
	b.types("INC-7: wrong <b>prices</b>")
	b.follow("Pause key")
	b.sees("INC-7: wrong <b>prices</b>")
	b.follow("Pause")
	b.sees("Paused.", "INC-7: wrong <b>prices</b>", "http:ada")
	var overflows bool
	if b.answer("document.documentElement.scrollWidth > innerWidth", &overflows); overflows {
		t.Error("the page is wider than the screen")
	}
	held := s.send(posthaste.Message{Queue: "accounts", Key: key, Payload: 1})[0]
	s.comes(s.send(posthaste.Message{Queue: "accounts", Key: "another", Payload: 1})[0], posthaste.StateDone)
	s.comes(held, posthaste.StateReady)
	b.open(s.url + "/messages/" + held.String())
	b.sees("ready", "paused")
	s.must(s.engine.Pause(t.Context(), posthaste.OfKey{Queue: "accounts", Key: key}, posthaste.PauseOptions{Reason: "INC-7", Until: time.Now().Add(2 * time.Second)}))
	b.sees("done") // without a click
}
