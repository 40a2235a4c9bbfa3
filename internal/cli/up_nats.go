//go:build unix

package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

const (
	natsDir      = "nats"      // in the data directory
	natsPortFile = "nats.port" // port and name of the last server
	natsPIDFile  = "nats.pid"  // written by the server
	natsConfFile = "nats.conf"
	natsLogFile  = "nats.log"
)

// natsMaxPayload is the largest message of the server, of [posthaste.MaxPayloadBytes] with headers.
const natsMaxPayload = posthaste.MaxPayloadBytes + 1<<20

// localNATS runs the installed nats-server with its data in the data directory. Like
// devpg.Server, it implements [localStore].
type localNATS struct {
	localServer
	home *home
	// nonce is the name of the running process among servers.
	nonce string
}

// newLocalNATS returns the server at a path, which is not started yet.
func newLocalNATS(home *home, path string, log *os.File) *localNATS {
	n := &localNATS{home: home}
	n.localServer = localServer{name: "NATS", program: "nats-server", path: path, log: log, args: n.args, serves: n.serves}
	return n
}

// startNATS starts nats-server with its data and its log in the data directory. First it
// stops a server that a killed up has left running, since two servers must not write to the
// same files.
func startNATS(ctx context.Context, home *home, port int) (*localNATS, error) {
	path, err := devbroker.NATSServer()
	if errors.Is(err, devbroker.ErrNotInstalled) {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: "nats-server is not installed",
			Hint: "install version 2.14 or newer (go install github.com/nats-io/nats-server/v2@" + devbroker.NATSVersion + "), or omit --engine nats to use PostgreSQL", Cause: err}
	}
	if err != nil {
		return nil, err
	}
	if err := stopLeftNATS(ctx, home); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home.path(natsDir), 0o700); err != nil {
		return nil, dataError("cannot be written", err)
	}
	log, err := home.create(natsLogFile)
	if err != nil {
		return nil, err
	}
	home.closers = append(home.closers, log)
	n := newLocalNATS(home, path, log)
	if err := n.takePort("nats-port", port); err != nil {
		return nil, err
	}
	if err := n.Restart(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// URL implements [localStore].
func (n *localNATS) URL() string { return "nats://" + n.address() }

// DataDir implements [localStore].
func (n *localNATS) DataDir() string { return n.home.path(natsDir) }

// args gives the next process a new name, writes its configuration, and records port and name for
// the next up.
func (n *localNATS) args() ([]string, error) {
	n.nonce = "posthaste-up-" + rand.Text()
	conf := strings.Join([]string{
		"listen: " + strconv.Quote(n.address()),
		"server_name: " + n.nonce,
		"pid_file: " + strconv.Quote(n.home.path(natsPIDFile)),
		fmt.Sprint("max_payload: ", natsMaxPayload),
		"jetstream: {store_dir: " + strconv.Quote(n.DataDir()) + ", sync_interval: \"1s\"}",
	}, "\n") + "\n"
	for name, text := range map[string]string{natsConfFile: conf, natsPortFile: fmt.Sprintln(n.port, n.nonce)} {
		if err := os.WriteFile(n.home.path(name), []byte(text), 0o600); err != nil {
			return nil, dataError("cannot be written", err)
		}
	}
	return []string{"--config", n.home.path(natsConfFile)}, nil
}

// serves reports whether the process that was started answers. A server listens after it has
// loaded its streams.
func (n *localNATS) serves(ctx context.Context, _ int) bool {
	about, err := askNATS(ctx, n.address())
	return err == nil && about.Name == n.nonce && about.JetStream
}

// natsAbout is what a server says of itself to each client.
type natsAbout struct {
	Name      string `json:"server_name"`
	JetStream bool   `json:"jetstream"`
}

// askNATS reads what a server says when a client connects.
func askNATS(ctx context.Context, address string) (about natsAbout, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return about, err
	}
	defer conn.Close()
	if limit, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(limit)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return about, err
	}
	text, is := strings.CutPrefix(line, "INFO ")
	if !is {
		return about, errors.New("it is not a NATS server")
	}
	return about, json.Unmarshal([]byte(text), &about)
}

// stopLeftNATS stops a server that a killed up has left running. It is the one that says the name
// that was recorded for this data directory. A server that shuts down listens until its streams
// are closed, so that a refused connection proves that it has ended.
func stopLeftNATS(ctx context.Context, home *home) error {
	text, err := os.ReadFile(home.path(natsPortFile))
	if err != nil {
		return nil // no server was started
	}
	var port int
	var name string
	if _, err := fmt.Sscan(string(text), &port, &name); err != nil {
		return nil
	}
	limit := time.Now().Add(leftTimeout)
	for {
		about, err := askNATS(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err == nil && about.Name != name:
			return nil // another server
		case err == nil:
			if err = terminate(home.path(natsPIDFile)); err == nil {
				err = errors.New("it was told to stop")
			}
		}
		if time.Now().After(limit) {
			return leftError("NATS", port, home.path(natsPortFile), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// terminate sends SIGTERM to the process that a file names. The file is missing once that process
// has stopped.
func terminate(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}
