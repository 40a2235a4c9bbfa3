//go:build unix

package testpg

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// bouncerConfig gives each transaction another session than the last, so that
// nothing that a client leaves in one is there later.
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
min_pool_size = 2
server_round_robin = 1
max_client_conn = 200
logfile = %s/log
`

// Bouncer starts a pgbouncer in transaction mode for the test, before the
// server of databaseURL, and returns the URL of the same database behind it.
// Where pgbouncer is not installed the test fails, for a skip would go unseen.
func Bouncer(t testing.TB, databaseURL string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where ordinary users do not look
		if _, err := os.Stat(program); err != nil {
			t.Fatal("pgbouncer is not installed, and this test needs it: `make needs` installs it as root on Debian, elsewhere your package manager does")
		}
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	// Short, for the path of a socket is.
	dir, err := os.MkdirTemp("", "bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	password, _ := u.User.Password()
	ini := filepath.Join(dir, "ini")
	text := fmt.Sprintf(bouncerConfig, u.Hostname(), u.Port(), u.User.Username(), password, dir, dir)
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{program, "--quiet", ini}
	if os.Geteuid() == 0 { // as which it refuses to run
		args = []string{program, "--quiet", "--user=" + giveTo(t, dir, ini), ini}
	}
	// The shell ends it when this process dies, whatever it dies of.
	cmd := exec.Command("sh", append([]string{"-c", `"$@" & read gone; kill $!; wait`, "sh"}, args...)...)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	behind := *u
	behind.Host = ""
	behind.RawQuery = url.Values{"host": {dir}, "port": {"6432"}, "sslmode": {"disable"}}.Encode()
	waitBouncer(t, behind.String(), filepath.Join(dir, "log"))
	return behind.String()
}

// giveTo gives the files to a user without rights, and returns its name.
func giveTo(t testing.TB, paths ...string) string {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	for _, path := range paths {
		if err := os.Chown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	return u.Username
}

// waitBouncer waits until it answers, and checks that it is what the test needs:
// two transactions of one client run in different sessions.
func waitBouncer(t testing.TB, behind, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(behind)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	var conn *pgx.Conn
	for {
		if conn, err = pgx.ConnectConfig(ctx, config); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(log)
			t.Fatalf("pgbouncer does not answer: %v\n%s", err, said)
		case <-time.After(10 * time.Millisecond):
		}
	}
	defer conn.Close(context.Background())
	for first, next := 0, 0; ; {
		if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&next); err != nil {
			t.Fatalf("pgbouncer does not get into transaction mode: %v", err)
		}
		if first == 0 {
			first = next
		} else if next != first {
			return
		}
	}
}
