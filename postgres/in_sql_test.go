package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// wrapped hides all other methods of a database or transaction, as programs do that log their
// statements. It counts those.
type wrapped struct {
	postgres.SQLTx
	statements *int
}

func (w wrapped) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*w.statements++
	return w.SQLTx.ExecContext(ctx, query, args...)
}

func (w wrapped) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	*w.statements++
	return w.SQLTx.QueryContext(ctx, query, args...)
}

// embedded has all methods of a transaction, as bun.Tx and *sqlx.Tx do.
type embedded struct {
	*sql.Tx
	wrapped
}

func (e embedded) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e.wrapped.ExecContext(ctx, query, args...)
}

func (e embedded) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return e.wrapped.QueryContext(ctx, query, args...)
}

// TestInSQLTakesTransactionsOnly: what commits each statement by itself is refused, and sends
// nothing; all that is in a transaction sends with it.
func TestInSQLTakesTransactionsOnly(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), testpg.New(t)
			engine := openAt(t, url)
			if err := engine.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open(driver, url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			conn, err := db.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			statements := 0
			for name, value := range map[string]postgres.SQLTx{"*sql.DB": db, "*sql.Conn": conn, "postgres_test.wrapped": wrapped{db, &statements}, "<nil>": nil} {
				refusesInSQL(t, name, postgres.InSQL(value))
			}
			stored := func() int {
				found, err := engine.Messages(ctx, posthaste.MessageFilter{Queue: "q"})
				if err != nil {
					t.Fatal(err)
				}
				return len(found.Items)
			}
			if n := stored(); n != 0 {
				t.Fatalf("%d messages were stored without a transaction", n)
			}

			begin := func() *sql.Tx {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				return tx
			}
			plain, hidden, bun := begin(), begin(), begin()
			mustRun(t, conn, "begin")
			for i, one := range []struct {
				tx     postgres.SQLTx
				commit func() error
			}{
				{plain, plain.Commit},
				{wrapped{hidden, &statements}, hidden.Commit},
				{conn, func() error { mustRun(t, conn, "commit"); return nil }},
				{embedded{bun, wrapped{bun, &statements}}, bun.Commit},
			} {
				statements = 0
				if _, err := postgres.InSQL(one.tx).Send(ctx, posthaste.Message{Queue: "q", Payload: i}); err != nil {
					t.Fatalf("%T: %v", one.tx, err)
				}
				if n := stored(); n != i {
					t.Errorf("%T: %d messages before the commit, want %d", one.tx, n, i)
				}
				if err := one.commit(); err != nil {
					t.Fatal(err)
				}
				if n := stored(); n != i+1 {
					t.Errorf("%T: %d messages after the commit, want %d", one.tx, n, i+1)
				}
			}
			if statements != 1 {
				t.Errorf("a type with Commit and Rollback sent with %d statements, want 1", statements)
			}
			// A transaction that failed is not taken for one that was forgotten.
			failed := begin()
			defer func() { _ = failed.Rollback() }()
			_, _ = failed.ExecContext(ctx, "select 1/0")
			if _, err := postgres.InSQL(wrapped{failed, &statements}).Send(ctx, posthaste.Message{Queue: "q"}); err == nil || posthaste.CodeOf(err) == posthaste.CodeRefused {
				t.Errorf("a send in a failed transaction: %v", err)
			}
		})
	}
}

func mustRun(t *testing.T, conn *sql.Conn, statement string) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// refusesInSQL checks that no method of tx does anything.
func refusesInSQL(t *testing.T, name string, tx postgres.Tx) {
	t.Helper()
	ctx := t.Context()
	_, send := tx.Send(ctx, posthaste.Message{Queue: "q"})
	for what, err := range map[string]error{"send": send, "ack": tx.Ack(ctx, 1), "checkpoint": tx.Checkpoint(ctx, 1, "a")} {
		if posthaste.CodeOf(err) != posthaste.CodeRefused || !strings.Contains(err.Error(), "given a "+name+" that is not in a transaction") ||
			!strings.Contains(err.Error(), "db.BeginTx") {
			t.Errorf("%s with a %s: %v", what, name, err)
		}
	}
}
