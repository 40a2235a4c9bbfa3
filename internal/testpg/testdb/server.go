//go:build unix

// Package testdb gives each test its own PostgreSQL databases. It does not depend on
// Posthaste's schema, so the tests inside package postgres can use it. All others use package
// testpg, which builds on it.
//
// All tests of a run share a server. The program testpg/launch starts one for each version and
// passes its address in the environment. Without it, each test process starts its own server,
// which ends with the process. The environment variable POSTHASTE_TEST_POSTGRES chooses the
// version: 14 or 18, by default 18.
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

// VersionEnv chooses the PostgreSQL version of the tests.
const VersionEnv = "POSTHASTE_TEST_POSTGRES"

// Versions are the major versions that Posthaste is tested on.
func Versions() []string { return []string{"14", "18"} }

// URLEnv returns the name of the environment variable with the superuser URL of a version's
// server.
func URLEnv(version string) string { return "POSTHASTE_TEST_POSTGRES_" + version + "_URL" }

// patience bounds the creation of servers and databases: the first start may have to download
// PostgreSQL.
const patience = 5 * time.Minute

// Config returns the configuration of test servers. Protection against power loss is off, but
// a SIGKILL of all of PostgreSQL still loses nothing.
func Config(version string) devpg.Config {
	return devpg.Config{Version: version, Ephemeral: true, DataDir: dataDir(), Settings: map[string]string{
		"fsync":                     "off",
		"full_page_writes":          "off",
		"max_connections":           "300",
		"max_prepared_transactions": "50",
	}}
}

// Version returns the major version that this process tests on.
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

// Superuser returns the superuser URL of the shared server. Tests that change more than their
// own database affect all others.
func Superuser(t testing.TB) string {
	t.Helper()
	u, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL to test with: %v", err)
	}
	return u
}

// shared finds the server of this run, or starts one for this process. The server's guard
// stops it when the process ends for any reason.
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

// Server starts a PostgreSQL for this test, which may kill, stop and restart it. change may
// alter its configuration. It is stopped and removed with the test. Creating one takes
// seconds.
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

// memory is a file system in memory, if the system has one.
const memory = "/dev/shm"

// dataDir returns a new directory for a cluster, in memory if there is plenty. A copy of the
// template takes 25 ms there, and 300 to 1,000 ms on a busy disk (two shared cores, PostgreSQL
// 18).
func dataDir() string {
	base := os.TempDir()
	if roomy(memory) {
		base = memory
		sweep(memory)
	}
	return filepath.Join(base, dirPrefix+strings.ToLower(rand.Text()[:12]))
}

// roomy reports whether dir is a file system in memory with enough free space.
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

// sweep removes leftovers of runs that were killed together with the guards of their servers.
// It skips new directories, whose owner may not have locked them yet.
func sweep(base string) {
	old, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 10*time.Minute {
			if devpg.Remove(context.Background(), dir) == nil { // otherwise it is in use
				_ = os.Remove(dir)
			}
		}
	}
}

// inDatabase returns serverURL with another database.
func inDatabase(serverURL, database string) (string, error) {
	u, err := url.Parse(serverURL)
	if err != nil {
		return "", fmt.Errorf("the test server's URL is invalid: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}
