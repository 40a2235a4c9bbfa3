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
	redisPortFile = "redis.port" // where the last one listened
	redisLogFile  = "redis.log"
)

// localRedis is the Redis of up: the machine's redis-server, with its data in the
// data directory. Its methods are those of devpg.Server, and as safe.
type localRedis struct {
	path string
	home *home
	log  *os.File
	port int

	running atomic.Pointer[redisProcess]
}

// redisProcess is one run of it.
type redisProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *redisProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// startRedis starts redis-server with its data and its log in the data directory. One
// that a killed up has left behind is stopped first: two must not write one file.
func startRedis(ctx context.Context, home *home, port int) (*localRedis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: "no redis-server is installed on this machine",
			Hint: "install one of version 7.0 or newer (Debian: apt-get install redis-server), or leave out --engine redis: up brings PostgreSQL itself"}
	}
	if err := stopLeftRedis(ctx, home); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home.path(redisDir), 0o700); err != nil {
		return nil, dataError("cannot be written", err)
	}
	// Redis itself would only say in its log that the port is taken.
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

// URL is where it is reached.
func (r *localRedis) URL() string {
	return "redis://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) + "/0"
}

// DataDir is where its data lie.
func (r *localRedis) DataDir() string { return r.home.path(redisDir) }

// Done is closed when it has ended.
func (r *localRedis) Done() <-chan struct{} { return r.running.Load().ended }

// Restart starts it, also after it has ended, and waits until it serves.
func (r *localRedis) Restart(ctx context.Context) error {
	p := &redisProcess{ended: make(chan struct{})}
	p.cmd = exec.Command(r.path, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.DataDir(), "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
	p.cmd.Stdout, p.cmd.Stderr = r.log, r.log
	p.cmd.SysProcAttr = childOf() // Ctrl-C is for up, which stops it last
	started := make(chan error, 1)
	go func() {
		// On Linux it ends with the thread that started it.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("redis-server did not start: %w", err)
	}
	r.running.Store(p)
	client := r.client()
	defer client.Close()
	for !serves(ctx, client, p.cmd.Process.Pid) { // also while it loads its data
		select {
		case <-p.ended:
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Message: "Redis did not start: " + r.lastWords(), Hint: "its log is " + r.log.Name()}
		case <-ctx.Done():
			p.kill()
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// serves says whether it is this process that answers, and not one that took the port
// meanwhile: the port is ours as soon as one answer is.
func serves(ctx context.Context, client *goredis.Client, pid int) bool {
	about, err := client.Info(ctx, "server").Result()
	return err == nil && strings.Contains(about, fmt.Sprintf("\nprocess_id:%d\r\n", pid)) && client.Ping(ctx).Err() == nil
}

// Stop ends it in order, and by force where that takes longer than ctx.
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

// lastWords is the end of its log.
func (r *localRedis) lastWords() string {
	text, err := os.ReadFile(r.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[0] == "" {
		return "it said nothing"
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// leftPatience is how long a Redis that was left behind may take to end.
const leftPatience = 30 * time.Second

// stopLeftRedis stops the server that an up which was killed has left behind, if it
// is the one of this data directory. Only a refused connection says that there is
// none: one that is ending hangs up, and one that is starved says nothing.
func stopLeftRedis(ctx context.Context, home *home) error {
	text, err := os.ReadFile(home.path(redisPortFile))
	if err != nil {
		return nil // there was none
	}
	port, err := strconv.Atoi(string(text))
	if err != nil {
		return nil
	}
	left := &localRedis{port: port}
	client := left.client()
	defer client.Close()
	limit := time.Now().Add(leftPatience)
	for {
		dir, err := client.ConfigGet(ctx, "dir").Result()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err == nil && !sameDir(dir["dir"], home.path(redisDir)), err != nil && strings.HasPrefix(err.Error(), "NOAUTH"):
			return nil // somebody else's: this one has no password
		case err == nil:
			err = client.Shutdown(ctx).Err() // it answers by hanging up
		}
		if time.Now().After(limit) {
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "engine", Cause: err,
				Message: fmt.Sprintf("the Redis that an earlier up may have left behind on port %d does not end: %v", port, err),
				Hint:    "stop what listens there; if that is no Redis of this directory, remove " + home.path(redisPortFile)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sameDir says whether two names are of one directory: Redis tells its own without
// symbolic links.
func sameDir(a, b string) bool {
	a, errA := filepath.EvalSymlinks(a)
	b, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && a == b
}
