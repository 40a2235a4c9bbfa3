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

// Redis is a server on the loopback address. Its methods are not safe for concurrent use.
type Redis struct {
	path    string
	args    []string
	port    int
	bus     int
	process *process
}

// StartRedis starts a server that stores its data below dir, and waits until it accepts
// connections. It has an append-only file, which is synced every second. further are
// arguments as in its configuration, such as "--maxmemory", "1mb". StartRedis fails with
// [ErrNotInstalled] if Redis is not installed.
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

// StartRedisNode is [StartRedis] for a server that can join a cluster. At first it is a
// cluster by itself.
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

// Start starts the server again after Kill or Shutdown, with its data.
func (r *Redis) Start(ctx context.Context) error {
	p, err := start(ctx, "Redis", exec.CommandContext(context.WithoutCancel(ctx), r.path, r.args...), func() bool {
		// A server that requires a password is ready, too.
		return answers(ctx, r.Address(), "PING\r\n", "+PONG") || answers(ctx, r.Address(), "PING\r\n", "-NOAU")
	})
	if err == nil { // otherwise keep the earlier process, which has ended
		r.process = p
	}
	return err
}

// URL returns its URL.
func (r *Redis) URL() string { return "redis://" + r.Address() }

// Address returns its host and port.
func (r *Redis) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// BusPort returns the port for other servers of its cluster.
func (r *Redis) BusPort() int { return r.bus }

// PID returns its process id, for measuring its cost.
func (r *Redis) PID() int { return r.process.cmd.Process.Pid }

// Kill kills it with SIGKILL, like a crash of the machine.
func (r *Redis) Kill() { r.process.end(syscall.SIGKILL) }

// Shutdown stops it in order and keeps its data.
func (r *Redis) Shutdown() { r.process.end(syscall.SIGTERM) }

// Stop kills it; it is not started again.
func (r *Redis) Stop() { r.Kill() }
