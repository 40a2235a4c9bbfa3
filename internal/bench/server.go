package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/postgres"
)

// shownSettings are the settings in every result.
var shownSettings = []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "wal_compression",
	"shared_buffers", "wal_buffers", "max_wal_size", "checkpoint_timeout", "jit", "autovacuum"}

// server is the PostgreSQL of one run, with the run's databases.
type server struct {
	url   string
	stop  func(context.Context) error // ends the embedded server; nil without one
	dir   string                      // of the embedded server, removed at the end
	meter cpumeter.Meter
	made  []string
	token string
}

// openServer starts the embedded PostgreSQL, or connects to the given one, and records its
// version and settings in the result.
func openServer(ctx context.Context, r *run) (_ *server, err error) {
	s := &server{url: r.o.DatabaseURL, token: token()}
	defer func() {
		if err != nil {
			err = errors.Join(err, closed(ctx, s))
		}
	}()
	m := &r.result.Machine
	m.Cores = runtime.NumCPU()
	if s.url == "" {
		m.Embedded = true
		if err := s.start(ctx, r); err != nil {
			return nil, err
		}
		if err := m.measureFsync(s.dir); err != nil {
			return nil, err
		}
	}
	conn, err := postgres.Connect(ctx, s.url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := s.describe(ctx, r, conn); err != nil {
		return nil, err
	}
	return s, nil
}

// endServers stops servers that this run has started, and removes their data. Without such servers, stop
// is nil and dir is empty.
func endServers(stop func(), dir string) error {
	if stop != nil {
		stop()
	}
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// clusterDir creates a directory in parent. Without one it uses the first usual directory that
// is not in memory, because a sync in memory does nothing.
func clusterDir(parent string) (string, error) {
	if parent != "" {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", fmt.Errorf("the directory for the cluster cannot be created: %w", err)
		}
		return os.MkdirTemp(parent, "posthaste-bench-")
	}
	places := []string{os.TempDir(), "/var/tmp"}
	if cache, err := os.UserCacheDir(); err == nil {
		places = append(places, cache)
	}
	for _, p := range append(places, ".") {
		if inMemory(p) {
			continue
		}
		if dir, err := os.MkdirTemp(p, "posthaste-bench-"); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", "posthaste-bench-")
}

// describe records the server's version and settings. Figures that were measured without
// durable commits are not valid.
func (s *server) describe(ctx context.Context, r *run, conn *pgx.Conn) error {
	m := &r.result.Machine
	m.Settings = map[string]string{}
	rows, err := conn.Query(ctx, "select name, current_setting(name) from pg_catalog.pg_settings where name = any($1)", shownSettings)
	if err != nil {
		return fmt.Errorf("the server's settings cannot be read: %w", err)
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { m.Settings[name] = value; return nil }); err != nil {
		return fmt.Errorf("the server's settings cannot be read: %w", err)
	}
	var pid int
	if err := conn.QueryRow(ctx, "select current_setting('server_version'), pg_catalog.pg_backend_pid()").Scan(&m.PostgresVersion, &pid); err != nil {
		return fmt.Errorf("the server's version cannot be read: %w", err)
	}
	s.meter = cpumeter.Server(pid)
	for _, name := range notDurable(m.Settings) {
		r.invalid("%s is off: commits are not durable, so the figures cannot be compared", name)
	}
	if s.dir != "" && inMemory(s.dir) {
		r.invalid("the database is in memory (%s), where a sync costs nothing: choose another data directory", s.dir)
	}
	return nil
}

// notDurable returns the settings because of which a commit may be lost.
func notDurable(settings map[string]string) (names []string) {
	for _, name := range []string{"fsync", "synchronous_commit"} {
		if settings[name] == "off" {
			names = append(names, name)
		}
	}
	return names
}

// database creates a database with the schema and returns its URL.
func (s *server) database(ctx context.Context, purpose string) (string, error) {
	name, err := s.create(ctx, purpose, "")
	if err != nil {
		return "", err
	}
	at, err := withDatabase(s.url, name)
	if err != nil {
		return "", err
	}
	inside, err := postgres.Connect(ctx, at)
	if err != nil {
		return "", err
	}
	defer inside.Close(context.WithoutCancel(ctx))
	// Roles belong to the whole server, which the run must not change.
	return at, postgres.Migrate(ctx, inside, postgres.MigrateOptions{NoRoles: true})
}

// copied creates a copy of the last database, which must have no connections, and returns its
// URL. The ledger recognizes a copy and rejects claims in it.
func (s *server) copied(ctx context.Context, purpose string) (string, error) {
	name, err := s.create(ctx, purpose, " template "+pgx.Identifier{s.made[len(s.made)-1]}.Sanitize())
	if err != nil {
		return "", err
	}
	return withDatabase(s.url, name)
}

func (s *server) create(ctx context.Context, purpose, how string) (name string, err error) {
	conn, err := postgres.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	name = "posthaste_bench_" + purpose + "_" + s.token
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()+how); err != nil {
		return "", &posthaste.Error{Code: posthaste.CodeDenied, Field: "database_url", Cause: err,
			Message: "bench creates its own databases and drops them at the end, but cannot create one: " + err.Error(),
			Hint:    "use a role with CREATEDB"}
	}
	s.made = append(s.made, name)
	return name, nil
}

// close drops the databases, or stops the embedded server and removes its cluster. It may be
// called on a server that did not open.
func (s *server) close(ctx context.Context) error {
	if s.dir != "" {
		var err error
		if s.stop != nil {
			err = s.stop(ctx)
		}
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	if len(s.made) == 0 {
		return nil
	}
	conn, err := postgres.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for len(s.made) > 0 {
		name := s.made[0]
		if _, err := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
			return fmt.Errorf("database %s is left behind: %w", name, err)
		}
		s.made = s.made[1:]
	}
	return nil
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(at, database string) (string, error) {
	if !strings.HasPrefix(at, "postgres://") && !strings.HasPrefix(at, "postgresql://") {
		return at + " dbname=" + database, nil // the last one is used
	}
	u, err := url.Parse(at)
	if err != nil { // without the cause, which may contain the password
		return "", posthaste.Invalidf("database_url", "the database URL cannot be read")
	}
	u.Path = "/" + database
	q := u.Query()
	q.Del("dbname")
	q.Del("database")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func token() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
