package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// repairAll looks at all that the engine's subscriptions have, and returns how many
// deliveries and messages were repaired.
func repairAll(t *testing.T, e *Engine) (repaired int64) {
	t.Helper()
	ctx := context.Background() // also when the test has ended
	all, err := e.registry.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range allOf(all) {
		if err := e.client.HDel(ctx, q.tally(), "repaired", "repairedRun").Err(); err != nil {
			t.Fatal(err)
		}
		for through := false; !through; {
			reply, err := repairScript.run(ctx, e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}})
			if err != nil {
				t.Fatal(err)
			}
			n, ok := reply.(int64)
			if !ok {
				break // it is being purged or ended
			}
			repaired += n
			at := e.client.HMGet(ctx, q.tally(), "repaired", "repairedRun").Val()
			through = strings.HasPrefix(str(at[0]), "0@") && strings.HasPrefix(str(at[1]), "0@")
		}
	}
	return repaired
}

// damage is a state that no script leaves: messages of it are handed out again once upkeep
// has come by.
type damage struct {
	name    string
	prepare func(t *testing.T, e *Engine, d posthaste.RawDelivery) // d is handed out to a worker
	harm    func(ctx context.Context, e *Engine, key func(what string) string, d posthaste.RawDelivery) error
}

func settleAs(outcome posthaste.Outcome) func(*testing.T, *Engine, posthaste.RawDelivery) {
	return func(t *testing.T, e *Engine, d posthaste.RawDelivery) {
		t.Helper()
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: outcome, Error: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// damages are these states, as rights that were missing in the middle of scripts left them
// once, and as hands leave them.
var damages = []damage{
	{name: "handed out and not written down", harm: func(ctx context.Context, e *Engine, key func(string) string, d posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("run")).Err()
	}},
	{name: "a claim that is gone", harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("claim")).Err()
	}},
	{name: "a claim that no rescue comes to", harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("claims")).Err()
	}},
	{name: "a worker without a lease", harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("leases")).Err()
	}},
	{name: "a retry in no list", prepare: settleAs(posthaste.OutcomeRetried), harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("due"), key("wait")).Err()
	}},
	{name: "a second attempt that was not written down",
		prepare: func(t *testing.T, e *Engine, d posthaste.RawDelivery) {
			t.Helper()
			settleAs(posthaste.OutcomeReleased)(t, e, d)
			reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Hour})
			if err != nil || len(reply.Deliveries) != 1 {
				t.Fatalf("%d came again, %v", len(reply.Deliveries), err)
			}
		},
		harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
			return e.client.Del(ctx, key("run")).Err()
		}},
	{name: "a receiver's lease that never ends",
		prepare: func(t *testing.T, e *Engine, d posthaste.RawDelivery) {
			t.Helper()
			settleAs(posthaste.OutcomeReleased)(t, e, d)
			if _, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Hour}); err != nil {
				t.Fatal(err)
			}
		},
		harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
			return e.client.Del(ctx, key("timed")).Err()
		}},
	{name: "a dead letter that is not listed", prepare: settleAs(posthaste.OutcomeDead), harm: func(ctx context.Context, e *Engine, key func(string) string, _ posthaste.RawDelivery) error {
		return e.client.Del(ctx, key("dead")).Err()
	}},
}

// stranded makes a damage to one of three messages, lets time pass for leases and retries,
// and says what became of it: whether it came again with the help of upkeep, or not.
func stranded(t *testing.T, e *Engine, o posthaste.QueueOptions, m damage, upkeep bool) string {
	t.Helper()
	ctx := t.Context()
	o.BackoffBase, o.BackoffMax = time.Microsecond, time.Microsecond
	create(t, e, o)
	id := sendKeys(t, e, "k")[0]
	w := register(t, e)
	got := claim(t, e, w, 1, 1)
	if len(got) != 1 {
		t.Fatalf("%d were handed out", len(got))
	}
	if m.prepare != nil {
		m.prepare(t, e, got[0])
	}
	if n := repairAll(t, e); n > 0 {
		t.Fatalf("before the damage %d were repaired", n)
	}
	if err := m.harm(ctx, e, func(what string) string { return e.keys.of(jobs, what) }, got[0]); err != nil {
		t.Fatal(err)
	}
	if upkeep && repairAll(t, e) == 0 {
		return "nothing was repaired"
	}
	for range 100 { // which take longer than a retry
		if dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: jobs}); err != nil {
			t.Fatal(err)
		} else if len(dead.Items) > 0 {
			return ""
		}
		if m.name != "a worker without a lease" { // or time would give it one
			f := fate{t: t, sound: e}
			f.lose()
		}
		if _, err := e.Maintain(ctx, posthaste.UpkeepRescue); err != nil {
			t.Fatal(err)
		}
		reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range reply.Deliveries {
			if d.MessageID == id {
				return ""
			}
		}
	}
	return "it never came again"
}

