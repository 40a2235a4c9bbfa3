package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// Messages that were sent between crashes, without any upkeep, are listed and delivered: their ids
// are revolutions of the ring apart.
func TestMessagesBetweenCrashes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, e, newestFirst := sentBetweenCrashes(t, 20, 5) // a page ends within each group
	listed(t, e, newestFirst, posthaste.MessageFilter{}, posthaste.MessageFilter{Key: "k"}, posthaste.MessageFilter{Reference: "r"})
	for _, id := range newestFirst {
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
	if len(handled) != len(newestFirst) {
		t.Errorf("%d of %d messages were handled", len(handled), len(newestFirst))
	}
	listed(t, e, newestFirst, posthaste.MessageFilter{}) // afterwards, too
}

// sentBetweenCrashes sends messages to the queue "q" of a new server, which crashes after each group
// of them but the last, and returns their ids.
func sentBetweenCrashes(t *testing.T, count, group int) (server *devpg.Server, e *postgres.Engine, newestFirst []posthaste.MessageID) {
	t.Helper()
	server = testpg.Server(t)
	e = openAt(t, server.URL())
	if err := e.CreateQueue(t.Context(), "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if n > 0 && n%group == 0 {
			crash(t, server)
		}
		testrun.Until(t, time.Minute, "a message is sent", func() bool {
			ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: "q", Key: "k", Reference: "r", Payload: n, DedupeKey: fmt.Sprint(n)}))
			newestFirst = append(ids, newestFirst...)
			return err == nil
		})
	}
	return server, e, newestFirst
}

// listed checks that lists of the queue "q" by filters, in pages of two, have these messages.
func listed(t *testing.T, e *postgres.Engine, newestFirst []posthaste.MessageID, filters ...posthaste.MessageFilter) {
	t.Helper()
	for _, filter := range filters {
		filter.Queue, filter.Limit = "q", 2
		if got := pages(t, e, filter); !slices.Equal(got, newestFirst) {
			t.Errorf("%+v: listed %v, want %v", filter, got, newestFirst)
		}
	}
}

// crash kills a server and starts it again.
func crash(t *testing.T, server *devpg.Server) {
	t.Helper()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// pages returns the messages of all pages of a list.
func pages(t *testing.T, e *postgres.Engine, filter posthaste.MessageFilter) (ids []posthaste.MessageID) {
	t.Helper()
	for {
		found, err := e.Messages(context.Background(), filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Items) == 0 {
			return ids
		}
		for _, m := range found.Items {
			ids = append(ids, m.ID)
		}
		filter.Before = ids[len(ids)-1]
	}
}

// Messages that were sent between crashes stay listed when upkeep has freed all other slots.
func TestMessagesBetweenCrashesAfterReclaiming(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, e, newestFirst := sentBetweenCrashes(t, 3, 1)
	conn, err := postgres.Connect(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "update posthaste.settings set spare_slots = 15"); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "all other slots are free", func() bool {
		_, err := e.Maintain(ctx, posthaste.UpkeepSpace)
		live := 0
		return err == nil && conn.QueryRow(ctx, "select count(*) from posthaste.slots where live").Scan(&live) == nil && live == 1
	})
	listed(t, e, newestFirst, posthaste.MessageFilter{}, posthaste.MessageFilter{Key: "k"}, posthaste.MessageFilter{Reference: "r"})
}
