package kafka

import (
	"errors"
	"strings"
	"testing"

	posthaste "github.com/posthaste-mq/posthaste"
)

// A password that is not percent-encoded may be taken for host, port, path and options:
// no part of it is told.
func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"hun/ter2", "hun#ter2", "hun?ter2", "31/ter2", "31#ter2", "31?ter2", "hun%ter2", "hun ter2", "hun\x7fter2"} {
		b := Brokers{URL: "kafka://me:" + password + "@mq:9092,mq2:9092"}
		_, _, err := b.Options()
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.Invalid || e.Field != "url" || !strings.Contains(e.Hint, "percent-encoded") {
			t.Errorf("%q: %v", password, err)
		} else if text := e.Error() + e.Hint; strings.Contains(text, "hun") || strings.Contains(text, "ter2") || strings.Contains(text, "31") || e.Cause != nil {
			t.Errorf("%q: %s", password, text)
		}
	}
}
