package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
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
// start-up message. The timeouts of a role or database are against statements that hang; each
// of our calls has a time of its own, and upkeep may need longer.
var sessionSettings = map[string]string{
	"IntervalStyle":                       "postgres",
	"bytea_output":                        "hex",
	"extra_float_digits":                  "1",
	"array_nulls":                         "on",
	"default_transaction_isolation":       "read committed",
	"default_transaction_deferrable":      "off",
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	"transaction_timeout":                 "0", // since PostgreSQL 17
}

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

// setSession sets [sessionSettings], but for timeouts that the URL names: those are meant for
// this program. A pooler in transaction mode gives the server's session to other programs as
// well: through a pooler nothing is set with polling, and no timeouts without. Where a pooler
// is in the way, the number of the process that it told is not that of the server's process.
func setSession(polling bool) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		// The pool gives this call no deadline, and one that hung would keep its place for good.
		ctx, cancel := context.WithTimeout(ctx, conn.Config().ConnectTimeout)
		defer cancel()
		said := conn.Config().RuntimeParams
		var rows []string
		for name, value := range sessionSettings {
			if !strings.HasSuffix(name, "_timeout") || said[name] == "" && !strings.Contains(said["options"], name) {
				rows = append(rows, "('"+name+"', '"+value+"')")
			}
		}
		sql := fmt.Sprintf(`select pg_catalog.set_config(s.name, s.value, false) from (values %s) s (name, value)
			where pg_catalog.current_setting(s.name, true) <> s.value and (pg_catalog.pg_backend_pid() = %d or %t and s.name !~ '_timeout$')`,
			strings.Join(rows, ", "), conn.PgConn().PID(), !polling)
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		return err
	}
}

// checkEncoding refuses a database that keeps text in another encoding than Go's, or a pool's
// session that sends it so: it would be garbled.
func checkEncoding(ctx context.Context, q querier) error {
	const wanted = "UTF8"
	var server, client string
	err := q.QueryRow(ctx, "select pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('client_encoding')").Scan(&server, &client)
	switch {
	case err != nil:
		return readError(err)
	case server != wanted:
		return &posthaste.Error{Code: posthaste.Unsupported, Message: fmt.Sprintf("this database keeps text as %s, and Posthaste needs %s", server, wanted),
			Hint: "make one by: create database … encoding 'UTF8' template template0"}
	case client != wanted:
		return &posthaste.Error{Code: posthaste.Unsupported, Message: fmt.Sprintf("this session sends text as %s, and Go's text is %s", client, wanted),
			Hint: "set client_encoding=UTF8 in the URL of the pool"}
	}
	return nil
}

// checkIsolation refuses sessions whose transactions cannot receive.
func checkIsolation(ctx context.Context, q querier) error {
	var isolation string
	if err := q.QueryRow(ctx, "select pg_catalog.current_setting('default_transaction_isolation')").Scan(&isolation); err != nil {
		return readError(err)
	}
	if isolation == "read committed" || isolation == "read uncommitted" {
		return nil
	}
	return &posthaste.Error{Code: posthaste.Unsupported,
		Message: fmt.Sprintf("transactions are %s here unless told otherwise (default_transaction_isolation), and messages can only be received in READ COMMITTED", strings.ToUpper(isolation)),
		Hint:    "alter role … set default_transaction_isolation = 'read committed'; programs that are not told to poll only see to that by themselves"}
}
