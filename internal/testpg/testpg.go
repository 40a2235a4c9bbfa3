//go:build unix

// Package testpg gives each test its own PostgreSQL databases with Posthaste's schema, in
// milliseconds and in parallel. See package testdb for the servers.
package testpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/postgres"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// New creates a database with the schema for this test and returns its superuser URL. It is
// dropped with the test.
func New(t testing.TB) string {
	t.Helper()
	hash, err := schemaHash()
	if err != nil {
		t.Fatal(err)
	}
	u := testdb.FromTemplate(t, "posthaste_"+hash, migrate)
	if err := adopt(u); err != nil {
		t.Fatalf("the copy of the template cannot be used: %v", err)
	}
	return u
}

// InPublic returns the URL of a database with a search path in which unqualified tables are public,
// although its user may have the name of another schema. Every client understands it.
func InPublic(t testing.TB, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("options", "-c search_path=public")
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // libpq takes a plus as it is
	return u.String()
}

// Empty creates a database without the schema for this test.
func Empty(t testing.TB) string {
	t.Helper()
	return testdb.Empty(t)
}

// Server starts a PostgreSQL for this test, which may kill, stop and restart it. The database
// of its URL has the schema. change may alter its configuration. It is stopped and removed
// with the test. Creating one takes seconds.
func Server(t testing.TB, change ...func(*devpg.Config)) *devpg.Server {
	t.Helper()
	s := testdb.Server(t, change...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := migrate(ctx, conn); err != nil {
		t.Fatalf("the schema cannot be installed: %v", err)
	}
	return s
}

// Unfilled is Server without installing the schema: for a copy, which already has it, or for
// tests that install it.
func Unfilled(t testing.TB, change ...func(*devpg.Config)) *devpg.Server {
	t.Helper()
	return testdb.Server(t, change...)
}

// Superuser returns the superuser URL of the shared server.
func Superuser(t testing.TB) string {
	t.Helper()
	return testdb.Superuser(t)
}

// Version returns the major version that this process tests on, "14" or "18".
func Version(t testing.TB) string {
	t.Helper()
	return testdb.Version(t)
}

// patience bounds one step of creating a database.
const patience = time.Minute

func migrate(ctx context.Context, conn *pgx.Conn) error {
	return postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
}

// adopt makes a copied ledger accept its new database, because it would otherwise reject
// claims as a clone. This is safe: it is on the same server and nothing was ever sent in it,
// so nothing can be handed out twice.
func adopt(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, `select posthaste.adopt()`)
	return err
}

// schemaHash changes whenever a file of the schema changes.
var schemaHash = sync.OnceValues(func() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(ledger.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(ledger.Files, path)
		fmt.Fprintf(h, "%q %d\n", path, len(content))
		h.Write(content)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
})
