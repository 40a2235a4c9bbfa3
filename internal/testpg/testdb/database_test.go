//go:build unix

package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func templateName(t *testing.T) string {
	t.Helper()
	name := "tpl_" + strings.ToLower(rand.Text()[:16])
	base := Superuser(t)
	t.Cleanup(func() {
		for _, sql := range []string{
			"update pg_database set datistemplate = false where datname like '" + name + "%'",
			"drop database if exists " + quote(name) + " with (force)",
			"drop database if exists " + quote(name+"_unfinished") + " with (force)",
		} {
			if err := run(base, sql); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}

func TestTemplateIsMadeOnce(t *testing.T) {
	t.Parallel()
	name, base := templateName(t), Superuser(t)
	var fills atomic.Int64
	var all sync.WaitGroup
	for range 6 { // concurrently, without shared memory, as in separate processes
		all.Go(func() {
			err := makeTemplate(base, name, func(ctx context.Context, conn *pgx.Conn) error {
				fills.Add(1)
				_, err := conn.Exec(ctx, "create table filled (n int)")
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := fills.Load(); n != 1 {
		t.Errorf("filled %d times", n)
	}
	u := FromTemplate(t, name, func(context.Context, *pgx.Conn) error { return errors.New("not needed") })
	if err := run(u, "insert into filled values (1)"); err != nil {
		t.Error(err)
	}
}

func TestUnfinishedTemplateIsNotUsed(t *testing.T) {
	t.Parallel()
	name, base := templateName(t), Superuser(t)
	broken := errors.New("broken")
	err := makeTemplate(base, name, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create table half (n int)")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got: %v", err)
	}
	u := FromTemplate(t, name, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create table half (n int)") // fails if the table exists
		return err
	})
	if err := run(u, "insert into half values (1)"); err != nil {
		t.Error(err)
	}
}

func TestSweepTakesOnlyWhatIsOldAndNobodys(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, age := range map[string]time.Time{dirPrefix + "old": long, dirPrefix + "new": time.Now(), "other": long} {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dir, "postgres", "base"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, age, age); err != nil {
			t.Fatal(err)
		}
	}
	used := Server(t)
	usedDir := filepath.Dir(used.DataDir())
	inUse := filepath.Join(base, dirPrefix+"used")
	if err := os.Symlink(usedDir, inUse); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(usedDir, long, long); err != nil {
		t.Fatal(err)
	}
	sweep(base)
	for name, kept := range map[string]bool{dirPrefix + "old": false, dirPrefix + "new": true, "other": true, dirPrefix + "used": true} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != kept {
			t.Errorf("%s: kept is %v", name, err == nil)
		}
	}
	if err := run(used.URL(), "select 1"); err != nil {
		t.Errorf("the server in use: %v", err)
	}
}
