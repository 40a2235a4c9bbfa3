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

// newQueuePeek returns the command that shows waiting messages.
func newQueuePeek(a *app) *cobra.Command {
	var db database
	f := posthaste.MessageFilter{State: posthaste.StateReady}
	var subscription, before string
	states := []string{string(posthaste.StateReady), string(posthaste.StateRetrying), string(posthaste.StateScheduled)}
	cmd := &cobra.Command{
		Use: "peek QUEUE", Short: "Show waiting messages with their payloads, without receiving them",
		Long: `Show waiting messages with their payloads, newest first. Unlike receive, the command
holds no message, counts no attempt, and does not delay workers.`,
		Example: "  posthaste queue peek orders\n  posthaste queue peek orders --state retrying --limit 10 -o yaml",
		Args:    exactly(1, "a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Queue = args[0]
			if err := paging(f.Limit, before, &f.Before); err != nil {
				return err
			}
			if err := posthaste.CheckName("subscription", subscription); err != nil {
				return err
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return peek(ctx, a, e, f, subscription) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVar(&subscription, "subscription", posthaste.DefaultSubscription, "subscription for which the messages wait")
	flags.Var(&choice{values: states, set: func(s string) { f.State = posthaste.State(s) }}, "state", "state of the messages: "+strings.Join(states, ", ")+" (default ready)")
	flags.StringVar(&f.Key, "key", "", "only messages with this key")
	flags.IntVar(&f.Limit, "limit", 1, "maximum number of messages, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// peek shows the messages that match f and wait for a subscription.
func peek(ctx context.Context, a *app, e posthaste.Store, f posthaste.MessageFilter, subscription string) error {
	queues, err := e.Queues(ctx, f.Queue)
	if err != nil {
		return err
	}
	if len(queues) > 0 && !slices.ContainsFunc(queues[0].Subscriptions, func(s posthaste.SubscriptionInfo) bool { return s.Name == subscription }) {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "subscription", Message: fmt.Sprintf("queue %q has no subscription %q", f.Queue, subscription)}
	}
	matching, err := e.Messages(ctx, f)
	if err != nil {
		return err
	}
	waits := func(s posthaste.MessageState) bool { return s.Subscription == subscription && s.State == f.State }
	var found []posthaste.MessageInfo
	for _, m := range matching.Items {
		if !slices.ContainsFunc(m.Subscriptions, waits) {
			continue // another subscription has it in this state
		}
		whole, err := e.Message(ctx, m.ID)
		switch {
		case posthaste.CodeOf(err) == posthaste.CodeNotFound:
			continue // gone since
		case err != nil:
			return err
		}
		found = append(found, whole)
	}
	shown := make([]wire.Message, len(found))
	for i, m := range found {
		shown[i] = wire.NewMessage(m, true)
	}
	return page{shown, "no messages are " + string(f.State), matching.Next}.print(a, len(found), func(w *screen) {
		for i, m := range found {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeMessage(w, m, nil)
		}
	})
}
