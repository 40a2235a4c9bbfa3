//go:build unix

package acceptance

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// childEnv makes a process of this program a child that can be killed. Its task comes on
// standard input.
const childEnv = "POSTHASTE_ACCEPTANCE_CHILD"

// full reports whether the run is at full size.
func full() bool { return testrun.Full() }

// size returns small, or large at full size.
func size[T any](small, large T) T { return testrun.Size(small, large) }

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	if err := testrun.Parallel(6); err != nil { // they mostly wait for processes
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stopBroker()
	os.Exit(code)
}

// task is what a child has to do.
type task struct {
	Role string
	Name string // of its history
	Dir  string // where histories are
	URL  string // of the store; the stage's if empty
	// Program is started instead of this one, if set.
	Program string
	Queue   string
	// The rest depends on the role.
	Count       int
	Concurrency int
	Lease       time.Duration
	Work        time.Duration // how long a handler takes
	Ordered     bool          // the queue is
	Broker      string        // the relay's
	Target      string        // where it publishes to
	Fails       int           // of so many messages one fails in its first attempt; 0: none, below 0: all in each
}

// roles are the possible roles of a child. They call ready when they work, and end with ctx.
var roles = map[string]func(ctx context.Context, t task, ready func()) error{
	"sender":    senderRole,
	"worker":    workerRole,
	"suicide":   suicideRole,
	"counter":   counterRole,
	"migrate":   migrateRole,
	"off":       offRole,
	"pester":    pesterRole,
	"relay":     relayRole,
	"steps":     stepsRole,
	"dashboard": dashboardRole,
	"insister":  insisterRole,
	"witness":   witnessRole,
	"funnel":    funnelRole,
}

func childMain() int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	in := bufio.NewReader(os.Stdin)
	var t task
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a child without a task:", err)
		return 2
	}
	go func() { // this process ends with its parent
		_, _ = io.Copy(io.Discard, in)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := roles[t.Role](ctx, t, func() { fmt.Println("ready") }); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name, err)
		return 1
	}
	return 0
}

// dieNow ends this process with SIGKILL.
func dieNow() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// child is a process of this program.
type child struct {
	name  string
	queue string
	cmd   *exec.Cmd
	ready chan struct{}
	ended chan struct{} // closed when it is dead
	err   error         // the reason, after ended is closed
	in    io.WriteCloser
}

// spawn starts a child and waits until it works, or is dead.
func (s *stage) spawn(t task) *child {
	s.Helper()
	t.URL, t.Dir = cmp.Or(t.URL, s.url), s.dir
	if t.Name == "" {
		t.Name = s.name(t.Role)
	}
	exe, err := os.Executable()
	s.must(err)
	c := &child{name: t.Name, queue: t.Queue, cmd: exec.Command(cmp.Or(t.Program, exe)), ready: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stderr = s.Output()
	out, err := c.cmd.StdoutPipe()
	s.must(err)
	c.in, err = c.cmd.StdinPipe()
	s.must(err)
	line, err := json.Marshal(t)
	s.must(err)
	s.must(c.cmd.Start())
	s.Cleanup(c.kill)
	go func() {
		if lines := bufio.NewScanner(out); lines.Scan() {
			close(c.ready)
		}
		_, _ = io.Copy(io.Discard, out)
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	_, err = c.in.Write(append(line, '\n'))
	s.must(err)
	select {
	case <-c.ready:
	case <-c.ended:
		if c.byStatus() {
			s.Fatalf("%s ended before it was ready: %v", c.name, c.err)
		}
	case <-s.ctx.Done():
		s.Fatalf("%s does not get ready", c.name)
	}
	return c
}

// kill ends the child with SIGKILL and waits for its death.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// term asks the child to end, and returns its result.
func (c *child) term() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.ended
	return c.err
}

// byStatus reports whether the dead child exited by itself and not by a signal.
func (c *child) byStatus() bool {
	var exit *exec.ExitError
	return !errors.As(c.err, &exit) || exit.Exited()
}

// tools returns what every role needs.
func tools(ctx context.Context, t task) (posthaste.Store, *history.Recorder, error) {
	engine, err := openStore(ctx, t.URL)
	if err != nil {
		return nil, nil, err
	}
	record, err := history.Open(t.Dir, t.Name)
	return engine, record, err
}
