package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/worker"
)

func newRelay(a *app) *cobra.Command {
	var db database
	var r relayFlags
	var metricsListen string
	cmd := &cobra.Command{
		Use: "relay --queue NAME {--broker URL | --to-engine URL}", Short: "Relay messages to a broker or another engine",
		Long: `Relay the messages of queues to a broker, or to a queue of another engine. A message
is done after the broker has confirmed it. A message that the broker rejects is retried
with backoff, and is dead-lettered after max_attempts with the error of the broker.

Configure relays in a file (--config), or a single destination with --queue, --broker
and --set, which sets keys of the file. Values can be templates over a message, such
as orders.{{.Kind}}. The file can also name sources, which send messages of a broker
to queues. The command checks the configuration with the broker at the start; if the
broker is unavailable, it waits.

SIGTERM or Ctrl-C stops it gracefully, as posthaste worker.`,
		Example: `  posthaste relay --queue orders --broker amqp://guest:guest@localhost/ --set exchange=orders --set 'routing_key={{.Kind}}'
  posthaste relay --queue orders --to-engine redis://localhost/ --set origin=shop
  posthaste relay --config relays.yaml`,
		Args: exactly(0, "no arguments; use --queue to name queues"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRelay(cmd.Context(), a, db, r, metricsListen)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&r.config, "config", "c", "", "file of relays and sources (YAML)")
	flags.StringSliceVarP(&r.queues, "queue", "q", nil, "the queue to relay; may be repeated")
	var urls []string
	for _, k := range brokers.All {
		urls = append(urls, strings.Join(k.Schemes, ":// or ")+":// for "+k.Name)
	}
	flags.StringVar(&r.broker, "broker", "", "the broker: "+strings.Join(urls, ", ")+"; also the default for relays and sources in the file")
	flags.StringVar(&r.engine, "to-engine", "", "the engine to relay to, in place of a broker: postgres://, redis://, nats:// or the https:// URL of a server; needs --set origin=NAME")
	flags.StringArrayVar(&r.set, "set", nil, "set a key of the file, such as exchange=orders or headers.region=eu; may be repeated")
	db.flag(cmd)
	needsStore(cmd, "a relay delivers the messages of its own database")
	db.pollingFlag(cmd)
	r.graceFlag(flags)
	flags.StringVar(&metricsListen, "metrics-listen", "", "address of /metrics and /healthz, without authentication, host:port (default: not served)")
	return cmd
}

// relayFlags holds the flags of relay.
type relayFlags struct {
	sinkFlags
	config string
	broker string
	engine string
	set    []string
}

// read parses the flags and the file.
func (r *relayFlags) read() ([]relayConfig, []sourceConfig, error) {
	switch {
	case r.config != "" && (len(r.queues) > 0 || len(r.set) > 0 || r.engine != ""):
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "config", Message: "--config and --queue, --to-engine or --set are mutually exclusive", Hint: "set these values in the file"}
	case r.broker != "" && r.engine != "":
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "to-engine", Message: "--broker and --to-engine are mutually exclusive", Hint: "omit one of them"}
	case r.config != "":
		return readRelays(r.config, r.broker)
	case len(r.queues) == 0:
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: "no queue is set", Hint: "set --queue and --broker or --to-engine, or --config"}
	}
	relays, err := setRelays(r.queues, r.broker, r.engine, r.set)
	return relays, nil, err
}

// openRelay is a relay with its sink.
type openRelay struct {
	relayConfig
	sink brokers.Sink
}

// openRelays opens the sinks. close closes them, after the worker.
func openRelays(configs []relayConfig, log *slog.Logger) (relays []openRelay, close func(), err error) {
	close = func() {
		for _, r := range relays {
			_ = r.sink.Close()
		}
	}
	for _, c := range configs {
		sink, err := c.open(log)
		if err != nil {
			close()
			return nil, nil, c.placed(err)
		}
		relays = append(relays, openRelay{c, sink})
	}
	return relays, close, nil
}

// check verifies the configuration with the broker.
func (r *openRelay) check(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := r.sink.Check(ctx)
	if posthaste.CodeOf(err) == posthaste.CodeUnavailable {
		log.Warn("the broker is unavailable; messages wait for it", "queue", r.Queue, "error", err)
		return nil
	}
	return r.placed(err)
}

