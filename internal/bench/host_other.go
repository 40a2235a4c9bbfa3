//go:build !linux

package bench

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

func inMemory(string) bool { return false }

// monotonic is the wall clock here: nothing else is shared by all processes.
func monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }

func residentMB() float64 { return 0 }

func memory() uint64 { return 0 }
