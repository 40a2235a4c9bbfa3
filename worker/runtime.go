package worker

import (
	"context"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// runtime assembles the parts of one Run. Its order at the start is in prepare.go, and that
// at the end in shutdown.go.
type runtime struct {
	engine posthaste.Engine
	config *Config
	report *reporter
	routes []*route
	bell   posthaste.Doorbell // opened by prepare

	lease     *lease
	held      *holdings
	gate      *gate
	outbox    *outbox
	pool      *pool
	acks      *acknowledger
	heart     *heartbeat
	rescue    *rescuer
	maintain  *janitor
	schedule  *scheduler
	reconcile *reconciler
	stats     *stats

	stopFetch context.CancelFunc
	fetchers  []*service
	services  []*service // all but the fetchers and the acknowledger
	acking    service
}

// newRuntime assembles all parts but the fetchers. ctx must not end before the runtime.
func newRuntime(ctx context.Context, engine posthaste.Engine, config *Config, routes []*route, wall func(time.Time) int64) *runtime {
	report := newReporter(ctx, config.Logger, config.Telemetry)
	rt := &runtime{engine: engine, config: config, report: report, routes: routes, gate: newGate(), outbox: newOutbox(), held: newHoldings(routes)}
	for _, r := range routes {
		r.noter = &noter{engine: engine, report: report}
	}
	rt.lease = newLease(config.Lease, wall, report)
	rt.pool = newPool(ctx, config, routes, rt.held, rt.lease, rt.outbox, report)
	rt.rescue = newRescuer(engine, report)
	rt.maintain = newJanitor(engine, report, routes)
	rt.schedule = newScheduler(engine, report)
	rt.reconcile = newReconciler(engine, report, rt.held)
	rt.stats = newStats(engine, report, rt.held)
	rt.acks = &acknowledger{engine: engine, report: report, routes: routes, outbox: rt.outbox, held: rt.held, reconcile: rt.reconcile,
		flushes: make(chan chan struct{}), retry: backoff{report: report, task: "settle"}, tally: tally{report: report, stats: rt.stats}}
	rt.heart = &heartbeat{engine: engine, report: report, config: config, refs: refsOf(routes), kinds: handledKinds(routes), sinks: sinksOf(routes), held: rt.held, lease: rt.lease, pool: rt.pool,
		rescue: rt.rescue, maintain: rt.maintain, schedule: rt.schedule, reconcile: rt.reconcile,
		dead: make(chan posthaste.WorkerID, 1), retry: backoff{report: report, task: "heartbeat"}}
	return rt
}

func (rt *runtime) newFetcher(r *route) *fetcher {
	return newFetcher(fetcher{engine: rt.engine, report: rt.report, config: rt.config, route: r, team: rt.pool.teamOf(r), bell: rt.bell, gate: rt.gate,
		held: rt.held, pool: rt.pool, outbox: rt.outbox, acks: rt.acks, heart: rt.heart, reconcile: rt.reconcile})
}

// start starts all parts.
func (rt *runtime) start(ctx context.Context) {
	var fetching context.Context
	fetching, rt.stopFetch = context.WithCancel(ctx)
	rt.bell = shareBell(fetching, rt.bell, rt.routes)
	rt.acks.bell, rt.heart.bell = rt.bell, rt.bell
	rt.acking.start(ctx, rt.acks.run)
	sweep := func(ctx context.Context) { rt.pool.sweep(ctx, rt.config.Overrun) }
	for _, run := range []func(context.Context){rt.heart.run, rt.rescue.run, rt.maintain.run, rt.schedule.run, rt.reconcile.run, rt.stats.run, sweep} {
		s := &service{}
		s.start(ctx, run)
		rt.services = append(rt.services, s)
	}
	for _, r := range rt.routes {
		s := &service{}
		s.start(fetching, rt.newFetcher(r).run)
		rt.fetchers = append(rt.fetchers, s)
	}
}
