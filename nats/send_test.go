package nats

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func stored(t *testing.T, e *Engine, queue string) uint64 {
	t.Helper()
	s, err := e.js.Stream(context.Background(), e.queues.known(queue).stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestMessagesAreStored(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t))
	ctx := context.Background()
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	one := posthaste.Message{Queue: "q", Payload: 1}
	for _, messages := range [][]posthaste.Message{{one}, {one, one, {Queue: "q", Delay: time.Hour}, {Queue: "q", Priority: 2}}, {{Queue: "q", Delay: time.Hour}}} {
		if _, err := e.Send(ctx, messages...); err != nil {
			t.Error(err)
		}
	}
	if n := stored(t, e, "q"); n != 6 {
		t.Errorf("%d are stored, want 6", n)
	}
}

func TestDedupeKeyIsUsedOnce(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	ctx := context.Background()
	var ids sync.Map
	var senders sync.WaitGroup
	for i := range 4 {
		e := openEngine(t, url)
		if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			for n := range 50 {
				sent, err := e.Send(ctx, posthaste.Message{Queue: "q", Payload: i, DedupeKey: fmt.Sprint(n)})
				if err != nil {
					t.Error(err)
					return
				}
				if first, loaded := ids.LoadOrStore(n, sent[0].ID); loaded && first != sent[0].ID {
					t.Errorf("key %d: %d and %d", n, first, sent[0].ID)
				}
			}
		})
	}
	senders.Wait()
}
