package postgres

import (
	"context"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MigrateDown removes the schema posthaste with all messages, then the three roles, unless
// opts.NoRoles is set or a role is still in use. Without the schema it does nothing. It never
// removes objects that Posthaste did not create: if the schema contains such objects, or others
// depend on ours, it removes nothing and returns Refused with their names. Codes: as [Migrate].
func MigrateDown(ctx context.Context, conn *pgx.Conn, opts MigrateOptions) error {
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	return inMigration(ctx, conn, opts.log(), func(tx pgx.Tx, log *slog.Logger) error {
		ours, err := installed(ctx, tx)
		if err != nil {
			return err
		}
		if ours {
			if err := dropSchema(ctx, tx); err != nil {
				return err
			}
			log.Info("removed the schema posthaste")
		}
		if opts.NoRoles {
			return nil
		}
		// posthaste_admin is a member of the others, so it is dropped first.
		for _, role := range []string{"posthaste_admin", "posthaste_receiver", "posthaste_sender"} {
			if err := dropRole(ctx, tx, role, log); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropSchema drops the objects that Migrate created, by kind in the order of their dependencies,
// and the schema. It does not cascade, so that PostgreSQL reports an error if other objects
// depend on them.
func dropSchema(ctx context.Context, tx pgx.Tx) error {
	if err := noStrangers(ctx, tx); err != nil {
		return err
	}
	// Read first, because the tables contain the list.
	own := map[string][]string{}
	rows, err := tx.Query(ctx, ownObjects+` select
		case when classid <> 'pg_proc'::regclass then type
		     when exists (select from pg_depend d where d.classid = 'pg_constraint'::regclass
		                     and d.refclassid = 'pg_proc'::regclass and d.refobjid = own.objid) then 'check'
		     else 'routine' end, identity from own`)
	if err != nil {
		return readError(err)
	}
	var kind, identity string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &identity}, func() error {
		own[kind] = append(own[kind], identity)
		return nil
	}); err != nil {
		return readError(err)
	}
	// Drop routines before the tables whose row types they use, except those that check
	// constraints of tables call.
	for _, kind := range []string{"view", "routine", "table", "check", "sequence", "type"} {
		names := own[kind]
		if len(names) == 0 {
			continue
		}
		if kind == "check" {
			kind = "routine"
		}
		_, err := tx.Exec(ctx, "drop "+kind+" "+strings.Join(names, ", "))
		if err := dropError(kind, removal, err); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `drop schema posthaste`)
	return dropError("schema", removal, err)
}

// dropRole drops a role unless it is in use: another role is a member, or it has privileges in
// this or another database.
func dropRole(ctx context.Context, tx pgx.Tx, role string, log *slog.Logger) error {
	var exists, used bool
	// Since PostgreSQL 16 the creator of a role is a member that can only administer it;
	// to_jsonb reads columns that 14 and 15 do not have.
	err := tx.QueryRow(ctx, `
		select r.oid is not null,
		       exists (select from pg_shdepend where refclassid = 'pg_authid'::regclass and refobjid = r.oid)
		       or exists (select from pg_auth_members m join pg_roles p on p.oid = m.member
		                   where m.roleid = r.oid and p.rolname <> 'posthaste_admin'
		                     and (coalesce((to_jsonb(m) ->> 'inherit_option')::bool, true)
		                          or coalesce((to_jsonb(m) ->> 'set_option')::bool, true)))
		  from (values ($1::name)) wanted (name) left join pg_roles r on r.rolname = wanted.name`, role).
		Scan(&exists, &used)
	if err != nil {
		return readError(err)
	}
	if !exists {
		return nil
	}
	if used {
		log.Info("kept a role that is still in use", "role", role)
		return nil
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return readError(err)
	}
	// A transaction in another database may be granting a privilege to the role.
	_, err = inner.Exec(ctx, `set local lock_timeout = '500ms'`)
	if err == nil {
		_, err = inner.Exec(ctx, "drop role "+pgx.Identifier{role}.Sanitize())
	}
	if err == nil {
		log.Info("dropped a role", "role", role)
		return readError(inner.Commit(ctx))
	}
	if rollback := inner.Rollback(ctx); rollback != nil {
		return readError(rollback)
	}
	switch sqlState(err) {
	case "2BP01", "42501", "55P03", "40P01", "42704", "XX000":
		// In use after all, owned by another role, or dropped by another session.
		log.Info("kept a role", "role", role, "reason", err)
		return nil
	}
	return readError(err)
}
