package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// bellChannel is the channel of the ledger's doorbell.
	bellChannel = "posthaste"
	// sampleEvery is the interval at which the senders that wait for a lock are counted.
	sampleEvery = 5 * time.Millisecond
)

// contention counts notifications. On PostgreSQL it also samples the senders that wait for
// their lock.
type contention struct {
	listener, sampler *pgx.Conn       // on PostgreSQL
	wakeUps           *goredis.PubSub // on Redis
	senders           string          // application name of the senders
	notified          atomic.Int64
	stop              context.CancelFunc
	ended             chan struct{}
}

func openContention(ctx context.Context, url, senders string) (c *contention, err error) {
	c = &contention{senders: senders, ended: make(chan struct{})}
	if c.sampler, err = postgres.Connect(ctx, url); err != nil {
		return nil, err
	}
	if c.listener, err = postgres.Connect(ctx, url); err != nil {
		_ = c.sampler.Close(ctx)
		return nil, err
	}
	listening, stop := context.WithCancel(ctx)
	c.stop = stop
	if _, err := c.listener.Exec(ctx, "listen "+bellChannel); err != nil {
		close(c.ended)
		c.close()
		return nil, fmt.Errorf("notifications cannot be listened for: %w", err)
	}
	go c.count(func() error { _, err := c.listener.WaitForNotification(listening); return err })
	return c, nil
}

// openWakeUps counts the messages that are published to wake up workers of the run.
func openWakeUps(ctx context.Context, s *redisStore) (*contention, error) {
	c := &contention{ended: make(chan struct{}), wakeUps: s.client.PSubscribe(ctx, "{"+s.prefix+"*")}
	listening, stop := context.WithCancel(ctx)
	c.stop = stop
	if _, err := c.wakeUps.Receive(ctx); err != nil {
		close(c.ended)
		c.close()
		return nil, fmt.Errorf("wake-ups cannot be listened for: %w", err)
	}
	go c.count(func() error { _, err := c.wakeUps.ReceiveMessage(listening); return err })
	return c, nil
}

// count counts the calls of next until it fails.
func (c *contention) count(next func() error) {
	defer close(c.ended)
	for next() == nil {
		c.notified.Add(1)
	}
}

func (c *contention) close() {
	c.stop()
	if c.wakeUps != nil {
		_ = c.wakeUps.Close()
		<-c.ended
		return
	}
	<-c.ended
	_ = c.listener.Close(context.Background())
	_ = c.sampler.Close(context.Background())
}

// used returns the CPU time of both connections' sessions, which the senders do not use.
func (c *contention) used() time.Duration {
	if c.sampler == nil {
		return 0 // Redis is one process
	}
	return cpumeter.Of(c.listener.PgConn().PID()) + cpumeter.Of(c.sampler.PgConn().PID())
}

// contended is the contention during one slice.
type contended struct {
	notified        int64
	took            time.Duration
	active, waiting int64 // senders, summed over the samples
	failure         error
}

// watch counts until the returned function is called, which returns the result.
func (c *contention) watch(ctx context.Context) (end func() contended) {
	ctx, stop := context.WithCancel(ctx)
	seen := make(chan contended, 1)
	go func() { seen <- c.look(ctx) }()
	return func() contended {
		stop()
		return <-seen
	}
}

func (c *contention) look(ctx context.Context) (seen contended) {
	begun, before := time.Now(), c.notified.Load()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			seen.notified, seen.took = c.notified.Load()-before, time.Since(begun)
			return seen
		}
		if c.sampler == nil {
			continue
		}
		var active, waiting int64
		// Not with the slice's context: pgx closes a connection if the context of a query ends.
		err := c.sampler.QueryRow(context.WithoutCancel(ctx), `
			select count(*), count(*) filter (where wait_event_type = 'Lock' and wait_event = 'object')
			  from pg_catalog.pg_stat_activity where application_name = $1 and state = 'active'`, c.senders).Scan(&active, &waiting)
		if err != nil {
			seen.failure = fmt.Errorf("the senders' waits cannot be read: %w", err)
			return seen
		}
		seen.active += active
		seen.waiting += waiting
	}
}
