package postgres_test

import (
	"context"
	"database/sql"
	"errors"
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

// embedded rewrites the placeholders of statements, as bun.Tx does.
type embedded struct {
	*sql.Tx
}

func (embedded) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("the parameters are not for this type")
}

func (embedded) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.New("the parameters are not for this type")
}

// methods is a transaction by its methods.
type methods struct {
	wrapped
	*nothing
}

type nothing struct{}

func (*nothing) Commit() error   { return nil }
func (*nothing) Rollback() error { return nil }

// sqlTest is a database with a queue, and a pool of a driver of database/sql.
type sqlTest struct {
	*testing.T
	engine *postgres.Engine
	db     *sql.DB
	conn   *sql.Conn
}

// TestInSQLTakesTransactionsOnly: what commits each statement by itself is refused, and sends
// nothing; all that is in a transaction sends with it.
func TestInSQLTakesTransactionsOnly(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), testpg.New(t)
			s := &sqlTest{T: t, engine: openAt(t, url)}
			s.must(s.engine.CreateQueue(ctx, "q", posthaste.QueueOptions{}))
			var err error
			s.db, err = sql.Open(driver, url)
			s.must(err)
			defer s.db.Close()
			s.conn, err = s.db.Conn(ctx)
			s.must(err)
			defer s.conn.Close()
			statements := 0
			for name, value := range map[string]postgres.SQLTx{"*sql.DB": s.db, "*sql.Conn": s.conn, "postgres_test.wrapped": wrapped{s.db, &statements}, "<nil>": nil} {
				s.refuses(name, postgres.InSQL(value))
			}
			if n := s.stored(); n != 0 {
				t.Fatalf("%d messages were stored without a transaction", n)
			}
			s.takesTransactions()
			// A transaction that failed is not taken for one that was forgotten.
			failed := s.begin()
			defer func() { _ = failed.Rollback() }()
			_, _ = failed.ExecContext(ctx, "select 1/0")
			if _, err := postgres.InSQL(wrapped{failed, &statements}).Send(ctx, posthaste.Message{Queue: "q"}); err == nil || posthaste.CodeOf(err) == posthaste.CodeRefused {
				t.Errorf("a send in a failed transaction: %v", err)
			}
		})
	}
}

func (s *sqlTest) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *sqlTest) begin() *sql.Tx {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	s.must(err)
	return tx
}

// stored returns how many messages were committed.
func (s *sqlTest) stored() int {
	s.Helper()
	found, err := s.engine.Messages(s.Context(), posthaste.MessageFilter{Queue: "q"})
	s.must(err)
	return len(found.Items)
}

// refuses checks that no method of tx does anything.
func (s *sqlTest) refuses(name string, tx postgres.Tx) {
	s.Helper()
	ctx := s.Context()
	_, send := tx.Send(ctx, posthaste.Message{Queue: "q"})
	for what, err := range map[string]error{"send": send, "ack": tx.Ack(ctx, 1), "checkpoint": tx.Checkpoint(ctx, 1, "a")} {
		if posthaste.CodeOf(err) != posthaste.CodeRefused || !strings.Contains(err.Error(), "given a "+name+" that is not in a transaction") ||
			!strings.Contains(err.Error(), "db.BeginTx") {
			s.Errorf("%s with a %s: %v", what, name, err)
		}
	}
}

// takesTransactions sends in each kind of transaction.
func (s *sqlTest) takesTransactions() {
	s.Helper()
	plain, hidden, bun, pointer, gorm, statements := s.begin(), s.begin(), s.begin(), s.begin(), s.begin(), 0
	run := func(statement string) error { _, err := s.conn.ExecContext(s.Context(), statement); return err }
	s.must(run("begin"))
	for i, one := range []struct {
		tx     postgres.SQLTx
		commit func() error
	}{
		{plain, plain.Commit},
		{wrapped{hidden, &statements}, hidden.Commit},
		{s.conn, func() error { return run("commit") }},
		{embedded{bun}, bun.Commit},
		{&embedded{pointer}, pointer.Commit},
		{methods{wrapped: wrapped{gorm, &statements}}, gorm.Commit},
	} {
		statements = 0
		if _, err := postgres.InSQL(one.tx).Send(s.Context(), posthaste.Message{Queue: "q", Payload: i}); err != nil {
			s.Fatalf("%T: %v", one.tx, err)
		}
		if n := s.stored(); n != i {
			s.Errorf("%T: %d messages before the commit, want %d", one.tx, n, i)
		}
		s.must(one.commit())
		if n := s.stored(); n != i+1 {
			s.Errorf("%T: %d messages after the commit, want %d", one.tx, n, i+1)
		}
	}
	if statements != 1 {
		s.Errorf("a type with Commit and Rollback sent with %d statements, want 1", statements)
	}
}
