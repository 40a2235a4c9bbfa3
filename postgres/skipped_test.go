package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// Messages that were sent between crashes of a database that nobody keeps up meanwhile are listed
// and delivered: their ids are revolutions of the ring apart.
func TestMessagesBetweenCrashes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testpg.Server(t)
	e := openAt(t, server.URL())
	for _, queue := range []string{"q", "other"} {
		if err := e.CreateQueue(ctx, queue, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const crashes, each = 3, 5
	var sent []posthaste.MessageID
	for n := range crashes + 1 {
		for i := range each {
			var ids []posthaste.MessageID
			testrun.Until(t, time.Minute, "a message is sent", func() (ok bool) {
				all, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: "q", Key: "k", Reference: "r", Payload: n*each + i, DedupeKey: fmt.Sprint(n, ".", i)}))
				ids = all
				return err == nil
			})
			sent = append(sent, ids...)
		}
		if n == crashes {
			break
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// A page ends within each group.
	listed := func(filter posthaste.MessageFilter) (ids []posthaste.MessageID) {
		t.Helper()
		for filter.Queue, filter.Limit = "q", 2; ; filter.Before = ids[len(ids)-1] {
			found, err := e.Messages(ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Items) == 0 {
				return ids
			}
			for _, m := range found.Items {
				ids = append(ids, m.ID)
			}
		}
	}
	newestFirst := slices.Clone(sent)
	slices.Reverse(newestFirst)
	for _, filter := range []posthaste.MessageFilter{{}, {Key: "k"}, {Reference: "r"}} {
		if got := listed(filter); !slices.Equal(got, newestFirst) {
			t.Errorf("%+v: listed %v, want %v", filter, got, newestFirst)
		}
	}
	for _, id := range sent {
		if _, err := e.Message(ctx, id); err != nil {
			t.Errorf("message %d: %v", id, err)
		}
	}
	handled := make(chan int, 100)
	w := worker.New(e, worker.Config{})
	worker.Handle(w, "q", func(_ context.Context, d posthaste.Delivery[int]) error {
		handled <- d.Payload
		return nil
	})
	posthastetest.Drain(t, e, w)
	if len(handled) != len(sent) {
		t.Errorf("%d of %d messages were handled", len(handled), len(sent))
	}
	if got := listed(posthaste.MessageFilter{}); !slices.Equal(got, newestFirst) {
		t.Errorf("afterwards listed %v, want %v", got, newestFirst)
	}
}
