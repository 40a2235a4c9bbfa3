package postgres

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestRolesInUseAreKept(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn := dial(t, emptyDB(t))
	// Use a role of the test, because all tests share the real ones.
	role := "k" + strings.TrimPrefix(conn.Config().Database, "t")
	exists := func() bool {
		return one[bool](t, conn, `select exists (select from pg_roles where rolname = $1)`, role)
	}
	drop := func() {
		t.Helper()
		if err := inMigration(ctx, conn, MigrateOptions{}.log(), func(tx pgx.Tx, log *slog.Logger) error { return dropRole(ctx, tx, role, log) }); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, conn, `create role `+role)
	mustExec(t, conn, `create role `+role+`_member in role `+role)
	if drop(); !exists() {
		t.Error("a role with a member was dropped")
	}
	mustExec(t, conn, `drop role `+role+`_member`)
	mustExec(t, conn, `create table public.mine (); grant select on public.mine to `+role)
	if drop(); !exists() {
		t.Error("a role with rights was dropped")
	}
	mustExec(t, conn, `drop table public.mine`)
	if drop(); exists() {
		t.Error("an unused role was kept")
	}
	drop()
}

// A migration creates a role again that another database's migration down drops meanwhile.
func TestMigrateBesideADroppedRole(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	conn, other, watcher := dial(t, url), dial(t, url), dial(t, url)
	role := "g" + strings.TrimPrefix(conn.Config().Database, "t")
	source := schema(t, map[string]string{
		"roles.sql": `do $$ begin
			if not exists (select from pg_roles where rolname = '` + role + `') then create role ` + role + `; end if;
		end $$;`,
		"grants.sql": `grant usage on schema posthaste to ` + role + `;`,
	})
	mustExec(t, other, `create role `+role)
	t.Cleanup(func() { mustExecLater(t, url, `drop owned by `+role+`; drop role `+role) })
	mustExec(t, other, `begin; drop role `+role)
	done := make(chan error, 1)
	go func() { done <- source.migrate(ctx, conn, MigrateOptions{}) }()
	eventually(t, "the migration waits for the role", func() bool {
		return one[bool](t, watcher, `select exists (select from pg_locks where not granted and pid = $1)`, conn.PgConn().PID())
	})
	mustExec(t, other, `commit`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !one[bool](t, watcher, `select has_schema_privilege($1, 'posthaste', 'usage')`, role) {
		t.Error("the new role has no privileges")
	}
}
