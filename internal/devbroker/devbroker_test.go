//go:build unix

package devbroker

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

func TestRabbitMQ(t *testing.T) {
	testrun.Nightly(t, "it starts brokers that the tests of the sinks start, too")
	t.Parallel()
	began := time.Now()
	r, err := StartRabbitMQ(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	t.Logf("started after %s", time.Since(began))
	out, err := r.Control(t.Context(), "list_vhosts")
	if err != nil || !strings.Contains(out, "/") {
		t.Errorf("%v: %s", err, out)
	}
	r.Kill()
	if serves(t.Context(), r.Address()) {
		t.Error("the broker accepts connections after Kill")
	}
	if err := r.Start(t.Context()); err != nil {
		t.Error(err)
	}
	r.Shutdown()
}

func TestRedis(t *testing.T) {
	t.Parallel()
	r, err := StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	for _, end := range []func(){r.Kill, r.Shutdown} {
		end()
		if answers(t.Context(), r.Address(), "PING\r\n", "+PONG") {
			t.Error("the server answers after its end")
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := StartRedis(t.Context(), t.TempDir(), "--nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("with an unknown argument: %v", err)
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	n, err := StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	for _, end := range []func(){n.Kill, n.Shutdown} {
		end()
		if answers(t.Context(), n.Address(), "", "INFO") {
			t.Error("the server accepts connections after its end")
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := StartNATS(t.Context(), t.TempDir(), "nonsense: 1"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("with an unknown setting: %v", err)
	}
}

// scripts/needs builds the version in go.mod, and natsServer looks for NATSVersion.
func TestNATSVersion(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/nats-io/nats-server/v2").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != NATSVersion {
		t.Errorf("go.mod requires nats-server %s (%v), NATSVersion is %s", version, err, NATSVersion)
	}
}

// The error for a missing nats-server says how to get it.
func TestNATSNotInstalled(t *testing.T) { // not parallel: it changes the environment
	t.Setenv("PATH", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := StartNATS(t.Context(), t.TempDir())
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "scripts/needs") || !strings.Contains(err.Error(), NATSVersion) {
		t.Errorf("without nats-server: %v", err)
	}
}

func TestKafka(t *testing.T) {
	testrun.Nightly(t, "it starts brokers that the tests of the sinks start, too")
	t.Parallel()
	k, err := StartKafka(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	k.Kill()
	if answers(t.Context(), k.Address(), "", "") {
		t.Error("the broker accepts connections after its end")
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.Shutdown()
}

// Brokers of concurrent tests get different ports, even before they listen and while they
// are down.
func TestPortsAreTaken(t *testing.T) {
	t.Parallel()
	taken := map[int]bool{}
	for range 500 { // of 15,000: without the locks some would be given twice
		port, err := TakePort()
		if err != nil {
			t.Fatal(err)
		}
		if taken[port] {
			t.Fatalf("port %d was given twice", port)
		}
		taken[port] = true
	}
}
