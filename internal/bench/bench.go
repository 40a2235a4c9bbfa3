package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

const (
	// DefaultDuration is how long the phases of a scenario take together.
	DefaultDuration = 15 * time.Second
	// SteadyDuration is that of flow with [Options.Steady].
	SteadyDuration = 5 * time.Minute
	// overhead is what starting, draining and clearing up may take on top.
	overhead = 24 * time.Second
	// clearing is the part of overhead that is kept for clearing up: dropping a
	// database waits for a checkpoint.
	clearing = 8 * time.Second
	// draining is the part of overhead that is kept for what takes longer than
	// it should: emptying queues and finishing what was begun.
	draining = 5 * time.Second
	// payloadBytes is the size of every payload.
	payloadBytes = 200
)

// Options say how a scenario runs. Zero values mean the defaults.
type Options struct {
	// Duration is shared by all phases of the scenario: warming up, floors and
	// measurements. Default 15 s; 1 s to 1 h. The whole run ends within
	// Duration + 25 s.
	Duration time.Duration
	// DatabaseURL is the server to measure on; the role needs CREATEDB.
	// Databases of the run's own are made there and dropped at the end. Empty
	// means the embedded PostgreSQL, in a cluster that is thrown away.
	DatabaseURL string
	// Engine is what to measure on, where a scenario can be measured on either: postgres
	// (the default) or redis.
	Engine string
	// RedisURL is the Redis to measure on. Keys of the run's own are made
	// there and removed at the end. Empty means the redis-server that is installed on
	// this machine, started for the run with appendonly yes and appendfsync everysec.
	RedisURL string
	// Waiting is how many messages wait (backlog). Default 1,000,000; 1 to
	// 10,000,000.
	Waiting int
	// Rate is how many messages are sent per second (latency, transactional, senders).
	// Above 0, at most 10,000. Default 50 for latency; the others send as fast as they can.
	Rate float64
	// Batch is how many messages one Send carries (flow, pinned, backlog, ordered), or an
	// array that is sent over HTTP (senders). Default 1,000, with Keyed and for senders
	// 100; 1 to 10,000.
	Batch int
	// Senders is how many goroutines send batches (flow, pinned, backlog, ordered),
	// each the next one when the last was committed. Default 8; 1 to 64.
	Senders int
	// Broker is the URL of the broker to measure on, by whose scheme it is known: RabbitMQ,
	// Kafka, NATS JetStream or Redis (relay), RabbitMQ (pipeline). The user may make and
	// drop a queue, topic or stream there. The words rabbitmq (the default), kafka, nats
	// and redis mean the one of this machine, started for the run.
	Broker string
	// QueueType is that of RabbitMQ's queue (relay): classic (default) or quorum.
	QueueType string
	// Handler is how long a notification's handler waits, without CPU (pipeline).
	// Default 10 ms; 1 µs to 10 s.
	Handler time.Duration
	// Consumers is how many take chunks from the broker (pipeline). Default 3; 1 to 16.
	Consumers int
	// Steady measures the claims of a ring whose slots turn over, around each
	// truncation (flow).
	Steady bool
	// Keyed takes a queue with limits, keys and three subscriptions (pinned): ordered, or
	// with limits for each key, too (limits).
	Keyed string
	// Queues is how many queues the sends are spread over (transactional, senders).
	// Default 1; 1 to 1,000.
	Queues int
	// Workers is how many processes handle the messages (transactional, senders). Default
	// 1; 1 to 8.
	Workers int
	// OpenSender holds the transaction of another sender to the same queue
	// open for the whole run (latency).
	OpenSender bool
	// PostgresBin holds initdb and postgres to use instead of the embedded
	// ones, and PostgresVersion names the embedded ones to use ("14" or "18",
	// the default).
	PostgresBin, PostgresVersion string
	// DataDir is where the embedded PostgreSQL's throw-away cluster lies, or the data
	// of the Redis that was started.
	// Default: a new directory on a file system that is not memory.
	DataDir string
	// Profile is a file to write this process's CPU profile to, taken over
	// the last measurement.
	Profile string
	// Progress is told from one goroutine what is going on and how much of
	// Duration is over.
	Progress func(phase string, elapsed, total time.Duration)
	// Log gets what engine and worker report. Default: warnings to
	// slog.Default().
	Log *slog.Logger
	// drain is drainPatience, and more in tests: how fast the machine is says
	// nothing there.
	drain time.Duration
}

