//go:build unix

package chaos

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

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
