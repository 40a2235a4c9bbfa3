//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// home is the data directory of up, locked.
type home struct {
	dir     string
	lock    *os.File
	closers []io.Closer
}

// state is what the lock's holder tells others who come.
type state struct {
	PID  int    `json:"pid"`
	HTTP string `json:"http,omitempty"`
}

const (
	lockName = "up.lock"
	// ignore keeps the directory out of a repository it lies in.
	ignoreName = ".gitignore"
)

// openHome makes the directory if it is missing and locks it. If another up
// runs in it, the error tells which and where.
func openHome(dir string) (*home, error) {
	if dir == "" {
		return nil, posthaste.Invalidf("data", "--data must name a directory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the data directory: %w", err)
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the user PostgreSQL runs as has to pass through
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, dataError("cannot be made", err)
	}
	// PostgreSQL's place is told without symbolic links, and compared.
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
	// Only a convenience, so it may fail.
	_ = os.WriteFile(h.path(ignoreName), []byte("*\n"), 0o644)
	return h, nil
}

func dataError(what string, err error) error {
	code := posthaste.CodeInvalid
	if errors.Is(err, fs.ErrPermission) {
		code = posthaste.CodeDenied
	}
	return &posthaste.Error{Code: code, Field: "data", Message: "the data directory " + what + ": " + err.Error(),
		Hint: "name another with --data", Cause: err}
}

// taken tells of the up that holds the lock.
func (h *home) taken() error {
	e := &posthaste.Error{Code: posthaste.CodeConflict, Field: "data", Message: "`posthaste up` already runs on " + h.dir,
		Hint: "stop that one first, or use another directory with --data and other ports"}
	var s state
	if raw, err := os.ReadFile(h.path(lockName)); err == nil && json.Unmarshal(raw, &s) == nil && s.PID != 0 {
		e.Message += fmt.Sprintf(", as process %d", s.PID)
		if s.HTTP != "" {
			e.Message += ": its API is at " + s.HTTP
		}
	}
	return e
}

// tell leaves word for others who find the directory locked.
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

// create makes an empty file, in place of one of an earlier run.
func (h *home) create(name string) (*os.File, error) {
	f, err := os.OpenFile(h.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, dataError("cannot be written", err)
	}
	return f, nil
}

// reset removes everything that up keeps, and nothing else.
func (h *home) reset(ctx context.Context) error {
	if err := stopLeftRedis(ctx, h); err != nil {
		return err
	}
	if err := devpg.Remove(ctx, h.dir); err != nil {
		return err
	}
	for _, name := range []string{"mails", "postgres.log", redisDir, redisPortFile, redisLogFile} {
		if err := os.RemoveAll(h.path(name)); err != nil {
			return dataError("cannot be emptied", err)
		}
	}
	return nil
}

// close lets others in. The lock's file stays: removing it would let two in.
func (h *home) close() {
	for _, c := range h.closers {
		c.Close()
	}
	h.lock.Close()
}