type scenario struct {
	name string
	what string
	run  func(context.Context, *run) error
	// of says what the scenario can be measured on.
	of engines
	// steady says that it begins on a server that has run for a while.
	steady bool
}

// engines are what a scenario can be measured on.
type engines int

const (
	onlyPostgres engines = iota
	onlyRedis
	either
)

// The engines, as Options.Engine names them.
const (
	onPostgres = "postgres"
	onRedis    = "redis"
)

// scenarios in the order in which people read of them.
var scenarios = []scenario{
	{"flow", "send in batches, handle each message, settle; against only inserting the same rows, or only pushing to a list of Redis", flow, either, false},
	{"single", "32 senders of one message each, while a worker handles them; against plain one-row commits, or pushes to a list of Redis", single, either, false},
	{"latency", "from before the send call to the handler's start, sender and worker in processes of their own", latency, either, false},
	{"transactional", "32 connections whose transactions insert a row and send a message, with a worker and without; against inserting the payload into a table", transactional, onlyPostgres, false},
	{"senders", "32 senders by Engine.Send, by Client.Send and over HTTP, with a worker and without; against plain inserts, or pushes to a list of Redis", senders, either, false},
	{"pinned", "flow under an open snapshot: the last sixth of the run against the first", pinned, onlyPostgres, true},
	{"backlog", "flow with many messages waiting; against the empty queue", backlog, onlyPostgres, false},
	{"ordered", "flow through an ordered queue with 10,000 keys; against a plain queue", ordered, either, false},
	{"relay", "from the ledger into a broker, with confirms; against what the broker's client publishes alone", relayed, onlyPostgres, false},
	{"pipeline", "notifications that fall due, in chunks through RabbitMQ, handled one by one behind an inbox and kept in a log", pipeline, onlyPostgres, false},
	{"telemetry", "flow and single with metrics and traces; against the same without", telemetryCost, onlyPostgres, true},
	{"redis", "emptying a filled queue on Redis, at least and at most once; against loops of BLMOVE + LREM and of BRPOP", redisFlow, onlyRedis, false},
	{"idle", "what a worker of 20 queues costs with nothing to do", idle, either, false},
}

// Scenarios lists the names that [Run] takes.
func Scenarios() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// Describe says in half a sentence what a scenario measures.
func Describe(scenario string) string { return find(scenario).what }

// CanRedis says whether a scenario can be measured on Redis.
func CanRedis(scenario string) bool { return find(scenario).of != onlyPostgres }

// CanPostgres says whether a scenario can be measured on PostgreSQL.
func CanPostgres(scenario string) bool { return find(scenario).of != onlyRedis }

// comparesSenders says whether a scenario is one of [sending].
func comparesSenders(scenario string) bool {
	return scenario == "transactional" || scenario == "senders"
}

// onRedis says what a scenario is measured on.
func (o *Options) onRedis(scenario string) bool {
	of := find(scenario).of
	return of == onlyRedis || of == either && o.Engine == onRedis
}

func redisScenarios() (names []string) {
	for _, name := range Scenarios() {
		if CanRedis(name) {
			names = append(names, name)
		}
	}
	return names
}

func find(name string) scenario {
	for _, s := range scenarios {
		if s.name == name {
			return s
		}
	}
	return scenario{}
}

// Run runs one scenario and returns what it measured. A measurement that must
// not be trusted is no error: Result.Valid is false and Reason says why. Errors
// are those of a run that could not take place: [posthaste.CodeInvalid] for wrong
// options (each fault named), [posthaste.CodeUnavailable] and [posthaste.CodeDenied] from the server. What
// was made on the server is dropped also when ctx ends. One Run at a time in a
// process, for it measures the process.
func Run(ctx context.Context, scenario string, o Options) (*Result, error) {
	if err := o.check(scenario); err != nil {
		return nil, err
	}
	o.setDefaults(scenario)
	extra := overhead
	if find(scenario).steady {
		extra += o.Duration
	}
	if o.Steady { // for the server, and for filling the ring
		extra += 2 * o.Duration
	}
	return execute(ctx, scenario, o, extra)
}

// execute runs a scenario with as much time on top of its duration as given.
func execute(ctx context.Context, scenario string, o Options, overhead time.Duration) (*Result, error) {
	begun := time.Now()
	r := &run{o: o, result: &Result{Scenario: scenario, Valid: true}, during: o.Duration, until: begun.Add(o.Duration + overhead - clearing)}
	limited, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	defer r.watch()()
	err := r.perform(limited, find(scenario))
	r.result.DurationSeconds = round(time.Since(begun).Seconds(), 1)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		r.invalid("the run was cut off %s over its duration, for the machine was too busy", overhead-clearing)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r.result, nil
}

