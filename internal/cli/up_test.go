//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// upped is the output of `up --json`.
type upped struct {
	HTTP      string `json:"http"`
	Dashboard string `json:"dashboard"`
	Caught    string `json:"caught"`
	Database  string `json:"database_url"`
	Redis     string `json:"redis_url"`
	NATS      string `json:"nats_url"`
	SMTP      string `json:"smtp"`
	Data      string `json:"data"`
	Cluster   string `json:"cluster"`
	Next      string `json:"next"`
}

// flags returns the flags to start up again on the same addresses.
func (u upped) flags(t *testing.T) []string {
	database, err := url.Parse(u.Database)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--listen", strings.TrimPrefix(u.HTTP, "http://"), "--smtp-listen", u.SMTP, "--postgres-port", database.Port()}
}

// anyPorts selects free ports.
var anyPorts = []string{"--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0", "--postgres-port", "0"}

func startUp(t *testing.T, dir string, args ...string) (*process, upped) {
	t.Helper()
	p := start(t, dir, nil, append([]string{"up", "--json"}, args...)...)
	var u upped
	if line := p.line(); json.Unmarshal([]byte(line), &u) != nil {
		t.Fatalf("not JSON: %s", line)
	}
	return p, u
}

// workDir creates an empty directory in one that only its owner can access. Data of up that is
// outside is removed at the end.
func workDir(t *testing.T) string {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := devpg.Remove(context.Background(), filepath.Join(dir, ".posthaste")); err != nil {
			t.Errorf("the cluster cannot be removed: %v", err)
		}
	})
	return dir
}

// mail holds the common fields of /caught and /v1/emails.
type mail struct {
	ID      string   `json:"id"`
	Status  string   `json:"status"`
	To      []string `json:"to"`
	Subject string   `json:"subject"`
	Text    string   `json:"text"`
}

func caught(u upped, want int) func() error {
	return func() error {
		var mails []mail
		if _, err := get(u.Caught, &mails); err != nil {
			return err
		}
		if len(mails) != want {
			return fmt.Errorf("%d mails, want %d", len(mails), want)
		}
		return nil
	}
}

// sendsAgain waits until up, whose store was killed, sends the printed mail and catches it beside those
// that it had caught.
func sendsAgain(t *testing.T, u upped, had int) {
	t.Helper()
	eventually(t, "a mail can be sent", func() error {
		_, err := do("POST", u.HTTP+"/v1/emails", printedBody(t, u), nil)
		return err
	})
	eventually(t, "it is caught", func() error {
		if caught(u, had)() == nil {
			return fmt.Errorf("no mail besides %d yet", had)
		}
		return nil
	})
}

// printedBody returns the body of the curl command that up prints.
func printedBody(t *testing.T, u upped) string {
	t.Helper()
	match := regexp.MustCompile(`-d '([^']+)'`).FindStringSubmatch(u.Next)
	if match == nil || !strings.HasPrefix(u.Next, "curl "+u.HTTP+"/v1/emails ") {
		t.Fatalf("up prints no curl command for %s: %s", u.HTTP, u.Next)
	}
	return match[1]
}

// TestLP4UpSurvivesKill follows the start of the README: up, a mail with the printed command,
// and the catcher. Then all processes are killed.
func TestLP4UpSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	p, u := startUp(t, dir, anyPorts...)
	var sent struct{ ID string }
	if _, err := do("POST", u.HTTP+"/v1/emails", printedBody(t, u), &sent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mail is caught", caught(u, 1))
	if err := answers(u.Dashboard+"messages/"+sent.ID, 200)(); err != nil || u.Dashboard != u.HTTP+"/dashboard/" {
		t.Errorf("the dashboard at %q: %v", u.Dashboard, err)
	}
	isSent := func() error {
		var m mail
		_, err := get(u.HTTP+"/v1/emails/"+sent.ID, &m)
		if err == nil && m.Status != "sent" {
			err = fmt.Errorf("status %q", m.Status)
		}
		return err
	}
	eventually(t, "the mail is sent", isSent)

	// A second up reports the first one and its address.
	_, stderr, code := run(t, dir, append([]string{"up"}, anyPorts...)...)
	if code != 1 || !strings.Contains(stderr, fmt.Sprintf("process %d", p.Process.Pid)) || !strings.Contains(stderr, u.HTTP) {
		t.Errorf("the second up: exit code %d, %s", code, stderr)
	}
	_, stderr, code = run(t, dir, append([]string{"up", "--reset", "--yes"}, anyPorts...)...)
	if code != 1 || caught(u, 1)() != nil {
		t.Errorf("a second up with --reset: exit code %d, %s", code, stderr)
	}

	// Kill the guard first, since it would shut PostgreSQL down.
	for _, pid := range descendants(t, p.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.Process.Kill()
	p.wait()

	p, u = startUp(t, dir, u.flags(t)...)
	eventually(t, "the mail is still caught", caught(u, 1))
	if err := isSent(); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	stopAll(t, p)

	// --reset removes all data.
	p, u = startUp(t, dir, append(u.flags(t), "--reset", "--yes")...)
	var emails struct{ Data []mail }
	if _, err := get(u.HTTP+"/v1/emails", &emails); err != nil || len(emails.Data) != 0 {
		t.Errorf("after reset: %d mails, %v", len(emails.Data), err)
	}
	if err := caught(u, 0)(); err != nil {
		t.Errorf("after reset: %v", err)
	}
	if code := p.stop(syscall.SIGINT); code != 0 {
		t.Errorf("SIGINT: exit code %d", code)
	}
}

// stopAll stops up with SIGTERM and checks that no process outlives it.
func stopAll(t *testing.T, p *process) {
	t.Helper()
	left := descendants(t, p.Process.Pid)
	if code := p.stop(syscall.SIGTERM); code != 0 || len(left) == 0 {
		t.Errorf("SIGTERM: exit code %d with %d child processes\n%s", code, len(left), p.said())
	}
	for _, pid := range left {
		if syscall.Kill(pid, 0) == nil && !zombie(pid) {
			t.Errorf("process %d outlived up", pid)
		}
	}
}

// zombie reports whether a process has ended, even if its parent has not waited for it.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

// TestUpNamesTheFlagOfATakenPort occupies each port in turn.
func TestUpNamesTheFlagOfATakenPort(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	for i, value := range []string{address, address, port} {
		args := append([]string{"up"}, anyPorts...)
		flag := args[1+2*i]
		args[2+2*i] = value
		_, stderr, code := run(t, dir, args...)
		if code != 1 || !strings.Contains(stderr, flag) || !strings.Contains(stderr, "in use by another program") {
			t.Errorf("%s %s: exit code %d, %s", flag, value, code, stderr)
		}
	}
}

// TestUpStartsPostgresAgain kills the PostgreSQL of up.
func TestUpStartsPostgresAgain(t *testing.T) {
	t.Parallel()
	p, u := startUp(t, workDir(t), anyPorts...)
	for _, pid := range descendants(t, p.Process.Pid) {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "postgres" {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	sendsAgain(t, u, 0)
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if said := p.said(); strings.Count(said, "PostgreSQL is running again") != 1 {
		t.Errorf("up said:\n%s", said)
	}
}
