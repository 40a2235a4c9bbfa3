//go:build unix

// Package devbroker starts message brokers that are installed on this machine, on ports of
// their own and for the duration of a test or benchmark.
package devbroker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// ErrNotInstalled says that a broker is not installed.
var ErrNotInstalled = errors.New("is not installed on this machine")

// RabbitMQ is a broker on the loopback address. Its methods are not safe for concurrent
// use.
type RabbitMQ struct {
	dir     string
	port    int
	epmd    int
	dist    int
	node    string
	process *exec.Cmd
	names   *exec.Cmd // epmd, through which rabbitmqctl finds it
}

// sbin is the directory of its programs on Debian and others.
const sbin = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"

// StartRabbitMQ starts a broker that stores its data below dir, and waits until it accepts
// connections of AMQP 0-9-1 and 1.0. further are lines for rabbitmq.conf. StartRabbitMQ fails with
// [ErrNotInstalled] if RabbitMQ is not installed.
func StartRabbitMQ(ctx context.Context, dir string, further ...string) (*RabbitMQ, error) {
	found, _ := filepath.Glob(sbin)
	if len(found) == 0 {
		return nil, fmt.Errorf("RabbitMQ %w (Debian: apt-get install rabbitmq-server)", ErrNotInstalled)
	}
	r := &RabbitMQ{dir: dir}
	for _, port := range []*int{&r.port, &r.epmd, &r.dist} {
		var err error
		if *port, err = TakePort(); err != nil {
			return nil, err
		}
	}
	name := make([]byte, 6)
	rand.Read(name)
	r.node = "posthaste-" + hex.EncodeToString(name) + "@localhost"
	conf := append([]string{
		"listeners.tcp.default = 127.0.0.1:" + strconv.Itoa(r.port),
		"loopback_users.guest = true",
		"disk_free_limit.absolute = 50MB",
		"vm_memory_high_watermark.absolute = 2GB",
		"log.file.level = warning",
		"collect_statistics_interval = 60000",
	}, further...)
	var text bytes.Buffer
	for _, line := range conf {
		fmt.Fprintln(&text, line)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "rabbitmq.conf"), text.Bytes(), 0o600), os.WriteFile(filepath.Join(dir, "plugins"), []byte("[rabbitmq_amqp1_0].\n"), 0o600)); err != nil {
		return nil, err
	}
	r.names = r.command(ctx, "epmd", "-port", strconv.Itoa(r.epmd), "-address", "127.0.0.1")
	if err := r.names.Start(); err != nil {
		return nil, fmt.Errorf("RabbitMQ %w: epmd: %w", ErrNotInstalled, err)
	}
	if err := r.Start(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

// command returns one of its programs, with its environment, in a process group.
func (r *RabbitMQ) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	found, _ := filepath.Glob(sbin)
	path := name
	if p := filepath.Join(found[len(found)-1], name); executable(p) {
		path = p
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	c.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return len(e) > 8 && e[:8] == "RABBITMQ" }),
		"HOME="+r.dir,
		"ERL_EPMD_PORT="+strconv.Itoa(r.epmd),
		"RABBITMQ_NODENAME="+r.node,
		"RABBITMQ_DIST_PORT="+strconv.Itoa(r.dist),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(r.dir, "data"),
		"RABBITMQ_LOG_BASE="+filepath.Join(r.dir, "log"),
		"RABBITMQ_CONFIG_FILE="+filepath.Join(r.dir, "rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(r.dir, "plugins"),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"ERL_CRASH_DUMP_SECONDS=0")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// URL returns its URL, with its user.
func (r *RabbitMQ) URL() string { return "amqp://guest:guest@" + r.Address() + "/" }

// Address returns its host and port.
func (r *RabbitMQ) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// PID returns the process group of the broker, for measuring its cost.
func (r *RabbitMQ) PID() int { return r.process.Process.Pid }

// Start starts the broker again after Kill or Shutdown, with its data.
func (r *RabbitMQ) Start(ctx context.Context) error {
	r.process = r.command(ctx, "rabbitmq-server")
	var said bytes.Buffer
	r.process.Stdout, r.process.Stderr = &said, &said
	r.process.WaitDelay = time.Second
	if err := r.process.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func(process *exec.Cmd) { ended <- process.Wait() }(r.process)
	for {
		if serves(ctx, r.Address()) {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("RabbitMQ did not start: %w\n%s", err, said.Bytes())
		case <-ctx.Done():
			r.Kill()
			return fmt.Errorf("RabbitMQ did not start: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// serves reports whether the broker speaks AMQP: it answers a wrong protocol header with the
// right one.
func serves(ctx context.Context, address string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("AMQP\x00\x00\x00\x00")); err != nil {
		return false
	}
	answer := make([]byte, 4)
	n, _ := c.Read(answer)
	return string(answer[:n]) == "AMQP"
}

// Kill kills it with SIGKILL, like a crash of the machine.
func (r *RabbitMQ) Kill() { r.end(r.process, syscall.SIGKILL) }

// Shutdown stops it in order and keeps its data.
func (r *RabbitMQ) Shutdown() { r.end(r.process, syscall.SIGTERM) }

// Stop kills it; it is not started again.
func (r *RabbitMQ) Stop() {
	r.end(r.process, syscall.SIGKILL)
	r.end(r.names, syscall.SIGKILL)
	_, _ = r.names.Process.Wait()
}

// end signals a process group and waits until it has ended.
func (r *RabbitMQ) end(c *exec.Cmd, s syscall.Signal) {
	if c == nil || c.Process == nil {
		return
	}
	_ = syscall.Kill(-c.Process.Pid, s)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until) && c == r.process; time.Sleep(10 * time.Millisecond) {
		if syscall.Kill(-c.Process.Pid, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
}

// Sync writes the declared queues to disk, which the broker otherwise does some time later.
// A crash before that can leave a classic queue undeclared, and a quorum queue without its
// log and forever without a leader.
func (r *RabbitMQ) Sync(ctx context.Context) error {
	_, err := r.Control(ctx, "eval", "mnesia:sync_log(), [dets:sync(T) || T <- dets:all()].")
	return err
}

// Control runs rabbitmqctl, which takes a second or two, and returns its output.
func (r *RabbitMQ) Control(ctx context.Context, args ...string) (string, error) {
	out, err := r.command(ctx, "rabbitmqctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}
