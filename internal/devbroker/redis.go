//go:build unix

package devbroker

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"syscall"
)

// Redis is a server on the loopback address. Its methods are not for concurrent use.
type Redis struct {
	path    string
	args    []string
	port    int
	bus     int
	process *process
}

// StartRedis starts a server whose data lies below dir, and waits until it takes
// connections. It has an append-only file, written to disk every second. further
// are arguments as in its configuration, such as "--maxmemory", "1mb". It fails
// with [ErrNotInstalled] where there is none.
func StartRedis(ctx context.Context, dir string, further ...string) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("Redis %w (Debian: apt-get install redis-server)", ErrNotInstalled)
	}
	r := &Redis{path: path}
	if r.port, err = TakePort(); err != nil {
		return nil, err
	}
	r.args = append([]string{"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--daemonize", "no"}, further...)
	return r, r.Start(ctx)
}

// StartRedisNode is StartRedis for a server that can be one of a cluster, and is one of
// its own at first.
func StartRedisNode(ctx context.Context, dir string, further ...string) (*Redis, error) {
	bus, err := TakePort()
	if err != nil {
		return nil, err
	}
	r, err := StartRedis(ctx, dir, append([]string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus)}, further...)...)
	if r != nil {
		r.bus = bus
	}
	return r, err
}

// Start starts it again after Kill or Shutdown, with the data that it had.
func (r *Redis) Start(ctx context.Context) error {
	p, err := start(ctx, "Redis", exec.CommandContext(context.WithoutCancel(ctx), r.path, r.args...), func() bool {
		// Also one that asks for a password serves.
		return answers(ctx, r.Address(), "PING\r\n", "+PONG") || answers(ctx, r.Address(), "PING\r\n", "-NOAU")
	})
	if err == nil { // else the one before, which has ended
		r.process = p
	}
	return err
}

// URL is where it is reached.
func (r *Redis) URL() string { return "redis://" + r.Address() }

// Address is its host and port.
func (r *Redis) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// BusPort is where other servers of its cluster reach it.
func (r *Redis) BusPort() int { return r.bus }

// PID is its process, for measuring what it costs.
func (r *Redis) PID() int { return r.process.cmd.Process.Pid }

// Kill ends it with SIGKILL, as a crash of the machine would.
func (r *Redis) Kill() { r.process.end(syscall.SIGKILL) }

// Shutdown stops it in order, with its data kept.
func (r *Redis) Shutdown() { r.process.end(syscall.SIGTERM) }

// Stop ends it for good.
func (r *Redis) Stop() { r.Kill() }
