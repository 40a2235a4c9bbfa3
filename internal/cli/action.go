package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newAction(a *app) *cobra.Command {
	return newGroup("action", "List operator actions", newActionLs(a))
}

func newActionLs(a *app) *cobra.Command {
	var db database
	var f posthaste.ActionFilter
	var message, before string
	cmd := &cobra.Command{
		Use: "ls", Short: "List operator actions with their actor and time, newest first",
		Args: exactly(0, "no arguments; flags select actions"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if message != "" && f.MessageID.UnmarshalText([]byte(message)) != nil {
				return posthaste.Invalidf("message", "--message must be a message id, got %q", message)
			}
			var id posthaste.MessageID
			if err := paging(f.Limit, before, &id); err != nil {
				return err
			}
			f.Before = int64(id)
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listActions(ctx, a, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVarP(&f.Queue, "queue", "q", "", "only actions on this queue")
	flags.StringVar(&message, "message", "", "only actions on the message with this id")
	flags.IntVar(&f.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	return cmd
}

func listActions(ctx context.Context, a *app, e posthaste.Store, f posthaste.ActionFilter) error {
	actions, err := e.Actions(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.Action, len(actions))
	for i, x := range actions {
		shown[i] = wire.NewAction(x)
	}
	next := posthaste.NewPage(actions, f.Limit, 0, func(x *posthaste.Action) posthaste.MessageID { return posthaste.MessageID(x.ID) }).Next
	return page{shown, "no actions found", next}.print(a, len(actions), func(w *screen) {
		table(w, "ID AT BY ACTION QUEUE MESSAGE DETAILS", func(row func(...any)) {
			for _, x := range actions {
				message := ""
				if x.MessageID != 0 {
					message = x.MessageID.String()
				}
				row(strconv.FormatInt(x.ID, 10), x.At, x.By, x.Action, x.Queue, message, string(x.Details))
			}
		})
	})
}
