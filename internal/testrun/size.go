// Package testrun sizes a run of the tests, and tells a test that measures time
// whether the machine stood still meanwhile.
//
// A run has one of three sizes. On each change the tests take minutes. At night
// (POSTHASTE_TEST_NIGHT=1) the tests that [Nightly] keeps out of a change run as
// well, and every broken twin. At full size (POSTHASTE_TEST_FULL=1, which includes
// the night) the tests use the numbers that a promise names, and hold its times.
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

// Night reports whether the run includes what is left out on each change.
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

// Nightly skips the test unless the run is one at night. The reason says why the test
// is not worth its time on each change; docs/testing.md lists it.
func Nightly(t testing.TB, reason string) {
	t.Helper()
	if !Night() {
		t.Skipf("runs at night only (%s=1): %s", NightEnv, reason)
	}
}

// Parallel lets at least n tests of this process run side by side. Tests that mostly
// wait, for a lock or another process, need no processor of their own. TestMain calls
// it before it runs the tests.
func Parallel(n int) error {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel == nil {
		return errors.New("testrun.Parallel is called outside a test's program")
	}
	if chosen, err := strconv.Atoi(parallel.Value.String()); err != nil || chosen >= n {
		return err
	}
	return flag.Set("test.parallel", strconv.Itoa(n))
}
