//go:build unix

package testdb

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const tempPrefix = "posthaste-tmp-"

// TempDir creates a directory for the temporary files of a test run, which all users may
// write. It is in memory if there is plenty, because a shared disk would determine how long
// servers take to flush. remove removes it. The next call removes directories of killed
// processes.
func TempDir() (dir string, remove func(), err error) {
	base := os.TempDir()
	if roomy(memory) && executable(memory) {
		base = memory
	}
	left, _ := filepath.Glob(filepath.Join(base, tempPrefix+"*"))
	for _, old := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(old), tempPrefix), "-")
		if pid, err := strconv.Atoi(number); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = os.RemoveAll(old)
		}
	}
	if dir, err = os.MkdirTemp(base, fmt.Sprint(tempPrefix, os.Getpid(), "-")); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if err = os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		remove()
	}
	return dir, remove, err
}

// executable reports whether programs in dir can be started, because some tests build programs
// there.
func executable(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC == 0
}
