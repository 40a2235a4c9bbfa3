package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newQueueSubscribe(a *app) *cobra.Command {
	var db database
	var o posthaste.SubscriptionOptions
	var headers []string
	cmd := &cobra.Command{
		Use: "subscribe QUEUE SUBSCRIPTION", Short: "Add a subscription: each gets every message of the queue",
		Long: `Add a subscription to a queue. Every message is delivered to each of them, and
each ends it by itself. One that is there with the same options is left as it is;
options cannot be changed.`,
		Example: "  posthaste queue subscribe orders audit --from oldest\n  posthaste queue subscribe orders billing --kind paid --header region=eu --header region=uk",
		Args:    exactly(2, "the queue's name and the subscription's"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := posthaste.CheckName("subscription", args[1]); err != nil {
				return err
			}
			if err := explicitZero(cmd, "max-lag"); err != nil {
				return err
			}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok || name == "" || value == "" {
					return posthaste.Invalidf("header", "--header must be NAME=VALUE, and is %q", h)
				}
				if o.Filter.Headers == nil {
					o.Filter.Headers = map[string][]string{}
				}
				o.Filter.Headers[name] = append(o.Filter.Headers[name], value)
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := e.Subscribe(ctx, args[0], args[1], o); err != nil {
					return err
				}
				return a.print(map[string]string{"subscribed": args[1]}, func(w io.Writer) {
					fmt.Fprintf(w, "queue %s has the subscription %s\n", args[0], args[1])
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVar(&o.From, "from", posthaste.FromNow, "where it begins: now, or oldest, which is all that is kept")
	flags.BoolVar(&o.Scheduled, "scheduled", false, "also what was scheduled before and falls due later")
	flags.Var(words{&o.Filter.Kinds}, "kind", "only messages of this kind; may be repeated")
	flags.StringArrayVar(&headers, "header", nil, "only messages whose header is so, NAME=VALUE; may be repeated, also for one name")
	flags.Var(duration{&o.MaxLag}, "max-lag", "how far it may fall behind before space is taken from it (default for ever)")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{posthaste.FromNow, posthaste.FromOldest}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newQueueUnsubscribe(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "unsubscribe QUEUE SUBSCRIPTION", Short: "End a subscription with its retries and dead letters",
		Args: exactly(2, "the queue's name and the subscription's"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := e.Unsubscribe(ctx, args[0], args[1]); err != nil {
					return err
				}
				return a.print(map[string]string{"unsubscribed": args[1]}, func(w io.Writer) {
					fmt.Fprintf(w, "the subscription %s of queue %s has ended\n", args[1], args[0])
				})
			})
		},
	}
	db.flag(cmd)
	return cmd
}

func newQueuePurge(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "purge QUEUE", Short: "Take back all messages that wait; what is handed out runs on",
		Args: exactly(1, "the queue's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				purged, err := e.PurgeQueue(ctx, args[0])
				if err != nil {
					return err
				}
				return a.print(wire.NewPurged(purged), func(w io.Writer) {
					table(w, "SUBSCRIPTION PURGED", func(row func(...any)) {
						for _, p := range purged {
							row(p.Subscription, p.Messages)
						}
					})
				})
			})
		},
	}
	db.flag(cmd)
	return cmd
}

func newMessageCancel(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Take a message back where it was not handed out yet",
		Long: "Take a message back where it was not handed out yet. The exit code is 1 if that\nis nowhere.",
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withdraw(cmd, &db, args, func(ctx context.Context, e posthaste.Store, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
				return e.Cancel(ctx, id)
			})
		},
	}
	db.flag(cmd)
	return cmd
}

func newMessageReschedule(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "reschedule ID TIME", Short: "Move the time of a message, or of its next attempt",
		Long:    "Move the time of a message, or of its next attempt, where it was not handed out\nyet. The exit code is 1 if that is nowhere.",
		Example: "  posthaste message reschedule 4711 2030-01-31T12:00:00Z",
		Args:    exactly(2, "a message id and a time"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := wire.ParseTime(args[1])
			if err != nil {
				return posthaste.Invalidf("send_at", "the time %s", err)
			}
			return a.withdraw(cmd, &db, args[:1], func(ctx context.Context, e posthaste.Store, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
				return e.Reschedule(ctx, id, at)
			})
		},
	}
	db.flag(cmd)
	return cmd
}

// withdraw takes a message back, and ends with code 1 where no subscription was in time.
func (a *app) withdraw(cmd *cobra.Command, db *database, args []string, do func(context.Context, posthaste.Store, posthaste.MessageID) ([]posthaste.Withdrawal, error)) error {
	ids, err := messageIDs(args)
	if err != nil {
		return err
	}
	return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
		all, err := do(ctx, e, ids[0])
		if err != nil {
			return err
		}
		err = a.print(wire.NewWithdrawals(all), func(w io.Writer) {
			table(w, "SUBSCRIPTION IN-TIME STATE", func(row func(...any)) {
				for _, each := range all {
					row(each.Subscription, each.InTime, each.State)
				}
			})
		})
		if err == nil && !slices.ContainsFunc(all, func(each posthaste.Withdrawal) bool { return each.InTime }) {
			return &exitError{code: exitFailed} // the table says it
		}
		return err
	})
}
