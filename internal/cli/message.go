package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newMessage(a *app) *cobra.Command {
	return newGroup("message", "Inspect, settle, change and cancel messages", newMessageLs(a), newMessageShow(a), newMessageUpdate(a), newMessageRun(a), newMessageCancel(a), newMessageReschedule(a),
		newMessageAck(a), newMessageFail(a), newMessageRelease(a), newMessageExtend(a))
}

func newMessageLs(a *app) *cobra.Command {
	var db database
	var f posthaste.MessageFilter
	var before string
	var wanted, states []string
	for _, s := range posthaste.States() {
		states = append(states, string(s))
	}
	cmd := &cobra.Command{
		Use: "ls", Short: "List messages, newest first",
		Long: `List messages, newest first. With --state other than dead, the search covers the
newest messages that match the other flags, on PostgreSQL up to 3,000 deliveries;
with --key, the 500,000 newest positions. To search older messages, continue with --before.`,
		Args: exactly(0, "no arguments; flags select messages"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var in []posthaste.State
			for _, s := range wanted {
				if !slices.Contains(states, s) {
					return posthaste.Invalidf("state", "--state must be one of %s, got %q", strings.Join(states, ", "), s)
				}
				in = append(in, posthaste.State(s))
			}
			if in == nil {
				in = append(in, "") // any
			}
			if err := paging(f.Limit, before, &f.Before); err != nil {
				return err
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listMessages(ctx, a, e, f, in) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVarP(&f.Queue, "queue", "q", "", "only messages of this queue")
	flags.StringVar(&f.Reference, "reference", "", "only messages with this reference")
	flags.StringVar(&f.Key, "key", "", "only messages with this key")
	flags.StringVar(&f.Term, "term", "", "only messages with this term")
	flags.Var(words{&wanted}, "state", "only messages in this state: "+strings.Join(states, ", ")+"; may be repeated")
	flags.IntVar(&f.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func listMessages(ctx context.Context, a *app, e posthaste.Store, f posthaste.MessageFilter, states []posthaste.State) error {
	messages, err := wire.MessagesIn(ctx, e, f, states)
	if err != nil {
		return err
	}
	shown := make([]wire.Message, len(messages.Items))
	for i, m := range messages.Items {
		shown[i] = wire.NewMessage(m, false)
	}
	return page{shown, "no messages found", messages.Next}.print(a, len(messages.Items), func(w *screen) {
		table(w, "ID QUEUE STATE ATTEMPTS CREATED REFERENCE KIND KEY", func(row func(...any)) {
			for _, m := range messages.Items {
				for _, s := range m.Subscriptions {
					row(m.ID, m.Queue, stateText(s), len(s.Attempts), m.CreatedAt, m.Reference, m.Kind, m.Key)
				}
			}
		})
	})
}

// stateText returns the state, the progress of what runs and whether it was cancelled, and the
// subscription unless it is the default one.
func stateText(s posthaste.MessageState) styled {
	text := string(s.State)
	if n := len(s.Attempts); n > 0 && s.State == posthaste.StateRunning {
		last := s.Attempts[n-1]
		if last.Progress > 0 {
			text += fmt.Sprintf(" %.0f %%", 100*last.Progress)
		}
		if !last.CancelRequestedAt.IsZero() {
			text += ", cancel requested"
		}
	}
	if s.Subscription != posthaste.DefaultSubscription {
		text += " (" + s.Subscription + ")"
	}
	return styled{text, stateStyle(s.State)}
}

func newMessageShow(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a message with its state and all attempts",
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return showMessage(ctx, a, e, ids[0]) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func showMessage(ctx context.Context, a *app, e posthaste.Store, id posthaste.MessageID) error {
	m, err := e.Message(ctx, id)
	if err != nil {
		return err
	}
	queue, err := queueOfWaiting(ctx, e, m)
	if err != nil {
		return err
	}
	return a.print(wire.NewMessage(m, true), func(w *screen) { writeMessage(w, m, queue) })
}

// queueOfWaiting returns the queue of a message that waits for a subscription, which may hold it,
// or nil. It is also nil if the caller may not see queues.
func queueOfWaiting(ctx context.Context, e posthaste.Store, m posthaste.MessageInfo) (*posthaste.QueueInfo, error) {
	if !slices.ContainsFunc(m.Subscriptions, waits) {
		return nil, nil
	}
	queues, err := e.Queues(ctx, m.Queue)
	switch code := posthaste.CodeOf(err); {
	case code == posthaste.CodeDenied || code == posthaste.CodeNotFound || err == nil && len(queues) == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &queues[0], nil
}

func waits(s posthaste.MessageState) bool {
	return s.State == posthaste.StateReady || s.State == posthaste.StateScheduled || s.State == posthaste.StateRetrying
}

// writeMessage writes all of a message, and what may hold it if its queue is given.
func writeMessage(w *screen, m posthaste.MessageInfo, queue *posthaste.QueueInfo) {
	fields(w, "message", m.ID, "queue", m.Queue, "key", m.Key, "kind", m.Kind, "reference", m.Reference,
		"terms", strings.Join(m.Terms, " "), "headers", headerText(m.Headers), "type", m.ContentType, "created", m.CreatedAt, "erased", m.ErasedAt, "options", ownOptions(m))
	for _, s := range m.Subscriptions {
		fmt.Fprintln(w)
		var held string
		if queue != nil && waits(s) {
			held = strings.Join(posthaste.HeldBy(queue, &m, s.Subscription), ", ")
		}
		fields(w, "state", stateText(s), "due", s.DueAt, "held by", held)
		showAttempts(w, s.Attempts)
	}
	writePayload(w, m.Payload, m.PayloadHidden)
}

// ownOptions returns the options that the message itself has.
func ownOptions(m posthaste.MessageInfo) string {
	if m.Options == (posthaste.KindOptions{}) {
		return ""
	}
	return m.Options.String()
}

func newMessageCancel(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a message",
		Long: `Cancel a message in each subscription. Where it waits, it is never delivered. Where
it runs, its worker is told by the next heartbeat, and a receiver when it extends
its lease; it is not retried, and becomes cancelled unless it finishes. The exit
code is 1 if it neither waits nor runs in any subscription, unless it is cancelled
already.`,
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withdraw(a, cmd, &db, args, posthaste.Withdrawal.Cancelled, func(ctx context.Context, e posthaste.Store, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
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
		Use: "reschedule ID TIME|DELAY", Short: "Change the delivery time of a message or of its next attempt",
		Long: `Change the delivery time of a message, or of its next attempt, in each subscription
that has not claimed it yet. A delay counts from now, by the clock of this machine.
The exit code is 1 if all subscriptions have claimed the message.`,
		Example: "  posthaste message reschedule 4711 2030-01-31T12:00:00Z\n  posthaste message reschedule 4711 15m",
		Args:    exactly(2, "a message id, and a time or a delay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := wire.ParseTime(args[1])
			if err != nil {
				var delay time.Duration
				if (duration{&delay}).Set(args[1]) != nil {
					return posthaste.Invalidf("send_at", "the time %s, or a delay such as 15m", err)
				}
				at = time.Now().Add(delay)
			}
			return withdraw(a, cmd, &db, args[:1], posthaste.Withdrawal.Accepted, func(ctx context.Context, e posthaste.Store, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
				return e.Reschedule(ctx, id, at)
			})
		},
	}
	db.flag(cmd)
	return cmd
}

func requested(w posthaste.Withdrawal) bool { return w.Requested }

func withdrawnState(w posthaste.Withdrawal) string {
	if w.Requested {
		return string(w.State) + ", cancel requested"
	}
	return string(w.State)
}

// withdraw cancels or reschedules a message with do. The exit code is 1 if changed is true for no
// subscription.
func withdraw(a *app, cmd *cobra.Command, db *database, args []string, changed func(posthaste.Withdrawal) bool, do func(context.Context, posthaste.Store, posthaste.MessageID) ([]posthaste.Withdrawal, error)) error {
	ids, err := messageIDs(args)
	if err != nil {
		return err
	}
	return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
		all, err := do(ctx, e, ids[0])
		if err != nil {
			return err
		}
		err = a.print(wire.NewWithdrawals(all), func(w *screen) {
			table(w, "SUBSCRIPTION IN-TIME STATE", func(row func(...any)) {
				for _, each := range all {
					row(each.Subscription, each.InTime, withdrawnState(each))
				}
			})
			if slices.ContainsFunc(all, requested) {
				fmt.Fprintln(w, "\nThe message is running. Its worker is told by the next heartbeat, a receiver when it\nextends its lease. It is not retried, and becomes cancelled unless it finishes.")
			}
		})
		if err == nil && !slices.ContainsFunc(all, changed) {
			return &exitError{exitFailed, wire.NotWaiting(ids[0], all)}
		}
		return err
	})
}
