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

func newMessageUpdate(a *app) *cobra.Command {
	var db database
	var version string
	cmd := &cobra.Command{
		Use: "update ID CHANGES", Short: "Change a waiting message",
		Long: `Change a waiting message, in all subscriptions or not at all: it fails once one has
claimed it. CHANGES is a JSON object with the fields payload, content_type, key, kind,
headers, reference, terms and priority; null removes a field. "-" reads it from
standard input. A dead letter is sent again with the changes, under a new id.`,
		Example: `  posthaste message update 4711 '{"payload": {"order": 8}, "priority": 1}'`,
		Args:    exactly(2, "a message id and a JSON object"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args[:1])
			if err != nil {
				return err
			}
			data := []byte(args[1])
			if args[1] == "-" {
				if data, err = readInput(a, "changes", "-"); err != nil {
					return err
				}
			}
			update, err := wire.ParseUpdate(data)
			if err != nil {
				return err
			}
			update.Version = version
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				done, err := e.UpdateMessage(ctx, ids[0], update)
				if err != nil {
					return err
				}
				return a.print(struct {
					ID      posthaste.MessageID `json:"id"`
					Version string              `json:"version,omitempty"`
				}{done.ID, done.Version}, func(w *screen) { fmt.Fprintln(w, done.ID) })
			})
		},
	}
	db.flag(cmd)
	cmd.Flags().StringVar(&version, "if-version", "", "fail unless the message has this version, as message show prints it")
	return cmd
}

func newMessageRun(a *app) *cobra.Command {
	cmd := newNamed(a, "run ID", "Make a message, or its next attempt, due now", "a message id", runMessage)
	cmd.Long = "Make a message, or its next attempt, due now in each subscription that has not claimed\nit. Pauses, limits and the order of the queue still hold; HELD-BY names them. The exit\ncode is 1 if the message waits in no subscription."
	cmd.Example = "  posthaste message run 4711"
	return cmd
}

func runMessage(ctx context.Context, a *app, e posthaste.Store, name string) error {
	ids, err := messageIDs([]string{name})
	if err != nil {
		return err
	}
	all, err := e.RunMessage(ctx, ids[0])
	if err != nil {
		return err
	}
	err = a.print(wire.NewRunResults(all), func(w *screen) {
		table(w, "SUBSCRIPTION DUE STATE HELD-BY", func(row func(...any)) {
			for _, each := range all {
				row(each.Subscription, each.Due, each.State, strings.Join(each.HeldBy, ","))
			}
		})
	})
	if err == nil && !slices.ContainsFunc(all, func(each posthaste.RunResult) bool { return each.Due }) {
		var not []posthaste.Withdrawal
		for _, each := range all {
			not = append(not, posthaste.Withdrawal{Subscription: each.Subscription, State: each.State})
		}
		return &exitError{exitFailed, wire.NotWaiting(ids[0], not)}
	}
	return err
}
