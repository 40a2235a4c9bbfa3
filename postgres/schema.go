package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// oldestServer is the oldest supported server_version_num.
const oldestServer = 140000

// querier is implemented by pgx.Conn, pgx.Tx and pgxpool.Pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// sqlFile is a file of the schema; base is its name without directory and ".sql".
type sqlFile struct {
	path, base, text string
}

// migration is a numbered file that changes tables and data.
type migration struct {
	sqlFile
	version  int
	breaking bool
}

// schemaSource is the schema that a program contains.
type schemaSource struct {
	bootstrap, roles, grants sqlFile
	migrations               []migration
	functions, views         []sqlFile
	// hash covers functions and views.
	hash string
}

// shipped returns the schema of this program.
var shipped = sync.OnceValues(func() (*schemaSource, error) { return readSource(ledger.Files) })

var migrationName = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)$`)

func readSource(files fs.FS) (*schemaSource, error) {
	s := &schemaSource{}
	for name, to := range map[string]*sqlFile{"bootstrap.sql": &s.bootstrap, "roles.sql": &s.roles, "grants.sql": &s.grants} {
		f, err := readSQL(files, name)
		if err != nil {
			return nil, err
		}
		*to = f
	}
	tables, err := readFolder(files, "migrations")
	if err != nil {
		return nil, err
	}
	for _, f := range tables {
		m, err := parseMigration(f)
		if err != nil {
			return nil, err
		}
		if n := len(s.migrations); n > 0 && s.migrations[n-1].version == m.version {
			return nil, fmt.Errorf("%s has the same number as %s", f.path, s.migrations[n-1].path)
		}
		s.migrations = append(s.migrations, m)
	}
	if s.functions, err = readFolder(files, "functions"); err != nil {
		return nil, err
	}
	if s.views, err = readFolder(files, "views"); err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, f := range append(append([]sqlFile{}, s.functions...), s.views...) {
		fmt.Fprintf(sum, "%s %d\n%s\n", f.base, len(f.text), f.text)
	}
	s.hash = hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

// readFolder returns the *.sql files below a folder in the order of their base
// names, so that moving a file to another subfolder changes nothing. Two files of
// one base name are an error. A folder that does not exist is empty.
func readFolder(files fs.FS, folder string) ([]sqlFile, error) {
	var all []sqlFile
	err := fs.WalkDir(files, folder, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || path.Ext(name) != ".sql" {
			return err
		}
		f, err := readSQL(files, name)
		all = append(all, f)
		return err
	})
	slices.SortFunc(all, func(a, b sqlFile) int { return strings.Compare(a.base, b.base) })
	for i := 1; i < len(all); i++ {
		if all[i].base == all[i-1].base {
			return nil, fmt.Errorf("%s and %s have the same base name", all[i-1].path, all[i].path)
		}
	}
	return all, err
}

func readSQL(files fs.FS, name string) (sqlFile, error) {
	text, err := fs.ReadFile(files, name)
	return sqlFile{path: name, base: strings.TrimSuffix(path.Base(name), ".sql"), text: string(text)}, err
}

func parseMigration(f sqlFile) (migration, error) {
	parts := migrationName.FindStringSubmatch(f.base)
	if parts == nil {
		return migration{}, fmt.Errorf("%s: a migration must be named NNNN_name.sql", f.path)
	}
	version, err := strconv.Atoi(parts[1])
	if err != nil || version == 0 {
		return migration{}, fmt.Errorf("%s: the number of a migration must be 0001 or greater", f.path)
	}
	first, _, _ := strings.Cut(f.text, "\n")
	if first != "-- breaking" && first != "-- compatible" {
		return migration{}, fmt.Errorf("%s: the first line must be `-- breaking` or `-- compatible`", f.path)
	}
	f.base = parts[2]
	return migration{sqlFile: f, version: version, breaking: first == "-- breaking"}, nil
}

// MigrationStatus is the status of a migration.
type MigrationStatus struct {
	Version int
	Name    string
	// Breaking says that programs that do not have it cannot run with it.
	Breaking bool
	// AppliedAt is zero while Pending.
	AppliedAt time.Time
	// Pending says that this program has it and the database does not.
	Pending bool
	// Unknown says that the database has it and this program does not.
	Unknown bool
}

// status merges the recorded migrations with those of the program, by version.
func (s *schemaSource) status(recorded []MigrationStatus) []MigrationStatus {
	var all []MigrationStatus
	rest := recorded
	for _, m := range s.migrations {
		for len(rest) > 0 && rest[0].Version < m.version {
			rest[0].Unknown = true
			all, rest = append(all, rest[0]), rest[1:]
		}
		if len(rest) > 0 && rest[0].Version == m.version {
			all, rest = append(all, rest[0]), rest[1:]
			continue
		}
		all = append(all, MigrationStatus{Version: m.version, Name: m.base, Breaking: m.breaking, Pending: true})
	}
	for _, m := range rest {
		m.Unknown = true
		all = append(all, m)
	}
	return all
}

// compatible returns nil if this program can run with these migrations.
func compatible(all []MigrationStatus) error {
	if err := tooNew(all); err != nil {
		return err
	}
	for _, m := range all {
		if m.Pending {
			return &posthaste.Error{Code: posthaste.CodeSchemaOld, Hint: migrateHint,
				Message: fmt.Sprintf("the schema posthaste is older than this program needs: migration %04d_%s is missing", m.Version, m.Name)}
		}
	}
	return nil
}

func tooNew(all []MigrationStatus) error {
	for _, m := range all {
		if m.Unknown && m.Breaking {
			return &posthaste.Error{Code: posthaste.CodeSchemaNew,
				Message: fmt.Sprintf("the schema posthaste is newer than this program: it has the breaking migration %04d_%s", m.Version, m.Name),
				Hint:    "upgrade this program (`posthaste version` prints its version)"}
		}
	}
	return nil
}

// recorded returns the migrations that the database has. If the table is missing, [readError]
// makes SchemaOld of its error.
func recorded(ctx context.Context, q querier) ([]MigrationStatus, error) {
	rows, err := q.Query(ctx, `select version, name, breaking, applied_at from posthaste.migrations order by version`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m MigrationStatus, err error) {
		err = row.Scan(&m.Version, &m.Name, &m.Breaking, &m.AppliedAt)
		return m, err
	})
}

// checkSchema returns nil if this program can run with the database's schema.
func checkSchema(ctx context.Context, q querier) error {
	s, err := shipped()
	if err != nil {
		return err
	}
	return s.check(ctx, q)
}

func (s *schemaSource) check(ctx context.Context, q querier) error {
	have, err := recorded(ctx, q)
	if err != nil {
		return readError(err)
	}
	return compatible(s.status(have))
}

// serverFacts are the properties of a server that decide whether it can be used.
type serverFacts struct {
	version    int // server_version_num
	name       string
	inRecovery bool
	readOnly   bool
}

func checkServer(ctx context.Context, q querier) error {
	var f serverFacts
	err := q.QueryRow(ctx, `select pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('server_version'),
		pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only')::bool`).
		Scan(&f.version, &f.name, &f.inRecovery, &f.readOnly)
	if err != nil {
		return readError(err)
	}
	return f.check()
}

