//go:build !linux

package bench

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

func inMemory(string) bool { return false }

// monotonic returns the wall clock, the only clock that all processes share here.
func monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }

func residentMB() float64 { return 0 }

func memory() uint64 { return 0 }
