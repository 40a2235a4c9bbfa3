package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// The schema posthaste may contain objects of users: if a user is named posthaste, "$user" in the
// search_path makes unqualified create statements create them there. Migrate therefore records
// its objects, and only these are dropped, by kind and without cascade.

// thereObjects selects the objects of the schema posthaste, except parts of other objects:
// partitions, sequences of columns, and row types.
const thereObjects = `with there as (
	select d.classid, d.objid, o.type, o.identity, o.type || ' ' || o.identity as name
	  from pg_depend d cross join lateral pg_identify_object(d.classid, d.objid, 0) o
	 where d.refclassid = 'pg_namespace'::regclass and d.refobjid = to_regnamespace('posthaste')
	   and not exists (select from pg_depend p where p.classid = d.classid and p.objid = d.objid and p.objsubid = 0
	                      and p.deptype in ('a', 'i') and p.refclassid <> 'pg_namespace'::regclass)
)`

// ownObjects also selects those among them that Migrate created.
const ownObjects = thereObjects + `, own as (
	select t.* from there t join posthaste.applied a on t.name = any (a.objects)
)`

// objectsThere returns the names of the objects in the schema posthaste, none if it is missing.
func objectsThere(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, thereObjects+` select name from there`)
	if err != nil {
		return nil, readError(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, readError(err)
}

// recordObjects records as created by Migrate the existing objects that were recorded before,
// and those that are not among before, the objects at the start of this transaction.
func recordObjects(ctx context.Context, tx pgx.Tx, before []string) error {
	_, err := tx.Exec(ctx, thereObjects+`
		insert into posthaste.applied as a (objects)
		select coalesce(array_agg(t.name order by t.name), '{}') from there t
		 where t.name <> all ($1::text[]) or exists (select from posthaste.applied o where t.name = any (o.objects))
		on conflict (only_row) do update set objects = excluded.objects where a.objects <> excluded.objects`, before)
	return readError(err)
}

// noStrangers fails if the schema posthaste contains objects that Migrate did not create.
func noStrangers(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, ownObjects+` select name from there where name not in (select name from own) order by name`)
	if err != nil {
		return readError(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return readError(err)
	}
	return &posthaste.Error{Code: posthaste.CodeRefused,
		Message: "the schema posthaste contains objects that Posthaste did not create; nothing was removed: " + listed(names),
		Hint: fmt.Sprintf("move them to another schema, for example with `alter %s set schema public`, or drop them, and try again; "+
			"objects are created there if a user is named posthaste and \"$user\" is in the search_path", names[0])}
}

// listed joins at most twenty names.
func listed(names []string) string {
	const most = 20
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// changes and removal are the reasons to drop an object.
const (
	changes = "that this version changes"
	removal = "that must be removed"
)

// dropAll drops the objects that the query list names. It fails if other objects depend on
// them, which are the user's.
func dropAll(ctx context.Context, tx pgx.Tx, what, why, list string, args ...any) error {
	var names *string
	if err := tx.QueryRow(ctx, list, args...).Scan(&names); err != nil {
		return readError(err)
	}
	if names == nil {
		return nil
	}
	_, err := tx.Exec(ctx, "drop "+what+" "+*names)
	return dropError(what, why, err)
}

func dropError(what, why string, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "2BP01" { // dependent_objects_still_exist
		hint := "drop them, run migrate again, and create them again"
		if why == removal {
			hint = "drop them and try again"
		}
		return &posthaste.Error{Code: posthaste.CodeRefused,
			Message: fmt.Sprintf("objects of your own depend on a %s %s: %s", what, why, strings.Join(strings.Fields(pg.Detail), " ")),
			Hint:    hint, Cause: err}
	}
	return readError(err)
}
