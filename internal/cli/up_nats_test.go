//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// anyNATSPorts selects NATS and free ports.
var anyNATSPorts = []string{"--engine", "nats", "--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0", "--nats-port", "0"}

// TestUpOnNATS sends the printed mail, kills NATS and up in turn, and finds the mail again.
func TestUpOnNATS(t *testing.T) {
	t.Parallel()
	survivesKills(t, anyNATSPorts, func(u upped) {
		if u.Database != "" || u.Redis != "" || !strings.HasPrefix(u.NATS, "nats://127.0.0.1:") {
			t.Errorf("up prints %+v", u)
		}
		conf, err := os.ReadFile(filepath.Join(u.Data, "nats.conf"))
		if err != nil || !strings.Contains(string(conf), `sync_interval: "1s"`) {
			t.Errorf("the configuration: %v\n%s", err, conf)
		}
	}, func(u upped) []string {
		return []string{"--engine", "nats", "--nats-port", strings.TrimPrefix(u.NATS, "nats://127.0.0.1:")}
	}, func(u upped) {
		if conn, err := natsgo.Connect(u.NATS); err == nil {
			conn.Close()
			t.Error("NATS runs after up has stopped")
		}
	})
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