// checkQueue rejects queues that cannot be relayed: an at-most-once queue settles a message
// before the broker has it, and a chunk of an ordered queue would hold messages of many keys.
// The worker reports a missing queue or a missing permission.
func (r *openRelay) checkQueue(ctx context.Context, engine posthaste.Store) error {
	found, err := engine.Queues(ctx, r.Queue)
	for posthaste.CodeOf(err) == posthaste.CodeUnavailable { // it was available a moment ago
		if waitToRetry(ctx) != nil {
			return err
		}
		found, err = engine.Queues(ctx, r.Queue)
	}
	if posthaste.CodeOf(err) == posthaste.CodeDenied {
		return nil
	}
	if err != nil || len(found) != 1 {
		return err
	}
	switch o := found[0].Options; {
	case o.Mode == posthaste.AtMostOnce:
		return r.fault("queue", fmt.Sprintf("queue %q has mode at_most_once, in which messages are settled before the broker has them and can be lost", r.Queue),
			"relay a queue of mode at_least_once")
	case o.Ordered && r.Chunks != nil:
		return r.fault("chunks", fmt.Sprintf("queue %q is ordered, but a chunk holds messages of many keys", r.Queue), "omit chunks")
	}
	return nil
}

// handle adds the relay to a worker, and the state of the broker to the metrics.
func (r *openRelay) handle(run *worker.Worker, parts workerParts) {
	var sink posthaste.Sink = r.sink
	if chunks, _ := r.chunks(); chunks != nil { // readRelay has checked it
		sink = chunks.Sink(r.sink)
	}
	options := []worker.Option{worker.WithBatchSize(r.Batch), worker.WithConcurrency(r.Concurrency), worker.WithDestination(r.kind.Name + " at " + r.sink.Broker())}
	if r.Subscription != "" {
		options = append(options, worker.WithSubscription(r.Subscription))
	}
	worker.HandleSink(run, r.Queue, sink, options...)
	parts.broker(r.Queue, r.sink.Broker(), r.sink.Away)
}

func runRelay(ctx context.Context, a *app, db database, r relayFlags, metricsListen string) error {
	configs, sources, err := r.read()
	if err != nil {
		return misuse(err)
	}
	relays, closeSinks, err := openRelays(configs, a.log)
	if err != nil {
		return misuse(err)
	}
	defer closeSinks()
	var queues []string
	for i := range relays {
		if err := relays[i].check(ctx, a.log); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !slices.Contains(queues, relays[i].Queue) {
			queues = append(queues, relays[i].Queue)
		}
	}
	for _, c := range sources {
		if !slices.Contains(queues, c.Queue) {
			queues = append(queues, c.Queue)
		}
	}
	return runWorker(ctx, a, db, metricsListen, func(ctx context.Context, w workerParts) (runner, error) {
		config := r.workerConfig(w)
		config.Telemetry = batchLog{w.telemetry(), a.log}
		run := worker.New(w.engine, config)
		for i := range relays {
			if err := relays[i].checkQueue(ctx, w.engine); err != nil {
				return nil, err
			}
			relays[i].handle(run, w)
		}
		w.expect(run)
		return openSources(ctx, run, w, sources, config)
	}, "relaying", "queues", queues)
}

// batchLog logs every batch and passes all events on.
type batchLog struct {
	next posthaste.Telemetry
	log  *slog.Logger
}

// Event implements [posthaste.Telemetry].
func (l batchLog) Event(ctx context.Context, e posthaste.Event) {
	l.next.Event(ctx, e)
	if e.Kind == posthaste.EventBatch {
		l.log.LogAttrs(ctx, slog.LevelInfo, "batch", slog.String("queue", e.Queue), slog.String("subscription", e.Subscription), slog.Int("count", e.Count), slog.Int("failed", e.Failed),
			slog.Duration("claim", e.Claim), slog.Duration("publish", e.Duration), slog.Duration("settle", e.Settle), slog.Duration("total", e.Total))
	}
	if e.Kind == posthaste.EventTaken {
		l.log.LogAttrs(ctx, slog.LevelInfo, "taken", slog.String("queue", e.Queue), slog.String("broker", e.Broker), slog.Int("count", e.Count), slog.Int("known", e.Known), slog.Int("refused", e.Failed),
			slog.Duration("read", e.Claim), slog.Duration("send", e.Duration), slog.Duration("acknowledge", e.Settle), slog.Duration("total", e.Total))
	}
}
