package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The example prints the output that docs/guides/checkpoints.md shows.
func TestJB5_ImportGoesOn(t *testing.T) {
	t.Parallel()
	environment := append(os.Environ(), "DATABASE_URL="+testpg.New(t))
	var out []byte
	for range 2 { // it can run again in the same database
		cmd := exec.Command("go", "run", ".")
		cmd.Env = environment
		cmd.Stderr = os.Stderr
		var err error
		if out, err = cmd.Output(); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../docs/guides/checkpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```text\n"+string(out)+"```\n") {
		t.Errorf("docs/guides/checkpoints.md does not show this output:\n%s", out)
	}
}
