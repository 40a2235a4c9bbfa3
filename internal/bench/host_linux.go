package bench

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// datasync syncs a file as PostgreSQL syncs its WAL on Linux.
func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// inMemory reports whether dir is on a file system that is not durable.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return false
	}
	return s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC
}

// monotonic returns the time of a clock that is the same in all processes of the machine, and
// never steps.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

// residentMB returns the resident memory of this process.
func residentMB() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// memory returns the memory of this machine, or the limit of this control group if that is
// lower, in bytes; 0 if it is unknown.
func memory() uint64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	all := uint64(s.Totalram) * uint64(s.Unit)
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if bound, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			all = min(all, bound)
		}
	}
	return all
}
