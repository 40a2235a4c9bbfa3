package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/sink/smtp"
	"github.com/posthaste-mq/posthaste/worker"
)

// sinkFlags holds the flags of a worker with the built-in sinks.
type sinkFlags struct {
	queues      []string
	smtpURL     string
	concurrency int
	grace       time.Duration
}

// sinks holds the constructors of the built-in sinks by queue. They check the configuration.
// A sink connects when it delivers its first message.
var sinks = map[string]func(w *sinkFlags) (posthaste.Sink, error){
	email.Queue: func(w *sinkFlags) (posthaste.Sink, error) {
		if w.smtpURL == "" {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "smtp-url", Message: "no mail server is set for queue " + email.Queue,
				Hint: "set --smtp-url or SMTP_URL, such as smtp://user:password@mail.example.com:587"}
		}
		sink, err := smtp.New(smtp.Config{URL: w.smtpURL, Connections: w.concurrency})
		if err != nil {
			return nil, err
		}
		return sink, nil
	},
}

func (w *sinkFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&w.smtpURL, "smtp-url", "", "mail server for the queue emails, smtp://user:password@host:587 or smtps:// (or SMTP_URL)")
	flags.IntVar(&w.concurrency, "concurrency", 8, "maximum number of concurrent deliveries per queue")
	w.graceFlag(flags)
}

func (w *sinkFlags) graceFlag(flags *pflag.FlagSet) {
	w.grace = 20 * time.Second
	flags.Var(duration{&w.grace}, "grace", "grace period: how long running deliveries may take to finish when the program stops")
}

// check validates the flags without a database.
func (w *sinkFlags) check() error {
	if w.concurrency < 1 || w.concurrency > 1000 {
		return posthaste.Invalidf("concurrency", "--concurrency must be 1 to 1000, got %d", w.concurrency)
	}
	for _, queue := range w.queues {
		if err := posthaste.CheckName("queue", queue); err != nil {
			return err
		}
		if sinks[queue] == nil {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "queue",
				Message: fmt.Sprintf("queue %q has no built-in sink; expected one of %s", queue, strings.Join(sinkQueues(), ", ")),
				Hint:    "handle its messages in your own program, with the Go package worker, over HTTP or with SQL"}
		}
	}
	return nil
}

func sinkQueues() []string {
	var all []string
	for queue := range sinks {
		all = append(all, queue)
	}
	slices.Sort(all)
	return all
}

// open creates the sinks. Call close after the worker has stopped.
func (w *sinkFlags) open() (made map[string]posthaste.Sink, close func(), err error) {
	made = map[string]posthaste.Sink{}
	close = func() {
		for _, sink := range made {
			_ = sink.Close()
		}
	}
	for _, queue := range w.queues {
		if made[queue] != nil {
			continue
		}
		sink, err := sinks[queue](w)
		if err != nil {
			close()
			return nil, nil, err
		}
		made[queue] = sink
	}
	return made, close, nil
}

// workerConfig returns the configuration of the worker.
func (w *sinkFlags) workerConfig(parts workerParts) worker.Config {
	grace := w.grace
	if grace == 0 {
		grace = -1 // in worker.Config, 0 means the default
	}
	return worker.Config{Version: version(), Grace: grace, Logger: parts.log, Tracing: parts.follows, Telemetry: parts.telemetry()}
}

// worker returns a worker that delivers with the sinks in made.
func (w *sinkFlags) worker(parts workerParts, made map[string]posthaste.Sink) *worker.Worker {
	run := worker.New(parts.engine, w.workerConfig(parts))
	for queue, sink := range made {
		destination := ""
		if s, ok := sink.(interface{ Server() string }); ok {
			destination = "mail server " + s.Server()
		}
		// With one message per call, a slow message does not delay others.
		worker.HandleSink(run, queue, sink, worker.WithBatchSize(1), worker.WithConcurrency(w.concurrency), worker.WithDestination(destination))
	}
	parts.expect(run)
	return run
}

// background returns the service beside the server: a worker with the sinks in made, or only
// upkeep without sinks.
func (w *sinkFlags) background(parts workerParts, made map[string]posthaste.Sink) service {
	if len(made) == 0 {
		return service{"upkeep", func(ctx context.Context) error {
			worker.Upkeep(ctx, parts.engine, parts.log)
			return nil
		}}
	}
	return service{"worker", func(ctx context.Context) error { return w.worker(parts, made).Run(ctx) }}
}
