//go:build unix

package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// opened returns an engine that is open until the test ends.
func opened[E interface{ Close() }](t *testing.T, engine E, err error) E {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	return engine
}

func onPostgreSQL(t *testing.T, database string) posthaste.Store {
	t.Helper()
	engine, err := postgres.Open(t.Context(), database)
	return opened(t, engine, err)
}

func onRedis(t *testing.T) posthaste.Store {
	t.Helper()
	server, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	engine, err := redis.Open(t.Context(), server.URL())
	return opened(t, engine, err)
}

func onNATS(t *testing.T) posthaste.Store {
	t.Helper()
	server, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	engine, err := nats.Open(t.Context(), server.URL())
	return opened(t, engine, err)
}

// The pages on PostgreSQL and Redis: with keys, and subscriptions with filters.
func TestDB7OnPostgreSQL(t *testing.T) {
	t.Parallel()
	database := testpg.New(t)
	engine := onPostgreSQL(t, database)
	operate(t, engine)
	copiesAreSQL(t, engine, database)
}

func TestDB7OnRedis(t *testing.T) {
	t.Parallel()
	operate(t, onRedis(t))
}

func operate(t *testing.T, engine posthaste.Store) {
	t.Helper()
	ctx := t.Context()
	ids := fillEngine(t, engine)
	s := newSite(t, engine)
	v := s.viewer(posthaste.ScopeAdmin)

	form := v.get("/queues/orders").want(200, "audit", "only kind paid", "key_concurrency 2").form("/keys/pause")
	form.Values.Set("key", "ü/t")
	v.send(v.send(form).form("/keys/pause")).want(200, "Paused.", "ü/t")
	last := ids[19].String()
	v.get("/messages/"+last).want(200, "Subscription default", "Subscription audit", "9007199254740993", "Its key is paused.", "at most 2 messages of a key")
	v.get("/search?q=term").want(200, "By term")
	v.get("/dead-letters").want(200, "was declined after … tries")
	v.get("/dead-letters?queue=orders&subscription=audit").want(200)
	ask := v.get("/dead-letters/replay?queue=orders&subscription=audit").want(200, "Filter: subscription = audit")
	before := deadIn(t, engine, "default")
	v.until(v.send(ask.form("/replay")).want(200).at.Path, "Replayed 10 messages.")
	if n := deadIn(t, engine, "default"); n != before || before == 0 {
		t.Errorf("a replay of one subscription leaves %d of %d dead letters of another", n, before)
	}
	changeMany(t, engine)
	purge := v.get("/queues/orders/purge").form("/purge")
	purge.Values.Set("typed", "orders")
	v.send(purge).want(200, "waiting messages.")
	actions, err := engine.Actions(ctx, posthaste.ActionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range actions {
		if !strings.HasPrefix(a.By, "http:adminer") && (a.Action == "purge" || a.Action == "replay" || a.Action == "pause") {
			t.Errorf("%s by %q", a.Action, a.By)
		}
	}
	crawl(t, v, "")
	mailOn(t, engine)
}

// fillEngine adds messages of which some are dead in two subscriptions, and returns their ids.
func fillEngine(t *testing.T, engine posthaste.Store) []posthaste.MessageID {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{Fair: true, MaxAttempts: 1, Limits: posthaste.QueueLimits{KeyConcurrency: 2}}))
	must(engine.Subscribe(ctx, "orders", "audit", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"paid"}}}))
	messages := make([]posthaste.Message, 20)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: "orders", Kind: "paid", Key: "ü/" + string(rune('a'+i)), Reference: "r", Terms: []string{"term"}, Payload: map[string]int64{"n": 9007199254740993}}
	}
	ids, err := posthaste.IDs(engine.Send(ctx, messages...))
	must(err)
	for _, subscription := range []string{"default", "audit"} {
		got, err := engine.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders", Subscription: subscription}, Max: 10, Lease: time.Minute})
		must(err)
		var settle []posthaste.Settlement
		for _, d := range got.Deliveries {
			settle = append(settle, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "card " + d.Key + " was declined after 3 tries"})
		}
		_, err = engine.Settle(ctx, settle)
		must(err)
	}
	_, err = engine.PutSchedule(ctx, posthaste.Schedule{Name: "nightly", Spec: "0 3 * * *", TimeZone: "Europe/Berlin", Message: posthaste.Message{Queue: "orders", Key: "k"}})
	must(err)
	return ids
}

func deadIn(t *testing.T, engine posthaste.Store, subscription string) int {
	t.Helper()
	found, err := engine.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "orders", Subscription: subscription})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Items)
}
