//go:build unix

package devbroker

import (
	"strings"
	"testing"
	"time"
)

func TestRabbitMQ(t *testing.T) {
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
		t.Error("it serves after Kill")
	}
	if err := r.Start(t.Context()); err != nil {
		t.Error(err)
	}
	r.Shutdown()
}
