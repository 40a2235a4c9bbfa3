//go:build unix

package history

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time of the machine's monotonic clock, which all its processes share.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("the monotonic clock cannot be read: %v", err))
	}
	return time.Duration(t.Nano())
}
