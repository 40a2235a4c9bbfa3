package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Config tunes a [Worker]. Zero values mean the defaults.
type Config struct {
	// Name identifies the process to people. Default "host/pid".
	Name string
	// Version is the program's version, shown beside the name. Default "".
	Version string
	// Concurrency bounds how many calls of handlers and sinks run at the same
	// time in this worker, over all queues. Default 100; 1 to 100,000.
	Concurrency int
	// Batch is the maximum of messages that one claim asks for. A claim asks for
	// fewer if fewer can start soon, and for more than 1,000 only if these are
	// handled within 25 ms. Default 4,000; 1 to [posthaste.MaxPlaces].
	Batch int
	// Lease is how long the worker counts as alive without a heartbeat. After it,
	// the messages that the worker holds are redelivered to other workers.
	// Default 10 s; 100 ms to 10 min.
	Lease time.Duration
	// Heartbeat is the time between heartbeats. Default 3/10 of Lease; at most
	// half of it.
	Heartbeat time.Duration
	// Grace is how long running handlers may continue once the worker stops,
	// before their contexts are cancelled. While the store is unavailable, the
	// worker waits as long, and at least 5 s, to settle the messages that were
	// handled. Default 20 s; negative means none.
	Grace time.Duration
	// Overrun is how long a handler may continue after its context ended at the
	// timeout of the message, its kind or its queue. Then its attempt counts as failed, its place in the
	// pool is freed, and its result is ignored.
	// Default 5 s; at least 1 ms.
	Overrun time.Duration
	// RetryPolicy decides how long failed messages wait for their next attempt. Default
	// none: the backoff decides.
	RetryPolicy RetryPolicy
	// Middleware wraps every handler of messages, the first one outermost.
	// Sinks are not wrapped. Around a batch handler it runs for each message on
	// a goroutine of its own, and the handler that it calls adds the message to
	// the batch: see docs/guides/batches.md. Default none.
	Middleware []func(posthaste.Handler) posthaste.Handler
	// Codecs decode payloads for [Handle] and [HandleBatch], beside JSON and raw
	// bytes; the first one that has a message's content type is used. Default none.
	Codecs []posthaste.Codec
	// Logger gets failed attempts, panics with their stacks, possible duplicates
	// and failed calls to the store, and each success at debug level. Default
	// slog.Default().
	Logger *slog.Logger
	// Telemetry gets every event. Default none.
	Telemetry posthaste.Telemetry
	// Tracing creates traces of single messages. Default none.
	Tracing posthaste.Tracing
}

func (c *Config) setDefaults() {
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
	}
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.Batch = cmp.Or(c.Batch, 4000)
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, c.Lease*3/10)
	c.Grace = max(0, cmp.Or(c.Grace, 20*time.Second))
	c.Overrun = cmp.Or(c.Overrun, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Telemetry == nil {
		c.Telemetry = posthaste.NoTelemetry{}
	}
}

// check returns all faults at once.
func (c *Config) check() error {
	var faults []error
	fault := func(bad bool, field, format string, args ...any) {
		if bad {
			faults = append(faults, posthaste.Invalidf(field, field+" "+format, args...))
		}
	}
	fault(c.Concurrency < 1 || c.Concurrency > 100_000, "Concurrency", "must be 1 to 100000, got %d", c.Concurrency)
	fault(c.Batch < 1 || c.Batch > posthaste.MaxPlaces, "Batch", "must be 1 to %d, got %d", posthaste.MaxPlaces, c.Batch)
	fault(c.Lease < 100*time.Millisecond || c.Lease > 10*time.Minute, "Lease", "must be 100ms to 10m, got %s", c.Lease)
	fault(c.Heartbeat <= 0 || c.Heartbeat > c.Lease/2, "Heartbeat", "must be greater than zero and at most half of Lease (%s), got %s", c.Lease, c.Heartbeat)
	fault(c.Overrun < time.Millisecond, "Overrun", "must be at least 1ms, got %s", c.Overrun)
	for i, m := range c.Middleware {
		fault(m == nil, fmt.Sprintf("Middleware[%d]", i), "is nil")
	}
	for i, codec := range c.Codecs {
		fault(codec == nil || len(codec.ContentTypes()) == 0, fmt.Sprintf("Codecs[%d]", i), "is nil or has no content type")
	}
	return errors.Join(faults...)
}

// An Option configures one handler.
type Option func(*route)

// WithConcurrency bounds how many messages of the queue (or batches, for a sink or
// batch handler) this worker handles at the same time. The default is
// Config.Concurrency, and 4 for a batch handler.
// With 1, messages that were not retried are handled one after the other, in the order in
// which they were claimed.
func WithConcurrency(n int) Option { return func(r *route) { r.concurrency, r.bounded = n, true } }

// WithSubscription names the subscription to read.
// The default is [posthaste.DefaultSubscription].
func WithSubscription(name string) Option { return func(r *route) { r.ref.Subscription = name } }

// WithBatchSize sets the maximum of messages that a sink or batch handler gets in one call
// (default 100; 1 to [posthaste.MaxPlaces]). It is not allowed for handlers of single
// messages.
func WithBatchSize(n int) Option {
	return func(r *route) { r.batch, r.sized = int64(n), true }
}

// WithDestination names the system to which a sink delivers, without secrets, such as "Kafka at
// broker:9092". Operators see it among the relays ([posthaste.WorkerSink]). It is not allowed for
// handlers.
func WithDestination(name string) Option { return func(r *route) { r.destination = name } }

// WithMiddleware wraps this handler only, inside Config.Middleware, the first one outermost. It
// is not allowed for sinks.
func WithMiddleware(around ...func(posthaste.Handler) posthaste.Handler) Option {
	return func(r *route) { r.middleware = append(r.middleware, around...) }
}

// WithOwnTransaction says that the handler settles each delivery inside a transaction of its own,
// so that its effects and the settlement commit together. If the handler returns nil without
// having settled the delivery, the worker acknowledges it as usual; an error fails the
// attempt as usual. Lines that it logs with [posthaste.RawDelivery.Logger] are stored every
// quarter of a second, and with each checkpoint and progress. Lines that are not stored before the
// handler settles are lost.
func WithOwnTransaction() Option { return func(r *route) { r.single = true } }

// WithRetryPolicy sets the policy of this handler's messages in place of Config.RetryPolicy.
func WithRetryPolicy(policy RetryPolicy) Option {
	return func(r *route) { r.retry = policy }
}
