package bench

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

const (
	// DefaultDuration is the duration of all phases of a scenario together.
	DefaultDuration = 15 * time.Second
	// SteadyDuration is the default duration of flow with [Options.Steady].
	SteadyDuration = 5 * time.Minute
	// drainPatience is the default of Options.drain.
	drainPatience = 10 * time.Second
	// maxQueues and maxWorkers are the bounds of Options.Queues and Options.Workers.
	maxQueues, maxWorkers = 1000, 8
)

// The values of Options.Engine.
const (
	onPostgres = "postgres"
	onRedis    = "redis"
)

// The values of Options.Keyed.
const (
	keyedLimits  = "limits"
	keyedOrdered = "ordered"
)

// Options configure a run. Zero values mean the defaults.
type Options struct {
	// Duration is the time of all phases of the scenario together: warming up, floors and
	// measurements. Default 15 s; 1 s to 1 h. The whole run ends within Duration + 25 s.
	Duration time.Duration
	// DatabaseURL names the PostgreSQL server to measure on. The role needs CREATEDB: the
	// run creates its own databases and drops them at the end. If it is empty, the run
	// starts the embedded PostgreSQL with a temporary cluster.
	DatabaseURL string
	// Engine is postgres (the default) or redis, in scenarios that can run on either.
	Engine string
	// RedisURL names the Redis to measure on. The run creates its own keys and removes
	// them at the end. If it is empty, the run starts the redis-server of this machine with
	// appendonly yes and appendfsync everysec.
	RedisURL string
	// NATSURL names the NATS servers to measure on (nats). The run creates its own streams and removes
	// them at the end. If it is empty, the run starts the nats-server of this machine.
	NATSURL string
	// Servers is the number of NATS servers that the run starts: 1 (the default), or 3 as a cluster.
	Servers int
	// Way is the only way to measure (nats). Default: all of them, and an idle worker.
	Way string
	// Waiting is the number of waiting messages (backlog). Default 1,000,000; 1 to
	// 10,000,000.
	Waiting int
	// Rate is the number of messages to send per second (latency, transactional, senders).
	// Above 0, at most 10,000. Default 50 for latency; the others send as fast as they can.
	Rate float64
	// Batch is the number of messages in one Send (flow, pinned, backlog, ordered, kinds), or
	// in an array that is sent over HTTP (senders). Default 1,000, with Keyed and for senders
	// 100; 1 to 10,000.
	Batch int
	// Senders is the number of goroutines that send batches (flow, pinned, backlog,
	// ordered, kinds). Each sends its next batch once the last one is committed. Default 8; 1 to
	// 64.
	Senders int
	// Broker is the URL of the broker to measure on; its scheme selects the kind: RabbitMQ,
	// Kafka, NATS JetStream or Redis (relay), RabbitMQ (pipeline). The user needs
	// permission to create and drop a queue, topic or stream. With one of the words
	// rabbitmq (the default), kafka, nats and redis, the run starts the broker that is
	// installed on this machine.
	Broker string
	// QueueType is the type of RabbitMQ's queue (relay): classic (default) or quorum.
	QueueType string
	// Handler is the time that a notification's handler waits, without CPU (pipeline).
	// Default 10 ms; 1 µs to 10 s.
	Handler time.Duration
	// Consumers is the number of consumers of the broker's chunks (pipeline). Default 3; 1
	// to 16.
	Consumers int
	// Steady measures the claims of a ring whose slots turn over, around each truncation
	// (flow).
	Steady bool
	// Keyed uses a queue with limits, keys and three subscriptions (pinned): "ordered", or
	// "limits", which also sets limits for each key.
	Keyed string
	// Queues is the number of queues that the messages are spread over (transactional,
	// senders). Default 1; 1 to 1,000.
	Queues int
	// Workers is the number of processes that handle the messages (transactional, senders).
	// Default 1; 1 to 8.
	Workers int
	// OpenSender keeps a transaction of another sender to the same queue open during the
	// whole run (latency).
	OpenSender bool
	// PostgresBin is a directory with initdb and postgres to use instead of the embedded
	// ones. PostgresVersion selects the embedded ones ("14" or "18", the default).
	PostgresBin, PostgresVersion string
	// DataDir is the directory for the temporary cluster of the embedded PostgreSQL, or for
	// the data of the Redis that the run starts. Default: a new directory on a file system
	// that is not in memory.
	DataDir string
	// Profile is the file for a CPU profile of this process during the last measurement.
	Profile string
	// Progress receives the current phase and the elapsed part of Duration. One goroutine
	// calls it.
	Progress func(phase string, elapsed, total time.Duration)
	// Log receives the log lines of engine and worker. Default: warnings to slog.Default().
	Log *slog.Logger
	// drain is the time after the last send within which the messages must be settled; if
	// they are not, the run counts them as lost. Tests set it higher, because they do not
	// depend on the speed of the machine.
	drain time.Duration
}

