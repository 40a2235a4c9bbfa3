// Package testrun determines the size of a test run, and tells a test that measures time
// whether the machine stalled in the meantime.
//
// A run has one of three sizes. On each change the tests take minutes. At night
// (POSTHASTE_TEST_NIGHT=1) the tests that [Nightly] skips on a change also run, and every
// broken twin. At full size (POSTHASTE_TEST_FULL=1, which includes the night) the tests use
// the documented numbers and check the documented times.
package testrun

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"
)

// Environment variables that choose the size of a run. The value is 1.
const (
	NightEnv = "POSTHASTE_TEST_NIGHT"
	FullEnv  = "POSTHASTE_TEST_FULL"
)

// RecordEnv names the variable that, if it is 1, records the twins that were found, as
// `make nightly` does.
const RecordEnv = "POSTHASTE_TEST_RECORD_TWINS"

// Night reports whether the run includes the tests that are skipped on each change.
func Night() bool { return os.Getenv(NightEnv) == "1" || Full() }

// Full reports whether the run uses the full numbers.
func Full() bool { return os.Getenv(FullEnv) == "1" }

// Size returns small, or large in a run at full size.
func Size[T any](small, large T) T {
	if Full() {
		return large
	}
	return small
}

// Nightly skips the test unless the run is a night run. The reason explains why the test is
// not worth its time on each change; docs/project/tests.md lists it.
func Nightly(t testing.TB, reason string) {
	t.Helper()
	if !Night() {
		t.Skipf("runs at night only (%s=1): %s", NightEnv, reason)
	}
}

// Parallel lets at least n tests of this process run in parallel. Tests that mostly wait, for
// a lock or another process, need no processor of their own. TestMain calls it before it runs
// the tests.
func Parallel(n int) error {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel == nil {
		return errors.New("testrun.Parallel must be called in a test binary")
	}
	if chosen, err := strconv.Atoi(parallel.Value.String()); err != nil || chosen >= n {
		return err
	}
	return flag.Set("test.parallel", strconv.Itoa(n))
}
