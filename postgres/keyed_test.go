package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A key that waits for a message in flight is looked at when that is settled, also
// where more of other keys was handed out meanwhile.
func TestKeyThatWaitsIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := postgres.Open(ctx, testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(e.QueueCreate(ctx, "q", posthaste.QueueOptions{Ordered: true, Lanes: 1}))
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	check(err)
	number := int64(0)
	claim := func(keys ...string) (got []posthaste.RawDelivery) {
		t.Helper()
		for _, key := range keys {
			_, err := e.Send(ctx, posthaste.Message{Queue: "q", Key: key})
			check(err)
		}
		number++
		reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 10})
		check(err)
		return reply.Deliveries
	}
	settle := func(outcome posthaste.Outcome, deliveries ...posthaste.RawDelivery) {
		t.Helper()
		for _, d := range deliveries {
			s := posthaste.Settlement{Delivery: d.ID, Outcome: outcome, RetryAfter: time.Microsecond}
			if outcome == posthaste.Retried {
				s.Error = "not now"
			} else {
				s.RetryAfter = 0
			}
			_, err := e.Settle(ctx, []posthaste.Settlement{s})
			check(err)
		}
	}
	first := claim("k", "k")
	if len(first) != 2 {
		t.Fatalf("%d were handed out, want 2", len(first))
	}
	settle(posthaste.Retried, first[0])
	time.Sleep(time.Millisecond) // its backoff is over
	// The key waits for its second message, while others are handed out.
	others := claim("a", "b", "c")
	settle(posthaste.Done, first[1])
	others = append(others, claim("d")...)
	others = append(others, claim("e")...)
	settle(posthaste.Done, others...)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got := claim(); len(got) == 1 && got[0].MessageID == first[0].MessageID && got[0].Attempt == 2 {
			return
		}
		for _, d := range others {
			if d.MessageID == first[0].MessageID {
				return // sooner still
			}
		}
	}
	t.Error("the failed message of the key does not come again")
}
