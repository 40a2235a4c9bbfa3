package browsertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// question is one question of the person on call, which at most three clicks answer.
type question struct {
	*tab
	clicks int
}

func (q *question) follow(name string) {
	q.Helper()
	if q.clicks++; q.clicks > 3 {
		q.Errorf("click %d, on %q, is one too many", q.clicks, name)
	}
	q.tab.follow(name)
}

// night is a shop with a story, which the questions are about.
type night struct {
	*shop
	report posthaste.MessageID // its handler hangs
}

func newNight(t *testing.T) *night {
	t.Helper()
	s := newShop(t)
	ctx := t.Context()
	for name, o := range map[string]posthaste.QueueOptions{
		"orders": {MaxAttempts: 20, BackoffBase: time.Minute, BackoffMax: time.Hour, Timeout: time.Hour}, "index": {}, "letters": {MaxAttempts: 1}} {
		s.must(s.engine.CreateQueue(ctx, name, o))
	}
	s.must(s.engine.Pause(posthaste.WithActor(ctx, "grace"), posthaste.OfQueue("index"), posthaste.PauseOptions{}))
	s.work(func(w *worker.Worker) {
		worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[int]) error {
			switch d.Kind {
			case "invoice":
				return fmt.Errorf("order %d: column %q does not exist", d.Payload, "vat")
			case "report":
				<-ctx.Done() // until it is cancelled
				return context.Cause(ctx)
			}
			return nil
		})
		worker.Handle(w, "letters", func(context.Context, posthaste.Delivery[int]) error { return errors.New("the printer is out of paper") })
	})
	sent := s.send(
		posthaste.Message{Queue: "orders", Kind: "invoice", Payload: 7, Reference: "customer-7"}, posthaste.Message{Queue: "orders", Kind: "report", Payload: 1},
		posthaste.Message{Queue: "orders", Kind: "paid", Payload: 1}, posthaste.Message{Queue: "index", Payload: 1, Reference: "product-1"}, posthaste.Message{Queue: "letters", Payload: 1})
	s.comes(sent[4], posthaste.StateDead)
	mail := s.mail("ada@example.com", "Your order 7", "order-7")
	s.comes(mail, posthaste.StateDone)

	return &night{s, sent[1]}
}

// DB11: the ten questions at 3 a.m., on a database with their story: a deploy whose
// handler of invoices fails, a queue that grace paused, a handler that hangs, and mails.
func TestDB11_TenQuestions(t *testing.T) {
	t.Parallel()
	s := newNight(t)
	b := newTab(t)
	s.enter(b)
	ask := func(name string, answer func(q *question)) {
		b.open(s.url + "/")
		b.sees("Overview")
		before := t.Failed()
		answer(&question{tab: b})
		if t.Failed() && !before {
			t.Errorf("the question was: %s", name)
		}
	}
	ask("which version or host fails, and what fails since the deploy", func(q *question) {
		q.follow("Failing now")
		q.sees("invoice", "order …: column … does not exist", "2026.11.2", "new")
	})
	ask("is anything wrong, and since when", func(q *question) { q.sees("Health", "Fault: settings", "Seen since") })
	ask("which queue falls behind, and when will it be empty", func(q *question) {
		q.sees("Falling behind", "index", "Empty in")
		q.follow("index")
		q.sees("Waiting messages", "Paused")
	})
	ask("where is the message of a customer, and why has it not started", func(q *question) {
		q.click("Find a message")
		q.types("product-1")
		q.follow("Find")
		q.sees("ready", "The queue is paused.")
	})
	ask("what runs longest, and stop it", func(q *question) {
		q.follow("Workers")
		q.sees("Running longest", s.report.String(), "report")
		q.follow("Cancel")
		q.follow("Cancel the message")
		s.comes(s.report, posthaste.StateCancelled)
	})
	ask("stop the bleeding", func(q *question) {
		q.follow("Failing now")
		q.follow("Pause kind")
		q.click("Reason")
		q.types("INC-7: the deploy is rolled back")
		q.click("or until (UTC)")
		q.types(time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04"))
		q.follow("Pause")
		q.sees("Paused.", "by http:ada, until ", ": INC-7: the deploy is rolled back")
	})
	ask("replay what failed in the night", func(q *question) {
		q.follow("Dead letters")
		q.sees("the printer is out of paper")
		q.follow("Replay all that match")
		q.sees("1")
		q.follow("Replay")
		q.sees("1 of 1", "Replayed 1 message.")
	})
	ask("did the mail arrive", func(q *question) {
		q.follow("E-mail")
		q.sees("ada@example.com", "Your order 7", "sent", "250")
	})
}
