//go:build unix

package testdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Empty creates a database for this test and returns its superuser URL. It is dropped with the
// test, even if clients are connected.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, "template1")
}

// FromTemplate creates a database for this test as a copy of a template that fill has filled,
// and returns its URL. The template is created once for each name on each server, by the first
// process that needs it. name must change when fill changes.
func FromTemplate(t testing.TB, name string, fill func(ctx context.Context, conn *pgx.Conn) error) string {
	t.Helper()
	made, _ := templates.LoadOrStore(name, &template{})
	tpl := made.(*template)
	tpl.once.Do(func() { tpl.err = makeTemplate(Superuser(t), name, fill) })
	if tpl.err != nil {
		t.Fatalf("the template database %s cannot be made: %v", name, tpl.err)
	}
	return create(t, name)
}

// templates are the names of templates that this process knows to exist.
var templates sync.Map

type template struct {
	once sync.Once
	err  error
}

// makeTemplate creates the template unless another process did. A database gets that name only
// after it is filled.
func makeTemplate(serverURL, name string, fill func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer admin.Close(context.Background())
	if _, err := admin.Exec(ctx, "select pg_advisory_lock($1)", lockKey(name)); err != nil {
		return err
	}
	var exists bool
	err = admin.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	unfinished := name + "_unfinished"
	for _, sql := range []string{"drop database if exists " + quote(unfinished) + " with (force)", "create database " + quote(unfinished)} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := fillDatabase(ctx, serverURL, unfinished, fill); err != nil {
		return err
	}
	// No client may connect, because a database in use cannot be copied.
	for _, sql := range []string{
		"alter database " + quote(unfinished) + " with allow_connections false is_template true",
		"alter database " + quote(unfinished) + " rename to " + quote(name),
	} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func fillDatabase(ctx context.Context, serverURL, database string, fill func(ctx context.Context, conn *pgx.Conn) error) error {
	u, err := inDatabase(serverURL, database)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	if err := fill(ctx, conn); err != nil {
		return err
	}
	// Rows are frozen and statistics known, so that a copy needs neither vacuum nor analyze.
	// This takes half of a migration's time.
	_, err = conn.Exec(ctx, "vacuum (freeze)")
	return err
}

func create(t testing.TB, from string) string {
	t.Helper()
	base := Superuser(t)
	name := "t_" + strings.ToLower(rand.Text()[:16])
	u, err := inDatabase(base, name)
	if err == nil {
		err = createDatabase(base, name, from)
	}
	if err != nil {
		t.Fatalf("no database of the test's own: %v", err)
	}
	t.Cleanup(func() {
		if err := run(base, "drop database "+quote(name)+" with (force)"); err != nil {
			t.Errorf("the test's database cannot be dropped: %v", err)
		}
	})
	return u
}

func createDatabase(base, name, from string) error {
	sql := "create database " + quote(name) + " template " + quote(from)
	if v, err := version(); err != nil {
		return err
	} else if v != "14" { // which has only this strategy
		sql += " strategy file_copy" // 25 ms, versus 38 ms with wal_log, the default
	}
	return run(base, sql)
}

func run(serverURL, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// lockKey differs from the keys that Posthaste uses, by its length. The lock is in the
// server's own database, which has no schema.
func lockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return int64(h.Sum64())
}
