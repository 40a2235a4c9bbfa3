package redisstream

import (
	"errors"
	"strings"
	"testing"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/source"
)

// A password that is not percent-encoded may be taken for host, port, path and options:
// no part of it is told.
func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"hun/ter2", "hun#ter2", "hun?ter2", "31/ter2", "31#ter2", "31?ter2", "hun%ter2", "hun ter2", "hun\x7fter2"} {
		_, err := New(nil, Config{URL: "redis://me:" + password + "@mq:6379/0", Stream: "in", Config: source.Config{Queue: "orders"}})
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.Invalid || e.Field != "url" || !strings.Contains(e.Hint, "percent-encoded") {
			t.Errorf("%q: %v", password, err)
		} else if text := e.Error() + e.Hint; strings.Contains(text, "hun") || strings.Contains(text, "ter2") || strings.Contains(text, "31") || e.Cause != nil {
			t.Errorf("%q: %s", password, text)
		}
	}
}
