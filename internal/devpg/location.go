//go:build unix

package devpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
)

const (
	clusterName = "postgres"      // the cluster, in its home
	lockName    = "postgres.lock" // in DataDir and in the cluster's home
	noteName    = "postgres.json" // in DataDir, once a cluster exists
	systemDir   = "/var/lib/posthaste"
)

// location is the location of a cluster. The cluster is in its home, which is DataDir or, if the
// user that PostgreSQL runs as cannot reach that, another directory.
type location struct {
	dataDir string
	home    string
	locks   []*os.File
}

// note is the content of the file in DataDir.
type note struct {
	// Home is the cluster's home if it is not DataDir. If empty, DataDir may be moved as a
	// whole.
	Home string `json:"home,omitempty"`
}

// openLocation creates dataDir if it is missing, locks it and finds its cluster.
func openLocation(dataDir string) (*location, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // so that the user that PostgreSQL runs as can enter it
	}
	if err := os.MkdirAll(dataDir, mode); err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "data_dir", Message: "the data directory cannot be made: " + err.Error(), Cause: err}
	}
	// PostgreSQL's processes are recognized by their working directory, which the system
	// reports without symbolic links.
	if dataDir, err = filepath.EvalSymlinks(dataDir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	p := &location{dataDir: dataDir, home: dataDir}
	if err := p.lock(); err != nil {
		return nil, err
	}
	if err := p.readNote(); err != nil {
		p.unlock()
		return nil, err
	}
	return p, nil
}

func (p *location) readNote() error {
	raw, err := os.ReadFile(filepath.Join(p.dataDir, noteName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var n note
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "data_dir", Message: "the note on where the cluster lies cannot be read: " + err.Error(), Cause: err}
	}
	if n.Home == "" {
		return nil
	}
	p.home = n.Home
	if _, err := os.Stat(p.cluster()); err != nil {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "data_dir", Cause: err,
			Message: fmt.Sprintf("%s says that its PostgreSQL cluster is in %s, but it is not there", p.dataDir, p.cluster()),
			Hint:    "restore it, or start over with an empty data directory"}
	}
	return p.lockIn(p.home)
}

func (p *location) cluster() string { return filepath.Join(p.home, clusterName) }

