package main

import (
	"strings"
	"testing"
)

// The folder of a release is emptied first, so it must not contain the repository.
func TestReleaseKeepsTheRepository(t *testing.T) {
	for _, dist := range []string{"..", "../..", "/"} {
		if _, err := newRelease("..", dist, "v0.1.0"); err == nil || !strings.Contains(err.Error(), "contains the repository") {
			t.Errorf("-dist %s: %v", dist, err)
		}
	}
	if _, err := newRelease("..", "../dist", "v0.1.0"); err != nil {
		t.Error(err)
	}
}
