package redis

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Unique keys do not stay in a queue to which nothing is sent: upkeep forgets those of finished
// messages, and an erasure those of messages that are kept.
func TestUniqueKeysAreForgotten(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]posthaste.QueueOptions{"kept by nothing": {}, "kept by the retention": {Retention: time.Hour}, "in a queue that looks at keys": {Limits: posthaste.QueueLimits{KeyConcurrency: 1}}} {
		e, ctx := open(t, server.URL()), t.Context()
		create(t, e, o)
		for _, key := range []string{"done", "dead", "waits"} {
			if _, err := e.Send(ctx, posthaste.Message{Queue: jobs, Payload: 1, Terms: []string{key}, Unique: &posthaste.Unique{Key: key}}); err != nil {
				t.Fatal(err)
			}
		}
		d := claim(t, e, register(t, e), 1, 2)
		if _, err := e.Settle(ctx, []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeDone}, {Delivery: d[1].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
			t.Fatal(err)
		}
		left := func(when string, want ...string) {
			t.Helper()
			rows, err := e.client.HGetAll(ctx, e.keys.unique(jobs)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 2*len(want) {
				t.Errorf("%s: after %s %d rows are left: %v", name, when, len(rows), rows)
			}
			for _, key := range want {
				if rows["="+key] == "" {
					t.Errorf("%s: after %s the key %q is missing: %v", name, when, key, rows)
				}
			}
		}
		for range 2 {
			if _, err := e.Maintain(ctx, posthaste.UpkeepSpace); err != nil {
				t.Fatal(err)
			}
			left("upkeep", "dead", "waits")
		}
		if _, err := e.Erase(ctx, "dead", 0); err != nil {
			t.Fatal(err)
		}
		left("the erasure", "waits")
	}
}

// A settled message that is kept is erased with its unique key, also before upkeep.
func TestUniqueKeysAreErased(t *testing.T) {
	t.Parallel()
	e, ctx := open(t, server.URL()), t.Context()
	create(t, e, posthaste.QueueOptions{Retention: time.Hour, RetainPayload: true})
	if _, err := e.Send(ctx, posthaste.Message{Queue: jobs, Payload: 1, Terms: []string{"ada"}, Unique: &posthaste.Unique{Key: "ada"}}); err != nil {
		t.Fatal(err)
	}
	done(t, e, claim(t, e, register(t, e), 1, 1)...)
	if found, err := e.Erase(ctx, "ada", 0); err != nil || len(found.Items) != 1 || found.Items[0].Pending {
		t.Fatalf("%+v, %v", found, err)
	}
	if n, err := e.client.HLen(ctx, e.keys.unique(jobs)).Result(); err != nil || n != 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
}