func (o *Options) setDefaults(scenario string) {
	if o.Duration == 0 {
		o.Duration = DefaultDuration
		if o.Steady {
			o.Duration = SteadyDuration
		}
	}
	if o.Queues == 0 {
		o.Queues = 1
	}
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Waiting == 0 {
		o.Waiting = 1_000_000
	}
	if o.Rate == 0 && !comparesSenders(scenario) {
		o.Rate = 50
	}
	if o.Batch == 0 {
		o.Batch = 1000
		if o.Keyed != "" || scenario == "senders" {
			o.Batch = 100
		}
	}
	if o.Senders == 0 {
		o.Senders = 8
	}
	if o.Handler == 0 {
		o.Handler = 10 * time.Millisecond
	}
	if o.Consumers == 0 {
		o.Consumers = 3
	}
	if o.QueueType == "" {
		o.QueueType = "classic"
	}
	if o.Progress == nil {
		o.Progress = func(string, time.Duration, time.Duration) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.drain == 0 {
		o.drain = drainPatience
	}
}

// check lists every fault at once.
func (o *Options) check(scenario string) error {
	var faults []error
	fault := func(bad bool, field, format string, args ...any) {
		if bad {
			faults = append(faults, posthaste.Invalidf(field, format, args...))
		}
	}
	fault(!slices.Contains(Scenarios(), scenario), "scenario", "there is no bench scenario %q: there are %s", scenario, strings.Join(Scenarios(), ", "))
	fault(o.Duration != 0 && (o.Duration < time.Second || o.Duration > time.Hour), "duration", "duration must be 1s to 1h, got %s", o.Duration)
	fault(o.Waiting < 0 || o.Waiting > 10_000_000, "waiting", "waiting must be 1 to 10000000, got %d", o.Waiting)
	fault(o.Rate < 0 || o.Rate > 10_000, "rate", "rate must be above 0 and at most 10000 a second, got %g", o.Rate)
	fault(o.QueueType != "" && o.QueueType != "classic" && o.QueueType != "quorum", "queue_type", "queue type must be classic or quorum, got %q", o.QueueType)
	switch kind, _, err := kindOf(o.Broker); {
	case err != nil:
		faults = append(faults, err)
	default:
		fault(kind != brokers.RabbitMQ && scenario == "pipeline", "broker", "the pipeline goes through RabbitMQ: broker must be its URL, amqp://user:password@host/")
		fault(kind != brokers.RabbitMQ && o.QueueType != "", "queue_type", "only RabbitMQ has types of queues, and the broker is %s", kind.Name)
	}
	fault(o.Handler < 0 || o.Handler > 10*time.Second, "handler", "handler must be above 0 and at most 10s, got %s", o.Handler)
	fault(o.Consumers < 0 || o.Consumers > 16, "consumers", "consumers must be 1 to 16, got %d", o.Consumers)
	fault(o.Batch < 0 || o.Batch > 10_000, "batch", "batch must be 1 to 10000, got %d", o.Batch)
	fault(o.Queues < 0 || o.Queues > maxQueues, "queues", "queues must be 1 to %d, got %d", maxQueues, o.Queues)
	fault(o.Queues != 0 && !comparesSenders(scenario), "queues", "only bench transactional and senders take a number of queues, not %s", scenario)
	fault(o.Workers < 0 || o.Workers > maxWorkers, "workers", "workers must be 1 to %d, got %d", maxWorkers, o.Workers)
	fault(o.Workers != 0 && !comparesSenders(scenario), "workers", "only bench transactional and senders take a number of worker processes, not %s", scenario)
	fault(o.Steady && scenario != "flow", "steady", "only bench flow has a steady form, not %s", scenario)
	fault(o.Steady && o.Engine == onRedis, "steady", "only PostgreSQL has slots that turn over: steady excludes engine redis")
	fault(o.Keyed != "" && o.Keyed != keyedLimits && o.Keyed != keyedOrdered, "keyed", "keyed must be %s or %s, got %q", keyedLimits, keyedOrdered, o.Keyed)
	fault(o.Keyed != "" && scenario != "pinned", "keyed", "only bench pinned has a keyed form, not %s", scenario)
	fault(o.Senders < 0 || o.Senders > 64, "senders", "senders must be 1 to 64, got %d", o.Senders)
	fault(o.DatabaseURL != "" && (o.PostgresBin != "" || o.PostgresVersion != "" || o.DataDir != ""), "database_url",
		"a database URL excludes the settings of the embedded PostgreSQL")
	fault(o.Engine != "" && o.Engine != onPostgres && o.Engine != onRedis, "engine", "engine must be postgres or redis, got %q", o.Engine)
	fault(o.Engine == onRedis && !CanRedis(scenario), "engine", "bench %s is of PostgreSQL alone; on Redis there are %s", scenario, strings.Join(redisScenarios(), ", "))
	fault(o.Engine == onPostgres && !CanPostgres(scenario), "engine", "bench %s is of Redis alone", scenario)
	redis := o.onRedis(scenario)
	fault(o.OpenSender && redis, "open_sender", "on Redis no sender has a transaction that could stay open")
	fault(o.RedisURL != "" && !redis, "redis_url", "bench %s measures on PostgreSQL, and a Redis URL is given", scenario)
	fault(o.RedisURL != "" && o.DataDir != "", "redis_url", "a Redis URL excludes a directory for the data of one that is started")
	fault(redis && (o.DatabaseURL != "" || o.PostgresBin != "" || o.PostgresVersion != ""), "database_url", "bench %s measures on Redis, and PostgreSQL is named", scenario)
	return errors.Join(faults...)
}

// run is one run of a scenario.
type run struct {
	o      Options
	result *Result
	server *server       // nil on Redis
	redis  *redisStore   // nil on PostgreSQL
	until  time.Time     // when the run is cut off
	during time.Duration // what the phases share: Options.Duration, or less where starting took long

	mu      sync.Mutex
	now     string    // what is going on
	started time.Time // when the first phase began; zero before
}

func (r *run) perform(ctx context.Context, s scenario) (err error) {
	if r.o.onRedis(s.name) {
		return r.performOnRedis(ctx, s)
	}
	r.phase("starting PostgreSQL")
	r.server, err = openServer(ctx, r)
	if err != nil {
		return err
	}
	defer func() {
		if !r.clearUp(ctx, r.server) {
			r.result.LeftBehind = r.server.made
		}
	}()
	if s.steady {
		if err := r.server.steady(ctx, r); err != nil {
			return err
		}
	}
	return s.run(ctx, r)
}

func (r *run) performOnRedis(ctx context.Context, s scenario) (err error) {
	r.phase("starting Redis")
	if r.redis, err = openRedis(ctx, r); err != nil {
		return err
	}
	defer r.clearUp(ctx, r.redis)
	return s.run(ctx, r)
}

// store is the server, or the Redis, of a run.
type store interface{ close(context.Context) error }

// closed closes a store, also where ctx has ended.
func closed(ctx context.Context, s store) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	return s.close(ctx)
}

