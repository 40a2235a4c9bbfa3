//go:build unix

package acceptance

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// bare returns a stage without the schema and without an engine.
func bare(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.engine.Close()
	s.engine, s.client = nil, nil
	s.url = testpg.Empty(t)
	return s
}

func (s *stage) migrate() {
	s.Helper()
	s.must(postgres.Migrate(s.ctx, s.conn(), postgres.MigrateOptions{}))
}

// objects counts the objects of Posthaste in the database.
const objects = `select count(*) from (
	select 1 from pg_namespace where nspname = 'posthaste'
	union all select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'posthaste'
	union all select 1 from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'posthaste'
	union all select 1 from pg_type y join pg_namespace n on n.oid = y.typnamespace where n.nspname = 'posthaste'
	union all select 1 from pg_default_acl d join pg_namespace n on n.oid = d.defaclnamespace where n.nspname = 'posthaste') o`

// Migrating twice, and from two processes concurrently, succeeds, and the result works. Down
// removes every object.
func TestHA5_MigrateTwiceAndAtOnce(t *testing.T) {
	t.Parallel()
	s := bare(t)
	conn := s.conn()
	all := one[int](s, conn, "select count(*) from pg_catalog.pg_class") + one[int](s, conn, "select count(*) from pg_catalog.pg_proc")
	a, b := s.spawn(task{Role: "migrate", Count: 2}), s.spawn(task{Role: "migrate", Count: 2})
	for _, c := range []*child{a, b} { // the start for both
		s.must(c.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, c := range []*child{a, b} {
		<-c.ended
		if c.err != nil {
			t.Fatalf("%s ended with %v", c.name, c.err)
		}
	}
	s.migrate()
	s.migrate()
	s.engine = s.open()
	s.client = posthaste.NewClient(s.engine)
	q := s.queue(posthaste.QueueOptions{})
	s.send(q, 3)
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 10, Lease: time.Minute})
	got := reply.Deliveries
	s.must(err)
	if len(got) != 3 {
		t.Errorf("received %d", len(got))
	}
	if one[int](s, conn, objects) == 0 {
		t.Fatal("no objects are found, so nothing can be said of their removal")
	}
	s.must(postgres.MigrateDown(s.ctx, s.conn(), postgres.MigrateOptions{}))
	if n := one[int](s, conn, objects); n != 0 {
		t.Errorf("%d objects were left", n)
	}
	if n := one[int](s, conn, "select count(*) from pg_catalog.pg_class") + one[int](s, conn, "select count(*) from pg_catalog.pg_proc"); n != all {
		t.Errorf("%d tables and functions were left elsewhere", n-all)
	}
	s.migrate() // and it can be installed again
}

// Roles belong to the whole server: they are dropped with the last database that uses them.
func TestHA5_RolesGoWhenUnused(t *testing.T) {
	t.Parallel()
	server := testpg.Server(t)
	s := stageOn(t, server.URL())
	conn := s.conn()
	roles := func() int {
		return one[int](s, conn, "select count(*) from pg_roles where rolname in ('posthaste_sender', 'posthaste_receiver', 'posthaste_admin')")
	}
	if roles() != 3 {
		t.Fatalf("there are %d roles", roles())
	}
	_, err := conn.Exec(s.ctx, "create table public.mine (); grant select on public.mine to posthaste_sender")
	s.must(err)
	s.must(postgres.MigrateDown(s.ctx, s.conn(), postgres.MigrateOptions{}))
	if one[int](s, conn, "select count(*) from pg_roles where rolname = 'posthaste_sender'") != 1 {
		t.Error("a role that is used was dropped")
	}
	s.migrate()
	_, err = conn.Exec(s.ctx, "drop table public.mine")
	s.must(err)
	s.must(postgres.MigrateDown(s.ctx, s.conn(), postgres.MigrateOptions{}))
	if roles() != 0 {
		t.Errorf("%d roles that nothing uses were left", roles())
	}
}

// Readiness becomes 503 within 5 s after the database is lost, and recovers.
func TestHA5_Readiness(t *testing.T) {
	testrun.Nightly(t, "on each change package server shows the 5 s, and internal/cli readiness of the whole program")
	t.Parallel()
	most := size(15*time.Second, 5*time.Second)
	server := testpg.Server(t)
	s := stageOn(t, server.URL())
	a := s.http()
	ready := func(status int) func() bool {
		return func() bool {
			got, err := a.try("GET", "/readyz", "")
			if err != nil {
				t.Fatal(err)
			}
			if status == 503 && got.status == 503 && got.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			return got.status == status
		}
	}
	for range 2 {
		s.within(most, "ready", ready(200))
		s.must(server.Kill())
		s.within(most, "not ready", ready(503))
		if got := a.call("GET", "/healthz", ""); got.status != 200 {
			t.Errorf("the program is unwell: %d", got.status)
		}
		s.must(server.Restart(s.ctx))
	}
	s.within(most, "ready again", ready(200))
	q := s.queue(posthaste.QueueOptions{})
	var sent struct{ ID string }
	s.must(json.Unmarshal(a.want(201, "POST", "/v1/queues/"+q+"/messages", `{"payload":1}`).body, &sent))
	if sent.ID == "" {
		t.Error("no id")
	}
}
