package testrun

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Until waits until met returns true, as [Happens] does, and fails the test after most.
func Until(t testing.TB, most time.Duration, what string, met func() bool) {
	t.Helper()
	if !Happens(most, met) {
		t.Fatalf("not within %s: %s", most, what)
	}
}

// Happens waits at most most until met returns true, and reports whether it did. It polls
// often at first, and then with pauses of a twentieth of the time waited so far, at least as
// long as met takes and at most 50 ms, so that a test that waits for long leaves the processors
// to others.
func Happens(most time.Duration, met func() bool) bool {
	begun := time.Now()
	for asked := begun; !met(); asked = time.Now() {
		waited := time.Since(begun)
		if waited > most {
			return false
		}
		time.Sleep(min(max(waited/20, time.Since(asked), time.Millisecond), 50*time.Millisecond))
	}
	return true
}

// Pause waits for a random duration below most, so that whatever runs concurrently meets in
// another order each time. It is not long enough for anything: to wait, use [Until].
func Pause(most time.Duration) { time.Sleep(rand.N(most)) }
