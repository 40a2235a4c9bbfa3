//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// proved is the part of the account of prove that the tests read.
type proved struct {
	Interrupted  bool
	Acknowledged int
	Handled      int
	Lost         int
	Unexplained  int
	Faults       []struct{ Kind string }
	Broken       []string
}

// prove runs prove and calls each with the lines that it prints meanwhile.
func prove(t *testing.T, each func(cmd *exec.Cmd, line string), args ...string) proved {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "posthaste", append([]string{"prove", "--json"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	words, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(words); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		each(cmd, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("prove: %v\n%s%s", err, said.String(), out.String())
	}
	var p proved
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatalf("%v\n%s%s", err, said.String(), out.String())
	}
	if p.Lost > 0 || p.Unexplained > 0 || len(p.Broken) > 0 || p.Acknowledged < 10 || p.Handled < p.Acknowledged {
		t.Errorf("the account is %+v", p)
	}
	return p
}

func TestProve(t *testing.T) {
	testrun.Nightly(t, "kills PostgreSQL for half a minute; package prove tests the checker on each change")
	p := prove(t, func(*exec.Cmd, string) {}, "--duration", "15s", "--workers", "2", "--seed", "5")
	if p.Interrupted || len(p.Faults) < 2 || p.Faults[0].Kind != "worker killed" || p.Faults[1].Kind != "PostgreSQL killed" {
		t.Errorf("the account is %+v", p)
	}
}

// TestProveInterrupted: Ctrl-C ends the run early, and the messages sent so far are accounted for.
func TestProveInterrupted(t *testing.T) {
	testrun.Nightly(t, "kills processes until a message flows, and waits for their leases")
	p := prove(t, func(cmd *exec.Cmd, line string) {
		if strings.Contains(line, "flowed again") {
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
	}, "--duration", "10m")
	if !p.Interrupted || len(p.Faults) == 0 {
		t.Errorf("the account is %+v", p)
	}
}