func (o *Options) setDefaults(scenario string) {
	duration, rate, batch := DefaultDuration, 50.0, 1000
	if o.Steady {
		duration = SteadyDuration
	}
	if comparesSenders(scenario) {
		rate = 0
	}
	if o.Keyed != "" || scenario == "senders" {
		batch = 100
	}
	o.Duration, o.Rate, o.Batch = cmp.Or(o.Duration, duration), cmp.Or(o.Rate, rate), cmp.Or(o.Batch, batch)
	o.Queues, o.Workers = cmp.Or(o.Queues, 1), cmp.Or(o.Workers, 1)
	o.Waiting = cmp.Or(o.Waiting, 1_000_000)
	o.Senders = cmp.Or(o.Senders, 8)
	if OnNATS(scenario) && o.NATSURL == "" {
		o.Servers = cmp.Or(o.Servers, 1)
	}
	o.Handler = cmp.Or(o.Handler, 10*time.Millisecond)
	o.Consumers = cmp.Or(o.Consumers, 3)
	o.QueueType = cmp.Or(o.QueueType, "classic")
	o.Log = cmp.Or(o.Log, slog.Default())
	o.drain = cmp.Or(o.drain, drainPatience)
	if o.Progress == nil {
		o.Progress = func(string, time.Duration, time.Duration) {}
	}
}

// faults are the errors of options.
type faults []error

func (f *faults) add(bad bool, field, format string, args ...any) {
	if bad {
		*f = append(*f, posthaste.Invalidf(field, format, args...))
	}
}

// check returns all faults of the options.
func (o *Options) check(scenario string) error {
	var all faults
	fault := all.add
	fault(!slices.Contains(Scenarios(), scenario), "scenario", "unknown bench scenario %q; expected one of %s", scenario, strings.Join(Scenarios(), ", "))
	fault(o.Duration != 0 && (o.Duration < time.Second || o.Duration > time.Hour), "duration", "duration must be 1s to 1h, got %s", o.Duration)
	fault(o.Waiting < 0 || o.Waiting > 10_000_000, "waiting", "waiting must be 1 to 10000000, got %d", o.Waiting)
	fault(o.Rate < 0 || o.Rate > 10_000, "rate", "rate must be above 0 and at most 10000 a second, got %g", o.Rate)
	fault(o.Handler < 0 || o.Handler > 10*time.Second, "handler", "handler must be above 0 and at most 10s, got %s", o.Handler)
	fault(o.Consumers < 0 || o.Consumers > 16, "consumers", "consumers must be 1 to 16, got %d", o.Consumers)
	fault(o.Batch < 0 || o.Batch > 10_000, "batch", "batch must be 1 to 10000, got %d", o.Batch)
	fault(o.Queues < 0 || o.Queues > maxQueues, "queues", "queues must be 1 to %d, got %d", maxQueues, o.Queues)
	fault(o.Queues != 0 && !comparesSenders(scenario), "queues", "only bench transactional and senders take a number of queues, not %s", scenario)
	fault(o.Workers < 0 || o.Workers > maxWorkers, "workers", "workers must be 1 to %d, got %d", maxWorkers, o.Workers)
	fault(o.Workers != 0 && !comparesSenders(scenario), "workers", "only bench transactional and senders take a number of worker processes, not %s", scenario)
	fault(o.Steady && scenario != "flow", "steady", "only bench flow has a steady form, not %s", scenario)
	fault(o.Keyed != "" && o.Keyed != keyedLimits && o.Keyed != keyedOrdered, "keyed", "keyed must be %s or %s, got %q", keyedLimits, keyedOrdered, o.Keyed)
	fault(o.Keyed != "" && scenario != "pinned", "keyed", "only bench pinned has a keyed form, not %s", scenario)
	fault(o.Senders < 0 || o.Senders > 64, "senders", "senders must be 1 to 64, got %d", o.Senders)
	o.checkBroker(scenario, &all)
	o.checkEngine(scenario, all.add)
	return errors.Join(all...)
}

