package bench

import (
	"context"
	"time"
)

// overhead is the time that starting, draining and clearing up may take on top of the
// duration.
const overhead = 24 * time.Second

// runs holds the function of each scenario.
var runs = map[string]func(context.Context, *run) error{
	"flow": flow, "single": single, "latency": latency, "transactional": transactional, "senders": senders, "pinned": pinned, "backlog": backlog,
	"ordered": ordered, "kinds": kinds, "relay": relayed, "pipeline": pipeline, "telemetry": telemetryCost, "redis": redisFlow, "nats": compareNATS, "idle": idle,
}

// Run runs one scenario and returns its result. If a measurement must not be trusted,
// Run returns no error: Result.Valid is false and Reason says why. Run returns an error
// if the run could not take place: [posthaste.CodeInvalid] for wrong options (it names each
// fault), [posthaste.CodeUnavailable] and [posthaste.CodeDenied] from the server. It removes its
// databases or keys from the server even if ctx ends. A process may have one Run at a
// time, because Run measures the process.
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

// execute runs a scenario. It cuts the run off once it exceeds its duration by overhead.
func execute(ctx context.Context, scenario string, o Options, overhead time.Duration) (*Result, error) {
	begun := time.Now()
	r := &run{o: o, result: &Result{Scenario: scenario, Valid: true}, during: o.Duration, until: begun.Add(o.Duration + overhead - clearing)}
	limited, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	defer r.watch()()
	err := perform(limited, r, find(scenario))
	r.result.DurationSeconds = round(time.Since(begun).Seconds(), 1)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		r.invalid("the run was cut off %s over its duration, because the machine was too busy", overhead-clearing)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r.result, nil
}

// perform opens the store of a run, runs the scenario and closes the store.
func perform(ctx context.Context, r *run, s scenario) (err error) {
	if r.o.onRedis(s.name) {
		return performOnRedis(ctx, r, s)
	}
	if OnNATS(s.name) {
		return performOnNATS(ctx, r, s)
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
	return runs[s.name](ctx, r)
}

func performOnRedis(ctx context.Context, r *run, s scenario) (err error) {
	r.phase("starting Redis")
	if r.redis, err = openRedis(ctx, r); err != nil {
		return err
	}
	defer r.clearUp(ctx, r.redis)
	return runs[s.name](ctx, r)
}

func performOnNATS(ctx context.Context, r *run, s scenario) (err error) {
	r.phase("starting NATS")
	if r.nats, err = openNATSStore(ctx, r); err != nil {
		return err
	}
	defer r.clearUp(ctx, r.nats)
	return runs[s.name](ctx, r)
}
