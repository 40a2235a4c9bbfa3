//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// localServer runs a server that is installed. It implements the parts of [localStore] that
// do not depend on its protocol.
type localServer struct {
	name    string // for a person
	program string
	path    string
	args    func() ([]string, error)
	port    int
	log     *os.File
	// serves reports whether the process that was started answers, and not another process
	// that took the port.
	serves func(ctx context.Context, pid int) bool

	running atomic.Pointer[serverProcess]
}

// serverProcess is one process of a server.
type serverProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *serverProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// address returns its host and port.
func (s *localServer) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// takePort decides on which port the server listens. The server would report a port that is in use
// only in its log.
func (s *localServer) takePort(flag string, port int) error {
	listener, err := listenOn(flag, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	return listener.Close()
}

// Done implements [localStore].
func (s *localServer) Done() <-chan struct{} { return s.running.Load().ended }

// Restart implements [localStore]. It waits until the server answers.
func (s *localServer) Restart(ctx context.Context) error {
	args, err := s.args()
	if err != nil {
		return err
	}
	p := &serverProcess{cmd: exec.Command(s.path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = s.log, s.log
	p.cmd.SysProcAttr = childOf() // so that Ctrl-C reaches only up, which stops the server last
	started := make(chan error, 1)
	go func() {
		// On Linux the server ends with the thread that started it.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	s.running.Store(p)
	for !s.serves(ctx, p.cmd.Process.Pid) { // includes loading of the data
		select {
		case <-p.ended:
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: s.name + " did not start: " + s.lastWords(), Hint: "see its log " + s.log.Name()}
		case <-ctx.Done():
			p.kill()
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Stop implements [localStore]. It kills the server when ctx ends.
func (s *localServer) Stop(ctx context.Context) error {
	p := s.running.Load()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		p.kill()
		return errors.New(s.program + " had to be killed")
	}
}

// lastWords returns the last lines of the log.
func (s *localServer) lastWords() string {
	text, err := os.ReadFile(s.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[0] == "" {
		return "its log is empty"
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// leftTimeout bounds the shutdown of a server that a killed up has left running.
const leftTimeout = 30 * time.Second

// leftError returns the error that a server which a killed up may have left running does not
// stop. file is the file that names it.
func leftError(name string, port int, file string, cause error) error {
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Cause: cause,
		Message: fmt.Sprintf("a %s on port %d, possibly left by an earlier up, does not stop: %v", name, port, cause),
		Hint:    fmt.Sprintf("stop the program on that port; if it is not a %s of this directory, remove %s", name, file)}
}
