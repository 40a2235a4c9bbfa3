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
	server := testpg.Server(t)
	e := openAt(t, server.URL())
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	var sent []posthaste.MessageID
	for n := range 20 {
		if n > 0 && n%5 == 0 {
			crash(t, server)
		}
		testrun.Until(t, time.Minute, "a message is sent", func() bool {
			ids, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: "q", Key: "k", Reference: "r", Payload: n, DedupeKey: fmt.Sprint(n)}))
			sent = append(sent, ids...)
			return err == nil
		})
	}
	// A page ends within each group.
	listed := func(filter posthaste.MessageFilter) []posthaste.MessageID {
		t.Helper()
		filter.Queue, filter.Limit = "q", 2
		return pages(t, e, filter)
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
	server := testpg.Server(t)
	e := openAt(t, server.URL())
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	var newestFirst []posthaste.MessageID
	for n := range 3 {
		if n > 0 {
			crash(t, server)
		}
		testrun.Until(t, time.Minute, "a message is sent", func() bool {
			ids, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: "q", Key: "k", Reference: "r", Payload: n, DedupeKey: fmt.Sprint(n)}))
			newestFirst = append(ids, newestFirst...)
			return err == nil
		})
	}
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
	for _, filter := range []posthaste.MessageFilter{{}, {Key: "k"}, {Reference: "r"}} {
		filter.Queue, filter.Limit = "q", 2
		if got := pages(t, e, filter); !slices.Equal(got, newestFirst) {
			t.Errorf("%+v: listed %v, want %v", filter, got, newestFirst)
		}
	}
}
