//go:build unix

package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pollEvery is the interval at which other processes are checked.
const pollEvery = 10 * time.Millisecond

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

// initCluster creates a cluster at dir atomically.
func initCluster(ctx context.Context, b binaries, who *syscall.Credential, dir string, c Config) error {
	unfinished, secret := dir+".new", dir+".password"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("an unfinished cluster cannot be removed: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return fmt.Errorf("the cluster's directory cannot be made: %w", err)
	}
	defer os.Remove(secret)
	_ = os.Remove(secret)
	if err := os.WriteFile(secret, []byte(c.Password+"\n"), 0o600); err != nil {
		return fmt.Errorf("the cluster's password cannot be handed over: %w", err)
	}
	if who != nil {
		for _, path := range []string{unfinished, secret} {
			if err := os.Lchown(path, int(who.Uid), int(who.Gid)); err != nil {
				return fmt.Errorf("the cluster cannot be given to the user PostgreSQL runs as: %w", err)
			}
		}
	}
	args := []string{"--pgdata", unfinished, "--username", c.User, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"}
	if n, err := strconv.Atoi(b.major()); err == nil && n >= 17 {
		args = append(args, "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8")
	}
	if c.Ephemeral {
		args = append(args, "--no-sync")
	}
	out, err := command(ctx, who, unfinished, b.program("initdb"), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("the PostgreSQL cluster cannot be created: initdb: %w: %s", errors.Join(err, ctx.Err()), lastLines(out))
		if who == nil && ctx.Err() == nil {
			return nameless(os.Geteuid(), err)
		}
		return err
	}
	return os.Rename(unfinished, dir)
}

// nameless adds a remedy to a failure of initdb if this process's user has no name, as in a
// container with a bare user id. initdb needs the name even with --username, and only an entry
// in passwd helps. It is checked only after the failure, because other sources of user names
// cannot be seen from here.
func nameless(uid int, err error) error {
	if _, unknown := user.LookupId(strconv.Itoa(uid)); unknown == nil {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeRefused, Cause: err, Message: err.Error(),
		Hint: fmt.Sprintf("user id %d has no name on this system, and PostgreSQL needs one: add a line such as `posthaste:x:%d:%d::/:/sbin/nologin` to /etc/passwd, "+
			"start as a user with a name, or as root, which runs PostgreSQL as another user", uid, uid, os.Getegid())}
}

// daemon is one run of a postmaster, started by this process.
type daemon struct {
	dir  string
	pid  int
	done chan struct{} // closed when it has ended
	log  *tail
}

// startDaemon starts PostgreSQL and waits until it accepts connections.
func startDaemon(ctx context.Context, b binaries, p *place, g *guard, port int, c Config) (*daemon, error) {
	who, err := p.owner()
	if err != nil {
		return nil, err
	}
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "", // a path below DataDir may be too long for a socket
	}
	maps.Copy(settings, c.Settings)
	settings["port"] = strconv.Itoa(port)
	args := []string{"-D", p.cluster()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	d := &daemon{dir: p.cluster(), done: make(chan struct{}), log: &tail{to: c.Log}}
	if err := d.run(command(context.Background(), who, p.cluster(), b.program("postgres"), args...)); err != nil {
		return nil, err
	}
	g.watch(d.pid)
	if err := d.waitReady(ctx); err != nil {
		return nil, errors.Join(err, d.kill())
	}
	return d, nil
}

// run starts the process and collects its log and its exit status. The log uses a pipe of its
// own: backends that outlive a killed postmaster keep it open, and must not delay the
// detection of its end.
func (d *daemon) run(cmd *exec.Cmd) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("PostgreSQL cannot be started: %w", err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return fmt.Errorf("PostgreSQL cannot be started: %w", err)
	}
	d.pid = cmd.Process.Pid
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		defer r.Close()
		_, _ = io.Copy(d.log, r)
	}()
	go func() {
		_ = cmd.Wait()
		// The last lines contain the reason. Do not wait for orphaned backends.
		select {
		case <-logged:
		case <-time.After(time.Second):
		}
		close(d.done)
	}()
	return nil
}

func (d *daemon) waitReady(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.done:
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "PostgreSQL ended while it was starting: " + d.log.lastLines()}
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL was still starting: %w", ctx.Err())
		case <-tick.C:
			if f := readPidFile(d.dir); f.pid == d.pid && f.ready {
				return nil
			}
		}
	}
}

// stop sends one signal after the other: SIGINT requests a fast shutdown, SIGQUIT one that
// writes nothing to disk. SIGKILL is last, because it leaves shared memory behind. ctx
// shortens only the wait for a fast shutdown.
func (d *daemon) stop(ctx context.Context, signals ...syscall.Signal) error {
	for _, sig := range signals {
		parent := ctx
		if sig == syscall.SIGQUIT {
			parent = context.WithoutCancel(ctx)
		}
		wait, cancel := context.WithTimeout(parent, stopPatience)
		_ = syscall.Kill(d.pid, sig)
		select {
		case <-d.done:
			cancel()
			return nil
		case <-wait.Done():
			cancel()
		}
	}
	return d.kill()
}

func (d *daemon) kill() error {
	// While stopped, it cannot start another backend while they are killed.
	_ = syscall.Kill(d.pid, syscall.SIGSTOP)
	err := killAll(context.Background(), d.dir, d.pid)
	<-d.done
	return err
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

// tail forwards a log and keeps its end for error messages.
type tail struct {
	mu   sync.Mutex
	to   io.Writer
	last []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if n := len(t.last) - tailBytes; n > 0 {
		t.last = t.last[n:]
	}
	// If the log cannot be written, continue reading: PostgreSQL would block on a full pipe.
	_, _ = t.to.Write(p)
	return len(p), nil
}

func (t *tail) lastLines() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLines(t.last)
}

// lastLines returns the end of a program's output, short enough for a message.
func lastLines(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}
