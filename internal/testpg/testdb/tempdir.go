//go:build unix

package testdb

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const tempPrefix = "posthaste-tmp-"

// TempDir makes a directory for the temporary files of a run of tests, whoever reads
// them: in memory if there is plenty, because what brokers and servers flush to a disk
// that others use as well decides otherwise how long a test takes. remove removes it.
// One that was left behind by a process that was killed is removed by the next call.
func TempDir() (dir string, remove func(), err error) {
	base := os.TempDir()
	if roomy(memory) {
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
	return dir, func() { _ = os.RemoveAll(dir) }, os.Chmod(dir, 0o1777|os.ModeSticky)
}
