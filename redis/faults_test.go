package redis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// failing fails the calls of a script with a key that contains a text, before they reach Redis.
type failing struct {
	plainHook
	script  *script
	key     string
	failing atomic.Bool
}

var errCut = errors.New("the connection was cut")

// fail returns a hook of an engine, which fails nothing yet.
func fail(e *Engine, s *script, key string) *failing {
	f := &failing{script: s, key: key}
	e.client.AddHook(f)
	return f
}

// ProcessHook implements [goredis.Hook].
func (f *failing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		args := cmd.Args()
		if s := f.script.read(); f.failing.Load() && len(args) > 3 && (args[1] == s.sha || args[1] == s.text) {
			for _, key := range args[3 : 3+args[2].(int)] {
				if strings.Contains(key.(string), f.key) {
					cmd.SetErr(errCut)
					return errCut
				}
			}
		}
		return next(ctx, cmd)
	}
}

// A queue that cannot be reached, as when one master of a cluster is lost, does not fail the notes of
// other queues, which would be recorded a second time.
func TestNotesOfAQueueThatFails(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	var ids []posthaste.DeliveryID
	for _, name := range []string{"lost", "works"} {
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: name, Payload: 1}); err != nil {
			t.Fatal(err)
		}
		reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: name}, Max: 1, Lease: time.Minute})
		if err != nil || len(reply.Deliveries) != 1 {
			t.Fatalf("%+v, %v", reply, err)
		}
		ids = append(ids, reply.Deliveries[0].ID)
	}
	fail(e, &noteScript, "lost").failing.Store(true)
	note := posthaste.Note{Log: "line\n"}
	for range 10 { // whatever the order
		results, err := e.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: ids, Notes: []posthaste.Note{note, note}})
		if err != nil {
			t.Fatal(err)
		}
		if results[0].Err == nil || results[0].Settled || results[1].Err != nil || !results[1].Settled {
			t.Fatalf("results %+v", results)
		}
	}
	_, err := e.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: ids[:1], Notes: []posthaste.Note{note}})
	if posthaste.CodeOf(err) != posthaste.CodeOutcomeUnknown {
		t.Errorf("of the queue alone: %v", err)
	}
}