// Upkeep finds deliveries without a holder and messages that are in no list, in every kind of
// queue, and Doctor reports them.
func TestUpkeepFindsTheStranded(t *testing.T) {
	t.Parallel()
	for kind, o := range map[string]posthaste.QueueOptions{"plain": {}, "ordered": {Ordered: true}, "fair": {Fair: true}} {
		for _, m := range damages {
			t.Run(kind+" "+m.name, func(t *testing.T) {
				t.Parallel()
				if broken := stranded(t, open(t, server.URL()), o, m, false); broken == "" {
					t.Error("without upkeep it came, so this damage shows nothing")
				}
				e := open(t, server.URL())
				if broken := stranded(t, e, o, m, true); broken != "" {
					t.Error(broken)
				}
				found, err := e.Doctor(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					if f.Check == "stranded" && f.Queue == jobs {
						return
					}
				}
				t.Errorf("Doctor says %v", found)
			})
		}
	}
}

// Messages whose first attempt has not begun are in a list by themselves, or wait by keys.
func TestUpkeepFindsTheUnlisted(t *testing.T) {
	t.Parallel()
	for kind, o := range map[string]posthaste.QueueOptions{"plain": {}, "ordered": {Ordered: true}, "fair": {Fair: true}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, o)
			ids := sendKeys(t, e, "a", "b", "c")
			c := e.client
			var err error
			if kind == "plain" {
				err = c.LPop(t.Context(), e.keys.of(jobs, "ready0")).Err()
			} else {
				err = c.ZPopMin(t.Context(), e.keys.of(jobs, "wait")).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
				t.Fatal(err)
			}
			reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10, Lease: time.Hour})
			if err != nil || len(reply.Deliveries) != len(ids) {
				t.Errorf("%d came, %v", len(reply.Deliveries), err)
			}
		})
	}
}

// A key that has lost its turn gets one, and a delivery without a content is let go.
func TestUpkeepFindsKeysAndDeliveriesLeftAlone(t *testing.T) {
	t.Parallel()
	for kind, o := range map[string]posthaste.QueueOptions{"ordered": {Ordered: true}, "fair": {Fair: true}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, o)
			sendKeys(t, e, "a", "b")
			if err := e.client.Del(t.Context(), e.keys.of(jobs, "turn"), e.keys.of(jobs, "fresh")).Err(); err != nil {
				t.Fatal(err)
			}
			w := register(t, e)
			if got := claim(t, e, w, 1, 10); len(got) != 0 {
				t.Fatalf("%d came without a turn", len(got))
			}
			if n := repairAll(t, e); n != 0 {
				t.Errorf("%d were repaired", n)
			}
			got := claim(t, e, w, 2, 10)
			if len(got) != 2 {
				t.Fatalf("%d came", len(got))
			}
			if err := e.client.Del(t.Context(), e.keys.of(jobs, "msg")).Err(); err != nil {
				t.Fatal(err)
			}
			if n := repairAll(t, e); n != 2 {
				t.Errorf("%d were repaired", n)
			}
			if n := e.client.HLen(t.Context(), e.keys.of(jobs, "run")).Val(); n != 0 {
				t.Errorf("%d are handed out", n)
			}
			if sendKeys(t, e, "a"); len(claim(t, e, w, 3, 10)) != 1 {
				t.Error("its key hands out nothing any more")
			}
		})
	}
}

// One search for stranded messages takes a bounded time, however many messages wait.
func TestUpkeepLooksAtAPart(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	send(t, e, 5000)
	all, err := e.registry.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := all[jobs]
	if _, err := repairScript.run(t.Context(), e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}}); err != nil {
		t.Fatal(err)
	}
	if at, err := e.client.HGet(t.Context(), e.keys.of(jobs, "meta"), "repaired").Result(); err != nil || strings.HasPrefix(at, "0@") {
		t.Errorf("after one look it is at %q, %v", at, err)
	}
	if n := repairAll(t, e); n != 0 {
		t.Errorf("%d were repaired", n)
	}
}
