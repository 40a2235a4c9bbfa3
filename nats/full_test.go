package nats

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// sendLarge sends 100 kB. It waits for room for a second at most.
func sendLarge(ctx context.Context, e *Engine) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := e.Send(ctx, posthaste.Message{Queue: "jobs", ContentType: posthaste.ContentTypeBytes, Payload: bytes.Repeat([]byte{7}, 100_000)})
	return err
}

// While the servers' storage is full, heartbeats and registrations go on, so that workers make room.
func TestWorkersGoOnAtFullStorage(t *testing.T) {
	t.Parallel()
	url := startServerOf(t, 8<<20)
	a, b := openEngine(t, url), openEngine(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	w, late := registered(t, ctx, a, 30*time.Second), registered(t, ctx, a, time.Hour)
	var full error
	for sent := 0; posthaste.CodeOf(full) != posthaste.CodeUnavailable && sent < 200; sent++ { // a slow send is unknown
		full = sendLarge(ctx, b)
	}
	if wantCode(t, "a send", full, posthaste.CodeUnavailable); !strings.Contains(full.Error(), "storage") {
		t.Errorf("a send fails with %v", full)
	}

	ahead(20*time.Second, a)
	beatOf(t, ctx, a, w)
	ahead(20*time.Second, a)
	beatOf(t, ctx, a, w)
	second, err := a.Register(ctx, posthaste.WorkerInfo{Name: "second", Lease: time.Minute})
	must(t, err)
	beatOf(t, ctx, a, second)
	for _, id := range []posthaste.WorkerID{w, second} {
		got, err := a.Claim(ctx, posthaste.ClaimRequest{Worker: id, QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 20})
		must(t, err)
		for _, d := range got.Deliveries {
			settled, err := a.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDone}})
			if must(t, err); !settled[0].Settled {
				t.Errorf("a delivery is not settled: %+v", settled[0])
			}
		}
	}

	until(t, ctx, "there is room again", func() bool { return sendLarge(ctx, b) == nil })
	for _, id := range []posthaste.WorkerID{w, second, late} {
		beatOf(t, ctx, a, id)
	}
	if listed := workersOf(t, ctx, b); len(listed) != 3 {
		t.Errorf("another process lists %+v", listed)
	}
}
