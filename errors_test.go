package posthaste_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The functions that inspect errors must not allocate, because they run for every message, and
// most messages have no error. Not parallel: the test counts the allocations of the whole
// process.
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
