//go:build unix

package devbroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// NATSVersion is the version of nats-server that scripts/needs builds. It equals the
// version in go.mod.
const NATSVersion = "v2.15.2"

// NATS is a NATS server with JetStream on the loopback address. Its methods are not
// safe for concurrent use.
type NATS struct {
	path    string
	dir     string
	port    int
	process *process
}

// StartNATS starts a server that stores its streams below dir, and waits until it
// accepts connections. further are lines for its configuration file; a later value
// replaces an earlier one. StartNATS fails with [ErrNotInstalled] if there is no
// nats-server in the cache directory or in PATH.
func StartNATS(ctx context.Context, dir string, further ...string) (*NATS, error) {
	port, err := TakePort()
	if err != nil {
		return nil, err
	}
	return startNATS(ctx, dir, port, further)
}

// StartNATSTLS starts a server that accepts only TLS connections, at the address of
// the certificates.
func StartNATSTLS(ctx context.Context, dir string, c *Certificates) (*NATS, error) {
	return startNATS(ctx, dir, c.port, c.nats())
}

func startNATS(ctx context.Context, dir string, port int, further []string) (*NATS, error) {
	path, err := NATSServer()
	if err != nil {
		return nil, err
	}
	n := &NATS{path: path, dir: dir, port: port}
	settings := append([]string{
		"listen: " + strconv.Quote(n.Address()),
		"jetstream: {store_dir: " + strconv.Quote(filepath.Join(dir, "streams")) + "}",
	}, further...)
	if err := os.WriteFile(n.configuration(), []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	return n, n.Start(ctx)
}

// NATSServer returns the path of the program that scripts/needs built, or else of the one
// in PATH, which may have another version.
func NATSServer() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	built := filepath.Join(cache, "posthaste", "nats-server-"+NATSVersion)
	for _, name := range []string{built, "nats-server"} {
		path, err := exec.LookPath(name)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("cannot run nats-server: %w", err)
		}
	}
	return "", fmt.Errorf("NATS %w (in the source tree scripts/needs builds it; elsewhere: go install github.com/nats-io/nats-server/v2@%s)", ErrNotInstalled, NATSVersion)
}

func (n *NATS) configuration() string { return filepath.Join(n.dir, "nats.conf") }

// Start starts the server again after Kill or Shutdown, on the same port and with its
// streams.
func (n *NATS) Start(ctx context.Context) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), n.path, "--config", n.configuration())
	// The server sends the first line.
	p, err := start(ctx, "NATS", cmd, func() bool { return answers(ctx, n.Address(), "", "INFO") })
	if err == nil { // otherwise keep the earlier process, which has ended
		n.process = p
	}
	return err
}

// URL returns its URL.
func (n *NATS) URL() string { return "nats://" + n.Address() }

// Address returns its host and port.
func (n *NATS) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// PID returns the id of its process, which changes when it is started again.
func (n *NATS) PID() int { return n.process.cmd.Process.Pid }

// Kill kills it with SIGKILL, like a crash of the machine.
func (n *NATS) Kill() { n.process.end(syscall.SIGKILL) }

// Shutdown stops it in order and keeps its data.
func (n *NATS) Shutdown() { n.process.end(syscall.SIGTERM) }

// Stop kills it; it is not started again.
func (n *NATS) Stop() { n.Kill() }