func (o *Options) checkBroker(scenario string, all *faults) {
	fault := all.add
	fault(o.QueueType != "" && o.QueueType != "classic" && o.QueueType != "quorum", "queue_type", "queue type must be classic or quorum, got %q", o.QueueType)
	kind, _, err := kindOf(o.Broker)
	if err != nil {
		*all = append(*all, err)
		return
	}
	fault(kind != brokers.RabbitMQ && scenario == "pipeline", "broker", "bench pipeline needs RabbitMQ: broker must be its URL, amqp://user:password@host/")
	fault(kind != brokers.RabbitMQ && o.QueueType != "", "queue_type", "only RabbitMQ has types of queues, and the broker is %s", kind.Name)
}

func (o *Options) checkEngine(scenario string, fault func(bad bool, field, format string, args ...any)) {
	fault(o.DatabaseURL != "" && (o.PostgresBin != "" || o.PostgresVersion != "" || o.DataDir != ""), "database_url",
		"a database URL excludes the settings of the embedded PostgreSQL")
	fault(o.Engine != "" && o.Engine != onPostgres && o.Engine != onRedis, "engine", "engine must be postgres or redis, got %q", o.Engine)
	fault(o.Engine == onRedis && !CanRedis(scenario) && !OnNATS(scenario), "engine", "bench %s runs on PostgreSQL only; the scenarios on Redis are %s", scenario, strings.Join(redisScenarios(), ", "))
	fault(o.Engine == onPostgres && !CanPostgres(scenario) && !OnNATS(scenario), "engine", "bench %s runs on Redis only", scenario)
	fault(o.Steady && o.Engine == onRedis, "steady", "only PostgreSQL has slots that turn over: steady excludes engine redis")
	redis := o.onRedis(scenario)
	fault(o.OpenSender && redis, "open_sender", "a sender on Redis has no transaction to keep open: open sender excludes engine redis")
	fault(o.RedisURL != "" && !redis, "redis_url", "bench %s measures on PostgreSQL, and a Redis URL is given", scenario)
	fault(o.RedisURL != "" && o.DataDir != "", "redis_url", "a Redis URL excludes the data directory of a Redis that the run starts")
	onNATS := OnNATS(scenario)
	fault(onNATS && o.Engine != "", "engine", "bench %s runs on NATS only", scenario)
	fault(o.NATSURL != "" && !onNATS, "nats_url", "bench %s does not measure on NATS, and a URL of NATS is given", scenario)
	fault(o.Way != "" && !onNATS, "way", "only bench nats takes a way, not %s", scenario)
	fault(o.Way != "" && onNATS && !slices.Contains(natsWays, o.Way), "way", "way must be one of %s, got %q", strings.Join(natsWays, ", "), o.Way)
	fault(o.Servers != 0 && !onNATS, "servers", "only bench nats takes a number of servers, not %s", scenario)
	fault(o.Servers != 0 && o.Servers != 1 && o.Servers != 3, "servers", "servers must be 1 or 3, got %d", o.Servers)
	fault(o.NATSURL != "" && o.Servers != 0, "nats_url", "a URL of NATS excludes the number of servers that the run starts")
	fault(o.NATSURL != "" && o.DataDir != "", "nats_url", "a URL of NATS excludes the data directory of servers that the run starts")
	fault(onNATS && (o.DatabaseURL != "" || o.PostgresBin != "" || o.PostgresVersion != ""), "database_url", "bench %s measures on NATS, and PostgreSQL is named", scenario)
	fault(redis && (o.DatabaseURL != "" || o.PostgresBin != "" || o.PostgresVersion != ""), "database_url", "bench %s measures on Redis, and PostgreSQL is named", scenario)
}

// onRedis reports whether a scenario runs on Redis.
func (o *Options) onRedis(scenario string) bool {
	of := find(scenario).of
	return of == onlyRedis || of == either && o.Engine == onRedis
}
