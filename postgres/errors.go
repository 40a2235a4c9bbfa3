package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// ledgerCodes are the SQLSTATEs that the functions in sql/ raise, with the invalid field as
// COLUMN and a remedy as HINT.
var ledgerCodes = map[string]posthaste.Code{
	"PH400": posthaste.CodeInvalid,
	"PH404": posthaste.CodeNotFound,
	"PH409": posthaste.CodeConflict,
	"PH410": posthaste.CodeWorkerLost,
	"PH412": posthaste.CodeStale,
	"PH413": posthaste.CodeTooLarge,
	"PH422": posthaste.CodeKeyReused,
	"PH423": posthaste.CodeUniqueConflict,
	"PH501": posthaste.CodeUnsupported,
	"PH503": posthaste.CodeRefused,
}

const migrateHint = "run `posthaste migrate up`"

// readError turns an error of pgx into a *posthaste.Error if the caller can act on it. It is
// for statements that are safe to repeat; [writeError] is for the others. It returns
// classified errors and cancelled contexts unchanged.
func readError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if pg := serverResponse(err); pg != nil {
		return serverError(err, pg)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "PostgreSQL did not respond in time", Hint: "try again", Cause: err}
	}
	if lostConnection(err) {
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "PostgreSQL cannot be reached: " + oneLine(err),
			Hint: "check that it is running and that the database URL is correct, then try again", Cause: err}
	}
	return err
}

// serverResponse returns the server's error from err, or nil if err is not from the server. In
// a transaction of package database/sql the driver may be another one than pgx: these have the
// SQLSTATE as a method, as pgx does, and, as lib/pq, the rest as fields of an error whose type
// this package does not import.
func serverResponse(err error) *pgconn.PgError {
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

// writeError is [readError] for statements that are not safe to repeat. If the statement may
// have reached the server and the response was lost, it may have been committed, and the code
// is OutcomeUnsure. The cause is wrapped, so that errors.Is(err, context.Canceled) holds.
func writeError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	if responseLost(err) {
		return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the response was lost, so this may or may not have been committed: " + oneLine(err),
			Hint: "check whether it was done before you repeat it", Cause: err}
	}
	return readError(err)
}

// responseLost reports whether a statement that failed with err may have taken effect.
func responseLost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "08007", "40003": // transaction resolution, statement completion unknown
			return true
		case "57P02": // sent at any time, even between a commit and its response
			return !startupFailed(err)
		}
		return false // the server rolled the transaction back
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

// lostConnection reports whether err says that connecting failed or that the connection was
// lost.
func lostConnection(err error) bool {
	var network net.Error
	return startupFailed(err) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) ||
		errors.As(err, &network) || isClosed(err)
}

// serverError classifies an error of the server.
func serverError(err error, pg *pgconn.PgError) error {
	e := &posthaste.Error{Message: pg.Message, Hint: pg.Hint, Cause: err}
	if code, ok := ledgerCodes[pg.Code]; ok {
		e.Code, e.Field = code, pg.ColumnName
		return e
	}
	classified := func(code posthaste.Code, field, hint string) error {
		e.Code, e.Field = code, field
		if e.Hint == "" {
			e.Hint = hint
		}
		return e
	}
	switch pg.Code {
	case "25006":
		return classified(posthaste.CodeReadOnly, "", "the database is a standby or set to read only: connect to the primary")
	case "42501":
		return classified(posthaste.CodeDenied, "", "grant the role posthaste_sender, posthaste_receiver or posthaste_admin to this user")
	case "3F000", "42P01", "42883", "42703": // no such schema, table, function, column
		e.Message = "the schema posthaste is missing or older than this program needs: " + pg.Message
		e.Hint = "" // the server's own hint is about spelling
		return classified(posthaste.CodeSchemaOld, "", migrateHint)
	case "22021", "22P05": // in any text but the payload, which is sent as bytes
		e.Message, e.Hint = "a text is not valid UTF-8 or contains a NUL character", ""
		return classified(posthaste.CodeInvalid, "", "remove or replace it: PostgreSQL cannot store it")
	case "22P02": // invalid JSON
		e.Message = withDetail(pg)
		return classified(posthaste.CodeInvalid, "payload", "")
	case "57014":
		return classified(posthaste.CodeUnavailable, "", "the server cancelled the statement (statement_timeout, or an operator): try again")
	case "55P03":
		return classified(posthaste.CodeUnavailable, "", "another transaction holds a lock: try again")
	case "40001", "40P01":
		return classified(posthaste.CodeUnavailable, "", "it conflicted with a concurrent transaction: try again")
	case "3D000":
		return classified(posthaste.CodeUnavailable, "", "create the database, or correct the database URL")
	case "53300":
		return classified(posthaste.CodeUnavailable, "", "raise max_connections, or let this program open fewer connections")
	case "57P01", "57P02", "57P03", "57P04", "57P05":
		return classified(posthaste.CodeUnavailable, "", "PostgreSQL is starting or stopping: try again")
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08", "53":
		return classified(posthaste.CodeUnavailable, "", "try again")
	case "28":
		return classified(posthaste.CodeDenied, "", "check the user and password in the database URL")
	case "0A":
		return classified(posthaste.CodeUnsupported, "", "")
	case "22":
		e.Message = withDetail(pg)
		if startupFailed(err) { // a parameter of the URL
			return classified(posthaste.CodeInvalid, "database_url", "")
		}
		return classified(posthaste.CodeInvalid, pg.ColumnName, "")
	case "54":
		return classified(posthaste.CodeTooLarge, pg.ColumnName, "")
	}
	return err
}

// withDetail returns the message with the detail, which names the invalid part of a value.
func withDetail(pg *pgconn.PgError) string {
	if pg.Detail == "" {
		return pg.Message
	}
	return pg.Message + ": " + strings.TrimSuffix(pg.Detail, ".")
}

// oneLine returns the text of err on one line: pgx writes one line per address that it tried.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// isClosed reports whether err says that the connection is closed or broken.
func isClosed(err error) bool {
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
