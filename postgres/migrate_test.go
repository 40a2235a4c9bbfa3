package postgres

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

func mustMigrate(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if err := Migrate(testContext(t), conn, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mustExecLater runs sql for cleanup, after the test's context ended.
func mustExecLater(t *testing.T, url, sql string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		_, err = conn.Exec(ctx, sql)
		_ = conn.Close(ctx)
	}
	if err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// objects describes all objects of the schema posthaste.
func objects(t *testing.T, q querier) string {
	t.Helper()
	return one[string](t, q, `
		select coalesce(string_agg(line, E'\n' order by line), '') from (
			select pg_get_functiondef(oid) || coalesce(proacl::text, '') line from pg_proc where pronamespace = to_regnamespace('posthaste') and prokind in ('f', 'p')
			union all select 'relation ' || relkind::text || ' ' || relname || coalesce(relacl::text, '') from pg_class where relnamespace = to_regnamespace('posthaste')
			union all select 'view ' || viewname || ' ' || definition from pg_views where schemaname = 'posthaste'
			union all select 'column ' || attrelid::regclass || '.' || attname || ' ' || format_type(atttypid, atttypmod) || attnotnull
				from pg_attribute join pg_class c on c.oid = attrelid where relnamespace = to_regnamespace('posthaste') and attnum > 0 and not attisdropped
			union all select 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = to_regnamespace('posthaste')
		) all_objects`)
}

// schema returns a source with these files, the real bootstrap, and empty roles and grants.
func schema(t *testing.T, files map[string]string) *schemaSource {
	t.Helper()
	bootstrap, err := fs.ReadFile(ledger.Files, "bootstrap.sql")
	if err != nil {
		t.Fatal(err)
	}
	m := fstest.MapFS{"bootstrap.sql": {Data: bootstrap}, "roles.sql": {Data: []byte("select 1;")}, "grants.sql": {Data: []byte("select 1;")}}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := readSource(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var schemaOne = map[string]string{
	"migrations/0001_first.sql": "-- breaking\ncreate table posthaste.things (id int);",
	"functions/a.sql":           "create function posthaste.a(x int) returns int language sql as 'select posthaste.b(x)';",
	"functions/b.sql":           "create or replace function posthaste.b(x int) returns int language sql as 'select x';",
	"functions/gone.sql":        "create or replace function posthaste.gone() returns int language sql as 'select 1';",
	"views/v.sql":               "create view posthaste.v as select id, posthaste.b(id) from posthaste.things;",
}

var schemaTwo = map[string]string{
	"migrations/0001_first.sql":  schemaOne["migrations/0001_first.sql"],
	"migrations/0002_second.sql": "-- compatible\nalter table posthaste.things add name text;",
	"functions/a.sql":            "create or replace function posthaste.a(y int) returns text language sql as 'select posthaste.b(y)';",
	"functions/b.sql":            "create or replace function posthaste.b(x int) returns text language sql as 'select x::text';",
	"functions/c.sql":            "create or replace function posthaste.c() returns setof posthaste.things language sql as 'select * from posthaste.things';",
	"views/v.sql":                "create view posthaste.v as select name, posthaste.b(id) from posthaste.things;",
	"views/w.sql":                "create view posthaste.w as select 1 as one;",
}

// A new and an upgraded schema are equal, even if functions changed or were dropped.
func TestUpgradeEqualsFreshInstall(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first := map[string]string{}
	for name, text := range schemaOne {
		first[name] = strings.Replace(text, "create function", "create or replace function", 1)
	}
	one1, two := schema(t, first), schema(t, schemaTwo)
	upgraded, fresh := dial(t, emptyDB(t)), dial(t, emptyDB(t))
	for _, s := range []*schemaSource{one1, one1, two, two} {
		if err := s.migrate(ctx, upgraded, MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := two.migrate(ctx, fresh, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if a, b := objects(t, upgraded), objects(t, fresh); a != b {
		t.Errorf("upgraded:\n%s\n\nfresh:\n%s", a, b)
	}
	// The old program runs with the compatible newer schema and does not change it.
	before := objects(t, upgraded)
	if err := one1.check(ctx, upgraded); err != nil {
		t.Errorf("the old program: %v", err)
	}
	if err := one1.migrate(ctx, upgraded, MigrateOptions{}); err != nil || objects(t, upgraded) != before {
		t.Errorf("the old program's migrate: %v, or it changed something", err)
	}
	status, err := one1.migrateStatus(ctx, upgraded)
	if err != nil || len(status) != 2 || status[0].Unknown || !status[1].Unknown || status[1].Name != "second" || status[1].Breaking {
		t.Errorf("the old program's status: %+v, %v", status, err)
	}
}

func TestUpgradeKeepsGivenRightsAndUsersObjects(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	conn := dial(t, url)
	files := map[string]string{
		"migrations/0001_first.sql": schemaOne["migrations/0001_first.sql"],
		"functions/b.sql":           schemaOne["functions/b.sql"],
		"views/v.sql":               "create view posthaste.v as select 1 as one;",
	}
	if err := schema(t, files).migrate(ctx, conn, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := "r" + strings.TrimPrefix(conn.Config().Database, "t")
	mustExec(t, conn, `create role `+role)
	t.Cleanup(func() { mustExecLater(t, url, `drop owned by `+role+`; drop role `+role) })
	mustExec(t, conn, `grant execute on function posthaste.b(int) to `+role)
	files["functions/b.sql"] = strings.Replace(files["functions/b.sql"], "select x", "select x + 1", 1)
	if err := schema(t, files).migrate(ctx, conn, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !one[bool](t, conn, `select has_function_privilege($1, 'posthaste.b(int)', 'execute')`, role) || one[int](t, conn, `select posthaste.b(1)`) != 2 {
		t.Error("the function was not replaced in place")
	}
	// A user's view on our object: the error names it, and nothing changed.
	mustExec(t, conn, `create view public.mine as select one from posthaste.v`)
	before := objects(t, conn)
	files["views/v.sql"] = "create view posthaste.v as select 2 as two;"
	err := schema(t, files).migrate(ctx, conn, MigrateOptions{})
	if posthaste.CodeOf(err) != posthaste.CodeRefused || !strings.Contains(err.Error(), "mine") || objects(t, conn) != before {
		t.Errorf("with a user's view in the way: %v", err)
	}
}

// A user named posthaste creates tables in our schema because of "$user" in the search_path.
func TestMigrateDownRemovesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn := dial(t, emptyDB(t))
	mustMigrate(t, conn)
	down := func(names ...string) {
		t.Helper()
		before := objects(t, conn)
		err := MigrateDown(ctx, conn, MigrateOptions{NoRoles: true})
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.CodeRefused || e.Hint == "" {
			t.Errorf("with %v: %v", names, err)
		}
		for _, name := range names {
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s is not named: %v", name, err)
			}
		}
		if objects(t, conn) != before {
			t.Errorf("with %v something was removed", names)
		}
	}
	mustExec(t, conn, `set search_path = posthaste, public`)
	// An overload of our function may also be the user's.
	mustExec(t, conn, `create table invoices (id serial primary key);
		create function send(text) returns int language sql as 'select 1';
		create view paid as select 1 as one;
		create type color as enum ('red')`)
	mustMigrate(t, conn)
	down("table posthaste.invoices", "function posthaste.send(pg_catalog.text)", "view posthaste.paid", "type posthaste.color")
	mustExec(t, conn, `alter table invoices set schema public; alter function send(text) set schema public;
		alter view paid set schema public; alter type color set schema public`)
	// Objects in other schemas that depend on ours are not dropped by a cascade.
	for make, drop := range map[string]string{
		`create view public.waiting as select message_id from posthaste.messages`:                             `drop view public.waiting`,
		`create table public.notes (m bigint references posthaste.registrations)`:                             `drop table public.notes`,
		`create function public.heads() returns posthaste.head language sql as 'select null::posthaste.head'`: `drop function public.heads()`,
		`create table public.places (pos bigint default nextval('posthaste.positions'))`:                      `drop table public.places`,
	} {
		mustExec(t, conn, make)
		down(regexp.MustCompile(`public\.(\w+)`).FindStringSubmatch(make)[1])
		mustExec(t, conn, drop)
	}
	if err := MigrateDown(ctx, conn, MigrateOptions{NoRoles: true}); err != nil {
		t.Fatal(err)
	}
	if !one[bool](t, conn, `select to_regclass('public.invoices') is not null and to_regnamespace('posthaste') is null`) {
		t.Error("their table is gone, or the schema is there")
	}
}

// Functions and views of another version replace ours, and not those of users.
func TestUpgradeLeavesStrangersInTheSchemaAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn := dial(t, emptyDB(t))
	first := map[string]string{}
	for name, text := range schemaOne {
		first[name] = strings.Replace(text, "create function", "create or replace function", 1)
	}
	if err := schema(t, first).migrate(ctx, conn, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustExec(t, conn, `create function posthaste.theirs() returns int language sql as 'select 1';
		create function posthaste.a(text) returns int language sql as 'select 1';
		create view posthaste.their_view as select 1 as one`)
	if err := schema(t, schemaTwo).migrate(ctx, conn, MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !one[bool](t, conn, `select to_regproc('posthaste.theirs') is not null and to_regprocedure('posthaste.a(text)') is not null
		and to_regclass('posthaste.their_view') is not null and to_regproc('posthaste.gone') is null`) {
		t.Error("an upgrade dropped a user's object, or kept a function that is not part of the version")
	}
}

func TestMigrateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn := dial(t, emptyDB(t))
	files := map[string]string{
		"migrations/0001_first.sql": schemaOne["migrations/0001_first.sql"],
		"functions/broken.sql":      "create or replace function posthaste.broken() returns int\nlanguage nosuch as 'x';",
	}
	err := schema(t, files).migrate(ctx, conn, MigrateOptions{})
	if err == nil || !strings.Contains(err.Error(), "functions/broken.sql") {
		t.Errorf("a broken file: %v", err)
	}
	if one[bool](t, conn, `select to_regnamespace('posthaste') is not null`) {
		t.Error("a failed migrate left the schema")
	}
}

func TestMigrateLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := schema(t, map[string]string{"migrations/0001_first.sql": schemaOne["migrations/0001_first.sql"]})
	conn := dial(t, emptyDB(t))
	mustExec(t, conn, `create schema posthaste; create table posthaste.letters (id int)`)
	if err := s.migrate(ctx, conn, MigrateOptions{}); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("migrating the schema of another program: %v", err)
	}
	if err := MigrateDown(ctx, conn, MigrateOptions{NoRoles: true}); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("removing the schema of another program: %v", err)
	}
	mustExec(t, conn, `drop table posthaste.letters`)
	if err := s.migrate(ctx, conn, MigrateOptions{}); err != nil {
		t.Errorf("into an empty schema: %v", err)
	}
	other := schema(t, map[string]string{"migrations/0001_other.sql": "-- breaking\nselect 1;"})
	if err := other.migrate(ctx, conn, MigrateOptions{}); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("another migration of the same number: %v", err)
	}
}

func TestBadSourcesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"migrations/0001_first.sql": "create table x ();",
		"migrations/0000_zero.sql":  "-- breaking\n",
		"migrations/1_first.sql":    "-- breaking\n",
		"migrations/0001_A.sql":     "-- breaking\n",
		"migrations/0002_two.sql":   "-- Breaking\n",
	} {
		files := fstest.MapFS{"bootstrap.sql": {}, "roles.sql": {}, "grants.sql": {}, name: {Data: []byte(text)}}
		if _, err := readSource(files); err == nil {
			t.Errorf("%s with %q is accepted", name, text)
		}
	}
	twice := fstest.MapFS{"bootstrap.sql": {}, "roles.sql": {}, "grants.sql": {},
		"migrations/0001_a.sql": {Data: []byte("-- breaking\n")}, "migrations/0001_b.sql": {Data: []byte("-- breaking\n")}}
	if _, err := readSource(twice); err == nil {
		t.Error("two migrations of one number are accepted")
	}
	named := fstest.MapFS{"bootstrap.sql": {}, "roles.sql": {}, "grants.sql": {}, "functions/ground/a.sql": {}, "functions/send/inner/a.sql": {}}
	if _, err := readSource(named); err == nil {
		t.Error("two functions of one name are accepted")
	}
	if _, err := readSource(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no files at all: %v", err)
	}
}

// The schema does not depend on the folder of a function: all folders are read, in the
// order of the functions' names.
func TestFunctionsMoveBetweenFolders(t *testing.T) {
	read := func(a, b string) *schemaSource {
		s, err := readSource(fstest.MapFS{"bootstrap.sql": {}, "roles.sql": {}, "grants.sql": {}, a: {Data: []byte("a")}, b: {Data: []byte("b")}, "functions/README.md": {}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	flat := read("functions/a.sql", "functions/b.sql")
	moved := read("functions/send/inner/a.sql", "functions/ground/b.sql")
	if len(moved.functions) != 2 || moved.functions[0].base != "a" || moved.functions[1].base != "b" || moved.hash != flat.hash {
		t.Errorf("read %v with hash %s, and %v with hash %s before they were moved", moved.functions, moved.hash, flat.functions, flat.hash)
	}
}

// HA5: migrating twice and from several processes at once succeeds. Down removes all objects.
func TestHA5MigrateTwiceAtOnceAndDown(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	everything := `select string_agg(oid::regclass::text, ' ' order by oid::regclass::text) is null
		and not exists (select from pg_namespace where nspname = 'posthaste') from pg_class
		where relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) and relnamespace::regnamespace::text not like 'pg\_%'`
	conn := dial(t, url)
	if status, err := MigrateStatus(ctx, conn); err != nil || len(status) == 0 || !status[0].Pending {
		t.Fatalf("status of an empty database: %+v, %v", status, err)
	}
	var all sync.WaitGroup
	for range 4 {
		conn := dial(t, url)
		all.Go(func() {
			if err := Migrate(ctx, conn, MigrateOptions{}); err != nil {
				t.Errorf("at once: %v", err)
			}
		})
	}
	all.Wait()
	before := objects(t, conn)
	mustMigrate(t, conn)
	if objects(t, conn) != before {
		t.Error("migrating again changed something")
	}
	status, err := MigrateStatus(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if m.Pending || m.Unknown || m.AppliedAt.IsZero() {
			t.Errorf("after migrate: %+v", m)
		}
	}
	for range 2 {
		if err := MigrateDown(ctx, conn, MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
		if !one[bool](t, conn, everything) {
			t.Error("down left something")
		}
	}
	mustMigrate(t, conn)
	if objects(t, conn) != before {
		t.Error("up after down is another schema")
	}
}

// Migrate does not need a superuser. If the user cannot create roles, the error says what to do.
func TestMigrateWithoutSuperuser(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	admin := dial(t, url)
	user := "u" + strings.TrimPrefix(admin.Config().Database, "t")
	mustExec(t, admin, `create role `+user+` login password 'geheim'`)
	t.Cleanup(func() { mustExecLater(t, url, `drop owned by `+user+`; drop role `+user) })
	conn := dial(t, withUser(t, url, user, "geheim"))
	if err := Migrate(ctx, conn, MigrateOptions{NoRoles: true}); posthaste.CodeOf(err) != posthaste.CodeDenied {
		t.Errorf("without CREATE on the database: %v", err)
	}
	mustExec(t, admin, `grant create on database `+admin.Config().Database+` to `+user)
	if err := Migrate(ctx, conn, MigrateOptions{NoRoles: true}); err != nil {
		t.Errorf("without superuser: %v", err)
	}
	if err := MigrateDown(ctx, conn, MigrateOptions{NoRoles: true}); err != nil {
		t.Errorf("down without superuser: %v", err)
	}
	// Other tests on this server may or may not have created the roles.
	sql := strings.NewReplacer("posthaste_", user+"_").Replace(mustShipped(t).roles.text)
	_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	var e *posthaste.Error
	if !errors.As(readError(err), &e) || e.Code != posthaste.CodeRefused || !strings.Contains(e.Hint, "--no-roles") {
		t.Errorf("making roles without the right to: %v", err)
	}
}

// The changes of a migration are logged after its commit: once if it was retried, and not at all
// if it failed.
func TestMigrationsTellWhatIsCommitted(t *testing.T) {
	t.Parallel()
	conn := dial(t, emptyDB(t))
	for _, c := range []struct {
		name  string
		tries []error
		want  int
	}{
		{"retried", []error{&pgconn.PgError{Code: "55P03"}, nil}, 1},
		{"failed", []error{&pgconn.PgError{Code: "55P03"}, errors.New("no")}, 0},
	} {
		var words strings.Builder
		tries := 0
		err := inMigration(testContext(t), conn, slog.New(slog.NewTextHandler(&words, nil)), func(_ pgx.Tx, log *slog.Logger) error {
			log.Info("applied migration")
			tries++
			return c.tries[tries-1]
		})
		if (err == nil) != (c.want > 0) || tries != 2 {
			t.Fatalf("%s: %d tries, %v", c.name, tries, err)
		}
		if n := strings.Count(words.String(), "applied migration"); n != c.want {
			t.Errorf("%s: told %d times: %s", c.name, n, words.String())
		}
	}
}

func mustShipped(t *testing.T) *schemaSource {
	t.Helper()
	s, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All functions that grants.sql names exist, and users without a role cannot call any.
func TestGrants(t *testing.T) {
	t.Parallel()
	conn := dial(t, emptyDB(t))
	mustMigrate(t, conn)
	names := regexp.MustCompile(`\('(?:public|driver|view)', '(posthaste_\w+)', '(\w+)'\)`).FindAllStringSubmatch(mustShipped(t).grants.text, -1)
	if len(names) == 0 {
		t.Fatal("grants.sql names nothing")
	}
	for _, n := range names {
		if !one[bool](t, conn, `select coalesce(bool_and(has_function_privilege($1, oid, 'execute')), false)
			from pg_proc where pronamespace = 'posthaste'::regnamespace and proname = $2`, n[1], n[2]) {
			t.Errorf("%s does not exist, or %s may not call it", n[2], n[1])
		}
	}
	if n := one[int](t, conn, `select count(*) from pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a
		where pronamespace = 'posthaste'::regnamespace and a.grantee = 0`); n != 0 {
		t.Errorf("all users may call %d functions", n)
	}
}
