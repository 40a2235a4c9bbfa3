//go:build unix

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/redis"
)

// redisStore is a Redis with an append-only file.
type redisStore struct {
	*rig
	server *devbroker.Redis
	direct *goredis.Client
}

func (s *redisStore) cast() []string {
	return []string{roleServer, roleSender, roleSender, roleHTTPSender, roleWorker, roleWorker, roleWorker, roleHTTPReceiver, roleMailWorker, roleMailWorker}
}

func (s *redisStore) queues() []string {
	return []string{Plain, Ordered, Once, Mails, Shared, Deduped, Limited, Ticks}
}

func (s *redisStore) deadliest() Fault { return KillRedis }

func (s *redisStore) variable() string { return "REDIS_URL" }

func (s *redisStore) address() string { return s.server.Address() }

func (s *redisStore) urlAt(address, _ string) (string, error) { return "redis://" + address, nil }

// tellsEnd returns true for all data, because everything that Redis sends says that a command
// has run, or that a bell has rung.
func (s *redisStore) tellsEnd(sent []byte) bool { return len(sent) > 0 }

func (s *redisStore) start(ctx context.Context) (posthaste.Store, error) {
	dir := filepath.Join(s.Dir, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	server, err := devbroker.StartRedis(ctx, dir, "--appendfsync", s.Fsync, "--maxmemory-policy", "noeviction")
	if err != nil {
		return nil, err
	}
	s.server = server
	s.direct = goredis.NewClient(&goredis.Options{Addr: s.server.Address()})
	return redis.Open(ctx, s.server.URL())
}

func (s *redisStore) stop(context.Context) error {
	if s.direct != nil {
		s.direct.Close()
	}
	if s.server != nil {
		s.server.Stop()
	}
	return nil
}

func (s *redisStore) strikes() map[Fault]strike {
	return map[Fault]strike{
		KillRedis: func() func(context.Context) error { return s.outage(KillRedis, s.crash, s.server.Start) },
		ShutRedis: func() func(context.Context) error {
			return s.outage(ShutRedis, func(context.Context) error { s.server.Shutdown(); return nil }, s.server.Start)
		},
		FullMemory: s.fillMemory,
		Rewrite: func() func(context.Context) error {
			return func(ctx context.Context) error {
				return s.during(Rewrite, "", func() (int, error) {
					if err := s.direct.BgRewriteAOF(ctx).Err(); err != nil {
						return 0, err
					}
					return 1, nil
				})
			}
		},
	}
}

// crash kills Redis. With appendfsync everysec, Redis answers before it has written if its
// disk is being flushed, and such an answer is lost in a crash. That is documented behavior,
// which this rig could not distinguish from a loss by the engine. So Redis is configured to
// write first, from a moment before it is killed until it starts again.
func (s *redisStore) crash(ctx context.Context) error {
	if s.Fsync != fsyncAlways {
		if err := s.direct.ConfigSet(ctx, "appendfsync", "no").Err(); err != nil {
			return err
		}
	}
	s.server.Kill()
	return nil
}

// When Redis flushes its append-only file.
const (
	fsyncEverySecond = "everysec"
	fsyncAlways      = "always"
)

// fillMemory leaves Redis no memory for a while.
func (s *redisStore) fillMemory() func(context.Context) error {
	long := time.Second + time.Duration(s.random.Int64N(int64(2*time.Second)))
	return func(ctx context.Context) error {
		return s.during(FullMemory, "", func() (struck int, err error) {
			always := context.WithoutCancel(ctx)
			if err = s.direct.ConfigSet(always, "maxmemory", "1mb").Err(); err == nil {
				struck = 1
			}
			hold(ctx, long)
			// Always restore the memory: a run must not end without it. Redis may be
			// unavailable.
			for range 300 {
				last := s.direct.ConfigSet(always, "maxmemory", "0").Err()
				if last == nil {
					return struck, err
				}
				err = fmt.Errorf("memory cannot be given back: %w", last)
				time.Sleep(100 * time.Millisecond)
			}
			return struck, err
		})
	}
}

// emptied are the keys of a queue that do not exist when no messages wait or are handed out.
var emptied = []string{"run", "due", "alone", "ready0", "ready1", "ready2", "ready3", "claims", "claim", "open", "timed", "dead",
	"aside.due", "aside.alone", "aside0", "aside1", "aside2", "aside3", "apart", "aside.apart", "wait", "held", "stopped", "aside.wait"}

// look records the messages left in Redis: as the engine reports them, and as keys.
func (s *redisStore) look(ctx context.Context) error {
	found, err := s.engine.Doctor(ctx)
	if err != nil {
		return err
	}
	faults := 0
	for _, f := range found {
		if f.Fault {
			faults++
			s.Log.Error("doctor", "check", f.Check, "message", f.Message)
		}
	}
	s.leftBehind("faults that doctor finds", faults)
	keys, err := s.direct.Keys(ctx, "{posthaste:*}:*").Result()
	if err != nil {
		return err
	}
	left := 0
	for _, key := range keys {
		if _, what, ok := strings.Cut(key, "}:"); ok && slices.Contains(emptied, what) {
			left++
			s.Log.Error("something is left", "key", key)
		}
	}
	s.leftBehind("keys of messages that wait or are handed out", left)
	return nil
}
