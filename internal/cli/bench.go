//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste/internal/bench"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

func newBench(a *app) *cobra.Command {
	var databaseURL, redisURL, natsURL, engine string
	var o bench.Options
	var list strings.Builder
	for _, name := range bench.Scenarios() {
		fmt.Fprintf(&list, "\n  %-13s %s", name, bench.Describe(name))
	}
	cmd := &cobra.Command{
		Use: "bench SCENARIO", Short: "Measure the performance on this machine",
		Long: `Measure one scenario on the given database, or on a temporary embedded PostgreSQL
with durable settings. The scenarios:
` + list.String() + `

An invalid result contains the reason, and the exit code is 1.`,
		Example: "  posthaste bench flow\n  posthaste bench latency --duration 30s --json",
		Args:    exactly(1, "a scenario: "+strings.Join(bench.Scenarios(), ", ")), ValidArgs: bench.Scenarios(),
		RunE: func(cmd *cobra.Command, args []string) error {
			positive := []string{"duration", "batch", "senders", "waiting", "handler", "consumers", "queues", "workers"}
			if args[0] != "transactional" && args[0] != "senders" { // where 0 is unlimited
				positive = append(positive, "rate")
			}
			if err := explicitZero(cmd, positive...); err != nil {
				return err
			}
			o.Log = a.log
			o.Engine, o.RedisURL, o.DatabaseURL = engineOfBench(cmd.Flags(), args[0], engine), redisURL, databaseURL
			// A URL in a variable applies only to its own engine.
			if o.Engine != onRedis && !typed(cmd.Flags(), "redis-url") {
				o.RedisURL = ""
			}
			if (o.Engine == onRedis || bench.OnNATS(args[0])) && !typed(cmd.Flags(), "database-url") {
				o.DatabaseURL = ""
			}
			if o.NATSURL = natsURL; !bench.OnNATS(args[0]) && !typed(cmd.Flags(), "nats-url") {
				o.NATSURL = ""
			}
			show := newBenchBar(a.stderr)
			o.Progress = show.tell
			result, err := bench.Run(cmd.Context(), args[0], o)
			show.end()
			if err != nil {
				return err
			}
			if err := printBenchResult(a, result); err != nil {
				return err
			}
			if !result.Valid {
				return &exitError{code: exitFailed} // the result contains the reason
			}
			return nil
		},
	}
	benchFlags(cmd.Flags(), &o, &databaseURL, &redisURL, &natsURL, &engine)
	return cmd
}

