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

// Schema posthaste may hold objects that are not ours: where a user is called
// like the schema, "$user" in the search_path lets every unqualified `create
// table` land there. So what migrate makes is recorded, and only that is
// dropped, one kind after the other and never by a cascade.

// thereObjects are the objects of schema posthaste that are nobody else's part,
// as leaves of a partitioned table, sequences of a column and row types are.
const thereObjects = `with there as (
	select d.classid, d.objid, o.type, o.identity, o.type || ' ' || o.identity as name
	  from pg_depend d cross join lateral pg_identify_object(d.classid, d.objid, 0) o
	 where d.refclassid = 'pg_namespace'::regclass and d.refobjid = to_regnamespace('posthaste')
	   and not exists (select from pg_depend p where p.classid = d.classid and p.objid = d.objid and p.objsubid = 0
	                      and p.deptype in ('a', 'i') and p.refclassid <> 'pg_namespace'::regclass)
)`

// ownObjects are those among them that migrate has made.
const ownObjects = thereObjects + `, own as (
	select t.* from there t join posthaste.applied a on t.name = any (a.objects)
)`

// objectsThere names the objects of schema posthaste, none if it is missing.
func objectsThere(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, thereObjects+` select name from there`)
	if err != nil {
		return nil, readError(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, readError(err)
}

// recordObjects records as ours what was recorded before and is still there,
// and what is there now and was not among before, when this transaction began.
func recordObjects(ctx context.Context, tx pgx.Tx, before []string) error {
	_, err := tx.Exec(ctx, thereObjects+`
		insert into posthaste.applied as a (objects)
		select coalesce(array_agg(t.name order by t.name), '{}') from there t
		 where t.name <> all ($1::text[]) or exists (select from posthaste.applied o where t.name = any (o.objects))
		on conflict (only_row) do update set objects = excluded.objects where a.objects <> excluded.objects`, before)
	return readError(err)
}

// noStrangers refuses to go on if schema posthaste holds what is not ours.
func noStrangers(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, ownObjects+` select name from there where name not in (select name from own) order by name`)
	if err != nil {
		return readError(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return readError(err)
	}
	return &posthaste.Error{Code: posthaste.Refused,
		Message: "the schema posthaste holds objects that Posthaste did not make, so nothing is removed: " + listed(names),
		Hint: fmt.Sprintf("move them to another schema, as with `alter %s set schema public`, or drop them, and try again; "+
			"objects land there when a user is called posthaste and \"$user\" is in the search_path", names[0])}
}

// listed joins names, the first twenty of them.
func listed(names []string) string {
	const most = 20
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// changes and removal say why something of ours is dropped.
const (
	changes = "that this version changes"
	removal = "that is to be removed"
)

// dropAll drops the objects that list names, never what depends on them: that
// is the user's own.
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
		hint := "drop them, run migrate again, and make them anew"
		if why == removal {
			hint = "drop them, and try again"
		}
		return &posthaste.Error{Code: posthaste.Refused,
			Message: fmt.Sprintf("objects of your own depend on a %s %s: %s", what, why, strings.Join(strings.Fields(pg.Detail), " ")),
			Hint:    hint, Cause: err}
	}
	return readError(err)
}
