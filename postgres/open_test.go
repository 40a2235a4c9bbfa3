package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/posthaste-mq/posthaste"
)

// opened opens url, which must fail with code and an error without secrets.
func opened(t *testing.T, url string, code posthaste.Code, opts ...Option) {
	t.Helper()
	e, err := Open(testContext(t), url, opts...)
	if err == nil {
		e.Close()
	}
	if posthaste.CodeOf(err) != code {
		t.Errorf("Open: %v, want code %q", err, code)
	}
	if err != nil && strings.Contains(fmt.Sprintf("%v %+v", err, err), "geheim") {
		t.Errorf("the error tells the password: %v", err)
	}
}

func TestOpenOfABadURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:geheim@host:port/db", "postgres://u:ge%heim@host/", "host=x password='geheim", "postgres://u:geheim@h/db?sslmode=perhaps", "postgres://u:geheim@h/db?pool_max_conns=many",
		"postgres://u:31415/geheim@h/db", "postgres://u:geheim/31415@h/db?x=y"} {
		opened(t, url, posthaste.CodeInvalid)
		if _, err := Connect(testContext(t), url); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("Connect: %v", err)
		}
	}
}

func TestOpenOfAnUnreachableServer(t *testing.T) {
	t.Parallel()
	// Use a port without a listener: one that was free a moment ago.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	opened(t, "postgres://u:geheim@"+l.Addr().String()+"/db", posthaste.CodeUnavailable)
}

// If a server accepts connections and never responds, as behind a half-open proxy, Open fails
// after the connect timeout.
func TestOpenOfASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	started := time.Now()
	opened(t, "postgres://u:geheim@"+l.Addr().String()+"/db?sslmode=disable&connect_timeout=2", posthaste.CodeUnavailable)
	if took := time.Since(started); took > within {
		t.Errorf("took %v", took)
	}
}

// fakeServer imitates a PostgreSQL of another version for the startup and one simple statement.
func fakeServer(t *testing.T, answer []string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveFake(conn, answer)
		}
	}()
	return "postgres://u:geheim@" + l.Addr().String() + "/db?sslmode=disable&default_query_exec_mode=simple_protocol"
}

func serveFake(conn net.Conn, answer []string) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.Query); !ok {
			continue
		}
		row := &pgproto3.DataRow{}
		fields := &pgproto3.RowDescription{}
		for i, v := range answer {
			fields.Fields = append(fields.Fields, pgproto3.FieldDescription{Name: fmt.Append(nil, i), DataTypeOID: []uint32{23, 25, 16, 16}[i], DataTypeSize: -1})
			row.Values = append(row.Values, []byte(v))
		}
		b.Send(fields)
		b.Send(row)
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
	}
}

func TestServersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		facts serverFacts
		code  posthaste.Code
	}{
		{serverFacts{version: 130022, name: "13.22"}, posthaste.CodeUnsupported},
		{serverFacts{version: 90624, name: "9.6.24", inRecovery: true}, posthaste.CodeUnsupported},
		{serverFacts{version: 140000, name: "14.0", inRecovery: true, readOnly: true}, posthaste.CodeReadOnly},
		{serverFacts{version: 180000, name: "18.0", readOnly: true}, posthaste.CodeReadOnly},
		{serverFacts{version: 140000, name: "14.0"}, ""},
	} {
		if err := c.facts.check(); posthaste.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.facts, err, c.code)
		}
	}
}

func TestOpenOfAnOldServer(t *testing.T) {
	t.Parallel()
	url := fakeServer(t, []string{"130022", "13.22", "f", "f"})
	opened(t, url, posthaste.CodeUnsupported)
	conn, err := Connect(testContext(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := Migrate(testContext(t), conn, MigrateOptions{}); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
		t.Errorf("Migrate: %v", err)
	}
}

func TestOpenInRecovery(t *testing.T) {
	t.Parallel()
	opened(t, fakeServer(t, []string{"180000", "18.0", "t", "t"}), posthaste.CodeReadOnly)
}

func TestOpenChecksSchemaAndRights(t *testing.T) {
	t.Parallel()
	url := emptyDB(t)
	ctx := testContext(t)
	opened(t, url, posthaste.CodeSchemaOld)
	readOnly := withUser(t, url, "", "", "default_transaction_read_only", "on")
	opened(t, readOnly, posthaste.CodeReadOnly)
	conn := dial(t, readOnly)
	if err := Migrate(ctx, conn, MigrateOptions{NoRoles: true}); posthaste.CodeOf(err) != posthaste.CodeReadOnly {
		t.Errorf("Migrate when read only: %v", err)
	}

	owner := dial(t, url)
	mustMigrate(t, owner)
	for _, opts := range [][]Option{nil, {WithPollingOnly()}, {WithPoolSize(3)}} {
		e, err := Open(ctx, url, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Ready(ctx); err != nil {
			t.Errorf("Ready: %v", err)
		}
		want := int32(DefaultPoolSize)
		if len(opts) > 0 && !e.polling {
			want = 3
		}
		if got := e.pool.Config().MaxConns; got != want {
			t.Errorf("the pool has %d connections, want %d", got, want)
		}
		e.Close()
	}
	e, err := Open(ctx, withUser(t, url, "", "", "pool_max_conns", "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if got := e.pool.Config().MaxConns; got != 7 {
		t.Errorf("the URL's pool size is not used: %d", got)
	}

	// A user without a role has no access to the schema.
	role := "r" + strings.TrimPrefix(owner.Config().Database, "t")
	mustExec(t, owner, `create role `+role+` login password 'geheim'`)
	t.Cleanup(func() { mustExecLater(t, url, `drop role `+role) })
	opened(t, withUser(t, url, role, "geheim"), posthaste.CodeDenied)

	mustExec(t, owner, `insert into posthaste.migrations values (9000, 'later', false)`)
	if err := e.Ready(ctx); err != nil {
		t.Errorf("a compatible newer schema: %v", err)
	}
	mustExec(t, owner, `insert into posthaste.migrations values (9001, 'much_later', true)`)
	if err := e.Ready(ctx); posthaste.CodeOf(err) != posthaste.CodeSchemaNew {
		t.Errorf("a breaking newer schema: %v", err)
	}
	opened(t, url, posthaste.CodeSchemaNew)
	if err := Migrate(ctx, owner, MigrateOptions{NoRoles: true}); posthaste.CodeOf(err) != posthaste.CodeSchemaNew {
		t.Errorf("Migrate of a breaking newer schema: %v", err)
	}
	mustExec(t, owner, `delete from posthaste.migrations`)
	if err := e.Ready(ctx); posthaste.CodeOf(err) != posthaste.CodeSchemaOld {
		t.Errorf("an older schema: %v", err)
	}
	e.pool.Close()
	if err := e.Ready(ctx); err == nil {
		t.Error("Ready on a closed pool is nil")
	}
}
