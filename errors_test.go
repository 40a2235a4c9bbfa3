package posthaste_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Asking what an error says costs nothing: that is done for every message, most of
// which end without one.
// Not parallel: it counts the whole process's allocations.
func TestAskingErrorsAllocatesNothing(t *testing.T) {
	plain := errors.New("no such card")
	for _, err := range []error{nil, plain, posthaste.Snooze(time.Minute), posthaste.Permanent(plain), posthaste.RetryAfter(plain, time.Minute)} {
		if n := testing.AllocsPerRun(100, func() {
			posthaste.SnoozeDelay(err)
			posthaste.RetryDelay(err)
			posthaste.IsPermanent(err)
			posthaste.CodeOf(err)
		}); n != 0 {
			t.Errorf("asking %v allocates %v times", err, n)
		}
	}
	wrapped := errors.Join(plain, fmt.Errorf("charging: %w", posthaste.Permanent(posthaste.Snooze(-time.Minute))))
	if after, ok := posthaste.SnoozeDelay(wrapped); !ok || after != 0 || !posthaste.IsPermanent(wrapped) {
		t.Errorf("of %v the marks are not found: %v, %v", wrapped, after, ok)
	}
}
