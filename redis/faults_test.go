package redis

import (
	"context"
	"encoding/json"
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
	failed  atomic.Int64 // calls
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
					f.failed.Add(1)
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

// An action that was done and could not be recorded is told as done, so that the caller does not
// repeat it.
func TestDoneButNotRecorded(t *testing.T) {
	t.Parallel()
	e, ctx := open(t, server.URL()), t.Context()
	create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 1}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := posthaste.Schedule{Name: "s", Spec: "every 2 hours", Message: posthaste.Message{Queue: jobs, Payload: json.RawMessage("1")}}
	_, err := e.PutSchedule(ctx, put)
	must(err)
	send(t, e, 2)
	reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 2, Lease: time.Minute})
	must(err)
	for _, d := range reply.Deliveries {
		_, err = e.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "no"}})
		must(err)
	}
	first, second := reply.Deliveries[0].MessageID, reply.Deliveries[1].MessageID
	waits := send(t, e, 3)
	cut := fail(e, &recordActionsScript, "actions")
	cut.failing.Store(true)
	for name, do := range map[string]func() error{
		"run a schedule":   func() error { _, err := e.RunSchedule(ctx, "s"); return err },
		"put a schedule":   func() error { put.Name = "t"; _, err := e.PutSchedule(ctx, put); return err },
		"pause a schedule": func() error { return e.Pause(ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}) },
		"pause a key":      func() error { return e.Pause(ctx, posthaste.OfKey{Queue: jobs, Key: "k"}, posthaste.PauseOptions{}) },
		"create":           func() error { return e.CreateQueue(ctx, "other", posthaste.QueueOptions{}) },
		"edit": func() error {
			_, err := e.UpdateMessage(ctx, waits[0], posthaste.MessageUpdate{Payload: json.RawMessage("2")})
			return err
		},
		"cancel": func() error { _, err := e.Cancel(ctx, waits[1]); return err },
		"replay": func() error {
			_, err := e.Replay(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
			return err
		},
		"discard": func() error {
			_, err := e.Discard(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{second}})
			return err
		},
	} {
		if err := do(); posthaste.CodeOf(err) != posthaste.CodeOutcomeUnknown || !strings.Contains(err.Error(), "was done, but") {
			t.Errorf("%s ended with %v", name, err)
		}
	}
	if _, err := e.PurgeQueue(ctx, jobs); posthaste.CodeOf(err) != posthaste.CodeOutcomeUnknown || !strings.Contains(err.Error(), "was done, but") {
		t.Errorf("purging ended with %v", err)
	}
	// A token whose secret was not returned is not left behind.
	if _, err := e.CreateToken(ctx, posthaste.Token{Name: "t", Scopes: posthaste.Scopes()[:1]}); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("adding a token ended with %v", err)
	}
	if tokens, err := e.Tokens(ctx); err != nil || len(tokens) != 0 {
		t.Errorf("tokens %+v, %v", tokens, err)
	}
}
