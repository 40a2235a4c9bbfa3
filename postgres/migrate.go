package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// migrateKey is the advisory lock of migrations: posthaste.lock_key(15, 1), a function that does
// not exist before the first one.
const migrateKey = 20552<<48 | 15<<44 | 1

// MigrateOptions are options of [Migrate] and [MigrateDown].
type MigrateOptions struct {
	// NoRoles disables the creation and removal of roles. Existing roles still get their
	// privileges.
	NoRoles bool
	// Log receives the changes that were made. Nil disables it.
	Log *slog.Logger
}

func (o MigrateOptions) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Migrate installs or updates the schema posthaste in one transaction: missing migrations, then
// functions and views if they differ from this program's, roles and privileges. It is
// idempotent, and several processes may run it at once. It needs CREATE on the database or
// ownership of the schema, but no superuser, and CREATEROLE unless the roles exist or
// opts.NoRoles is set.
//
// If the schema has compatible migrations that this program does not have, Migrate changes
// nothing, so that an old program does not restore old functions. A release that changes
// functions or views therefore contains a migration, which may be empty.
//
// It may run under load. It waits briefly for a table that is in use, so that senders do not
// queue behind it for long, and then starts again, for about a minute. After that it returns
// Unavailable, and nothing has changed.
//
// Codes: Unsupported, ReadOnly, SchemaNew, Denied, Refused (another program created the schema,
// or the user's own objects depend on objects that must change), Unavailable. conn must not be
// in a transaction or in use elsewhere.
func Migrate(ctx context.Context, conn *pgx.Conn, opts MigrateOptions) error {
	s, err := shipped()
	if err != nil {
		return err
	}
	return s.migrate(ctx, conn, opts)
}

func (s *schemaSource) migrate(ctx context.Context, conn *pgx.Conn, opts MigrateOptions) error {
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	if err := checkEncoding(ctx, conn); err != nil {
		return err
	}
	return inMigration(ctx, conn, opts.log(), func(tx pgx.Tx, log *slog.Logger) error {
		ours, err := installed(ctx, tx)
		if err != nil {
			return err
		}
		before, err := objectsThere(ctx, tx)
		if err != nil {
			return err
		}
		if !ours {
			if err := apply(ctx, tx, s.bootstrap); err != nil {
				return err
			}
		}
		have, err := recorded(ctx, tx)
		if err != nil {
			return readError(err)
		}
		all := s.status(have)
		if err := s.sameNames(all); err != nil {
			return err
		}
		if err := tooNew(all); err != nil {
			return err
		}
		for _, m := range all {
			if m.Unknown {
				log.Info("the schema is newer than this program, but compatible: nothing to do", "version", m.Version, "name", m.Name)
				return nil
			}
		}
		if slices.ContainsFunc(all, func(m MigrationStatus) bool { return m.Pending }) {
			if err := checkLocks(ctx, tx); err != nil {
				return err
			}
		}
		if err := s.applyMigrations(ctx, tx, all, log); err != nil {
			return err
		}
		if err := s.applyCode(ctx, tx, log); err != nil {
			return err
		}
		if err := recordObjects(ctx, tx, before); err != nil {
			return err
		}
		return s.applyRights(ctx, tx, !opts.NoRoles)
	})
}

// applyRights creates the roles if asked to, and grants them their privileges. Roles belong to the
// whole server and the migration lock to one database, so a migration down in another
// database may drop a role between the two. It then does both again.
func (s *schemaSource) applyRights(ctx context.Context, tx pgx.Tx, roles bool) error {
	for tries := 1; ; tries++ {
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			if roles {
				if err := apply(ctx, inner, s.roles); err != nil {
					return err
				}
			}
			return apply(ctx, inner, s.grants)
		})
		// 42704: the role was dropped; XX000: its row in a catalog was.
		if state := sqlState(err); err == nil || tries == 5 || state != "42704" && state != "XX000" {
			return err
		}
	}
}

// migrationLocks is the number of entries that the server's lock table must have. A migration
// that creates the whole schema takes 1,170, and other sessions need some.
const migrationLocks = 1300

// lockTable reads the number of entries of the server's lock table, and how many of them are for
// each transaction.
const lockTable = `select m.locks * (m.backends + pg_catalog.current_setting('max_prepared_transactions')::int) as entries, m.locks as each
		from (select pg_catalog.current_setting('max_locks_per_transaction')::int as locks,
		             pg_catalog.sum(s.setting::int)::int as backends
		        from pg_catalog.pg_settings s
		       where s.name in ('max_connections', 'autovacuum_max_workers', 'max_worker_processes', 'max_wal_senders')) m`

