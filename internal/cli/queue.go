package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newQueue(a *app) *cobra.Command {
	return newGroup("queue", "Create, inspect, change and drop queues",
		newQueueLs(a), newShown(a, "show QUEUE", "Show the options of a queue and the counters of its subscriptions", "a queue", showQueue), newQueuePeek(a), newQueueCreate(a), newQueueDrop(a), newQueueSubscribe(a), newQueueUnsubscribe(a), newQueueStats(a), newQueuePurge(a), newQueueUpdate(a), newQueueApply(a),
		newQueuePause(a), newQueueResume(a), newWordPause(a, keyWord, "Pause delivery for one key"), newWordResume(a, keyWord, "Resume delivery for a paused key"),
		newWordPause(a, kindWord, "Pause delivery of one kind of messages"), newWordResume(a, kindWord, "Resume delivery of a paused kind"), newQueuePauses(a))
}

func newQueueLs(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "ls [QUEUE...]", Short: "List queues with their counters",
		Args: between(0, -1, "queue names"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listQueues(ctx, a, e, args) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func listQueues(ctx context.Context, a *app, e posthaste.Store, names []string) error {
	if len(names) == 0 {
		names = nil // all of them
	}
	queues, err := e.Queues(ctx, names...)
	if err != nil {
		return err
	}
	shown := make([]wire.Queue, len(queues))
	for i, q := range queues {
		shown[i] = wire.NewQueue(q)
	}
	for _, name := range names {
		if !slices.ContainsFunc(queues, func(q posthaste.QueueInfo) bool { return q.Name == name }) {
			return noQueue(name)
		}
	}
	return a.print(listed{data: shown}, func(w *screen) {
		if len(queues) == 0 {
			fmt.Fprintln(w, "no queues; create one with: posthaste queue create NAME")
			return
		}
		head, totals := "QUEUE WAITING IN-FLIGHT DEAD OLDEST", e.Capabilities().Totals
		if totals {
			head += " SENT/S DONE/S SENT DONE"
		}
		table(w, head, func(row func(...any)) {
			for _, q := range queues {
				for _, s := range q.Subscriptions {
					name := q.Name
					if s.Name != posthaste.DefaultSubscription {
						name += "/" + s.Name
					}
					if !q.PausedAt.IsZero() {
						name += " (paused)"
					}
					cells := []any{name, s.Depth, s.InFlight, failures(s.Dead), age(s.OldestAge)}
					if totals {
						cells = append(cells, fmt.Sprintf("%.1f", s.SentPerSecond), fmt.Sprintf("%.1f", s.DonePerSecond), s.Sent, s.Done)
					}
					row(cells...)
				}
			}
		})
	})
}

// showOptions prints the options of a queue.
func showOptions(ctx context.Context, a *app, e posthaste.Store, name string) error {
	return printQueue(ctx, a, e, name, func(w *screen, q posthaste.QueueInfo) { queueFields(w, q) })
}

// showQueue prints the options of a queue and the counters of its subscriptions.
func showQueue(ctx context.Context, a *app, e posthaste.Store, name string) error {
	return printQueue(ctx, a, e, name, func(w *screen, q posthaste.QueueInfo) {
		queueFields(w, q, "created", q.CreatedAt, "paused", q.PausedAt)
		fmt.Fprintln(w)
		head, totals := "SUBSCRIPTION WAITING IN-FLIGHT DEAD OLDEST", e.Capabilities().Totals
		if totals {
			head += " SENT DONE RETRIED LOST EXPIRED WITHDRAWN"
		}
		table(w, head, func(row func(...any)) {
			for _, s := range q.Subscriptions {
				cells := []any{s.Name, s.Depth, s.InFlight, failures(s.Dead), age(s.OldestAge)}
				if totals {
					cells = append(cells, s.Sent, s.Done, s.Retried, s.Lost, s.Expired, s.Withdrawn)
				}
				row(cells...)
			}
		})
		showAside(w, q)
	})
}

// showAside prints the messages that wait for a worker that handles their kind, if there are any.
func showAside(w *screen, q posthaste.QueueInfo) {
	if !slices.ContainsFunc(q.Subscriptions, func(s posthaste.SubscriptionInfo) bool { return len(s.SetAside) > 0 }) {
		return
	}
	fmt.Fprintln(w, "\nmessages set aside for workers that handle their kind:")
	table(w, "SUBSCRIPTION KIND WAITING OLDEST HANDLED-BY", func(row func(...any)) {
		for _, s := range q.Subscriptions {
			for _, a := range s.SetAside {
				by := "no running worker"
				switch {
				case a.Paused:
					by = "no worker: the kind is paused"
				case a.Known:
					by = "a running worker"
				}
				row(s.Name, a.Kind, a.Waiting, age(a.OldestAge), by)
			}
		}
	})
}

func queueFields(w *screen, q posthaste.QueueInfo, more ...any) {
	all := append([]any{"queue", q.Name}, optionFields(q.Options)...)
	fields(w, append(append(all, "paused keys", strings.Join(q.PausedKeys, ", "), "paused kinds", strings.Join(q.PausedKinds, ", ")), more...)...)
}

func printQueue(ctx context.Context, a *app, e posthaste.Store, name string, show func(*screen, posthaste.QueueInfo)) error {
	queues, err := e.Queues(ctx, name)
	if err != nil {
		return err
	}
	if len(queues) == 0 {
		return noQueue(name)
	}
	return a.print(wire.NewQueue(queues[0]), func(w *screen) { show(w, queues[0]) })
}

func newQueueDrop(a *app) *cobra.Command {
	return newLossy(a, "drop QUEUE", "Drop a queue and all its messages", exactly(1, "a queue"), "drop", func(ctx context.Context, e posthaste.Store, args []string) error {
		if err := e.DropQueue(ctx, args[0], posthaste.DropOptions{}); err != nil {
			return err
		}
		return a.print(map[string]string{"dropped": args[0]}, func(w *screen) { fmt.Fprintf(w, "queue %s dropped\n", args[0]) })
	})
}

func newQueuePurge(a *app) *cobra.Command {
	return newLossy(a, "purge QUEUE", "Delete all waiting messages; messages in flight are not affected", exactly(1, "a queue"), "delete the waiting messages of",
		func(ctx context.Context, e posthaste.Store, args []string) error {
			purged, err := e.PurgeQueue(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(wire.NewPurged(purged), func(w *screen) {
				table(w, "SUBSCRIPTION PURGED", func(row func(...any)) {
					for _, p := range purged {
						row(p.Subscription, p.Messages)
					}
				})
			})
		})
}

func noQueue(name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q not found", name)}
}