func benchFlags(flags *pflag.FlagSet, o *bench.Options, databaseURL, redisURL, natsURL, engine *string) {
	flags.SortFlags = false
	flags.StringVar(databaseURL, "database-url", "", "PostgreSQL to measure, postgres://user:password@host:5432/database (or DATABASE_URL; default: an embedded one)")
	flags.StringVar(redisURL, "redis-url", "", "Redis to measure, redis://user:password@host:6379/0 (or REDIS_URL; default: the installed redis-server, started for the run)")
	flags.StringVar(natsURL, "nats-url", "", "nats: the NATS servers to measure, nats://user:password@host:4222 (or NATS_URL; default: the installed nats-server, started for the run)")
	flags.IntVar(&o.Servers, "servers", 0, "nats: number of NATS servers to start, 1 or 3 (default 1)")
	flags.StringVar(&o.Way, "way", "", "nats: measure only singly, gathered, batches-10, batches-100, batches-1000 or handled")
	flags.StringVar(engine, "engine", "", "flow, single, latency, senders, ordered, kinds, idle: postgres or redis (default: the engine of the URL flag, or postgres)")
	flags.Var(duration{&o.Duration}, "duration", "total duration of all phases, 1s to 1h (default "+bench.DefaultDuration.String()+", with --steady "+bench.SteadyDuration.String()+")")
	flags.Float64Var(&o.Rate, "rate", 0, "latency: messages per second (default 50); transactional, senders: messages per second of all senders (default 0: unlimited)")
	flags.IntVar(&o.Queues, "queues", 0, "transactional, senders: number of queues, 1 to 1000 (default 1)")
	flags.IntVar(&o.Workers, "workers", 0, "transactional, senders: number of worker processes, 1 to 8 (default 1)")
	flags.BoolVar(&o.Steady, "steady", false, "flow: measure the duration of claims while ring slots rotate, especially after each truncation")
	flags.StringVar(&o.Keyed, "keyed", "", "pinned: use a queue with keys, limits and three subscriptions: limits (also per key; the default of --keyed) or ordered")
	flags.Lookup("keyed").NoOptDefVal = "limits"
	flags.BoolVar(&o.OpenSender, "open-sender", false, "latency: keep the transaction of another sender open")
	flags.IntVar(&o.Batch, "batch", 0, "flow, pinned, backlog, ordered, kinds: messages per send (default 1000, with --keyed 100); senders: messages per HTTP request (default 100)")
	flags.IntVar(&o.Senders, "senders", 0, "flow, pinned, backlog, ordered, kinds: number of sending goroutines (default 8)")
	flags.IntVar(&o.Waiting, "waiting", 0, "backlog: number of waiting messages (default 1000000)")
	flags.StringVar(&o.PostgresBin, "postgres-bin", "", "directory with initdb and postgres, to use instead of a download")
	flags.StringVar(&o.PostgresVersion, "postgres-version", "", "version of the embedded PostgreSQL, 14 or 18 (default 18)")
	flags.StringVar(&o.DataDir, "data", "", "directory of the temporary cluster")
	flags.StringVar(&o.Profile, "profile", "", "write a CPU profile of the last measurement to this file")
	flags.StringVar(&o.Broker, "broker", "", "relay, pipeline: broker to measure, "+brokers.List(func(k *brokers.Kind) string { return k.Schemes[0] + "://" })+"user:password@host, or "+brokers.List(func(k *brokers.Kind) string { return k.Word })+" for the installed one, started for the run (default "+brokers.All[0].Word+"; pipeline: RabbitMQ only)")
	flags.StringVar(&o.QueueType, "queue-type", "", "relay: type of the RabbitMQ queue, classic or quorum (default classic)")
	flags.Var(duration{&o.Handler}, "handler", "pipeline: duration of each handler (default 10ms)")
	flags.IntVar(&o.Consumers, "consumers", 0, "pipeline: number of consumers, 1 to 16 (default 3)")
}

// engineOfBench returns the engine to measure. Flags on the command line decide; variables
// apply only if the scenario supports both engines.
func engineOfBench(flags *pflag.FlagSet, scenario, engine string) string {
	switch {
	case typed(flags, "engine"):
		return engine
	case bench.OnNATS(scenario):
		return ""
	case !bench.CanPostgres(scenario) || typed(flags, "redis-url") && bench.CanRedis(scenario):
		return onRedis
	case typed(flags, "database-url") || !bench.CanRedis(scenario) || engine == "":
		return onPostgres
	}
	return engine
}

func printBenchResult(a *app, result *bench.Result) error {
	var tableErr error
	err := a.print(result, func(w *screen) { tableErr = result.Table(w) })
	return cmp.Or(err, tableErr)
}

// benchBar shows a progress bar on a terminal. It shows nothing on other outputs.
type benchBar struct{ bar *progressbar.ProgressBar }

func newBenchBar(w io.Writer) *benchBar {
	if !isTerminal(w) {
		return &benchBar{}
	}
	return &benchBar{progressbar.NewOptions(1000, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())}
}

func (b *benchBar) tell(phase string, elapsed, total time.Duration) {
	if b.bar == nil || total <= 0 {
		return
	}
	b.bar.Describe(phase)
	_ = b.bar.Set(min(999, int(1000*elapsed/total)))
}

func (b *benchBar) end() {
	if b.bar != nil {
		_ = b.bar.Finish()
	}
}