func (f serverFacts) check() error {
	switch {
	case f.version < oldestServer:
		return &posthaste.Error{Code: posthaste.CodeUnsupported,
			Message: fmt.Sprintf("the server is PostgreSQL %s, but Posthaste needs PostgreSQL %d or newer", f.name, oldestServer/10000),
			Hint:    "upgrade the server, or connect to another one"}
	case f.inRecovery:
		return &posthaste.Error{Code: posthaste.CodeReadOnly, Message: "this PostgreSQL server is in recovery (a standby), so nothing can be sent or handed out",
			Hint: "connect to the primary, for example with target_session_attrs=read-write in the database URL"}
	case f.readOnly:
		return &posthaste.Error{Code: posthaste.CodeReadOnly, Message: "the database or user is read only (default_transaction_read_only)",
			Hint: "connect to a database and as a user that can write"}
	}
	return nil
}

// applyError adds to err the file and line at which the server stopped. It classifies only
// errors that the operator can fix; any other is a bug in the file.
func applyError(f sqlFile, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return writeError(err)
	}
	if pg.Code == "42501" {
		return &posthaste.Error{Code: posthaste.CodeDenied, Message: fmt.Sprintf("%s: %s", f.path, pg.Message),
			Hint: "migrate as the owner of the schema posthaste, or as a user with CREATE on the database", Cause: err}
	}
	var ours *posthaste.Error
	if class := pg.Code[:min(2, len(pg.Code))]; class != "42" && class != "22" && errors.As(readError(err), &ours) {
		return ours
	}
	line := ""
	if n := int(pg.Position); n > 0 {
		// Position counts characters from 1.
		before := []rune(f.text)
		line = fmt.Sprintf(" line %d", 1+strings.Count(string(before[:min(n-1, len(before))]), "\n"))
	}
	return fmt.Errorf("applying %s%s: %w", f.path, line, err)
}
