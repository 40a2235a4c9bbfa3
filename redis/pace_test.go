package redis

import (
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// One script tells which of many subscriptions have something to hand out. One that is gone
// counts as ready, because its claim reports the error.
func TestProbe(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := open(t, start(t).URL())
	for _, name := range []string{"full", "empty", "paused"} {
		if err := e.CreateQueue(ctx, name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Send(ctx, posthaste.Message{Queue: "full", Payload: 1}, posthaste.Message{Queue: "paused", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(posthaste.WithActor(ctx, "test"), posthaste.OfQueue("paused"), posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	ready, err := e.probe(ctx, []posthaste.QueueRef{{Queue: "full"}, {Queue: "gone"}, {Queue: "empty"}, {Queue: "paused"}})
	if want := []bool{true, true, false, false}; err != nil || !slices.Equal(ready, want) {
		t.Errorf("ready %v, %v; want %v", ready, err, want)
	}
}

// A master that is away keeps no queue of the others from being polled.
func TestProbeWithoutAMaster(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	away := (registry + 1) % 3
	refs := []posthaste.QueueRef{{Queue: queues[registry]}, {Queue: queues[away]}, {Queue: queues[(registry+2)%3]}}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: refs[2].Queue}); err != nil {
		t.Fatal(err)
	}
	all[away].Kill()
	ready, err := e.probe(t.Context(), refs)
	if want := []bool{false, true, true}; err != nil || !slices.Equal(ready, want) {
		t.Errorf("ready %v, %v; want %v", ready, err, want)
	}
	if _, err := e.probe(t.Context(), refs[1:2]); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("a probe that no master answers: %v, want Unavailable", err)
	}
}
