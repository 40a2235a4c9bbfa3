package postgres

import (
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// ScriptPart is a part of [MigrationScript]: statements that belong together.
type ScriptPart struct {
	// Name describes it, such as "migration 0001_ledger".
	Name string
	// SQL ends with a semicolon and a line break.
	SQL string
}

// ScriptOptions are options of [MigrationScript].
type ScriptOptions struct {
	// From is the migration that the database has; 0 for a database without the schema.
	From int
	// NoRoles leaves out the creation of roles. Existing roles still get their privileges.
	NoRoles bool
}

// MigrationScript returns the steps of [Migrate] as SQL for other programs: the migrations after
// opts.From, all functions and views, roles and privileges. The parts run in order in one
// transaction, which the caller begins and commits. The first part fails if the database has
// other migrations than opts.From says. The script is the same for each call of one program, and
// afterwards Migrate of the same program changes nothing.
//
// Unlike Migrate the script does not try again if a table is in use for 10 s: it fails, and can
// be run again.
//
// There is no upper limit: functions and views belong to the newest migration, so an older
// state is in the script of an older program.
func MigrationScript(opts ScriptOptions) ([]ScriptPart, error) {
	s, err := shipped()
	if err != nil {
		return nil, err
	}
	return s.script(opts)
}

func (s *schemaSource) script(opts ScriptOptions) ([]ScriptPart, error) {
	newest := s.migrations[len(s.migrations)-1].version
	if opts.From < 0 || opts.From > newest {
		return nil, posthaste.Invalidf("from", "from must be 0 (no schema yet) to %d (the newest migration of this program), got %d", newest, opts.From)
	}
	guard := scriptGuard(opts.From)
	if opts.From < newest {
		guard += scriptLocks
	}
	parts := []ScriptPart{{"preparation", scriptBegin + guard + scriptBefore}}
	add := func(name, sql string) {
		parts = append(parts, ScriptPart{name, strings.TrimRight(sql, "\n") + "\n"})
	}
	if opts.From == 0 {
		add("schema and record of migrations", s.bootstrap.text)
	}
	for _, m := range s.migrations {
		if m.version > opts.From {
			add(fmt.Sprintf("migration %04d_%s", m.version, m.base), fmt.Sprintf("%s\ninsert into posthaste.migrations (version, name, breaking) values (%d, '%s', %t);",
				strings.TrimRight(m.text, "\n"), m.version, m.base, m.breaking))
		}
	}
	if opts.From > 0 {
		add("old views", scriptDropViews+scriptReplace)
	}
	for _, f := range s.functions {
		text := strings.TrimRight(f.text, "\n")
		if !strings.HasSuffix(text, ";") {
			text += ";"
		}
		if opts.From > 0 {
			text = fmt.Sprintf("select pg_temp.posthaste_replace('%s', $posthaste_function$\n%s\n$posthaste_function$);", f.base, text)
		}
		add("function "+f.base, text)
	}
	if opts.From > 0 {
		add("functions that are not part of this version", scriptDropOld)
	}
	for _, f := range s.views {
		add("view "+f.base, f.text)
	}
	add("record of functions, views and objects", fmt.Sprintf(scriptRecord, s.hash))
	if !opts.NoRoles {
		add("roles", s.roles.text)
	}
	add("privileges", s.grants.text)
	add("end", scriptEnd)
	return parts, nil
}

// scriptBegin takes the lock of migrations and sets the parameters of one, as tryMigration does.
// The search_path of the caller, who may write a record of its own in the same transaction, is
// restored at the end.
var scriptBegin = fmt.Sprintf(`do $posthaste$
begin
  perform pg_catalog.pg_advisory_xact_lock(%d);
  perform pg_catalog.set_config('posthaste.search_path', pg_catalog.current_setting('search_path'), true);
end $posthaste$;
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local lock_timeout = '10s';
set local client_min_messages = warning;
`, int64(migrateKey))

const scriptEnd = `do $posthaste$
begin
  perform pg_catalog.set_config('search_path', pg_catalog.current_setting('posthaste.search_path'), true);
end $posthaste$;
`

// scriptGuard fails if the database is not in the state that the script starts from.
func scriptGuard(from int) string {
	if from == 0 {
		return fmt.Sprintf(`do $posthaste$
begin
  if current_setting('server_version_num')::int < %d then
    raise exception 'Posthaste needs PostgreSQL %d or newer';
  end if;
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'the encoding of this database is %%, but Posthaste needs UTF8', current_setting('server_encoding')
      using hint = 'create another one with: create database NAME encoding ''UTF8'' template template0';
  end if;
  if exists (select from pg_class where relnamespace = to_regnamespace('posthaste'))
     or exists (select from pg_proc where pronamespace = to_regnamespace('posthaste')) then
    raise exception 'the schema posthaste is not empty; this script installs it'
      using hint = 'print a script for its state: posthaste migrate sql --from MIGRATION; posthaste migrate status shows the migration';
  end if;
end $posthaste$;
`, oldestServer, oldestServer/10000)
	}
	return fmt.Sprintf(`do $posthaste$
declare
  newest int := (select max(version) from posthaste.migrations);
begin
  if newest is distinct from %d then
    raise exception 'the schema posthaste has migration %%, but this script starts from %d', newest
      using hint = format('print a script for its state: posthaste migrate sql --from %%s', newest);
  end if;
end $posthaste$;
`, from, from)
}

// scriptLocks does what checkLocks does.
var scriptLocks = fmt.Sprintf(`do $posthaste$
declare
  server record;
begin
  %[1]s into server;
  if server.entries < %[2]d then
    raise exception 'the server''s lock table has %% entries, but the migration needs %[2]d', server.entries
      using hint = format('set max_locks_per_transaction to %%s or more (it is %%s) and restart the server', (server.each * %[2]d + server.entries - 1) / server.entries, server.each);
  end if;
end $posthaste$;
`, lockTable, migrationLocks)

// scriptBefore keeps the objects and functions that exist, for scriptRecord and scriptDropOld.
const scriptBefore = `create temporary table posthaste_objects on commit drop as
` + thereObjects + ` select name from there;
create temporary table posthaste_functions on commit drop as
  select oid, xmin::text as version from pg_proc where pronamespace = to_regnamespace('posthaste');
`

const scriptDropViews = `do $posthaste$
declare
  names text;
begin
  ` + ownObjects + `
  select string_agg(identity, ', ') into names from own where type = 'view';
  if names is not null then
    execute 'drop view ' || names;
  end if;
end $posthaste$;
`

// scriptReplace creates a function with the effect of applyFunction.
const scriptReplace = `create function pg_temp.posthaste_replace(name text, definition text) returns void language plpgsql as $posthaste$
declare
  names text;
begin
  execute definition;
exception when invalid_function_definition then
  ` + ownObjects + `
  select string_agg(identity, ', ') into names from own join pg_proc p on p.oid = objid and classid = 'pg_proc'::regclass
   where p.proname = posthaste_replace.name;
  execute 'drop routine ' || names;
  execute definition;
end $posthaste$;
`

// scriptDropOld drops the functions that no file of this version replaced.
const scriptDropOld = `do $posthaste$
declare
  names text;
begin
  ` + ownObjects + `
  select string_agg(identity, ', ') into names
    from own join pg_proc p on p.oid = objid and classid = 'pg_proc'::regclass
         join pg_temp.posthaste_functions f on f.oid = p.oid and f.version = p.xmin::text;
  if names is not null then
    execute 'drop routine ' || names;
  end if;
end $posthaste$;
drop function pg_temp.posthaste_replace;
`

// scriptRecord records the same as recordObjects and applyCode.
const scriptRecord = thereObjects + `
insert into posthaste.applied as a (hash, objects)
select '%s', coalesce(array_agg(t.name order by t.name), '{}') from there t
 where t.name not in (select o.name from pg_temp.posthaste_objects o) or exists (select from posthaste.applied o where t.name = any (o.objects))
on conflict (only_row) do update set hash = excluded.hash, objects = excluded.objects, applied_at = clock_timestamp();
`
