package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newQueue(a *app) *cobra.Command {
	return newGroup("queue", "Look at queues, make and drop them",
		newQueueLs(a), newQueueCreate(a), newQueueDrop(a), notYet("pause"), notYet("resume"))
}

func newQueueLs(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "ls [QUEUE...]", Short: "List queues with their counters",
		Args: between(0, -1, "names of queues"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error { return a.queues(ctx, e, args) })
		},
	}
	db.flag(cmd)
	return cmd
}

func (a *app) queues(ctx context.Context, e posthaste.Engine, names []string) error {
	if len(names) == 0 {
		names = nil // all of them
	}
	queues, err := e.Queues(ctx, names...)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	shown := make([]wire.Queue, len(queues))
	for i, q := range queues {
		shown[i], found[q.Name] = wire.NewQueue(q), true
	}
	for _, name := range names {
		if !found[name] {
			return &posthaste.Error{Code: posthaste.NotFound, Field: "queue", Message: fmt.Sprintf("there is no queue %q", name), Hint: "`posthaste queue ls` lists them"}
		}
	}
	return a.print(shown, func(w io.Writer) {
		if len(queues) == 0 {
			fmt.Fprintln(w, "there is no queue yet; make one with `posthaste queue create NAME`")
			return
		}
		table(w, "QUEUE WAITING IN-FLIGHT DEAD OLDEST SENT/S DONE/S SENT DONE", func(row func(...any)) {
			for _, q := range queues {
				for _, s := range q.Subscriptions {
					name := q.Name
					if s.Name != posthaste.DefaultSubscription {
						name += "/" + s.Name
					}
					row(name, s.Depth, s.InFlight, s.Dead, age(s.OldestAge), fmt.Sprintf("%.1f", s.SentPerSecond), fmt.Sprintf("%.1f", s.DonePerSecond), s.Sent, s.Done)
				}
			}
		})
	})
}

func newQueueCreate(a *app) *cobra.Command {
	var db database
	var o posthaste.QueueOptions
	cmd := &cobra.Command{
		Use: "create QUEUE", Short: "Make a queue",
		Long: `Make a queue. One that exists with the same options is left as it is; with
others it is an error, for options cannot be changed yet.`,
		Args: exactly(1, "the queue's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := posthaste.CheckName("name", name); err != nil {
				return err
			}
			if err := explicitZero(cmd, "max-attempts", "backoff-base", "backoff-max", "timeout", "max-payload", "lanes"); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error {
				if err := e.QueueCreate(ctx, name, o); err != nil {
					return err
				}
				return a.made(ctx, e, name)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.IntVar(&o.MaxAttempts, "max-attempts", 0, "how often a message is tried, 1 to 1000 (default 20)")
	flags.Var(duration{&o.BackoffBase}, "backoff-base", "the wait before the first retry, doubled each time (default 1s)")
	flags.Var(duration{&o.BackoffMax}, "backoff-max", "the longest wait between attempts (default 1h)")
	flags.Var(duration{&o.Timeout}, "timeout", "how long one attempt may take (default 30s)")
	flags.Var(size{&o.MaxPayload}, "max-payload", "the largest payload, at most 32MiB (default 1MiB)")
	flags.IntVar(&o.Lanes, "lanes", 0, "lanes that share the load of very many senders (default 1)")
	later(flags, "retention", "rate-limit", "concurrency", "mode")
	laterSwitch(flags, "ordered")
	return cmd
}

// made shows a queue as it is now.
func (a *app) made(ctx context.Context, e posthaste.Engine, name string) error {
	queues, err := e.Queues(ctx, name)
	if err != nil {
		return err
	}
	if len(queues) == 0 {
		return &posthaste.Error{Code: posthaste.NotFound, Field: "queue", Message: fmt.Sprintf("queue %q was made, and dropped by somebody at once", name)}
	}
	shown := wire.NewQueue(queues[0])
	return a.print(shown, func(w io.Writer) {
		o := shown.Options
		fields(w, "queue", shown.Name, "max attempts", o.MaxAttempts, "backoff", o.Backoff.Base+" to "+o.Backoff.Max,
			"timeout", o.Timeout, "max payload", fmt.Sprintf("%d bytes", o.MaxPayload), "lanes", o.Lanes)
	})
}

func newQueueDrop(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "drop QUEUE", Short: "Drop a queue with all its messages",
		Args: exactly(1, "the queue's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error {
				if err := e.QueueDrop(ctx, args[0]); err != nil {
					return err
				}
				return a.print(map[string]string{"dropped": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "queue %s is dropped\n", args[0]) })
			})
		},
	}
	db.flag(cmd)
	return cmd
}
