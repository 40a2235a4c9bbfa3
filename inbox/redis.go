package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// RedisConfig configures an inbox on Redis. Zero values mean the defaults.
type RedisConfig struct {
	// Consumer distinguishes several consumers of the same message. Required.
	Consumer string
	// Window is how long a handled message is remembered (default 3 days).
	Window time.Duration
	// Reservation is how long a message stays reserved for a consumer that does not renew it
	// (default 30 s). It is renewed while the handler runs.
	Reservation time.Duration
	// Prefix is the prefix of all keys (default "posthaste:inbox:").
	Prefix string
}

// Redis is an inbox on Redis 6.2 or newer. It is as durable as the server's persistence: use
// appendonly, and maxmemory-policy noeviction, because eviction forgets ids early. It needs
// about 100 bytes of memory for each message of the window. It is safe for concurrent use by
// any number of processes.
type Redis struct {
	client redis.UniversalClient
	config RedisConfig
	away   away
}

// NewRedis returns an inbox on a client, which the caller closes. For a cluster, create the
// client with ClusterClient of this module's package redis: when a master fails, that client
// uses the new master, usually within a second of the failover. With other clients, calls wait
// for the client's timeouts. Errors are *posthaste.Error with the field.
func NewRedis(client redis.UniversalClient, c RedisConfig) (*Redis, error) {
	if c.Consumer == "" {
		return nil, posthaste.Invalidf("consumer", "Consumer is required: it names the consumer that handles the messages")
	}
	if c.Window == 0 {
		c.Window = 72 * time.Hour
	}
	if c.Reservation == 0 {
		c.Reservation = 30 * time.Second
	}
	if c.Reservation < 100*time.Millisecond || c.Window < c.Reservation {
		return nil, posthaste.Invalidf("reservation", "Reservation must be at least 100ms and at most the window (%[2]s), not %[1]s", c.Reservation, c.Window)
	}
	if c.Prefix == "" {
		c.Prefix = "posthaste:inbox:"
	}
	return &Redis{client: client, config: c}, nil
}

// done is the value of a handled message. A reserved message has its owner's token.
const done = "done"

var (
	// reserve returns 0 if the caller now has the reservation, -1 if the message was handled
	// before, and otherwise the number of milliseconds for which another consumer has it.
	reserve = redis.NewScript(`
local held = redis.call('get', KEYS[1])
if not held or held == ARGV[1] then -- own token: repeated after a lost reply
  redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
  return 0
elseif held == 'done' then
  return -1
end
return math.max(1, redis.call('pttl', KEYS[1]))`)
	// renew extends a reservation that the caller still has.
	renew = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0`)
	// release ends a reservation that the caller still has.
	release = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`)
)

// ErrReserved says that another consumer is handling the message now. [posthaste.RetryDelay]
// of it returns the time until the reservation ends, unless it is renewed. A handler that
// returns it snoozes: the message is redelivered after that time without counting an attempt,
// because it did not fail.
var ErrReserved = errors.New("another consumer handles this message now")

// errLost ends the context of a handler whose reservation could not be renewed.
var errLost = errors.New("the reservation in the inbox could not be renewed: another consumer may handle the message now")

// Do runs f unless the message was handled before, and reports whether it ran. No other
// consumer runs it at the same time. If f fails, the reservation is released. After an error
// the message must be redelivered: the state is unknown, f failed, another consumer has the
// message ([ErrReserved]), or f succeeded and that could not be recorded, so that f runs again
// when the reservation expires. If a handler returns the error of Do when Redis was
// unavailable before f ran, the message is snoozed as with [ErrReserved], and the log (slog's
// default) reports it twice a minute. The context of f is cancelled when the reservation can no
// longer be renewed, for example because Redis was down for most of its time.
func (r *Redis) Do(ctx context.Context, id string, f func(ctx context.Context) error) (ran bool, err error) {
	if id == "" {
		return false, posthaste.Permanent(posthaste.Invalidf("id", "the message has no id, so it cannot be deduplicated"))
	}
	key, token := r.config.Prefix+r.config.Consumer+":"+id, rand.Text()
	held, err := reserve.Run(ctx, r.client, []string{key}, token, r.config.Reservation.Milliseconds()).Int64()
	switch {
	case err != nil:
		// The reservation may exist if only the reply was lost. Then it expires.
		err = fmt.Errorf("the inbox cannot be reached, and the message was not handled: %w", err)
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
	// Record the message even if another consumer has the reservation now: the effect exists.
	if err := r.client.Set(context.WithoutCancel(ctx), key, done, r.config.Window).Err(); err != nil {
		return true, fmt.Errorf("the message was handled, but the inbox could not record it; it is redelivered after %s: %w", r.config.Reservation, err)
	}
	return true, nil
}

// keep renews a reservation until ctx ends. If renewing fails for too long, it cancels the
// handler's context.
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

// Middleware wraps handlers so that each message is handled once, by [ID]. A message that
// another consumer is handling is redelivered when that reservation may have ended. A message
// that arrives while Redis is down is redelivered a few seconds later. Both count no attempt,
// so the message never becomes a dead letter this way.
func (r *Redis) Middleware(h posthaste.Handler) posthaste.Handler {
	return func(ctx context.Context, d posthaste.RawDelivery) error {
		_, err := r.Do(ctx, ID(d), func(ctx context.Context) error { return h(ctx, d) })
		return err
	}
}
