package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A key that waits for a message in flight continues when the message is settled, even if
// messages of other keys were handed out meanwhile.
func TestKeyThatWaitsIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := openAt(t, testpg.New(t))
	must(t, e.CreateQueue(ctx, "q", posthaste.QueueOptions{Ordered: true, Lanes: 1}))
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must(t, err)
	number := int64(0)
	claim := func(keys ...string) (got []posthaste.RawDelivery) {
		t.Helper()
		for _, key := range keys {
			_, err := e.Send(ctx, posthaste.Message{Queue: "q", Key: key})
			must(t, err)
		}
		number++
		reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 10})
		must(t, err)
		return reply.Deliveries
	}
	settle := func(outcome posthaste.Outcome, deliveries ...posthaste.RawDelivery) {
		t.Helper()
		for _, d := range deliveries {
			s := posthaste.Settlement{Delivery: d.ID, Outcome: outcome, RetryAfter: time.Microsecond}
			if outcome == posthaste.OutcomeRetried {
				s.Error = "not now"
			} else {
				s.RetryAfter = 0
			}
			_, err := e.Settle(ctx, []posthaste.Settlement{s})
			must(t, err)
		}
	}
	first := claim("k", "k")
	if len(first) != 2 {
		t.Fatalf("%d were handed out, want 2", len(first))
	}
	settle(posthaste.OutcomeRetried, first[0]) // its backoff of 1 µs is over when the next statement begins
	// The key waits for its second message while other keys are handed out.
	others := claim("a", "b", "c")
	settle(posthaste.OutcomeDone, first[1])
	others = append(others, claim("d")...)
	others = append(others, claim("e")...)
	settle(posthaste.OutcomeDone, others...)
	if slices.ContainsFunc(others, func(d posthaste.RawDelivery) bool { return d.MessageID == first[0].MessageID }) {
		return // even earlier
	}
	testrun.Until(t, time.Minute, "the failed message of the key comes again", func() bool {
		got := claim()
		return len(got) == 1 && got[0].MessageID == first[0].MessageID && got[0].Attempt == 2
	})
}

// Large and small sends to a keyed queue keep the order of each key, and messages that the queue
// does not allow are rejected.
func TestManyKeyedMessagesAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := testpg.New(t)
	e := openAt(t, url)
	must(t, e.CreateQueue(ctx, "q", posthaste.QueueOptions{Ordered: true, Lanes: 3}))
	const keys = 10
	want := map[string][]posthaste.MessageID{}
	send := func(by *postgres.Engine, n int) {
		t.Helper()
		messages := make([]posthaste.Message, n)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: "q", Payload: i, Key: fmt.Sprint("key ", i%keys, " ä")}
		}
		ids, err := posthaste.IDs(by.Send(ctx, messages...))
		must(t, err)
		for i, id := range ids {
			want[messages[i].Key] = append(want[messages[i].Key], id)
		}
	}
	conn, err := pgx.Connect(ctx, url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	sender := as(t, conn, url, "posthaste_sender")
	for _, n := range []int{200, 300, 5, 200} {
		send(e, n)
		send(sender, n)
	}
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must(t, err)
	got := map[string][]posthaste.MessageID{}
	for number, left := int64(1), 2*705; left > 0; number++ {
		reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 500})
		must(t, err)
		if len(reply.Deliveries) == 0 {
			t.Fatalf("%d messages were not handed out", left)
		}
		var done []posthaste.Settlement
		for _, d := range reply.Deliveries {
			got[d.Key] = append(got[d.Key], d.MessageID)
			done = append(done, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
		}
		left -= len(done)
		_, err = e.Settle(ctx, done)
		must(t, err)
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s: handed out %v, want %v", key, got[key], want[key])
		}
	}

	many := func(change func(*posthaste.Message)) []posthaste.Message {
		out := make([]posthaste.Message, 100)
		for i := range out {
			out[i] = posthaste.Message{Queue: "q", Payload: i, Key: "k"}
		}
		change(&out[70])
		return out
	}
	for field, change := range map[string]func(*posthaste.Message){
		"key":      func(m *posthaste.Message) { m.Key = "" },
		"send_at":  func(m *posthaste.Message) { m.SendAt = time.Now().Add(time.Hour) },
		"delay":    func(m *posthaste.Message) { m.Delay = time.Hour },
		"priority": func(m *posthaste.Message) { m.Priority = 2 },
	} {
		_, err := e.Send(ctx, many(change)...)
		var refused *posthaste.Error
		if !errors.As(err, &refused) || refused.Code != posthaste.CodeInvalid || refused.Field != field {
			t.Errorf("many messages with a bad %s: %v", field, err)
		}
	}
	// Create another queue with the same name.
	must(t, e.DropQueue(ctx, "q", posthaste.DropOptions{}))
	must(t, e.CreateQueue(ctx, "q", posthaste.QueueOptions{}))
	for range 2 {
		ids, err := posthaste.IDs(e.Send(ctx, many(func(*posthaste.Message) {})...))
		must(t, err)
		if len(ids) != 100 {
			t.Fatalf("%d ids for 100 messages", len(ids))
		}
	}
	var n int
	must(t, conn.QueryRow(ctx, `select count(*) from posthaste.entries e join posthaste.queue_settings q on q.id = e.queue_id where q.dropped_at is null and e.ord is null`).Scan(&n))
	if n != 200 {
		t.Errorf("%d messages of a plain queue have no order, want 200", n)
	}
}
