//go:build unix

package testdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// Tools returns the directory of the PostgreSQL 18 programs that scripts/needs installs:
// pg_dump, pg_restore, pg_basebackup, pg_upgrade, postgres and others. They also work with
// older servers.
func Tools(t testing.TB) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "posthaste", "tools-18", "bin")
	if _, err := os.Stat(filepath.Join(dir, "pg_dump")); err != nil {
		t.Fatalf("the tools of PostgreSQL are missing, run scripts/needs: %v", err)
	}
	return dir
}

// Run runs one of the tools and returns its output. A failure ends the test.
func Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(Tools(t), program), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// Copy makes a physical copy of a running server with pg_basebackup, and returns the data
// directory for [Server]. With follow it is a standby of the original. It is removed with the
// server.
func Copy(t testing.TB, of *devpg.Server, follow bool) string {
	t.Helper()
	dir := dataDir()
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	cluster := filepath.Join(dir, filepath.Base(of.DataDir()))
	Run(t, "pg_basebackup", "--dbname", of.URL(), "--pgdata", cluster, "--checkpoint", "fast", "--no-sync")
	if follow {
		// Written here, because older servers cannot read the settings that a newer
		// pg_basebackup writes.
		file, err := os.OpenFile(filepath.Join(cluster, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprintf(file, "primary_conninfo = '%s'\n", of.URL())
			err = errors.Join(err, file.Close(), os.WriteFile(filepath.Join(cluster, "standby.signal"), nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	Own(t, of, cluster)
	return dir
}

// Own gives files to the user that the server runs as.
func Own(t testing.TB, s *devpg.Server, path string) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(s.DataDir(), &st); err != nil {
		t.Fatal(err)
	}
	if int(st.Uid) == os.Geteuid() {
		return
	}
	err := filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, int(st.Uid), int(st.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Promote promotes a standby, and returns when it accepts writes.
func Promote(t testing.TB, s *devpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var done bool
	if err := conn.QueryRow(ctx, `select pg_promote(true, 120)`).Scan(&done); err != nil || !done {
		t.Fatalf("the standby was not promoted: %v", err)
	}
}
