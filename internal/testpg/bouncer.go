//go:build unix

package testpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// bouncerConfig gives each transaction a different session than the previous one, so that a
// client's session state is not there later.
const bouncerConfig = `[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = 6432
unix_socket_dir = %s
unix_socket_mode = 0777
auth_type = any
default_pool_size = 4
server_round_robin = 1
max_client_conn = 1000
logfile = %s/log
`

// Bouncer returns the URL of the same database behind a pgbouncer in transaction mode. All
// databases of a server share one pgbouncer of this process. If pgbouncer is not installed,
// the test fails, because a skip would not be noticed.
func Bouncer(t testing.TB, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	made, _ := bouncers.LoadOrStore(u.Host, &bouncer{})
	b := made.(*bouncer)
	b.once.Do(func() { b.err = b.start(u) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	behind := *u
	behind.Host = ""
	behind.RawQuery = url.Values{"host": {b.dir}, "port": {"6432"}, "sslmode": {"disable"}}.Encode()
	b.warmUp(t, behind.String())
	return behind.String()
}

// bouncers are the instances of this process, by their server.
var bouncers sync.Map

type bouncer struct {
	once sync.Once
	dir  string         // for its socket and its log
	in   io.WriteCloser // closing it ends pgbouncer
	err  error
}

// start starts pgbouncer for a server. It ends with this process.
func (b *bouncer) start(server *url.URL) error {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // not in the PATH of ordinary users
		if _, err := os.Stat(program); err != nil {
			return errors.New("pgbouncer is not installed, and this test needs it: `make needs` installs it as root on Debian, elsewhere your package manager does")
		}
	}
	// Short, because the length of a socket's path is limited.
	if b.dir, err = os.MkdirTemp("", "bouncer-"); err != nil {
		return err
	}
	password, _ := server.User.Password()
	ini := filepath.Join(b.dir, "ini")
	text := fmt.Sprintf(bouncerConfig, server.Hostname(), server.Port(), server.User.Username(), password, b.dir, b.dir)
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		return err
	}
	args := []string{program, "--quiet", ini}
	if os.Geteuid() == 0 { // pgbouncer refuses to run as root
		name, err := giveTo(b.dir, ini)
		if err != nil {
			return err
		}
		args = []string{program, "--quiet", "--user=" + name, ini}
	}
	// The shell ends pgbouncer when this process dies for any reason.
	cmd := exec.Command("sh", append([]string{"-c", `dir=$1; shift; "$@" & read gone; kill $!; wait; rm -rf "$dir"`, "sh", b.dir}, args...)...)
	if b.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	return cmd.Start()
}

// giveTo gives the files to an unprivileged user, and returns its name.
func giveTo(paths ...string) (string, error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return "", err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		if err := os.Chown(path, uid, -1); err != nil {
			return "", err
		}
	}
	return u.Username, nil
}

// warmUp waits until pgbouncer answers and has two sessions in a database. It checks that two
// transactions of one client run in different sessions, which the tests need.
func (b *bouncer) warmUp(t testing.TB, behind string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(behind)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	connect := func() *pgx.Conn {
		for {
			conn, err := pgx.ConnectConfig(ctx, config)
			if err == nil {
				return conn
			}
			select {
			case <-ctx.Done():
				said, _ := os.ReadFile(filepath.Join(b.dir, "log"))
				t.Fatalf("pgbouncer does not answer: %v\n%s", err, said)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	one, other := connect(), connect()
	defer one.Close(context.Background())
	defer other.Close(context.Background())
	// While the first transaction holds a session, the second needs another one.
	for _, sql := range []string{"begin", "select 1"} {
		if _, err := one.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	pid := func(c *pgx.Conn) (pid int) {
		if err := c.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatalf("pgbouncer does not get into transaction mode: %v", err)
		}
		return pid
	}
	pid(other)
	if _, err := one.Exec(ctx, "commit"); err != nil {
		t.Fatal(err)
	}
	if first := pid(one); first == pid(one) {
		t.Fatal("two transactions in a row ran in the same session of pgbouncer")
	}
}
