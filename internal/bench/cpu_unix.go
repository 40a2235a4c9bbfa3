//go:build unix

package bench

import (
	"syscall"
	"time"
)

// ownCPU returns the CPU time of this process so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
