//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
)

// home is the locked data directory of up.
type home struct {
	dir     string
	lock    *os.File
	closers []io.Closer
}

// state is the content of the lock file. It identifies the process that holds the lock.
type state struct {
	PID  int    `json:"pid"`
	HTTP string `json:"http,omitempty"`
}

const (
	lockName = "up.lock"
	// ignoreName is a file that excludes the directory from a Git repository around it.
	ignoreName = ".gitignore"
)

// openHome creates the directory, unless it exists, and locks it. If another up uses it, the
// error names its process and address.
func openHome(dir string) (*home, error) {
	if dir == "" {
		return nil, posthaste.Invalidf("data", "--data must be a directory, got an empty value")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve the data directory: %w", err)
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the user that runs PostgreSQL must be able to traverse it
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, dataError("cannot be created", err)
	}
	// PostgreSQL reports its directory without symbolic links, and it is compared.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, dataError("cannot be used", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataError("cannot be used", err)
	}
	h := &home{dir: dir, lock: lock}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, dataError("cannot be locked", err)
		}
		return nil, h.taken()
	}
	h.tell(state{})
	// The file is a convenience; ignore errors.
	_ = os.WriteFile(h.path(ignoreName), []byte("*\n"), 0o644)
	return h, nil
}

func dataError(what string, err error) error {
	code := posthaste.CodeInvalid
	if errors.Is(err, fs.ErrPermission) {
		code = posthaste.CodeDenied
	}
	return &posthaste.Error{Code: code, Field: "data", Message: "the data directory " + what + ": " + err.Error(),
		Hint: "select another directory with --data", Cause: err}
}

// taken returns the error that another up holds the lock.
func (h *home) taken() error {
	e := &posthaste.Error{Code: posthaste.CodeConflict, Field: "data", Message: "`posthaste up` is already running in " + h.dir,
		Hint: "stop it first, or use another directory with --data and other ports"}
	var s state
	if raw, err := os.ReadFile(h.path(lockName)); err == nil && json.Unmarshal(raw, &s) == nil && s.PID != 0 {
		e.Message += fmt.Sprintf(", as process %d", s.PID)
		if s.HTTP != "" {
			e.Message += ": its API is at " + s.HTTP
		}
	}
	return e
}

// tell writes the state to the lock file, for other processes.
func (h *home) tell(s state) {
	s.PID = os.Getpid()
	raw, err := json.Marshal(s)
	if err != nil {
		return
	}
	_ = h.lock.Truncate(0)
	_, _ = h.lock.WriteAt(append(raw, '\n'), 0)
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

// create creates a file, or truncates the file of an earlier run.
func (h *home) create(name string) (*os.File, error) {
	f, err := os.OpenFile(h.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, dataError("cannot be written", err)
	}
	return f, nil
}

// close releases the lock. The lock file stays, because removing it would let two processes
// lock different files.
func (h *home) close() {
	for _, c := range h.closers {
		c.Close()
	}
	h.lock.Close()
}
