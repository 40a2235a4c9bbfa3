//go:build unix

package devbroker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"time"
)

// process is a broker that is a single process.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs a command and waits until serves returns true.
func start(ctx context.Context, name string, cmd *exec.Cmd, serves func() bool) (*process, error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s did not start: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	var ending error
	go func() {
		ending = cmd.Wait()
		close(p.ended)
	}()
	for !serves() {
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s did not start: %w\n%s", name, ending, said.Bytes())
		case <-ctx.Done():
			p.end(syscall.SIGKILL)
			return nil, fmt.Errorf("%s did not start: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return p, nil
}

// end signals the process and waits for its end. After 20 s it kills it.
func (p *process) end(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// answers reports whether the server at address responds to a line with text that begins
// with want.
func answers(ctx context.Context, address, line, want string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(line)); err != nil {
		return false
	}
	answer := make([]byte, len(want))
	n, _ := c.Read(answer)
	return string(answer[:n]) == want
}
