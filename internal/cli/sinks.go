package cli

import (
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

// working says what a process handles with the sinks that are built in.
type working struct {
	queues      []string
	smtpURL     string
	concurrency int
	grace       time.Duration
}

// sinks are the built-in ones, by the queue they deliver. What they need is
// checked when they are made, and nobody is connected to before there is work.
var sinks = map[string]func(w *working) (posthaste.Sink, error){
	email.Queue: func(w *working) (posthaste.Sink, error) {
		if w.smtpURL == "" {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "smtp-url", Message: "no mail server is given for the queue " + email.Queue,
				Hint: "give one with --smtp-url or SMTP_URL, such as smtp://user:password@mail.example.com:587"}
		}
		sink, err := smtp.New(smtp.Config{URL: w.smtpURL, Connections: w.concurrency})
		if err != nil {
			return nil, err
		}
		return sink, nil
	},
}

func (w *working) flags(flags *pflag.FlagSet) {
	flags.StringVar(&w.smtpURL, "smtp-url", "", "the mail server for the queue emails, smtp://user:password@host:587 or smtps:// (or SMTP_URL)")
	flags.IntVar(&w.concurrency, "concurrency", 8, "how many deliveries of a queue run at the same time")
	w.graceFlag(flags)
}

func (w *working) graceFlag(flags *pflag.FlagSet) {
	w.grace = 20 * time.Second
	flags.Var(duration{&w.grace}, "grace", "how long what runs may take to finish when the program has to stop")
}

// check finds all that can be found wrong without a database.
func (w *working) check() error {
	if w.concurrency < 1 || w.concurrency > 1000 {
		return posthaste.Invalidf("concurrency", "--concurrency must be 1 to 1000, and is %d", w.concurrency)
	}
	for _, queue := range w.queues {
		if err := posthaste.CheckName("queue", queue); err != nil {
			return err
		}
		if sinks[queue] == nil {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "queue",
				Message: fmt.Sprintf("there is no built-in sink for queue %q: there is one for %s", queue, strings.Join(sinkQueues(), ", ")),
				Hint:    "handle its messages in a program of your own, with the Go package worker, by HTTP or by SQL"}
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

// open makes the sinks. close closes them, after the worker.
func (w *working) open() (made map[string]posthaste.Sink, close func(), err error) {
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

// workerConfig is the configuration of a program's worker.
func (w *working) workerConfig(parts workerParts) worker.Config {
	grace := w.grace
	if grace == 0 {
		grace = -1 // zero means the default there
	}
	return worker.Config{Version: version(), Grace: grace, Logger: parts.log, Tracing: parts.follows, Telemetry: parts.telemetry()}
}

// worker assembles the runtime on an engine.
func (w *working) worker(parts workerParts, made map[string]posthaste.Sink) *worker.Worker {
	run := worker.New(parts.engine, w.workerConfig(parts))
	for queue, sink := range made {
		// One message a call: a slow one delays only itself.
		worker.HandleSink(run, queue, sink, worker.WithBatchSize(1), worker.WithConcurrency(w.concurrency))
	}
	parts.expect(run)
	return run
}