// clearUp closes a run's store and reports whether nothing is left. What was measured is
// none the worse where something is.
func (r *run) clearUp(ctx context.Context, s store) bool {
	r.phase("clearing up")
	fault := closed(ctx, s)
	if fault != nil {
		r.o.Log.Warn("bench could not clear up", slog.Any("error", fault))
	}
	return fault == nil
}

// phase says what goes on now.
func (r *run) phase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = name
}

// begin starts the clock of the phases. On a machine so busy that starting has
// used up the time on top of the duration, they have to do with less.
func (r *run) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.during = max(0, min(r.during, r.until.Sub(r.started)-draining))
}

// part is a share of the duration of all phases.
func (r *run) part(share float64) time.Duration {
	return time.Duration(share * float64(r.during))
}

// late says that no further round must begin, since the earlier ones took
// longer than they should have.
func (r *run) late() bool { return time.Since(r.started) > r.during+draining/2 }

// invalid notes a reason why the result must not be trusted.
func (r *run) invalid(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if r.result.Valid = false; r.result.Reason != "" {
		reason = r.result.Reason + "; " + reason
	}
	r.result.Reason = reason
}

// watch tells the progress until the function it returns is called.
func (r *run) watch() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	tell := func() {
		r.mu.Lock()
		name, started, during := r.now, r.started, r.during
		r.mu.Unlock()
		elapsed := time.Duration(0)
		if !started.IsZero() {
			elapsed = min(time.Since(started), during)
		}
		r.o.Progress(name, elapsed, during)
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell()
			case <-quit:
				tell()
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}
