package postgres

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// The ledger's own SQLSTATEs. The functions in sql/ raise them with COLUMN as
// the field at fault and HINT as what to do.
var ledgerCodes = map[string]posthaste.Code{
	"PH400": posthaste.Invalid,
	"PH404": posthaste.NotFound,
	"PH409": posthaste.Conflict,
	"PH410": posthaste.WorkerLost,
	"PH413": posthaste.TooLarge,
	"PH422": posthaste.KeyReused,
	"PH501": posthaste.Unsupported,
	"PH503": posthaste.Refused,
}

const migrateHint = "run `posthaste migrate up`"

// readError turns what pgx returned into a *posthaste.Error where the caller
// can act on it. It is for statements that may simply be repeated; whether a
// statement that got no answer took effect is [writeError]'s question. Errors
// that are classified already, and a cancelled context, come back as they are.
func readError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if pg := answered(err); pg != nil {
		return serverError(err, pg)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &posthaste.Error{Code: posthaste.Unavailable, Message: "PostgreSQL did not answer in time", Hint: "try again", Cause: err}
	}
	if lostConnection(err) {
		return &posthaste.Error{Code: posthaste.Unavailable, Message: "PostgreSQL cannot be reached: " + oneLine(err),
			Hint: "check that it runs and that the database URL is right, then try again", Cause: err}
	}
	return err
}

// answered is what the server said, whichever driver has heard it; nil if it did not. In a
// transaction of package database/sql that may be another than pgx: those tell the
// SQLSTATE by a method, as pgx does, and the rest, as lib/pq, by fields of an error
// whose type this package does not import.
func answered(err error) *pgconn.PgError {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg
	}
	var other interface {
		error
		SQLState() string
	}
	if !errors.As(err, &other) || other.SQLState() == "" {
		return nil
	}
	pg = &pgconn.PgError{Code: other.SQLState(), Message: other.Error()}
	is := reflect.Indirect(reflect.ValueOf(other))
	for name, to := range map[string]*string{"Message": &pg.Message, "Detail": &pg.Detail, "Hint": &pg.Hint, "Column": &pg.ColumnName} {
		if is.Kind() != reflect.Struct {
			break
		}
		if field := is.FieldByName(name); field.Kind() == reflect.String && field.String() != "" {
			*to = field.String()
		}
	}
	return pg
}

// writeError is [readError] for statements that must not be repeated blindly:
// if the statement may have reached the server and no answer came back, it may
// have been committed, and the code is OutcomeUnsure. The cause stays
// reachable, so errors.Is(err, context.Canceled) still holds.
func writeError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	if answerLost(err) {
		return &posthaste.Error{Code: posthaste.OutcomeUnsure, Message: "the answer was lost, so this may or may not have been committed: " + oneLine(err),
			Hint: "look whether it was done before doing it again", Cause: err}
	}
	return readError(err)
}

// answerLost reports whether a statement may have taken effect although err is
// all that came back.
func answerLost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "08007", "40003": // transaction resolution, statement completion unknown
			return true
		case "57P02": // sent at any moment, also between a commit and its answer
			return !startupFailed(err)
		}
		return false // the server said no, so the transaction is rolled back
	}
	if pgconn.SafeToRetry(err) || startupFailed(err) {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || lostConnection(err)
}

func startupFailed(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}

// lostConnection reports whether err says that there is no connection (any
// more), as opposed to a mistake in the use of one.
func lostConnection(err error) bool {
	var network net.Error
	return startupFailed(err) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) ||
		errors.As(err, &network) || isClosed(err)
}

// serverError classifies what the server said.
func serverError(err error, pg *pgconn.PgError) error {
	e := &posthaste.Error{Message: pg.Message, Hint: pg.Hint, Cause: err}
	if code, ok := ledgerCodes[pg.Code]; ok {
		e.Code, e.Field = code, pg.ColumnName
		return e
	}
	say := func(code posthaste.Code, field, hint string) error {
		e.Code, e.Field = code, field
		if e.Hint == "" {
			e.Hint = hint
		}
		return e
	}
	switch pg.Code {
	case "25006":
		return say(posthaste.ReadOnly, "", "the database is a standby or set to read only: use the primary's address")
	case "42501":
		return say(posthaste.Denied, "", "grant the role posthaste_sender, posthaste_receiver or posthaste_admin to this user")
	case "3F000", "42P01", "42883", "42703": // no such schema, table, function, column
		e.Message = "the schema posthaste is missing or older than this program needs: " + pg.Message
		e.Hint = "" // the server's own hint is about spelling
		return say(posthaste.SchemaOld, "", migrateHint)
	case "22021", "22P05": // of texts beside the payload, which travels as bytes
		e.Message, e.Hint = "a text is not valid UTF-8 or has a NUL character in it", ""
		return say(posthaste.Invalid, "", "leave it out or replace it: PostgreSQL cannot store it")
	case "22P02": // no JSON
		e.Message = withDetail(pg)
		return say(posthaste.Invalid, "payload", "")
	case "57014":
		return say(posthaste.Unavailable, "", "the server cancelled the statement (statement_timeout, or an operator): try again")
	case "55P03":
		return say(posthaste.Unavailable, "", "another transaction holds a lock for long: try again")
	case "40001", "40P01":
		return say(posthaste.Unavailable, "", "concurrent transactions got in each other's way: try again")
	case "3D000":
		return say(posthaste.Unavailable, "", "create the database, or name another in the database URL")
	case "53300":
		return say(posthaste.Unavailable, "", "raise max_connections, or let this program open fewer")
	case "57P01", "57P02", "57P03", "57P04", "57P05":
		return say(posthaste.Unavailable, "", "PostgreSQL is starting or stopping: try again")
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08", "53":
		return say(posthaste.Unavailable, "", "try again")
	case "28":
		return say(posthaste.Denied, "", "check user and password in the database URL")
	case "0A":
		return say(posthaste.Unsupported, "", "")
	case "22":
		e.Message = withDetail(pg)
		return say(posthaste.Invalid, pg.ColumnName, "")
	case "54":
		return say(posthaste.TooLarge, pg.ColumnName, "")
	}
	return err
}

// withDetail joins message and detail, where PostgreSQL says which part of a
// value it did not like.
func withDetail(pg *pgconn.PgError) string {
	if pg.Detail == "" {
		return pg.Message
	}
	return pg.Message + ": " + strings.TrimSuffix(pg.Detail, ".")
}

// oneLine is the text of err on one line: pgx puts each address it tried on a
// line of its own.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