// checkLocks fails if the server's lock table is too small for a migration, which would also
// make statements of other programs fail.
func checkLocks(ctx context.Context, q querier) error {
	var entries, each int
	err := q.QueryRow(ctx, lockTable).Scan(&entries, &each)
	if err != nil || entries >= migrationLocks {
		return readError(err)
	}
	return &posthaste.Error{Code: posthaste.CodeRefused,
		Message: fmt.Sprintf("the server's lock table has %d entries, but the migration needs %d", entries, migrationLocks),
		Hint:    fmt.Sprintf("set max_locks_per_transaction to %d or more (it is %d) and restart the server", (each*migrationLocks+entries-1)/entries, each)}
}

// The lock timeouts of a migration. Other sessions that need the table queue behind its wait, so
// the first ones are short. For half of migrationPatience they are below deadlock_timeout (1 s
// by default), after which PostgreSQL might abort a sender's transaction instead.
const (
	leastLockTimeout  = 200 * time.Millisecond
	calmLockTimeout   = 900 * time.Millisecond
	mostLockTimeout   = 10 * time.Second
	migrationPatience = time.Minute
)

// inMigration runs work in one transaction while no other migration runs. If a table is in use
// it rolls back and runs work again. It passes on the log records of work after the commit.
func inMigration(ctx context.Context, conn *pgx.Conn, log *slog.Logger, work func(pgx.Tx, *slog.Logger) error) error {
	begun, wait := time.Now(), leastLockTimeout
	for {
		done := &keptLog{Handler: log.Handler()}
		err := tryMigration(ctx, conn, wait, func(tx pgx.Tx) error { return work(tx, slog.New(done)) })
		if err == nil {
			done.tell(ctx)
		}
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" && pg.Code != "40P01" || time.Since(begun) > migrationPatience {
			return err
		}
		if wait == leastLockTimeout {
			log.Info("tables of the schema are in use: nothing was changed, retrying", "for", migrationPatience, "error", err)
		}
		wait = min(2*wait, calmLockTimeout)
		if time.Since(begun) > migrationPatience/2 {
			wait = mostLockTimeout
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100*time.Millisecond + rand.N(400*time.Millisecond)):
		}
	}
}

// keptLog keeps log records until the changes they describe are committed.
type keptLog struct {
	slog.Handler
	records []slog.Record
}

// Handle implements [slog.Handler].
func (l *keptLog) Handle(_ context.Context, r slog.Record) error {
	l.records = append(l.records, r)
	return nil
}

func (l *keptLog) tell(ctx context.Context) {
	for _, r := range l.records {
		_ = l.Handler.Handle(ctx, r)
	}
}

func tryMigration(ctx context.Context, conn *pgx.Conn, wait time.Duration, work func(pgx.Tx) error) error {
	// READ COMMITTED, to see the changes that another process made while this one waited for
	// the lock.
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return readError(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{
		fmt.Sprintf(`select pg_catalog.pg_advisory_xact_lock(%d)`, int64(migrateKey)),
		// From here on names do not resolve to the user's objects, and functions may be
		// created in any order.
		`set local search_path = pg_catalog, pg_temp`,
		`set local check_function_bodies = off`,
		fmt.Sprintf(`set local lock_timeout = %d`, wait.Milliseconds()),
		`set local client_min_messages = warning`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return readError(err)
		}
	}
	if err := work(tx); err != nil {
		return err
	}
	return writeError(tx.Commit(ctx))
}

// installed reports whether the schema posthaste is installed. It fails if another program's
// schema has that name. An empty schema is accepted, because an administrator may have created
// it for a user who cannot.
func installed(ctx context.Context, tx pgx.Tx) (bool, error) {
	var exists, ours, used bool
	err := tx.QueryRow(ctx, `
		select n.oid is not null,
		       (select count(*) = 4 from pg_attribute a join pg_class c on c.oid = a.attrelid
		         where c.relnamespace = n.oid and c.relname = 'migrations' and c.relkind = 'r'
		           and a.attname in ('version', 'name', 'breaking', 'applied_at'))
		       and exists (select from pg_class where relnamespace = n.oid and relname = 'applied' and relkind = 'r'),
		       exists (select from pg_class where relnamespace = n.oid)
		       or exists (select from pg_proc where pronamespace = n.oid)
		       or exists (select from pg_type where typnamespace = n.oid)
		  from (values ('posthaste')) wanted (name) left join pg_namespace n on n.nspname = wanted.name`).
		Scan(&exists, &ours, &used)
	switch {
	case err != nil:
		return false, readError(err)
	case exists && !ours && used:
		return false, &posthaste.Error{Code: posthaste.CodeRefused,
			Message: "this database has a schema named posthaste that another program created; nothing was changed",
			Hint:    "rename that schema, or use another database"}
	}
	return ours, nil
}

// sameNames fails if a migration has another name in the database than in this program.
func (s *schemaSource) sameNames(all []MigrationStatus) error {
	names := make(map[int]string, len(s.migrations))
	for _, m := range s.migrations {
		names[m.version] = m.base
	}
	for _, m := range all {
		if name, ok := names[m.Version]; ok && name != m.Name {
			return &posthaste.Error{Code: posthaste.CodeRefused,
				Message: fmt.Sprintf("migration %04d is %s in the database and %s in this program", m.Version, m.Name, name),
				Hint:    "an unreleased build migrated the database: use that build, or a new database"}
		}
	}
	return nil
}

