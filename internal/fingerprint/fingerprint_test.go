package fingerprint_test

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/fingerprint"
)

func TestAlikeErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dial tcp 10.0.0.7:5432: connection refused":               "dial tcp …: connection refused",
		`user "ada" has 3 orders`:                                  "user … has … orders",
		"key 6f1c2a34-0000-4000-8000-1234567890ab at 0xc000123456": "key … at …",
		"first\nsecond 2":                                          "first",
	} {
		if alike := fingerprint.Of(text); alike != want {
			t.Errorf("%q is like %q, want %q", text, alike, want)
		}
	}
}

func TestPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`user "ada" was not found in 3`: "was not found in", "a 1 b 2": "a 1 b 2", strings.Repeat("x", 600): strings.Repeat("x", 500)} {
		if got := fingerprint.Part(text); got != want {
			t.Errorf("the part of %q is %q, want %q", text, got, want)
		}
	}
}
