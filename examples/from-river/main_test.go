package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

const printed = `an invoice, duplicate: false
an invoice, duplicate: true
asked for a review of order 7
gave up a review: the order was cancelled
invoiced order 7
reported
shipped order 7, attempt 2
`

// The program does all of its work.
func TestShopInPosthaste(t *testing.T) {
	t.Parallel()
	prints(t, ".")
}

// The program with River prints the same.
func TestShopInRiver(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "River is no dependency of this module, and must be downloaded")
	prints(t, "river")
}

// prints runs a program on a database of its own.
func prints(t *testing.T, folder string) {
	t.Helper()
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "DATABASE_URL="+testpg.New(t))
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	lines := slices.Sorted(strings.Lines(string(out)))
	if got := strings.Join(lines, ""); err != nil || got != printed {
		t.Errorf("it printed\n%s%v\n%s", got, err, log.String())
	}
}
