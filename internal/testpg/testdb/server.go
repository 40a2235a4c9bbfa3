//go:build unix

// Package testdb gives tests PostgreSQL databases of their own. It knows
// nothing of Posthaste's schema, so the tests inside package postgres can use
// it; all others use package testpg, which builds upon it.
//
// The server is shared by all tests of a run. The program testpg/launch starts
// one for each version and tells its address by the environment; without it,
// each test process starts a server of its own, which ends with the process.
// The environment variable POSTHASTE_TEST_POSTGRES chooses the version: 14 or
// 18, by default 18.
package testdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// VersionEnv chooses the version that tests run on.
const VersionEnv = "POSTHASTE_TEST_POSTGRES"

// Versions are the major versions that Posthaste is tested on.
func Versions() []string { return []string{"14", "18"} }

// URLEnv names the environment variable by which the launcher tells the
// superuser's URL of the server of a version.
func URLEnv(version string) string { return "POSTHASTE_TEST_POSTGRES_" + version + "_URL" }

// patience bounds the making of servers and databases: a first start may have
// to fetch PostgreSQL.
const patience = 5 * time.Minute

// Config is how the servers of tests are run. What only guards against a loss
// of power is off: also a SIGKILL of all of PostgreSQL loses nothing by it.
func Config(version string) devpg.Config {
	return devpg.Config{Version: version, Ephemeral: true, DataDir: dataDir(), Settings: map[string]string{
		"fsync":                     "off",
		"full_page_writes":          "off",
		"max_connections":           "300",
		"max_prepared_transactions": "50",
	}}
}

// Version is the major version this process tests on.
func Version(t testing.TB) string {
	t.Helper()
	v, err := version()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func version() (string, error) {
	chosen := os.Getenv(VersionEnv)
	if chosen == "" {
		return "18", nil
	}
	for _, v := range Versions() {
		if v == chosen {
			return v, nil
		}
	}
	return "", fmt.Errorf("%s is %q: the versions to test on are %v", VersionEnv, chosen, Versions())
}

// Superuser is the URL of the shared server for its superuser. Its database is
// nobody's: tests that change more than a database of their own share that
// with all others.
func Superuser(t testing.TB) string {
	t.Helper()
	u, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL to test with: %v", err)
	}
	return u
}

// shared finds the server of this run, or starts one for this process. Nobody
// stops that: its guard does when the process ends, however it ends.
var shared = sync.OnceValues(func() (string, error) {
	v, err := version()
	if err != nil {
		return "", err
	}
	if u := os.Getenv(URLEnv(v)); u != "" {
		return u, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := devpg.Start(ctx, Config(v))
	if err != nil {
		return "", err
	}
	return s.URL(), nil
})

// Server starts a PostgreSQL for this test alone, to be killed, stopped and
// restarted. change may alter its config. It is stopped and removed with the
// test. Making one takes seconds.
func Server(t testing.TB, change ...func(*devpg.Config)) *devpg.Server {
	t.Helper()
	c := Config(Version(t))
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := devpg.Start(ctx, c)
	if err != nil {
		t.Fatalf("no PostgreSQL of the test's own: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

const dirPrefix = "posthaste-test-"

// memory is a file system in memory, where there is one.
const memory = "/dev/shm"

// dataDir names a new directory for a cluster: in memory if there is plenty,
// for a copy of the template takes 25 ms there, and 300 to 1,000 ms on a disk
// that others use as well (two shared cores, PostgreSQL 18).
func dataDir() string {
	base := os.TempDir()
	if roomy(memory) {
		base = memory
		sweep(memory)
	}
	return filepath.Join(base, dirPrefix+strings.ToLower(rand.Text()[:12]))
}

// roomy tells whether dir is a file system in memory with enough of it left.
func roomy(dir string) bool {
	const enough = 4 << 30
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) < enough {
		return false
	}
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return err == nil && kib<<10 >= enough
		}
	}
	return false
}

// sweep removes what runs left behind that were killed together with the
// guards of their servers. A directory that was just made is let alone: its
// owner may not have locked it yet.
func sweep(base string) {
	old, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 10*time.Minute {
			if devpg.Remove(context.Background(), dir) == nil { // else it is in use
				_ = os.Remove(dir)
			}
		}
	}
}

// inDatabase is serverURL with another database.
func inDatabase(serverURL, database string) (string, error) {
	u, err := url.Parse(serverURL)
	if err != nil {
		return "", fmt.Errorf("the test server's URL is none: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}
