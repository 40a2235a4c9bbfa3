package bench

import (
	"fmt"
	"os"
	"time"
)

// measureFsync records how many writes can be synced in a second in a directory.
func (m *Machine) measureFsync(dir string) error {
	syncs, err := syncsPerSecond(dir, 300*time.Millisecond)
	if err != nil {
		return fmt.Errorf("fsync cannot be measured: %w", err)
	}
	m.FsyncPerSecond = known(syncs)
	return nil
}

// syncsPerSecond returns how many writes of 8 KiB per second can be synced, one after the other,
// in a file in dir. It overwrites the same pages, as the WAL does in a recycled segment.
func syncsPerSecond(dir string, during time.Duration) (perSecond float64, err error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8<<10)
	const pages = 64
	for i := range pages {
		if _, err := f.WriteAt(page, int64(i*len(page))); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	begun := time.Now()
	n := int64(0)
	for time.Since(begun) < during || n < 3 {
		page[0]++
		if _, err := f.WriteAt(page, n%pages*int64(len(page))); err != nil {
			return 0, err
		}
		if err := datasync(f); err != nil {
			return 0, err
		}
		n++
	}
	return rate(n, time.Since(begun)), nil
}
