//go:build !linux

package nats

import "time"

// uptime is a clock for leases. It takes the larger of the time that has passed by the monotonic
// clock and by the wall clock, because only the latter counts the time in which the machine is
// suspended.
func uptime() time.Duration {
	return max(time.Since(started), time.Now().Round(0).Sub(started.Round(0)))
}

var started = time.Now()
