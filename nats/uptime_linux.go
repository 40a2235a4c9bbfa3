package nats

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is a clock for leases: it is never set, and counts the time in which the machine is
// suspended, because the servers' clocks go on meanwhile.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(started)
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
