package postgres_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// nested is a transaction with one savepoint, of either kind.
type nested struct {
	postgres.Tx
	begin, rollback, commit func() error
}

func waysIntoATransaction(ctx context.Context, t *testing.T, url string) map[string]func() nested {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(ctx), db.Close() })
	return map[string]func() nested{
		"pgx": func() nested {
			outer, err := conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			n, inner := nested{Tx: postgres.In(outer)}, pgx.Tx(nil)
			n.begin = func() error { inner, err = outer.Begin(ctx); return err }
			n.rollback = func() error { return inner.Rollback(ctx) }
			n.commit = func() error { return outer.Commit(ctx) }
			return n
		},
		"database/sql": func() nested {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			run := func(statement string) func() error {
				return func() error { _, err := tx.ExecContext(ctx, statement); return err }
			}
			return nested{postgres.InSQL(tx), run("savepoint s"), run("rollback to savepoint s"), tx.Commit}
		},
	}
}

// nestedTest has one engine and the ways into its transactions.
type nestedTest struct {
	*testing.T
	engine *postgres.Engine
}

func (n *nestedTest) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *nestedTest) receive(queue string) []posthaste.RawDelivery {
	n.Helper()
	reply, err := n.engine.Receive(n.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 10, Lease: time.Hour})
	n.must(err)
	return reply.Deliveries
}

// send sends m in a transaction, and more in a nested one that fails and is rolled back. It
// returns the messages that were not rolled back.
func (n *nestedTest) send(tx nested, m posthaste.Message) []posthaste.MessageID {
	n.Helper()
	bare := m
	bare.DedupeKey = ""
	first, err := posthaste.IDs(tx.Send(n.Context(), bare))
	n.must(err)
	n.must(tx.begin())
	_, err = tx.Send(n.Context(), m, bare)
	n.must(err)
	if _, err := tx.Send(n.Context(), posthaste.Message{Queue: "missing"}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		n.Errorf("a send to a queue that does not exist: %v", err)
	}
	n.must(tx.rollback())
	third, err := posthaste.IDs(tx.Send(n.Context(), m))
	n.must(err)
	n.must(tx.commit())
	return slices.Concat(first, third)
}

// ack acknowledges in a nested transaction that is rolled back, and again after it. The second
// acknowledgment fails if the first had an effect.
func (n *nestedTest) ack(tx nested, deliveries []posthaste.RawDelivery) {
	n.Helper()
	var ids []posthaste.DeliveryID
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	n.must(tx.begin())
	n.must(tx.Ack(n.Context(), ids...))
	n.must(tx.rollback())
	n.must(tx.Ack(n.Context(), ids...))
	n.must(tx.commit())
}

// Sends and settlements of a nested transaction that fails or is rolled back have no effect, and
// the outer transaction continues.
func TestNestedTransactionsTakeTheirSendsBack(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.New(t)
	engine := openAt(t, url)
	n := &nestedTest{t, engine}
	n.must(engine.CreateQueue(ctx, "plain", posthaste.QueueOptions{}))
	n.must(engine.CreateQueue(ctx, "ordered", posthaste.QueueOptions{Ordered: true}))
	for name, begin := range waysIntoATransaction(context.WithoutCancel(ctx), t, url) {
		for what, m := range map[string]posthaste.Message{
			"plain":           {Queue: "plain"},
			"of a kind":       {Queue: "plain", Kind: "bill"},
			"delayed":         {Queue: "plain", Delay: time.Millisecond},
			"with dedupe key": {Queue: "plain", DedupeKey: name},
			"ordered":         {Queue: "ordered", Key: "a"},
			"ordered, once":   {Queue: "ordered", Key: "a", DedupeKey: name},
		} {
			want, came := n.send(begin(), m), []posthaste.MessageID(nil)
			testrun.Until(t, time.Minute, "messages come", func() bool {
				got := n.receive(m.Queue)
				for _, d := range got {
					came = append(came, d.MessageID)
				}
				n.ack(begin(), got)
				return len(came) >= len(want)
			})
			if m.Queue != "ordered" {
				slices.Sort(came)
			}
			if !slices.Equal(came, want) {
				t.Errorf("%s, %s: %v came, want %v", name, what, came, want)
			}
		}
	}
	for _, q := range []string{"plain", "ordered"} {
		if left := n.receive(q); len(left) > 0 {
			t.Errorf("%s: %d messages are left", q, len(left))
		}
	}
}
