//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// childEnv makes a process of this program a child of a run. Its task comes on standard input.
const childEnv = "POSTHASTE_CHAOS_CHILD"

// task is what a child has to do.
type task struct {
	Role   string
	Name   string // of its history, and of its connections
	Dir    string // of the histories
	Engine string
	URL    string   // of the store, through the proxy
	Server string   // of the HTTP API
	Queues []string // to receive from
	Mix    []string // to send to, repeated by weight
	Seed   uint64
	Lease  time.Duration
	Rate   float64 // messages per second, of a sender
}

// roles are the possible roles of a child. They start immediately and end with ctx.
var roles = map[string]func(ctx context.Context, t task, r *history.Recorder) error{
	roleSender:       engineSender,
	roleSQLSender:    sqlSender,
	roleHTTPSender:   httpSender,
	roleWorker:       workerRole,
	roleSQLReceiver:  sqlReceiver,
	roleHTTPReceiver: httpReceiver,
}

// Child runs this process as a child, and exits, if it was started as one. The program that
// runs a rig must call it first.
func Child() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
}

func child() int {
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
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	go func() { // this process ends with the rig
		_, _ = io.Copy(io.Discard, in)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r, err := history.Open(t.Dir, t.Name)
	if err == nil {
		err = roles[t.Role](ctx, t, r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name, err)
		return 1
	}
	return 0
}

// running is a process of the rig.
type running struct {
	name, role string
	cmd        *exec.Cmd
	stdin      io.Closer // nil for the shipped program, which ends by a signal
	ended      chan struct{}
	err        error // after ended is closed
	killed     bool  // by the rig; guarded by the rig's mutex
	asked      bool  // to end; likewise
}

// signal sends a signal to this process only.
func (p *running) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
}

// alive returns 1 while the process runs, and 0 afterwards.
func (p *running) alive() int {
	select {
	case <-p.ended:
		return 0
	default:
		return 1
	}
}

// terminated reports whether SIGTERM itself ended the dead process.
func (p *running) terminated() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// start starts a command, whose output goes to log.
func start(name, role string, cmd *exec.Cmd, log io.Writer, input []byte) (*running, error) {
	p := &running{name: name, role: role, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the rig, which ends its processes gracefully
	if input != nil {
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		p.stdin = in
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", name, err)
	}
	if in, ok := p.stdin.(io.Writer); ok {
		if _, err := in.Write(input); err != nil {
			return nil, fmt.Errorf("%s cannot be told what to do: %w", name, err)
		}
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}
