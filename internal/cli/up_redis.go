//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

const (
	redisDir      = "redis"      // in the data directory
	redisPortFile = "redis.port" // port of the last server
	redisLogFile  = "redis.log"
)

// localRedis runs the installed redis-server with its data in the data directory. Like
// devpg.Server, it implements [localStore].
type localRedis struct {
	path string
	home *home
	log  *os.File
	port int

	running atomic.Pointer[redisProcess]
}

// redisProcess is one process of the server.
type redisProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *redisProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// startRedis starts redis-server with its data and its log in the data directory. First it
// stops a server that a killed up has left running, since two servers must not write to the
// same file.
func startRedis(ctx context.Context, home *home, port int) (*localRedis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: "redis-server is not installed",
			Hint: "install version 7.0 or newer (Debian: apt-get install redis-server), or omit --engine redis to use PostgreSQL"}
	}
	if err := stopLeftRedis(ctx, home); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home.path(redisDir), 0o700); err != nil {
		return nil, dataError("cannot be written", err)
	}
	// Redis reports a port that is in use only in its log.
	listener, err := listenOn("redis-port", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	r := &localRedis{path: path, home: home, port: listener.Addr().(*net.TCPAddr).Port}
	listener.Close()
	if r.log, err = home.create(redisLogFile); err != nil {
		return nil, err
	}
	home.closers = append(home.closers, r.log)
	if err := os.WriteFile(home.path(redisPortFile), []byte(strconv.Itoa(r.port)), 0o600); err != nil {
		return nil, dataError("cannot be written", err)
	}
	if err := r.Restart(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// URL implements [localStore].
func (r *localRedis) URL() string {
	return "redis://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) + "/0"
}

// DataDir implements [localStore].
func (r *localRedis) DataDir() string { return r.home.path(redisDir) }

// Done implements [localStore].
func (r *localRedis) Done() <-chan struct{} { return r.running.Load().ended }

// Restart implements [localStore]. It waits until the server answers.
func (r *localRedis) Restart(ctx context.Context) error {
	p := &redisProcess{ended: make(chan struct{})}
	p.cmd = exec.Command(r.path, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.DataDir(), "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
	p.cmd.Stdout, p.cmd.Stderr = r.log, r.log
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
		return fmt.Errorf("start redis-server: %w", err)
	}
	r.running.Store(p)
	client := r.client()
	defer client.Close()
	for !serves(ctx, client, p.cmd.Process.Pid) { // includes loading of the data
		select {
		case <-p.ended:
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: "Redis did not start: " + r.lastWords(), Hint: "see its log " + r.log.Name()}
		case <-ctx.Done():
			p.kill()
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// serves reports whether the process pid answers, and not another process that took the
// port.
func serves(ctx context.Context, client *goredis.Client, pid int) bool {
	about, err := client.Info(ctx, "server").Result()
	return err == nil && strings.Contains(about, fmt.Sprintf("\nprocess_id:%d\r\n", pid)) && client.Ping(ctx).Err() == nil
}

// Stop implements [localStore]. It kills the server when ctx ends.
func (r *localRedis) Stop(ctx context.Context) error {
	p := r.running.Load()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		p.kill()
		return errors.New("redis-server had to be killed")
	}
}

func (r *localRedis) client() *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)), MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
}

// lastWords returns the last lines of the log.
func (r *localRedis) lastWords() string {
	text, err := os.ReadFile(r.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[0] == "" {
		return "its log is empty"
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// leftTimeout bounds the shutdown of a server that a killed up has left running.
const leftTimeout = 30 * time.Second

// stopLeftRedis stops a server that a killed up has left running, if it uses this data
// directory. Only a refused connection proves that there is no server: a server that shuts
// down closes connections, and an overloaded one does not answer.
func stopLeftRedis(ctx context.Context, home *home) error {
	text, err := os.ReadFile(home.path(redisPortFile))
	if err != nil {
		return nil // no server was started
	}
	port, err := strconv.Atoi(string(text))
	if err != nil {
		return nil
	}
	left := &localRedis{port: port}
	client := left.client()
	defer client.Close()
	limit := time.Now().Add(leftTimeout)
	for {
		dir, err := client.ConfigGet(ctx, "dir").Result()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err == nil && !sameDir(dir["dir"], home.path(redisDir)), goredis.IsAuthError(err):
			return nil // another server; this one has no password
		case err == nil:
			err = client.Shutdown(ctx).Err() // the reply is a closed connection
		}
		if time.Now().After(limit) {
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Cause: err,
				Message: fmt.Sprintf("a Redis on port %d, possibly left by an earlier up, does not stop: %v", port, err),
				Hint:    "stop the program on that port; if it is not a Redis of this directory, remove " + home.path(redisPortFile)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sameDir reports whether a and b are the same directory. Redis reports its directory
// without symbolic links.
func sameDir(a, b string) bool {
	a, errA := filepath.EvalSymlinks(a)
	b, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && a == b
}
