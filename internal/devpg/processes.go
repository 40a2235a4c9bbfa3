//go:build unix

package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pollEvery is the interval at which other processes are checked.
const pollEvery = 10 * time.Millisecond

// stopPatience is how long a fast shutdown may take before an immediate shutdown, and how long
// that may take before SIGKILL.
const stopPatience = 20 * time.Second

// command builds a call of one of PostgreSQL's programs as another user, detached from the
// terminal. Its environment has none of this process's secrets, because any process of that
// user can read it.
func command(ctx context.Context, who *syscall.Credential, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C", "HOME=/"}
	for _, name := range []string{"PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: who}
	return cmd
}

// lastLines returns the end of a program's output, short enough for a message.
func lastLines(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// killAll kills every PostgreSQL process of the cluster in dir, and the postmaster if its pid
// is not 0, and returns when all are gone.
func killAll(ctx context.Context, dir string, postmaster int) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for {
		pids, err := clusterProcesses(dir)
		if err != nil {
			return fmt.Errorf("PostgreSQL's processes cannot be listed: %w", err)
		}
		if postmaster != 0 {
			// Backends first, so that auxiliary processes that outlive them can end in order.
			pids = append(slices.DeleteFunc(pids, func(pid int) bool { return pid == postmaster }), postmaster)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); errors.Is(err, syscall.EPERM) {
				return &posthaste.Error{Code: posthaste.CodeDenied, Cause: err,
					Message: fmt.Sprintf("PostgreSQL of %s, process %d, belongs to another user and cannot be stopped", dir, pid),
					Hint:    "stop it as that user or as root"}
			}
		}
		postmaster = 0
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL's processes %v did not end: %w", pids, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// stopLeftovers stops processes that an earlier owner of the cluster in dir left running, and
// removes a lock file that would prevent the next start.
func stopLeftovers(ctx context.Context, dir string) error {
	pid := readPidFile(dir).pid
	if pid == 0 {
		return nil
	}
	running, err := clusterProcesses(dir)
	if err != nil {
		return fmt.Errorf("PostgreSQL's processes cannot be listed: %w", err)
	}
	if slices.Contains(running, pid) && syscall.Kill(pid, syscall.SIGINT) == nil {
		waitGone(ctx, dir, stopPatience)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("PostgreSQL of an earlier process was still stopping: %w", err)
	}
	if err := killAll(ctx, dir, 0); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, pidFileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a stale lock file cannot be removed: %w", err)
	}
	return nil
}

// waitGone waits until all of the cluster's processes have ended.
func waitGone(ctx context.Context, dir string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if pids, err := clusterProcesses(dir); err != nil || len(pids) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollEvery):
		}
	}
}

const pidFileName = "postmaster.pid"

// pidFile is the content of postmaster.pid.
type pidFile struct {
	pid   int // 0 if the file does not exist
	ready bool
}

func readPidFile(dir string) pidFile {
	raw, err := os.ReadFile(filepath.Join(dir, pidFileName))
	if err != nil {
		return pidFile{}
	}
	lines := strings.Split(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return pidFile{}
	}
	return pidFile{pid: pid, ready: len(lines) >= 8 && strings.TrimSpace(lines[7]) == "ready"}
}
