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

// meter knows nothing here.
type meter struct{}

func newMeter(int) meter { return meter{} }

func meterOf(int, string) meter { return meter{} }

func (meter) total() (time.Duration, bool) { return 0, false }
