//go:build unix

package devbroker

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// natsEnv tells a process of a test's program that it is a NATS server: its port and
// its directory.
const natsEnv = "POSTHASTE_TEST_NATS"

// NATSProcess is a NATS server with JetStream in a process of its own, which can be
// killed. Its methods are not for concurrent use.
type NATSProcess struct {
	dir     string
	port    int
	process *process
}

// StartNATSProcess starts a server whose streams lie below dir, and waits until it
// takes connections. It is this program once more, whose TestMain begins with
// [ServeNATS].
func StartNATSProcess(ctx context.Context, dir string) (*NATSProcess, error) {
	port, err := TakePort()
	if err != nil {
		return nil, err
	}
	n := &NATSProcess{dir: dir, port: port}
	return n, n.Start(ctx)
}

// ServeNATS serves, and does not return, in a process that [StartNATSProcess] has
// started. In others it does nothing.
func ServeNATS() {
	port, dir, found := strings.Cut(os.Getenv(natsEnv), " ")
	if !found {
		return
	}
	number, err := strconv.Atoi(port)
	if err == nil {
		_, err = StartNATS(context.Background(), dir, func(o *server.Options) { o.Port = number })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // the parent's end is this one's
	os.Exit(0)
}

// Start starts it again after Kill, with the streams that it had.
func (n *NATSProcess) Start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", natsEnv, n.port, n.dir))
	if _, err := cmd.StdinPipe(); err != nil { // held as long as this process lives
		return err
	}
	n.process, err = start(ctx, "NATS", cmd, func() bool { return answers(ctx, n.Address(), "", "INFO") })
	return err
}

// URL is where it is reached.
func (n *NATSProcess) URL() string { return "nats://" + n.Address() }

// Address is its host and port.
func (n *NATSProcess) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// Kill ends it with SIGKILL, as a crash of the machine would.
func (n *NATSProcess) Kill() { n.process.end(syscall.SIGKILL) }

// Stop ends it for good.
func (n *NATSProcess) Stop() { n.Kill() }
