package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ownSettings are what every session of ours has from its start, whatever database, role and
// URL say: by these pgx reads and writes values. Poolers know them, and keep them for each
// client.
var ownSettings = map[string]string{
	"client_encoding":             "UTF8",
	"DateStyle":                   "ISO, MDY",
	"TimeZone":                    "UTC",
	"standard_conforming_strings": "on",
}

// sessionSettings are what a session of ours sets for itself, for poolers refuse these in a
// start-up message. Behind a pooler in transaction mode nothing can be set for a session.
const sessionSettings = `set bytea_output = hex; set extra_float_digits = 1; set array_nulls = on; set intervalstyle = postgres;
	set default_transaction_isolation = 'read committed'; set default_transaction_deferrable = off`

// timeouts are those that may be set for a role or database against statements that hang. Each
// of our calls has a time of its own, and upkeep may need longer. What the URL says, is meant
// for this program.
var timeouts = []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"}

// ownSession gives the start-up parameters of a connection their values.
func ownSession(params map[string]string) {
	for own, value := range ownSettings {
		for name := range params {
			if strings.EqualFold(name, own) {
				delete(params, name)
			}
		}
		params[own] = value
	}
}

// setSession sets what [ownSettings] cannot.
func setSession(ctx context.Context, conn *pgx.Conn) error {
	said := conn.Config().RuntimeParams
	sql := sessionSettings
	for _, name := range timeouts {
		if said[name] == "" && !strings.Contains(said["options"], name) {
			// By name, for transaction_timeout came with PostgreSQL 17.
			sql += "; select pg_catalog.set_config('" + name + "', '0', false) where pg_catalog.current_setting('" + name + "', true) <> '0'"
		}
	}
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}
