package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
)

// RedisConfig says how an inbox on Redis works. Zero values mean the defaults.
type RedisConfig struct {
	// Consumer tells the readers of the same message apart. Required.
	Consumer string
	// Window is how long a message is remembered once it was handled (default 3 days).
	Window time.Duration
	// Reservation is how long a message stays reserved for a consumer that gives no
	// sign of life (default 30 s). While a handler runs it is renewed.
	Reservation time.Duration
	// Prefix begins the names of the keys (default "posthaste:inbox:").
	Prefix string
}

// Redis is an inbox on Redis 6.2 or newer, which keeps what its persistence keeps: run
// it with appendonly, and with maxmemory-policy noeviction, or ids are forgotten early.
// Its memory is what the window's messages need, some 100 bytes each. It is safe for
// concurrent use, and by any number of processes.
type Redis struct {
	client redis.UniversalClient
	config RedisConfig
	away   away
}

// NewRedis returns an inbox on a client, which the caller closes. For a cluster, make the
// client by ClusterClient of package redis of this module: when a master stops answering and
// another server takes its place, that client turns to the new master, usually within a
// second of the takeover. With other clients, calls wait for the client's timeouts. Errors
// are *posthaste.Error with the field.
func NewRedis(client redis.UniversalClient, c RedisConfig) (*Redis, error) {
	if c.Consumer == "" {
		return nil, posthaste.Invalidf("consumer", "an inbox needs a consumer: a name for who handles the messages")
	}
	if c.Window == 0 {
		c.Window = 72 * time.Hour
	}
	if c.Reservation == 0 {
		c.Reservation = 30 * time.Second
	}
	if c.Reservation < 100*time.Millisecond || c.Window < c.Reservation {
		return nil, posthaste.Invalidf("reservation", "a reservation must be at least 100ms and at most the window, and is %s of %s", c.Reservation, c.Window)
	}
	if c.Prefix == "" {
		c.Prefix = "posthaste:inbox:"
	}
	return &Redis{client: client, config: c}, nil
}

// done is the value of what was handled; what is reserved has its owner's token.
const done = "done"

var (
	// reserve answers 0 where the id is the caller's now, -1 where it was handled
	// before, and else for how many milliseconds it is reserved for somebody else.
	reserve = redis.NewScript(`
local held = redis.call('get', KEYS[1])
if not held or held == ARGV[1] then -- the second: asked again after a lost reply
  redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
  return 0
elseif held == 'done' then
  return -1
end
return math.max(1, redis.call('pttl', KEYS[1]))`)
	// renew lengthens a reservation that is still the caller's.
	renew = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0`)
	// release ends a reservation that is still the caller's.
	release = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`)
)

// ErrReserved says that somebody else handles the message now. [posthaste.RetryDelay]
// of it tells when the reservation ends, if it is not renewed. A handler that returns it
// snoozes: the message comes again then, without an attempt, for it is no failure that
// another one works.
var ErrReserved = errors.New("another consumer handles this message now")

// errLost ends the context of a handler whose reservation could not be kept.
var errLost = errors.New("the reservation in the inbox could not be renewed: somebody else may handle the message now")

// Do runs f unless the message was handled before, and says whether it ran. While it
// runs nobody else runs it. If f fails the message is free again. An error of Do means
// that the message must come again: nothing is known of it, or f failed, or [ErrReserved],
// or f has run and that could not be noted, so that it runs again when the reservation
// has expired. A handler that returns what Do returns with Redis away before f runs
// snoozes, as with [ErrReserved], and the log (slog's default) says so twice a minute. The
// context of f ends when the reservation can no longer be kept, such as with Redis away
// for most of its time.
func (r *Redis) Do(ctx context.Context, id string, f func(ctx context.Context) error) (ran bool, err error) {
	if id == "" {
		return false, posthaste.Permanent(posthaste.Invalidf("id", "a message without an id cannot be handled once"))
	}
	key, token := r.config.Prefix+r.config.Consumer+":"+id, rand.Text()
	held, err := reserve.Run(ctx, r.client, []string{key}, token, r.config.Reservation.Milliseconds()).Int64()
	switch {
	case err != nil:
		// The answer may be what was lost: the reservation then expires by itself.
		err = fmt.Errorf("the inbox cannot be asked, so nothing is handled: %w", err)
		if redisAway(err) {
			err = r.away.rest(err)
		}
		return false, err
	case held < 0:
		return false, nil
	case held > 0:
		after := time.Duration(held) * time.Millisecond
		return false, posthaste.RetryAfter(fmt.Errorf("%w (%w)", ErrReserved, posthaste.Snooze(after)), after)
	}
	running, cancel := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		r.keep(running, cancel, key, token)
	}()
	finished := false
	defer func() {
		cancel(nil)
		<-kept
		if !finished { // f failed, panicked or ended its goroutine
			free, stop := context.WithTimeout(context.WithoutCancel(ctx), r.config.Reservation)
			defer stop()
			if fault := release.Run(free, r.client, []string{key}, token).Err(); fault != nil {
				err = errors.Join(err, fmt.Errorf("the inbox keeps the message reserved for up to %s: %w", r.config.Reservation, fault))
			}
		}
	}()
	if err := f(running); err != nil {
		return true, err
	}
	finished = true
	// Whoever holds the reservation now: the effect is there.
	if err := r.client.Set(context.WithoutCancel(ctx), key, done, r.config.Window).Err(); err != nil {
		return true, fmt.Errorf("the message was handled and the inbox could not note it; it comes again after %s: %w", r.config.Reservation, err)
	}
	return true, nil
}

// keep renews a reservation until ctx ends, and ends it where that fails for too long.
func (r *Redis) keep(ctx context.Context, cancel context.CancelCauseFunc, key, token string) {
	good := time.Now()
	tick := time.NewTicker(r.config.Reservation / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		bounded, stop := context.WithTimeout(ctx, r.config.Reservation/4)
		held, err := renew.Run(bounded, r.client, []string{key}, token, r.config.Reservation.Milliseconds()).Int64()
		stop()
		switch {
		case err == nil && held == 1:
			good = began
		case err == nil, time.Since(good) > r.config.Reservation/2:
			cancel(errLost)
			return
		}
	}
}

// Middleware wraps handlers so that each message is handled once, by [ID]. What another
// consumer handles at that moment comes again when its reservation may have ended, and
// what comes while Redis is away some seconds later, under the same attempt: however long
// that takes, it becomes no dead letter by that.
func (r *Redis) Middleware(h posthaste.Handler) posthaste.Handler {
	return func(ctx context.Context, d posthaste.RawDelivery) error {
		_, err := r.Do(ctx, ID(d), func(ctx context.Context) error { return h(ctx, d) })
		return err
	}
}
