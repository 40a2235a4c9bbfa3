package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// as opens an engine for a new user with one role.
func as(t *testing.T, admin *pgx.Conn, database, role string) *postgres.Engine {
	t.Helper()
	ctx := context.Background()
	user := strings.ToLower(fmt.Sprintf("%s_%d", role, time.Now().UnixNano()))
	if _, err := admin.Exec(ctx, "create user "+user+" password 'secret' in role "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = admin.Exec(ctx, "drop user "+user) })
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	e := openAt(t, u.String())
	return e
}

// Each role can do its own operations and none of the other roles'.
func TestRolesHaveTheLeastPrivileges(t *testing.T) {
	ctx := context.Background()
	database := testpg.New(t)
	admin, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(ctx) })
	sender := as(t, admin, database, "posthaste_sender")
	receiver := as(t, admin, database, "posthaste_receiver")
	chief := as(t, admin, database, "posthaste_admin")
	if err := chief.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	denied := func(what string, err error) {
		t.Helper()
		if posthaste.CodeOf(err) != posthaste.CodeDenied {
			t.Errorf("%s: %v, want it denied", what, err)
		}
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Send one message and several.
	for _, n := range []int{1, 200} {
		messages := make([]posthaste.Message, n)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: "q", Payload: i}
		}
		_, err := sender.Send(ctx, messages...)
		must("sending", err)
	}
	_, err = receiver.Send(ctx, posthaste.Message{Queue: "q"})
	denied("a receiver that sends", err)
	denied("a sender that creates a queue", sender.CreateQueue(ctx, "other", posthaste.QueueOptions{}))
	_, err = sender.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	denied("a sender that registers", err)
	_, err = sender.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1, Lease: time.Minute})
	denied("a sender that receives", err)

	w, err := receiver.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must("registering", err)
	reply, err := receiver.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1000})
	must("claiming", err)
	if len(reply.Deliveries) != 201 {
		t.Fatalf("%d deliveries, want 201", len(reply.Deliveries))
	}
	settlements := make([]posthaste.Settlement, len(reply.Deliveries))
	for i, d := range reply.Deliveries {
		settlements[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone}
	}
	settlements[0].Outcome, settlements[0].Error = posthaste.OutcomeDead, "no"
	_, err = receiver.Settle(ctx, settlements)
	must("settling", err)
	_, err = receiver.Heartbeat(ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{{Queue: "q"}}})
	must("beating", err)
	_, err = receiver.Maintain(ctx, posthaste.UpkeepSpace)
	must("maintaining", err)
	_, err = receiver.Maintain(ctx, posthaste.UpkeepRescue)
	must("rescuing", err)
	denied("a receiver that drops a queue", receiver.DropQueue(ctx, "q", posthaste.DropOptions{}))
	_, err = chief.Replay(posthaste.WithActor(ctx, "chief"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{reply.Deliveries[0].MessageID}})
	must("replaying", err)

	// No role can read or change the tables except through functions.
	for _, c := range []struct{ role, sql string }{
		{"posthaste_sender", "select * from posthaste.entries"},
		{"posthaste_sender", "insert into posthaste.entries_plain (queue_id, payload) values (1, '')"},
		{"posthaste_admin", "insert into posthaste.entries_plain (queue_id, payload) values (1, '')"},
		{"posthaste_receiver", "select * from posthaste.entries"},
		{"posthaste_receiver", "insert into posthaste.settlements (slot) values (0)"},
		{"posthaste_admin", "delete from posthaste.entries_plain"},
		{"public", "select posthaste.send('q', '1')"},
	} {
		tx, err := admin.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if c.role == "public" {
			_, err = tx.Exec(ctx, "set local role pg_monitor")
		} else {
			_, err = tx.Exec(ctx, "set local role "+c.role)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = tx.Exec(ctx, c.sql); err == nil {
			t.Errorf("%s may do: %s", c.role, c.sql)
		}
		_ = tx.Rollback(ctx)
	}
}
