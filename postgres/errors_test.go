package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

func TestServerErrorsGetCodes(t *testing.T) {
	for state, want := range map[string]posthaste.Code{
		"PH400": posthaste.CodeInvalid, "PH404": posthaste.CodeNotFound, "PH409": posthaste.CodeConflict, "PH410": posthaste.CodeWorkerLost,
		"PH413": posthaste.CodeTooLarge, "PH501": posthaste.CodeUnsupported, "PH503": posthaste.CodeRefused,
		"25006": posthaste.CodeReadOnly, "42501": posthaste.CodeDenied, "28P01": posthaste.CodeDenied, "28000": posthaste.CodeDenied,
		"3F000": posthaste.CodeSchemaOld, "42P01": posthaste.CodeSchemaOld, "42883": posthaste.CodeSchemaOld, "42703": posthaste.CodeSchemaOld,
		"22P02": posthaste.CodeInvalid, "22021": posthaste.CodeInvalid, "22P05": posthaste.CodeInvalid, "22023": posthaste.CodeInvalid,
		"54000": posthaste.CodeTooLarge, "0A000": posthaste.CodeUnsupported,
		"08006": posthaste.CodeUnavailable, "53300": posthaste.CodeUnavailable, "53100": posthaste.CodeUnavailable,
		"57P01": posthaste.CodeUnavailable, "57P03": posthaste.CodeUnavailable, "57014": posthaste.CodeUnavailable,
		"55P03": posthaste.CodeUnavailable, "40001": posthaste.CodeUnavailable, "40P01": posthaste.CodeUnavailable, "3D000": posthaste.CodeUnavailable,
		"23505": "", "PH999": "",
	} {
		cause := &pgconn.PgError{Code: state, Message: "what happened", Hint: "what to do", ColumnName: "somewhere"}
		for name, classify := range map[string]func(error) error{"read": readError, "write": writeError} {
			err := classify(fmt.Errorf("sending: %w", cause))
			if got := posthaste.CodeOf(err); got != want {
				t.Errorf("%s, SQLSTATE %s: code %q, want %q", name, state, got, want)
			}
			if !errors.Is(err, cause) && sqlState(err) != state {
				t.Errorf("%s, SQLSTATE %s: the cause is gone", name, state)
			}
		}
		var e *posthaste.Error
		if errors.As(readError(cause), &e) && (state == "22021" || state == "22P05") && (e.Field != "" || e.Message == "what happened") {
			t.Errorf("%s: PostgreSQL's words are told, or a field that may be another: %+v", state, e)
		}
		if errors.As(readError(cause), &e) && strings.HasPrefix(state, "PH") &&
			(e.Message != "what happened" || e.Hint != "what to do" || e.Field != "somewhere") {
			t.Errorf("%s: message, hint and field did not arrive: %+v", state, e)
		}
	}
}

func TestLostAnswersAreToldApart(t *testing.T) {
	connect := func() error {
		_, err := pgx.Connect(context.Background(), "host=127.0.0.1 port=1 connect_timeout=2 sslmode=disable")
		return err
	}()
	for _, c := range []struct {
		name        string
		err         error
		read, write posthaste.Code
		is          error
	}{
		{"nothing listens", connect, posthaste.CodeUnavailable, posthaste.CodeUnavailable, nil},
		{"cut after sending", io.ErrUnexpectedEOF, posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown, io.ErrUnexpectedEOF},
		{"reset after sending", &net.OpError{Op: "read", Err: errors.New("reset")}, posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown, nil},
		{"the caller went away", context.Canceled, "", posthaste.CodeOutcomeUnknown, context.Canceled},
		{"the deadline passed", context.DeadlineExceeded, posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown, context.DeadlineExceeded},
		{"server crashed meanwhile", &pgconn.PgError{Code: "57P02"}, posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown, nil},
		{"server does not know", &pgconn.PgError{Code: "08007"}, posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown, nil},
		{"server shut down", &pgconn.PgError{Code: "57P01"}, posthaste.CodeUnavailable, posthaste.CodeUnavailable, nil},
		{"no rows", pgx.ErrNoRows, "", "", pgx.ErrNoRows},
		{"classified already", posthaste.Invalidf("key", "too long"), posthaste.CodeInvalid, posthaste.CodeInvalid, nil},
		{"something else", errors.New("a bug"), "", "", nil},
	} {
		if got := posthaste.CodeOf(readError(c.err)); got != c.read {
			t.Errorf("%s: reading gives %q, want %q", c.name, got, c.read)
		}
		if got := posthaste.CodeOf(writeError(c.err)); got != c.write {
			t.Errorf("%s: writing gives %q, want %q", c.name, got, c.write)
		}
		if c.is != nil && (!errors.Is(readError(c.err), c.is) || !errors.Is(writeError(c.err), c.is)) {
			t.Errorf("%s: errors.Is does not find %v any more", c.name, c.is)
		}
	}
	if readError(nil) != nil || writeError(nil) != nil {
		t.Error("nil is an error")
	}
}

// Real errors of pgx for statements that were sent and not sent are classified.
func TestLostAnswersOfARealServer(t *testing.T) {
	t.Parallel()
	url := emptyDB(t)
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := dial(t, url).Exec(ended, `select 1`)
	if posthaste.CodeOf(writeError(err)) != "" || !errors.Is(writeError(err), context.Canceled) {
		t.Errorf("cancelled before sending: %v", writeError(err))
	}
	conn, operator := dial(t, url), dial(t, url)
	pid := conn.PgConn().PID()
	running, stop := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(running, `select pg_sleep(600)`)
		done <- err
	}()
	sleeping := func(pid uint32) bool {
		return one[bool](t, operator, `select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')`, int32(pid))
	}
	eventually(t, "it runs", func() bool { return sleeping(pid) })
	stop()
	if err := writeError(<-done); posthaste.CodeOf(err) != posthaste.CodeOutcomeUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled after sending: %v", err)
	}
	if _, err := conn.Exec(testContext(t), `select 1`); posthaste.CodeOf(writeError(err)) != posthaste.CodeUnavailable {
		t.Errorf("on a closed connection: %v", err)
	}

	conn = dial(t, url)
	go func() {
		_, err := conn.Exec(testContext(t), `select pg_sleep(600)`)
		done <- err
	}()
	eventually(t, "it runs", func() bool { return sleeping(conn.PgConn().PID()) })
	mustExec(t, operator, `select pg_terminate_backend($1)`, int32(conn.PgConn().PID()))
	if err := writeError(<-done); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("terminated: %v", err)
	}
	_, err = operator.Exec(testContext(t), `select jsonb '{"a": "\u0000"}'`)
	var e *posthaste.Error
	if !errors.As(readError(err), &e) || e.Code != posthaste.CodeInvalid || e.Field != "" {
		t.Errorf(`\u0000 in jsonb: %v`, readError(err))
	}
}
