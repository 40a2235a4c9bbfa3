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
	"strconv"
	"strings"
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
	localServer
	home *home
}

// newLocalRedis returns the server at a path, which is not started yet.
func newLocalRedis(home *home, path string, log *os.File) *localRedis {
	r := &localRedis{home: home}
	r.localServer = localServer{name: "Redis", program: "redis-server", path: path, log: log, args: r.args, serves: r.serves}
	return r
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
	log, err := home.create(redisLogFile)
	if err != nil {
		return nil, err
	}
	home.closers = append(home.closers, log)
	r := newLocalRedis(home, path, log)
	if err := r.takePort("redis-port", port); err != nil {
		return nil, err
	}
	if err := os.WriteFile(home.path(redisPortFile), []byte(strconv.Itoa(r.port)), 0o600); err != nil {
		return nil, dataError("cannot be written", err)
	}
	if err := r.Restart(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// URL implements [localStore].
func (r *localRedis) URL() string { return "redis://" + r.address() + "/0" }

// DataDir implements [localStore].
func (r *localRedis) DataDir() string { return r.home.path(redisDir) }

func (r *localRedis) args() ([]string, error) {
	return []string{"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.DataDir(), "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction"}, nil
}

// serves reports whether the process pid answers, and not another process that took the
// port.
func (r *localRedis) serves(ctx context.Context, pid int) bool {
	client := redisAt(r.address())
	defer client.Close()
	about, err := client.Info(ctx, "server").Result()
	return err == nil && strings.Contains(about, fmt.Sprintf("\nprocess_id:%d\r\n", pid)) && client.Ping(ctx).Err() == nil
}

func redisAt(address string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
}

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
	client := redisAt(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
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
			return leftError("Redis", port, home.path(redisPortFile), err)
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
