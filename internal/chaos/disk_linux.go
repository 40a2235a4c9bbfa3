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

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// smallSize is the size of the data's file system, if the disk is to be filled.
const smallSize = "3g"

// makeSmall mounts a file system for the data, which requires root, if the disk is to be
// filled.
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

// fillDisk leaves PostgreSQL no space for a while. PostgreSQL may crash.
func (s *postgresStore) fillDisk() func(context.Context) error {
	long := time.Second + time.Duration(s.random.Int64N(int64(2*time.Second)))
	return func(ctx context.Context) error {
		// If one backend cannot continue without space, all backends end, even if the
		// postmaster survives. So a connection that existed before reveals a crash.
		return s.connected(ctx, func(witness *pgx.Conn) error {
			return s.marked(DiskFull, "", func() (int, string, error) {
				filler := filepath.Join(s.small, "filler")
				defer os.Remove(filler)
				if err := fill(ctx, filler, long); err != nil {
					return 0, "", err
				}
				always, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				select {
				case <-s.server.Done():
					return 1, Crashed, s.server.Restart(always)
				case <-time.After(500 * time.Millisecond):
				}
				if witness.Ping(always) == nil {
					return 1, "", nil
				}
				return 1, Crashed, s.connectable(always)
			})
		})
	}
}

// connectable waits until PostgreSQL, which restarts itself, accepts connections.
func (s *postgresStore) connectable(ctx context.Context) error {
	for {
		err := s.connected(ctx, func(*pgx.Conn) error { return nil })
		if err == nil || ctx.Err() != nil {
			return err
		}
		hold(ctx, 20*time.Millisecond)
	}
}

// fill uses all free space for a while, including space that is freed later.
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
			zeros = zeros[:4096] // fill the remaining space, too
			time.Sleep(time.Millisecond)
		case err != nil:
			return err
		}
	}
	return nil
}
