//go:build unix

package testpg_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

func ask(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func TestNewIsWholeAndOnesOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			url := testpg.New(t)
			mu.Lock()
			defer mu.Unlock()
			if seen[url] {
				t.Fatalf("the database %s was given twice", url)
			}
			seen[url] = true
			useLedger(t, url)
		})
	}
}

// useLedger sends and receives. A copy that was not adopted rejects claims.
func useLedger(t *testing.T, url string) {
	t.Helper()
	for _, sql := range []string{"select posthaste.create_queue('orders')::text", "select posthaste.send('orders', '1')::text"} {
		ask(t, url, sql)
	}
	if got := ask(t, url, "select count(*)::text from posthaste.receive('orders', 10, '1 minute')"); got != "1" {
		t.Errorf("received %s messages, want the one that was sent", got)
	}
}

func TestDatabasesAreDroppedWithTheirTest(t *testing.T) {
	t.Parallel()
	var names []string
	t.Run("inner", func(t *testing.T) {
		for _, url := range []string{testpg.New(t), testpg.Empty(t)} {
			// Still connected when the test ends.
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, conn.Config().Database)
		}
	})
	if got := ask(t, testpg.Superuser(t), fmt.Sprintf("select count(*)::text from pg_database where datname in ('%s')", strings.Join(names, "','"))); got != "0" || len(names) != 2 {
		t.Errorf("%s of the databases %q are left", got, names)
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	if got := ask(t, testpg.Empty(t), "select count(*)::text from pg_namespace where nspname = 'posthaste'"); got != "0" {
		t.Error("an empty database has the schema")
	}
}

func TestVersionIsTheServers(t *testing.T) {
	t.Parallel()
	if got := ask(t, testpg.Superuser(t), "show server_version"); !strings.HasPrefix(got, testpg.Version(t)+".") {
		t.Errorf("PostgreSQL %s, and %s is told", got, testpg.Version(t))
	}
}

func TestServerSurvivesAKill(t *testing.T) {
	t.Parallel()
	s := testpg.Server(t, func(c *devpg.Config) { c.Settings["work_mem"] = "5MB" })
	if got := ask(t, s.URL(), "show work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	useLedger(t, s.URL())
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s.URL(), "select queue::text from posthaste.queues"); got != "orders" {
		t.Errorf("after a kill there is queue %q", got)
	}
}
