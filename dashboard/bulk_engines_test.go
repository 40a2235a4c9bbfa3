//go:build unix

package dashboard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// An operator replays dead letters by a filter, with progress, while messages die again and others
// die for the first time: 10,000 at full size.
func TestDB2_ReplayOnPostgreSQL(t *testing.T) {
	t.Parallel()
	replayMany(t, onPostgreSQL(t, testpg.New(t)), testrun.Size(2_500, 10_000))
}

func TestDB2_ReplayOnRedis(t *testing.T) {
	t.Parallel()
	replayMany(t, onRedis(t), testrun.Size(2_500, 10_000))
}

func TestDB2_ReplayInMemory(t *testing.T) {
	t.Parallel()
	replayMany(t, memory.Open(), testrun.Size(2_500, 10_000))
}

// dying is a queue whose messages all die, with a different error in each.
type dying struct {
	t      *testing.T
	engine posthaste.Store
	queue  string
}

// die receives messages and settles them as dead until n have died.
func (q *dying) die(ctx context.Context, n int, text string) error {
	for n > 0 {
		got, err := q.engine.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q.queue}, Max: 500, Lease: time.Minute})
		if err != nil {
			return err
		}
		settle := make([]posthaste.Settlement, len(got.Deliveries))
		for i, d := range got.Deliveries {
			settle[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: fmt.Sprintf(text, n-i)}
		}
		if _, err := q.engine.Settle(ctx, settle); len(settle) > 0 && err != nil {
			return err
		}
		n -= len(settle)
	}
	return nil
}

func (q *dying) dieNow(n int, text string) []posthaste.MessageID {
	q.t.Helper()
	var all []posthaste.MessageID
	for left := n; left > 0; left -= 500 {
		messages := make([]posthaste.Message, min(left, 500))
		for i := range messages {
			messages[i] = posthaste.Message{Queue: q.queue, Kind: "charge", Payload: map[string]int{"n": i}}
		}
		ids, err := posthaste.IDs(q.engine.Send(q.t.Context(), messages...))
		if err != nil {
			q.t.Fatal(err)
		}
		all = append(all, ids...)
	}
	if err := q.die(q.t.Context(), n, text); err != nil {
		q.t.Fatal(err)
	}
	return all
}

// letters returns how often each dead letter that matches was tried.
func (q *dying) letters(f posthaste.DeadLetterFilter) map[posthaste.MessageID]int {
	q.t.Helper()
	tried := map[posthaste.MessageID]int{}
	f.Queue, f.Limit = q.queue, 1000
	for {
		found, err := q.engine.DeadLetters(q.t.Context(), f)
		if err != nil {
			q.t.Fatal(err)
		}
		for _, d := range found.Items {
			tried[d.ID] = len(d.Attempts)
		}
		if found.Next == 0 {
			return tried
		}
		f.Before = found.Next
	}
}

// recorded counts the records of an action on the queue by the messages.
func (q *dying) recorded(action, by string) map[posthaste.MessageID]int {
	q.t.Helper()
	counts, f := map[posthaste.MessageID]int{}, posthaste.ActionFilter{Queue: q.queue, Limit: 1000}
	for {
		actions, err := q.engine.Actions(q.t.Context(), f)
		if err != nil {
			q.t.Fatal(err)
		}
		for _, a := range actions {
			if a.Action == action && (a.By == by || strings.HasPrefix(a.By, by+" (bulk action ")) {
				counts[a.MessageID]++
			}
			f.Before = a.ID
		}
		if len(actions) < f.Limit {
			return counts
		}
	}
}

func replayMany(t *testing.T, engine posthaste.Store, n int) {
	t.Helper()
	ctx := t.Context()
	q := &dying{t, engine, "payments"}
	if err := engine.CreateQueue(ctx, q.queue, posthaste.QueueOptions{MaxAttempts: 1}); err != nil {
		t.Fatal(err)
	}
	chosen := q.dieNow(n, "gateway timeout after %d ms")
	other := q.dieNow(20, "no such customer %d")
	v := newSite(t, engine).viewer(posthaste.ScopeOperate)
	group := v.follow(v.get("/dead-letters?queue=payments&error=gateway"), "gateway timeout after … ms")
	ask := v.follow(group, "Replay all that match").want(200, "Exactly "+thousands(n)+" dead letters will change.", "A message that dies again is not replayed again.", "http:operateer")

	// After the confirmation was shown, more die with the same error.
	later := q.dieNow(3, "gateway timeout after %d ms")
	form := ask.form("/replay")
	form.Values.Set("rate", fmt.Sprint(n)) // slow enough to be seen, and done after a second
	again := make(chan error, 1)
	go func() { again <- q.die(ctx, n, "gateway timeout after %d ms") }()
	page := v.send(form).want(200, "At most "+thousands(n)+" messages per second.", "http:operateer")
	seen := 0
	for page.status == 200 && len(triedText.FindString(textOf(page))) > 0 && page.tried() < n {
		if now := page.tried(); now < seen {
			t.Fatalf("the progress goes back from %d to %d", seen, now)
		}
		seen = page.tried()
		page = v.get(page.at.Path)
	}
	v.until(page.at.Path, "Replayed "+thousands(n)+" messages.").lacks("Gone", "Replay the rest")
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	left := q.letters(posthaste.DeadLetterFilter{})
	records := q.recorded("replay", "http:operateer")
	if len(left) != n+20+3 || len(records) != n {
		t.Errorf("%d dead letters, want %d; %d records, want %d", len(left), n+20+3, len(records), n)
	}
	for _, id := range chosen {
		if records[id] != 1 || left[id] != 2 {
			t.Fatalf("message %s was replayed %d times and tried %d times, want once and twice", id, records[id], left[id])
		}
	}
	for _, id := range append(other, later...) {
		if records[id] != 0 || left[id] != 1 {
			t.Fatalf("message %s, which was not chosen, was replayed %d times and tried %d times", id, records[id], left[id])
		}
	}
}

// thousands formats a number of four or five digits.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
