package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// smallSize is the file system of the data, when it shall get full.
const smallSize = "3g"

// makeSmall makes a file system for the data, which only root can, if the disk
// is to be filled.
func (s *postgresStore) makeSmall(dir string) error {
	if !slices.Contains(s.Kinds, DiskFull) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if err := unix.Mount("posthaste-chaos", dir, "tmpfs", 0, "mode=711,size="+smallSize); err != nil {
		return fmt.Errorf("a small file system cannot be mounted: %w", err)
	}
	s.small = dir
	return nil
}

func (s *postgresStore) dropSmall() error {
	if s.small == "" {
		return nil
	}
	return unix.Unmount(s.small, unix.MNT_DETACH)
}

// fillDisk leaves PostgreSQL no space for a while. It may end itself then.
func (s *postgresStore) fillDisk() func(context.Context) error {
	long := time.Second + time.Duration(s.random.Int64N(int64(2*time.Second)))
	return func(ctx context.Context) error {
		return s.during(DiskFull, "", func() error {
			filler := filepath.Join(s.small, "filler")
			defer os.Remove(filler)
			if err := fill(ctx, filler, long); err != nil {
				return err
			}
			select {
			case <-s.server.Done():
				return s.server.Restart(context.WithoutCancel(ctx))
			case <-time.After(500 * time.Millisecond):
				return nil
			}
		})
	}
}

// fill takes all space that there is, and what becomes free, for a while.
func fill(ctx context.Context, name string, long time.Duration) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for end := time.Now().Add(long); time.Now().Before(end) && ctx.Err() == nil; {
		_, err := f.Write(zeros)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			zeros = zeros[:4096] // the rest, too
			time.Sleep(time.Millisecond)
		case err != nil:
			return err
		}
	}
	return nil
}
