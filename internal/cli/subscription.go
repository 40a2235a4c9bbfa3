package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newQueueSubscribe(a *app) *cobra.Command {
	var db database
	var o posthaste.SubscriptionOptions
	var headers []string
	cmd := &cobra.Command{
		Use: "subscribe QUEUE SUBSCRIPTION", Short: "Add a subscription to a queue",
		Long: `Add a subscription to a queue. Each subscription gets every message of the queue
that matches its filter, and settles it independently. The command is idempotent if the options are the same;
options cannot be changed.`,
		Example: "  posthaste queue subscribe orders audit --from oldest\n  posthaste queue subscribe orders billing --kind paid --header region=eu --header region=uk",
		Args:    exactly(2, "a queue and a subscription"),
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
					return posthaste.Invalidf("header", "--header must be NAME=VALUE, got %q", h)
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
				return a.print(map[string]string{"subscribed": args[1]}, func(w *screen) {
					fmt.Fprintf(w, "added subscription %[2]s to queue %[1]s\n", args[0], args[1])
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVar(&o.From, "from", posthaste.FromNow, "first message: now, or oldest for all messages that are still stored")
	flags.BoolVar(&o.Scheduled, "scheduled", false, "also deliver messages that were scheduled earlier and are due later")
	flags.Var(words{&o.Filter.Kinds}, "kind", "only messages of this kind; may be repeated")
	flags.StringArrayVar(&headers, "header", nil, "only messages with this header, NAME=VALUE; may be repeated, also with the same name")
	flags.Var(duration{&o.MaxLag}, "max-lag", "how far the subscription may lag before its oldest messages can be skipped if space is short (default unlimited)")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{posthaste.FromNow, posthaste.FromOldest}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newQueueUnsubscribe(a *app) *cobra.Command {
	return newLossy(a, "unsubscribe QUEUE SUBSCRIPTION", "Remove a subscription with its retries and dead letters", exactly(2, "a queue and a subscription"), "remove",
		func(ctx context.Context, e posthaste.Store, args []string) error {
			if err := e.Unsubscribe(ctx, args[0], args[1], posthaste.DropOptions{}); err != nil {
				return err
			}
			return a.print(map[string]string{"unsubscribed": args[1]}, func(w *screen) {
				fmt.Fprintf(w, "removed subscription %s from queue %s\n", args[1], args[0])
			})
		})
}