// version returns the cluster's major version, or "" if there is no cluster.
func (p *location) version() (string, error) {
	raw, err := os.ReadFile(filepath.Join(p.cluster(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", &posthaste.Error{Code: posthaste.CodeDenied, Field: "data_dir", Cause: err,
			Message: fmt.Sprintf("the PostgreSQL cluster in %s belongs to another user", p.cluster()),
			Hint:    "start as that user or as root, or use another data directory"}
	}
	if err != nil {
		return "", fmt.Errorf("the cluster's version cannot be read: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// owner returns the user that PostgreSQL runs as; nil means this process's own user.
func (p *location) owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var st syscall.Stat_t
	if err := syscall.Stat(p.cluster(), &st); err == nil && st.Uid != 0 {
		return &syscall.Credential{Uid: st.Uid, Gid: st.Gid}, nil
	}
	for _, name := range []string{"posthaste", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(u.Uid, 10, 32)
		gid, errG := strconv.ParseUint(u.Gid, 10, 32)
		if errU == nil && errG == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, &posthaste.Error{Code: posthaste.CodeRefused,
		Message: "PostgreSQL refuses to run as root, and there is no user \"posthaste\" or \"nobody\" to run it as",
		Hint:    "create a user posthaste, or start as an ordinary user"}
}

// create finds a home that user who can reach, creates the cluster there atomically and writes
// the note.
func (p *location) create(ctx context.Context, b binaries, who *syscall.Credential, c Config) error {
	if b.probe(ctx, p.dataDir, who) != nil {
		home, err := homeElsewhere(ctx, b, who, c.Ephemeral)
		if err != nil {
			return err
		}
		p.home = home
		if err := p.lockIn(home); err != nil {
			return err
		}
	}
	err := initCluster(ctx, b, who, p.cluster(), c)
	if err == nil {
		err = p.writeNote()
	}
	if err != nil && p.home != p.dataDir {
		_ = os.RemoveAll(p.home)
		p.home = p.dataDir
	}
	return err
}

func (p *location) writeNote() error {
	var n note
	if p.home != p.dataDir {
		n.Home = p.home
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	file := filepath.Join(p.dataDir, noteName)
	if err := os.WriteFile(file+".new", append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("the location of the cluster cannot be recorded: %w", err)
	}
	return os.Rename(file+".new", file)
}

// homeElsewhere creates a new directory that user who can reach.
func homeElsewhere(ctx context.Context, b binaries, who *syscall.Credential, ephemeral bool) (string, error) {
	bases := []string{systemDir, os.TempDir()}
	if ephemeral {
		bases = bases[1:]
	}
	var errs []error
	for _, base := range bases {
		if base == systemDir {
			if err := ownDir(base); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		home, err := os.MkdirTemp(base, "posthaste-cluster-")
		if err == nil {
			err = os.Chmod(home, 0o711)
		}
		if err == nil {
			home, err = filepath.EvalSymlinks(home)
		}
		if err == nil {
			if err = b.probe(ctx, home, who); err == nil {
				return home, nil
			}
			_ = os.RemoveAll(home)
		}
		errs = append(errs, err)
	}
	return "", &posthaste.Error{Code: posthaste.CodeRefused, Field: "data_dir", Cause: errors.Join(errs...),
		Message: fmt.Sprintf("no directory for the cluster can be reached by user %d, as which PostgreSQL must run: %v", who.Uid, errors.Join(errs...)),
		Hint:    "use a data directory whose parents all users can enter"}
}

// lock takes the locks that are not held yet.
func (p *location) lock() error {
	if len(p.locks) > 0 {
		return nil
	}
	if err := p.lockIn(p.dataDir); err != nil {
		return err
	}
	if p.home != p.dataDir {
		return p.lockIn(p.home)
	}
	return nil
}

// lockPatience is how long a lock may outlast its process, because the kernel releases it only
// when no other process reads the process's files.
const lockPatience = time.Second

func (p *location) lockIn(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeDenied, Field: "data_dir", Message: "the data directory cannot be locked: " + err.Error(), Cause: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := flock(ctx, f); err != nil {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("the data directory %s cannot be locked: %w", dir, err)
		}
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "data_dir",
			Message: fmt.Sprintf("the PostgreSQL cluster of %s is in use by process %s", p.dataDir, strings.TrimSpace(string(holder[:n]))),
			Hint:    "stop that process or use another data directory"}
	}
	// Only as information: the kernel holds the lock.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	p.locks = append(p.locks, f)
	return nil
}

func (p *location) unlock() {
	for _, f := range p.locks {
		f.Close()
	}
	p.locks = nil
}

// remove removes the cluster, and DataDir if it is then empty.
func (p *location) remove() {
	for _, path := range p.paths() {
		_ = os.RemoveAll(path)
	}
	_ = os.Remove(p.dataDir)
	p.unlock()
}

// paths lists all files of the cluster, with the note last except for the lock, so that an
// interrupted removal can be repeated.
func (p *location) paths() []string {
	first := []string{p.cluster(), p.cluster() + ".new"}
	if p.home != p.dataDir {
		first = []string{p.home}
	}
	return append(first, filepath.Join(p.dataDir, noteName), filepath.Join(p.dataDir, lockName))
}

// Remove removes the cluster of dataDir wherever it is, and stops processes that an earlier
// process left running. A cluster in use by another live process is a [posthaste.CodeConflict]. If
// there is no cluster, it does nothing. Other files in dataDir stay.
func Remove(ctx context.Context, dataDir string) error {
	if _, err := os.Stat(dataDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err := openLocation(dataDir)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound { // only the note is left
		return os.Remove(filepath.Join(dataDir, noteName))
	}
	if err != nil {
		return err
	}
	defer p.unlock()
	if err := stopLeftovers(ctx, p.cluster()); err != nil {
		return err
	}
	for _, path := range p.paths() {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("the cluster cannot be removed: %w", err)
		}
	}
	return nil
}
