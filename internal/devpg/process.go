//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// daemon is one run of a postmaster, started by this process.
type daemon struct {
	dir  string
	pid  int
	done chan struct{} // closed when it has ended
	log  *tail
}

// startDaemon starts PostgreSQL and waits until it accepts connections.
func startDaemon(ctx context.Context, b binaries, p *location, g *guard, port int, c Config) (*daemon, error) {
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
