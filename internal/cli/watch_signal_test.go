//go:build unix

package cli_test

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// An interrupt is how a watch ends, and not a failure.
func TestWatchEndsOnAnInterrupt(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "posthaste", "queue", "ls", "--watch", "--interval", "100ms", "--json")
	cmd.Env = append(cmd.Environ(), "DATABASE_URL="+testpg.New(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() || lines.Text() != `{"data":[],"has_more":false}` {
			t.Fatalf("it prints %q", lines.Text())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
