package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/redis"
)

// redisSettings are the settings in the results of runs on Redis.
var redisSettings = []string{"appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "io-threads"}

// redisStore is the Redis of one run, with the run's keys.
type redisStore struct {
	url    string
	prefix string
	engine *redis.Engine
	// client is used for everything except for the engine.
	client *goredis.Client
	meter  cpumeter.Meter
	stop   func() // ends the server; nil if the options name it
	dir    string // of that server, removed at the end
}

// openRedis starts the installed Redis, or connects to the given one, and records its version
// and settings in the result.
func openRedis(ctx context.Context, r *run) (_ *redisStore, err error) {
	s := &redisStore{url: r.o.RedisURL, prefix: "posthaste-bench-" + token()}
	defer func() {
		if err != nil {
			err = errors.Join(err, closed(ctx, s))
		}
	}()
	m := &r.result.Machine
	m.Cores = runtime.NumCPU()
	if s.url == "" {
		m.Embedded = true
		if s.dir, err = clusterDir(r.o.DataDir); err != nil {
			return nil, err
		}
		if s.url, s.stop, err = startBroker(ctx, "redis", s.dir); err != nil {
			return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "redis_url", Message: err.Error(), Hint: "install it, or name a Redis with --redis-url"}
		}
		if err := m.measureFsync(s.dir); err != nil {
			return nil, err
		}
		if inMemory(s.dir) {
			r.invalid("the data is in memory (%s), where a sync costs nothing: choose another data directory", s.dir)
		}
	}
	if s.engine, err = redis.Open(ctx, s.url, redis.WithPrefix(s.prefix)); err != nil {
		return nil, err
	}
	o, err := goredis.ParseURL(s.url)
	if err != nil {
		return nil, err // the engine has accepted it
	}
	o.PoolSize, o.MaxRetries, o.ContextTimeoutEnabled = loopConnections, -1, true
	s.client = goredis.NewClient(o)
	return s, s.describe(ctx, r)
}

// describe records the server's version and settings. Figures that were measured without an
// append-only file are not valid.
func (s *redisStore) describe(ctx context.Context, r *run) error {
	m := &r.result.Machine
	m.Settings = map[string]string{}
	text, err := s.client.Info(ctx, "server", "persistence").Result()
	if err != nil {
		return fmt.Errorf("the server's version cannot be read: %w", err)
	}
	about := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			about[name] = value
		}
	}
	m.RedisVersion = about["redis_version"]
	for _, name := range redisSettings {
		if have, err := s.client.ConfigGet(ctx, name).Result(); err == nil { // a given server may not allow it
			m.Settings[name] = have[name]
		}
	}
	if pid, err := strconv.Atoi(about["process_id"]); err == nil && onLoopback(s.url) {
		s.meter = cpumeter.Process(pid, "redis-server")
	}
	if about["aof_enabled"] != "1" {
		r.invalid("appendonly is off: messages are not durable, so the figures cannot be compared")
	}
	if m.Settings["appendfsync"] == "no" {
		r.invalid("appendfsync is no: messages are not durable, so the figures cannot be compared")
	}
	return nil
}

// onLoopback reports whether a URL names a server on this machine. The process id of a server
// elsewhere could be that of another process here.
func onLoopback(at string) bool {
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return ip.IsLoopback()
	}
	return u.Hostname() == "localhost"
}

// loopKey returns the name of a key of the loops, with the run's prefix.
func (s *redisStore) loopKey(name string) string { return "{" + s.prefix + ":loop}:" + name }

// close ends the server, or removes the run's keys from a given one. It may be called on a
// store that did not open.
func (s *redisStore) close(ctx context.Context) (err error) {
	if s.client != nil {
		if s.dir == "" {
			err = s.remove(ctx)
		}
		err = errors.Join(err, s.client.Close())
	}
	if s.engine != nil {
		s.engine.Close()
	}
	return errors.Join(err, endServers(s.stop, s.dir))
}

// remove removes all keys of the run. It scans every key of the server in small steps, so that
// other clients do not wait for it.
func (s *redisStore) remove(ctx context.Context) error {
	keys := s.client.Scan(ctx, 0, "{"+s.prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := s.client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("keys that begin with {%s are left behind: %w", s.prefix, err)
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("keys that begin with {%s are left behind: %w", s.prefix, err)
	}
	return nil
}
