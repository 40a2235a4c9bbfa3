package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// withQueue opens an engine with the queue q, which retries at once.
func withQueue(t *testing.T, url string) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.CreateQueue(t.Context(), "q", posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	return e
}

// A checkpoint in the handler's transaction commits with it, and is refused once the delivery is
// not the caller's.
func TestR5_CheckpointInATransaction(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.New(t)
	e := withQueue(t, url)
	receive := func() posthaste.RawDelivery {
		t.Helper()
		for {
			reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1, Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.Deliveries) > 0 {
				return reply.Deliveries[0]
			}
		}
	}
	settle := func(d posthaste.RawDelivery, outcome posthaste.Outcome) {
		t.Helper()
		results, err := e.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: outcome, Error: "no"}})
		if err != nil || !results[0].Settled {
			t.Fatalf("%+v, %v", results, err)
		}
	}
	for name, begin := range waysIntoATransaction(ctx, t, url) {
		if _, err := e.Send(ctx, posthaste.Message{Queue: "q", Payload: name}); err != nil {
			t.Fatal(err)
		}
		d := receive()
		tx := begin()
		for _, err := range []error{tx.Checkpoint(ctx, d.ID, 7), tx.begin(), tx.Checkpoint(ctx, d.ID, 8), tx.rollback(), tx.commit()} {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		settle(d, posthaste.OutcomeRetried)
		again := receive()
		if at, found, err := posthaste.Resume[int](again); at != 7 || !found || err != nil {
			t.Errorf("%s: the next attempt resumes at %d, %v, %v; want the checkpoint that was committed", name, at, found, err)
		}
		tx = begin()
		if err := tx.Checkpoint(ctx, d.ID, 9); posthaste.CodeOf(err) != posthaste.CodeConflict {
			t.Errorf("%s: a late checkpoint ended with %v", name, err)
		}
		_ = tx.commit()
		tx = begin()
		if err := tx.Checkpoint(ctx, again.ID, "\x00"); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%s: a checkpoint that cannot be stored ended with %v", name, err)
		}
		if err := tx.commit(); err != nil {
			t.Errorf("%s: after that, the transaction ended with %v", name, err)
		}
		settle(again, posthaste.OutcomeDone)
	}
}

// Deliveries that their worker settles in batches have no checkpoints in the caller's transaction.
func TestR5_CheckpointInATransactionNeedsASingle(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.New(t)
	e := withQueue(t, url)
	if _, err := e.Send(ctx, posthaste.Message{Queue: "q", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatalf("%+v, %v", reply, err)
	}
	tx := waysIntoATransaction(ctx, t, url)["pgx"]()
	if err := tx.Checkpoint(ctx, reply.Deliveries[0].ID, 1); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Errorf("it ended with %v", err)
	}
	_ = tx.commit()
}

// A result that a handler sets before it acknowledges in its own transaction is stored with the
// acknowledgment, and not without it.
func TestR5_ResultInATransaction(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.New(t)
	e := withQueue(t, url)
	ways := waysIntoATransaction(ctx, t, url)
	for name := range ways {
		if _, err := e.Send(ctx, posthaste.Message{Queue: "q", Payload: name}); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan posthaste.MessageID, 10)
	w := worker.New(e, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.Handle(w, "q", func(ctx context.Context, d posthaste.Delivery[string]) error {
		tx := ways[d.Payload]()
		if err := d.SetResult(map[string]string{"way": d.Payload}); err != nil {
			return err
		}
		child, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if d.Attempt == 1 {
			return errors.Join(tx.begin(), tx.Ack(child, d.ID), tx.rollback(), tx.commit(), errors.New("rolled back"))
		}
		if err := tx.Ack(child, d.ID); err != nil {
			return err
		}
		defer func() { ended <- d.MessageID }()
		return tx.commit()
	}, worker.WithOwnTransaction())
	running, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- w.Run(running) }()
	for range ways {
		id := <-ended
		message, err := e.Message(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		var way string
		if err := json.Unmarshal(message.Payload, &way); err != nil {
			t.Fatal(err)
		}
		attempts := message.Subscriptions[0].Attempts
		if got := string(attempts[len(attempts)-1].Receipt); len(attempts) != 2 || got != `{"way": "`+way+`"}` || attempts[0].Receipt != nil {
			t.Errorf("%s: the result is %s, of %d attempts", way, got, len(attempts))
		}
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// A delivery with a checkpoint in an open transaction cannot be noted until that ends. The call does
// not wait for it, and records the notes of other deliveries.
func TestNotesDoNotWaitForATransaction(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.New(t)
	e := withQueue(t, url)
	_, err := e.Send(ctx, posthaste.Message{Queue: "q", Payload: 1}, posthaste.Message{Queue: "q", Payload: 2})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 2, Lease: time.Minute})
	if err != nil || len(reply.Deliveries) != 2 {
		t.Fatalf("%+v, %v", reply, err)
	}
	held, free := reply.Deliveries[0].ID, reply.Deliveries[1].ID
	note := func() []posthaste.SettleResult {
		t.Helper()
		results, err := e.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{held, free, held},
			Notes: []posthaste.Note{{Log: "one\n"}, {Log: "two\n"}, {Log: "three\n"}}})
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for name, begin := range waysIntoATransaction(ctx, t, url) {
		tx := begin()
		if err := tx.Checkpoint(ctx, held, 7); err != nil {
			t.Fatal(err)
		}
		if r := note(); posthaste.CodeOf(r[0].Err) != posthaste.CodeUnavailable || posthaste.CodeOf(r[2].Err) != posthaste.CodeUnavailable || r[0].Settled {
			t.Errorf("%s: of the delivery that is held: %+v", name, r)
		} else if !r[1].Settled || r[1].Err != nil {
			t.Errorf("%s: of the other: %+v", name, r[1])
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		for i, r := range note() {
			if !r.Settled || r.Err != nil {
				t.Errorf("%s: note %d after the end: %+v", name, i, r)
			}
		}
	}
}
