package nats

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
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

// The confirmation of a delayed message is lost, and the message is due before the send is repeated: it
// comes once.
func TestDelayedMessageIsNotRepeated(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	proxy := faultproxy.Start(t, strings.TrimPrefix(url, "nats://"), func(data []byte) bool { return bytes.Contains(data, []byte(headerSchedule+": @at")) })
	a, direct := openEngine(t, "nats://"+proxy.Address()), openEngine(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	cut := proxy.CutAfter()
	_, err := a.Send(ctx, posthaste.Message{Queue: "jobs", Payload: 1, Delay: time.Second})
	<-cut
	wantCode(t, "the send", err, posthaste.CodeOutcomeUnknown)
	until(t, ctx, "no schedule is left", func() bool {
		q := direct.queues.known("jobs")
		left, err := direct.countFrom(ctx, q.stream, q.subjects.under("s", ">"), 1)
		must(t, err)
		return left == 0
	})
	if got := receiveJobs(t, direct, 10); len(got) != 1 {
		t.Errorf("%d messages came, want 1", len(got))
	}
}
