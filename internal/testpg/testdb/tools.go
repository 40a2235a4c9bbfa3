//go:build unix

package testdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Tools is the directory of the programs of PostgreSQL 18 that scripts/needs
// installs: pg_dump and pg_restore.
// They work with older servers, too.
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

// Run runs one of the tools and returns what it printed. A failure ends the test.
func Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(Tools(t), program), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}