func (s *schemaSource) applyMigrations(ctx context.Context, tx pgx.Tx, all []MigrationStatus, log *slog.Logger) error {
	pending := make(map[int]bool)
	for _, m := range all {
		pending[m.Version] = m.Pending
	}
	for _, m := range s.migrations {
		if !pending[m.version] {
			continue
		}
		if err := apply(ctx, tx, m.sqlFile); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into posthaste.migrations (version, name, breaking) values ($1, $2, $3)`,
			m.version, m.base, m.breaking); err != nil {
			return readError(err)
		}
		log.Info("applied migration", "version", m.version, "name", m.base, "breaking", m.breaking)
	}
	return nil
}

// applyCode installs the program's functions and views. It replaces functions where PostgreSQL
// allows it instead of dropping them, which keeps privileges that users granted to their roles.
func (s *schemaSource) applyCode(ctx context.Context, tx pgx.Tx, log *slog.Logger) error {
	var hash string
	err := tx.QueryRow(ctx, `select hash from posthaste.applied`).Scan(&hash)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return readError(err)
	}
	if hash == s.hash {
		return nil
	}
	if err := dropAll(ctx, tx, "view", changes, ownObjects+`
		select string_agg(identity, ', ') from own where type = 'view'`); err != nil {
		return err
	}
	before, err := functionVersions(ctx, tx)
	if err != nil {
		return err
	}
	for _, f := range s.functions {
		if err := applyFunction(ctx, tx, f); err != nil {
			return err
		}
	}
	after, err := functionVersions(ctx, tx)
	if err != nil {
		return err
	}
	// A function that no file replaced is not part of this version.
	var left []uint32
	for oid, xmin := range after {
		if before[oid] == xmin {
			left = append(left, oid)
		}
	}
	if err := dropAll(ctx, tx, "routine", changes, ownObjects+`
		select string_agg(identity, ', ') from own where classid = 'pg_proc'::regclass and objid = any ($1::oid[])`, left); err != nil {
		return err
	}
	for _, f := range s.views {
		if err := apply(ctx, tx, f); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `insert into posthaste.applied (hash) values ($1)
		on conflict (only_row) do update set hash = excluded.hash, applied_at = clock_timestamp()`, s.hash)
	if err != nil {
		return readError(err)
	}
	log.Info("applied functions and views", "functions", len(s.functions), "views", len(s.views))
	return nil
}

// applyFunction applies a function's file, which has the name of its function. A function that
// cannot be replaced (another return type or other argument names) is dropped and created again.
func applyFunction(ctx context.Context, tx pgx.Tx, f sqlFile) error {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return readError(err)
	}
	err = apply(ctx, inner, f)
	if err == nil {
		return readError(inner.Commit(ctx))
	}
	if sqlState(err) != "42P13" { // invalid_function_definition
		return err
	}
	if err := inner.Rollback(ctx); err != nil {
		return readError(err)
	}
	if err := dropAll(ctx, tx, "routine", changes, ownObjects+`
		select string_agg(identity, ', ') from own join pg_proc p on p.oid = objid and classid = 'pg_proc'::regclass
		 where p.proname = $1`, f.base); err != nil {
		return err
	}
	return apply(ctx, tx, f)
}

// functionVersions maps each function of the schema to the transaction that last created or
// replaced it.
func functionVersions(ctx context.Context, tx pgx.Tx) (map[uint32]string, error) {
	rows, err := tx.Query(ctx, `select oid, xmin::text from pg_proc where pronamespace = 'posthaste'::regnamespace`)
	if err != nil {
		return nil, readError(err)
	}
	versions := make(map[uint32]string)
	var oid uint32
	var xmin string
	_, err = pgx.ForEachRow(rows, []any{&oid, &xmin}, func() error {
		versions[oid] = xmin
		return nil
	})
	return versions, readError(err)
}

func apply(ctx context.Context, tx pgx.Tx, f sqlFile) error {
	// The simple protocol runs a file with many statements.
	if _, err := tx.Conn().PgConn().Exec(ctx, f.text).ReadAll(); err != nil {
		return applyError(f, err)
	}
	return nil
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// MigrateStatus returns the migrations that this program or the database has, by version. In a
// database without the schema all are pending.
func MigrateStatus(ctx context.Context, conn *pgx.Conn) ([]MigrationStatus, error) {
	s, err := shipped()
	if err != nil {
		return nil, err
	}
	return s.migrateStatus(ctx, conn)
}

func (s *schemaSource) migrateStatus(ctx context.Context, conn *pgx.Conn) ([]MigrationStatus, error) {
	have, err := recorded(ctx, conn)
	if err = readError(err); err != nil && posthaste.CodeOf(err) != posthaste.CodeSchemaOld {
		return nil, err
	}
	return s.status(have), nil
}
