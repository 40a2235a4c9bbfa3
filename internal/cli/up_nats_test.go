//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// anyNATSPorts selects NATS and free ports.
var anyNATSPorts = []string{"--engine", "nats", "--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0", "--nats-port", "0"}

// TestUpOnNATS sends the printed mail, kills NATS and up in turn, and finds the mail again.
func TestUpOnNATS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, u := startUp(t, dir, anyNATSPorts...)
	if u.Database != "" || u.Redis != "" || !strings.HasPrefix(u.NATS, "nats://127.0.0.1:") {
		t.Errorf("up prints %+v", u)
	}
	var sent struct{ ID string }
	if _, err := do("POST", u.HTTP+"/v1/emails", printedBody(t, u), &sent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mail is caught", caught(u, 1))
	isSent := func() error { return checkSent(u.HTTP + "/v1/emails/" + sent.ID) }
	eventually(t, "the mail is sent", isSent)
	if _, err := get(u.HTTP+"/readyz", nil); err != nil {
		t.Error(err)
	}
	conf, err := os.ReadFile(filepath.Join(u.Data, "nats.conf"))
	if err != nil || !strings.Contains(string(conf), `sync_interval: "1s"`) {
		t.Errorf("the configuration: %v\n%s", err, conf)
	}

	// NATS is killed, and up restarts it with its data.
	for _, pid := range descendants(t, p.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "a second mail can be sent", func() error {
		_, err := do("POST", u.HTTP+"/v1/emails", printedBody(t, u), nil)
		return err
	})
	eventually(t, "it is caught", func() error {
		if caught(u, 1)() == nil {
			return fmt.Errorf("no second mail yet")
		}
		return nil
	})

	eventually(t, "the first mail is sent still", isSent)
	takesOver(t, dir, p, u, isSent)
}

// takesOver kills up, whose NATS may keep running. The next up takes over the data.
func takesOver(t *testing.T, dir string, p *process, u upped, isSent func() error) {
	t.Helper()
	flags := []string{"--engine", "nats", "--listen", strings.TrimPrefix(u.HTTP, "http://"), "--smtp-listen", u.SMTP, "--nats-port", strings.TrimPrefix(u.NATS, "nats://127.0.0.1:")}
	_ = p.Process.Kill()
	p.wait()
	p, u = startUp(t, dir, flags...)
	if err := isSent(); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	stopAll(t, p)
	if conn, err := natsgo.Connect(u.NATS); err == nil {
		conn.Close()
		t.Error("NATS runs after up has stopped")
	}

	// --reset removes all data.
	p, u = startUp(t, dir, append(flags, "--reset", "--yes")...)
	if err := isSent(); err == nil {
		t.Error("the mail is there after reset")
	}
	if err := caught(u, 0)(); err != nil {
		t.Errorf("after reset: %v", err)
	}
	if code := p.stop(syscall.SIGINT); code != 0 {
		t.Errorf("SIGINT: exit code %d", code)
	}
}

// TestUpOnNATSIsRefused checks errors of invalid flags and without nats-server.
func TestUpOnNATSIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"up", "--engine", "nats", "--postgres-port", "1"}, "--postgres-port does not apply to --engine nats"},
		{[]string{"up", "--engine", "nats", "--redis-port", "1"}, "--redis-port does not apply to --engine nats"},
		{[]string{"up", "--nats-port", "1"}, "--nats-port does not apply to --engine postgres"},
		{[]string{"up", "--engine", "nats", "--nats-port", "70000"}, "--nats-port must be"},
	} {
		if _, stderr, code := run(t, dir, c.args...); code != 2 || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, %s", c.args, code, stderr)
		}
	}
	none := t.TempDir()
	p := start(t, dir, []string{"PATH=" + none, "XDG_CACHE_HOME=" + none, "HOME=" + none}, append([]string{"up"}, anyNATSPorts...)...)
	if code := p.wait(); code != 3 || !strings.Contains(p.said(), "nats-server is not installed") {
		t.Errorf("without a nats-server: exit code %d, %s", code, p.said())
	}
}
