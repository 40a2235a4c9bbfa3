package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The example runs, and shows what docs/checkpoints.md says.
func TestJB5_ImportGoesOn(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "run", ".")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+testpg.New(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/checkpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```text\n"+string(out)+"```\n") {
		t.Errorf("docs/checkpoints.md does not show this output:\n%s", out)
	}
}
