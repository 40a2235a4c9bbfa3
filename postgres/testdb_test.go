package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// within bounds all waits of a test. Only a lost event takes as long, so it is far longer than a
// stall of a busy machine.
const within = time.Minute

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// emptyDB creates a database for the test and returns its URL.
func emptyDB(t *testing.T) string {
	t.Helper()
	return testdb.Empty(t)
}

// withUser returns dbURL with another user and with run-time parameters.
func withUser(t *testing.T, dbURL, user, password string, params ...string) string {
	t.Helper()
	u, err := url.Parse(dbURL)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	q := u.Query()
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func dial(t *testing.T, dbURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), dbURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func testPool(t *testing.T, dbURL string, size int) *pgxpool.Pool {
	t.Helper()
	config, err := poolConfig(dbURL, options{poolSize: size})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(testContext(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(testContext(t), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t *testing.T, q querier, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := q.QueryRow(testContext(t), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// eventually waits until ok returns true, and fails the test if it does not within a limit.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !happens(within, ok) {
		t.Fatalf("never happened: %s", what)
	}
}

// happens waits at most the given time until ok returns true, and returns whether it did.
func happens(most time.Duration, ok func() bool) bool {
	return testrun.Happens(most, ok)
}
