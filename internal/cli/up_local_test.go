//go:build unix

package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// A server does not count as started if another server has its port.
func TestNATSOnATakenPort(t *testing.T) {
	t.Parallel()
	other, n := anyNATS(t), anyLocalNATS(t)
	_, port, _ := strings.Cut(other.Address(), ":")
	n.port, _ = strconv.Atoi(port)
	if err := n.Restart(t.Context()); posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "NATS did not start") {
		t.Errorf("on the port of another: %v", err)
	}
}

// stopLeftNATS stops the server of its directory and no other one.
func TestStopLeftNATS(t *testing.T) {
	t.Parallel()
	n := anyLocalNATS(t)
	if err := n.takePort("nats-port", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := anyHome(t) // whose server is gone, and another one has its port
	if err := os.WriteFile(other.path(natsPortFile), fmt.Appendln(nil, n.port, "posthaste-up-other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stopLeftNATS(t.Context(), other); err != nil {
			t.Error(err)
		}
	}
	if about, err := askNATS(t.Context(), n.address()); err != nil || about.Name != n.nonce {
		t.Fatalf("the server of another directory: %+v, %v", about, err)
	}
	for range 2 {
		if err := stopLeftNATS(t.Context(), n.home); err != nil {
			t.Error(err)
		}
	}
	<-n.Done()
}

// anyLocalNATS returns a server that is not started, and stops it at the end.
func anyLocalNATS(t *testing.T) *localNATS {
	t.Helper()
	path, err := devbroker.NATSServer()
	if err != nil {
		t.Fatal(err)
	}
	home := anyHome(t)
	log, err := home.create(natsLogFile)
	if err != nil {
		t.Fatal(err)
	}
	n := newLocalNATS(home, path, log)
	t.Cleanup(func() {
		if p := n.running.Load(); p != nil {
			p.kill()
		}
		log.Close()
	})
	return n
}

func anyNATS(t *testing.T) *devbroker.NATS {
	t.Helper()
	n, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}
