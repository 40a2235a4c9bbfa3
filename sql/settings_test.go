package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// callersSettings are settings as databases, roles and URLs have them, on which a function must not
// depend. Isolation is not among them: receiving needs READ COMMITTED.
var callersSettings = map[string]string{
	"encoding":              "client_encoding = latin1",
	"dates":                 "datestyle = 'SQL, DMY'",
	"german dates":          "datestyle = 'German'",
	"escaped bytes":         "bytea_output = escape",
	"backslashes":           "standard_conforming_strings = off",
	"Kathmandu":             "timezone = 'Asia/Kathmandu'",
	"standard intervals":    "intervalstyle = sql_standard",
	"ISO intervals":         "intervalstyle = iso_8601",
	"verbose intervals":     "intervalstyle = postgres_verbose",
	"no search path":        "search_path = ''",
	"foreign search path":   "search_path = shadow, pg_catalog",
	"short lock timeout":    "lock_timeout = 300",
	"short timeout":         "statement_timeout = 5000",
	"few digits":            "extra_float_digits = -3",
	"quoted names":          "quote_all_identifiers = on",
	"null comparisons":      "transform_null_equals = on",
	"sequential scans only": "enable_indexscan = off",
}

// shadow has functions that a foreign search path puts before the right ones: none that the contract
// itself calls.
const shadow = `create schema shadow; create function shadow.jsonb_typeof(jsonb) returns text language sql as $$ select 'shadow' $$;
	create function shadow.octet_length(text) returns int language sql as $$ select 1000000000 $$;
	create function shadow.octet_length(bytea) returns int language sql as $$ select 1000000000 $$;
	create function shadow.date_trunc(text, timestamptz) returns timestamptz language sql as $$ select timestamptz '2001-01-01' $$`

// asSaid returns a statement in the client encoding of a setting.
func asSaid(setting, sql string) string {
	if !strings.Contains(setting, "latin1") {
		return sql
	}
	latin := make([]byte, 0, len(sql))
	for _, r := range sql {
		latin = append(latin, byte(r))
	}
	return string(latin)
}

// FT1: the contract of the SQL interface holds under any settings of the caller's session, or fails
// with the named code.
func TestFT1_SQLUnderForeignSettings(t *testing.T) {
	t.Parallel()
	for name, setting := range callersSettings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Nightly(t, "most settings are made together on each change")
			contractWith(t, setting)
		})
	}
	t.Run("many together", func(t *testing.T) {
		t.Parallel()
		var together []string
		for _, name := range []string{"encoding", "german dates", "escaped bytes", "backslashes", "Kathmandu", "ISO intervals", "foreign search path",
			"short lock timeout", "few digits", "quoted names", "null comparisons"} {
			together = append(together, callersSettings[name])
		}
		contractWith(t, together...)
	})
}

// contractWith runs the contract in a database whose sessions have these settings.
func contractWith(t *testing.T, settings ...string) {
	t.Helper()
	url := testpg.New(t)
	admin := connect(t, url)
	admin.exec(shadow)
	for _, setting := range settings {
		admin.exec(fmt.Sprintf("alter database %s set %s", pgx.Identifier{admin.Config().Database}.Sanitize(), setting))
	}
	for _, file := range contracts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sql"), func(t *testing.T) {
			s := connect(t, url)
			for _, sql := range statements(contract(t, file)) {
				s.exec(asSaid(strings.Join(settings, ", "), sql))
			}
		})
	}
}

// madeWith creates a database with other properties than the server's, without the schema.
func madeWith(t *testing.T, properties string) string {
	t.Helper()
	admin, err := url.Parse(testpg.Superuser(t))
	if err != nil {
		t.Fatal(err)
	}
	s := connect(t, admin.String())
	name := fmt.Sprintf("made_with_%d", rand.Uint64())
	s.exec(fmt.Sprintf("create database %s template template0 %s", name, properties))
	t.Cleanup(func() { _, _ = s.Exec(context.Background(), fmt.Sprintf("drop database %s with (force)", name)) })
	admin.Path = "/" + name
	return admin.String()
}

// FT1: in a Turkish database lower('FRI') is not a day of the week.
func TestFT1_SQLInATurkishDatabase(t *testing.T) {
	t.Parallel()
	if testpg.Version(t) == "14" {
		t.Skip("before PostgreSQL 15 the locale must be installed on the system")
	}
	where := madeWith(t, "encoding 'UTF8' locale_provider icu icu_locale 'tr-TR' lc_collate 'C' lc_ctype 'C'")
	s := connect(t, where)
	if err := postgres.Migrate(t.Context(), s.Conn, postgres.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := get[string](s, "select lower('FRI')"); got == "fri" {
		t.Fatal("the database is not Turkish")
	}
	for _, file := range contracts(t) {
		for _, sql := range statements(contract(t, file)) {
			s.exec(sql)
		}
	}
	s.exec("select posthaste.create_queue('q', '{\"max_attempts\": 1}')")
	for i, spec := range []string{"@DAILY", "0 2 * * FRI", "0 0 1 APR *", "EVERY 5 MINUTES"} {
		s.exec("select posthaste.schedule_put($1, 'q', $2)", fmt.Sprint("s", i), spec)
	}
	s.exec("select posthaste.send('q', '1')")
	s.exec(`select from posthaste.fail((select delivery_id from posthaste.receive('q', 1, '1 minute')), 'THE FILE IS MISSING')`)
	if n := get[int](s, `select count(*) from posthaste.list_dead_letters('{"error": "file Is missing"}')`); n != 1 {
		t.Errorf("a search in another case found %d dead letters", n)
	}
}

// A database with another encoding fails before anything is created.
func TestFT1_OtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "LATIN9"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			properties := fmt.Sprintf("encoding '%s' lc_collate 'C' lc_ctype 'C'", encoding)
			if testpg.Version(t) != "14" {
				properties += " locale_provider libc" // that of the template allows UTF8 only
			}
			where := madeWith(t, properties)
			conn, err := postgres.Connect(t.Context(), where)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			err = postgres.Migrate(t.Context(), conn, postgres.MigrateOptions{})
			if posthaste.CodeOf(err) != posthaste.CodeUnsupported || !strings.Contains(err.Error(), encoding) {
				t.Errorf("migrating: %v", err)
			}
			if _, err := postgres.Open(t.Context(), where); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
				t.Errorf("opening: %v", err)
			}
		})
	}
}
