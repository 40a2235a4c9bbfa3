//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
)

const systemCacheDir = "/var/cache/posthaste"

// binaries is a directory with PostgreSQL's programs.
type binaries struct {
	dir     string
	version string // such as "18.3"
}

func (b binaries) program(name string) string { return filepath.Join(b.dir, name) }

func (b binaries) major() string {
	major, _, _ := strings.Cut(b.version, ".")
	return major
}

// probe runs the programs as user who, to check that it can enter dir and run them.
func (b binaries) probe(ctx context.Context, dir string, who *syscall.Credential) error {
	_, err := b.askVersion(ctx, dir, who)
	return err
}

func (b binaries) askVersion(ctx context.Context, dir string, who *syscall.Credential) (string, error) {
	out, err := command(ctx, who, dir, b.program("postgres"), "--version").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, lastLines(exit.Stderr))
		}
		return "", err
	}
	f := strings.Fields(string(out)) // postgres (PostgreSQL) 18.3 …
	if len(f) < 3 {
		return "", fmt.Errorf("postgres --version printed %q", out)
	}
	return f[2], nil
}

// findBinaries returns programs that user who can run, and fetches them if necessary.
func findBinaries(ctx context.Context, c Config, who *syscall.Credential) (binaries, error) {
	if c.BinDir != "" {
		return ownBinaries(ctx, c, who)
	}
	release := releases[c.Version]
	if release == "" {
		return binaries{}, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "version",
			Message: fmt.Sprintf("the cluster was created by PostgreSQL %s, and only 14 and 18 can be fetched", c.Version),
			Hint:    "use binaries of that version"}
	}
	cache, err := cacheDir(c)
	if err != nil {
		return binaries{}, err
	}
	name := "postgresql-" + platform() + "-" + release
	var errs []error
	for _, base := range unpackDirs(cache, who) {
		if base != cache {
			if err := ownDir(base); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if who != nil && !enterable(base) {
			errs = append(errs, fmt.Errorf("not all users can enter %s", base))
			continue
		}
		b := binaries{dir: filepath.Join(base, name, "bin")}
		if _, err := os.Stat(b.program("postgres")); errors.Is(err, fs.ErrNotExist) {
			err = fetchAndUnpack(ctx, c, cache, base, name, release)
			if err != nil {
				if ctx.Err() != nil || posthaste.CodeOf(err) != "" {
					return binaries{}, err
				}
				errs = append(errs, err)
				continue
			}
		}
		if b.version, err = b.askVersion(ctx, "/", who); err == nil {
			return b, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", b.dir, err))
	}
	return binaries{}, fmt.Errorf("PostgreSQL's programs cannot be run from any directory: %w", errors.Join(errs...))
}

func ownBinaries(ctx context.Context, c Config, who *syscall.Credential) (binaries, error) {
	dir, err := filepath.Abs(c.BinDir)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: dir}
	if _, err = os.Stat(b.program("initdb")); err == nil {
		b.version, err = b.askVersion(ctx, "/", who)
	}
	if err != nil {
		return b, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "bin_dir", Cause: err,
			Message: fmt.Sprintf("PostgreSQL's programs in %s cannot be run: %v", dir, err),
			Hint:    "name the directory that holds initdb and postgres"}
	}
	if c.Version != "" && b.major() != c.Version {
		return b, posthaste.Invalidf("version", "PostgreSQL %s is wanted, but the binaries in %s are of %s", c.Version, dir, b.version)
	}
	return b, nil
}

func cacheDir(c Config) (string, error) {
	dir := c.CacheDir
	if dir == "" {
		if user, err := os.UserCacheDir(); err == nil {
			dir = filepath.Join(user, "posthaste")
		} else { // no home directory
			dir = filepath.Join(os.TempDir(), fmt.Sprintf("posthaste-cache-%d", os.Geteuid()))
			if err := ownDir(dir); err != nil {
				return "", err
			}
		}
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("the cache directory cannot be made: %w", err)
	}
	return dir, nil
}

// unpackDirs lists possible directories for the programs, best first. They belong to this
// user, because the user that PostgreSQL runs as must not be able to change them.
func unpackDirs(cache string, who *syscall.Credential) []string {
	if who == nil {
		return []string{cache}
	}
	return []string{cache, systemCacheDir, filepath.Join(os.TempDir(), "posthaste-cache")}
}

// enterable reports whether all users may enter all parents of dir. It only chooses where to
// unpack; the result is tested afterwards.
func enterable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// fetchAndUnpack unpacks the programs to base/name. Processes that want the same version wait
// for each other.
func fetchAndUnpack(ctx context.Context, c Config, cache, base, name, release string) error {
	unlock, err := waitLock(ctx, filepath.Join(base, name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	final := filepath.Join(base, name)
	if _, err := os.Stat(final); err == nil {
		return nil // another process unpacked it
	}
	a := archive{file: filepath.Join(cache, name+".jar"), platform: platform(), release: release}
	if err := a.fetch(ctx, c); err != nil {
		return err
	}
	unpacked, err := os.MkdirTemp(base, name+".new-")
	if err != nil {
		return fmt.Errorf("PostgreSQL cannot be unpacked: %w", err)
	}
	defer os.RemoveAll(unpacked)
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return fmt.Errorf("PostgreSQL cannot be unpacked: %w", err)
	}
	if err := a.unpack(ctx, unpacked, c.Progress); err != nil {
		return fmt.Errorf("PostgreSQL cannot be unpacked into %s: %w", base, err)
	}
	return os.Rename(unpacked, final)
}

// waitLock waits for an exclusive lock on a file.
func waitLock(ctx context.Context, file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock of PostgreSQL's programs: %w", err)
	}
	switch err := flock(ctx, f); {
	case err == nil:
		return func() { f.Close() }, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, fmt.Errorf("waiting for another process that fetches PostgreSQL: %w", ctx.Err())
	default:
		f.Close()
		return nil, fmt.Errorf("lock of PostgreSQL's programs: %w", err)
	}
}

// flock locks a file exclusively. If another process holds the lock until ctx ends, the error
// is EWOULDBLOCK.
func flock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return unix.EWOULDBLOCK
		case <-time.After(pollEvery):
		}
	}
}

// platform names this system as the archives do.
func platform() string {
	arch := runtime.GOARCH
	switch arch {
	case "arm64":
		arch = "arm64v8"
	case "arm":
		arch = "arm32v7"
	}
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/etc/alpine-release"); err == nil {
			arch += "-alpine" // another C library
		}
	}
	return runtime.GOOS + "-" + arch
}

// ownDir creates a directory of this user that other users can enter, or checks that an
// existing one cannot be changed by others.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only its owner, this user, can write", dir)
	}
	return nil
}
