package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// ownSettings are the startup parameters of our sessions. They override database, role and
// URL, because pgx depends on them to read and write values. Poolers keep them per client.
var ownSettings = map[string]string{
	"client_encoding":             "UTF8",
	"DateStyle":                   "ISO, MDY",
	"TimeZone":                    "UTC",
	"standard_conforming_strings": "on",
}

// sessionSettings are settings that our sessions set after the start, since poolers reject
// them in a startup message. Timeouts of a role or database are disabled: each of our calls
// has its own, and upkeep may take longer.
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

// ownSession sets ownSettings among the startup parameters of a connection.
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

// setSession returns a function that sets [sessionSettings] on a new connection. It keeps
// timeouts that the URL sets, because they are meant for this program. A pooler in transaction
// mode shares the server's session with other programs, so through a pooler the function sets
// nothing if the engine polls, and no timeouts otherwise. It detects a pooler because the
// process id of the startup differs from that of the server process.
func setSession(polling bool) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		// The pool sets no deadline here, and a call that hangs would block its place forever.
		ctx, cancel := context.WithTimeout(ctx, conn.Config().ConnectTimeout)
		defer cancel()
		params := conn.Config().RuntimeParams
		var rows []string
		for name, value := range sessionSettings {
			if !strings.HasSuffix(name, "_timeout") || params[name] == "" && !strings.Contains(params["options"], name) {
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

// checkEncoding fails if the database or the session uses another encoding than UTF-8, which
// would garble text.
func checkEncoding(ctx context.Context, q querier) error {
	const wanted = "UTF8"
	var server, client string
	err := q.QueryRow(ctx, "select pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('client_encoding')").Scan(&server, &client)
	switch {
	case err != nil:
		return readError(err)
	case server != wanted:
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: fmt.Sprintf("the encoding of this database is %s, but Posthaste needs %s", server, wanted),
			Hint: "create another one with: create database … encoding 'UTF8' template template0"}
	case client != wanted:
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: fmt.Sprintf("the client_encoding of this session is %s, but Posthaste needs %s", client, wanted),
			Hint: "set client_encoding=UTF8 in the URL of the pool"}
	}
	return nil
}

// checkIsolation fails if transactions of the session cannot receive messages.
func checkIsolation(ctx context.Context, q querier) error {
	var isolation string
	if err := q.QueryRow(ctx, "select pg_catalog.current_setting('default_transaction_isolation')").Scan(&isolation); err != nil {
		return readError(err)
	}
	if isolation == "read committed" || isolation == "read uncommitted" {
		return nil
	}
	return &posthaste.Error{Code: posthaste.CodeUnsupported,
		Message: fmt.Sprintf("default_transaction_isolation is %s, but messages can only be received in READ COMMITTED", strings.ToUpper(isolation)),
		Hint:    "run: alter role … set default_transaction_isolation = 'read committed'; programs that do not run with --polling-only set it themselves"}
}

// closeConn closes conn. It waits at most a second, because the server may be gone.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
