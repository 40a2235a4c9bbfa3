//go:build unix

package documents_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// TestStatements runs the SQL of every document in psql, each document in a
// database of its own that is as `migrate up` leaves it.
func TestStatements(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, file := range documents(t) {
		var run []block
		for _, b := range blocks(t, file) {
			if b.mark == "run: psql" {
				run = append(run, b)
			}
		}
		if len(run) == 0 {
			continue
		}
		ran += len(run)
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			url := testpg.New(t)
			psql(t, url, "select posthaste.create_queue('emails', '{\"max_payload\": 33554432}')")
			for _, b := range run {
				output := psql(t, url, b.text)
				if line := missing(b, output); line != "" {
					t.Errorf("%s does not show %q but\n%s", b, line, output)
				}
			}
		})
	}
	if ran == 0 {
		t.Error("no statements found")
	}
}

// psql runs statements and returns their output.
func psql(t *testing.T, url, statements string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file=-", url)
	cmd.Dir, cmd.Stdin = "../..", strings.NewReader(statements) // files are named from the root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return string(out)
}
