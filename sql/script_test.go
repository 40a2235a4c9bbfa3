package ledger_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// script returns the script of the migrations as one text.
func script(t *testing.T, from int) string {
	t.Helper()
	parts, err := postgres.MigrationScript(postgres.ScriptOptions{From: from})
	if err != nil {
		t.Fatal(err)
	}
	text := "begin;\n"
	for _, p := range parts {
		text += p.SQL
	}
	return text + "commit;\n"
}

// runScript runs a script in one go, as psql or goose do.
func (s *session) runScript(text string) error {
	_, err := s.Conn.PgConn().Exec(s.t.Context(), text).ReadAll()
	if err != nil {
		_, _ = s.Conn.Exec(s.t.Context(), "rollback")
	}
	return err
}

// records are the records that migrate keeps of itself, except times.
const records = `select concat_ws(' ', version, name, breaking) from posthaste.migrations
	union all select hash from posthaste.applied union all select unnest(objects) from posthaste.applied order by 1`

// TestScriptDoesWhatMigrateDoes: the script leaves the same schema and records as Migrate, and
// the search_path as it was.
func TestScriptDoesWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	s, migrated := connect(t, testpg.Empty(t)), connect(t, testpg.New(t))
	text := script(t, 0)
	if text != script(t, 0) {
		t.Error("two scripts differ")
	}
	path := list[string](s, "show search_path")
	for _, name := range []string{"once", "a second time"} {
		err := s.runScript(text)
		if name == "once" && err != nil {
			t.Fatal(err)
		}
		if name != "once" && (err == nil || !strings.Contains(err.Error(), "the schema posthaste is not empty")) {
			t.Errorf("run %s: %v", name, err)
		}
	}
	golden(t, "schema.sql", schema(s))
	if got, want := list[string](s, records), list[string](migrated, records); !reflect.DeepEqual(got, want) {
		t.Errorf("the script records\n%q\nand migrate\n%q", got, want)
	}
	if after := list[string](s, "show search_path"); !reflect.DeepEqual(path, after) {
		t.Errorf("search_path was %s and is %s", path, after)
	}
	if err := postgres.Migrate(t.Context(), s.Conn, postgres.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.sql", schema(s))
}

// TestScriptUpgrades: a script from the newest migration replaces functions and views that differ,
// and drops functions that are not part of this version, but not those of users.
func TestScriptUpgrades(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	status, err := postgres.MigrateStatus(t.Context(), s.Conn)
	if err != nil {
		t.Fatal(err)
	}
	newest := status[len(status)-1].Version
	s.exec(`
		drop function posthaste.lock_key;
		create function posthaste.lock_key(other text) returns text language sql as 'select 1::text';
		create function posthaste.of_an_older_version() returns int language sql as 'select 1';
		update posthaste.applied set hash = 'older', objects = objects || array(
			select 'function ' || o.identity from pg_proc p cross join lateral pg_identify_object('pg_proc'::regclass, p.oid, 0) o
			 where p.pronamespace = 'posthaste'::regnamespace and p.proname in ('of_an_older_version', 'lock_key'));
		create function posthaste.of_a_user() returns int language sql as 'select 1'`)
	if err := s.runScript(script(t, newest-1)); err == nil || !strings.Contains(err.Error(), "but this script starts from") {
		t.Errorf("a script from an earlier migration: %v", err)
	}
	if err := s.runScript(script(t, newest)); err != nil {
		t.Fatal(err)
	}
	s.exec(`drop function posthaste.of_a_user()`)
	golden(t, "schema.sql", schema(s))
}

func TestScriptFromAnUnknownMigration(t *testing.T) {
	t.Parallel()
	for _, from := range []int{-1, 10_000} {
		if _, err := postgres.MigrationScript(postgres.ScriptOptions{From: from}); err == nil {
			t.Errorf("from %d is accepted", from)
		}
	}
}

// A script fails in a database in which Migrate fails, too.
func TestScriptNeedsUTF8(t *testing.T) {
	t.Parallel()
	s := connect(t, madeWith(t, "encoding 'LATIN1' locale 'C'"))
	if err := postgres.Migrate(t.Context(), s.Conn, postgres.MigrateOptions{}); err == nil || !strings.Contains(err.Error(), "the encoding of this database is LATIN1") {
		t.Errorf("migrate: %v", err)
	}
	if err := s.runScript(script(t, 0)); err == nil || !strings.Contains(err.Error(), "the encoding of this database is LATIN1") {
		t.Errorf("the script: %v", err)
	}
}
