package cli

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newAction(a *app) *cobra.Command {
	return newGroup("action", "Look at what operators did", newActionLs(a))
}

func newActionLs(a *app) *cobra.Command {
	var db database
	var f posthaste.ActionFilter
	var message, before string
	cmd := &cobra.Command{
		Use: "ls", Short: "List what was done, by whom and when, newest first",
		Args: exactly(0, "no arguments; flags select actions"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if message != "" && f.MessageID.UnmarshalText([]byte(message)) != nil {
				return posthaste.Invalidf("message", "--message must be a message id, and is %q", message)
			}
			var id posthaste.MessageID
			if err := paging(f.Limit, before, &id); err != nil {
				return err
			}
			f.Before = int64(id)
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.actions(ctx, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVarP(&f.Queue, "queue", "q", "", "only on this queue")
	flags.StringVar(&message, "message", "", "only on the message with this id")
	flags.IntVar(&f.Limit, "limit", 100, "how many, 1 to 1000")
	flags.StringVar(&before, "before", "", "only records with lower ids than this, for the next page")
	return cmd
}

func (a *app) actions(ctx context.Context, e posthaste.Store, f posthaste.ActionFilter) error {
	actions, err := e.Actions(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.Action, len(actions))
	for i, x := range actions {
		shown[i] = wire.NewAction(x)
	}
	next := posthaste.NewPage(actions, f.Limit, 0, func(x *posthaste.Action) posthaste.MessageID { return posthaste.MessageID(x.ID) }).Next
	return a.printPage(page{"actions", shown, "no action is on record", next}, len(actions), func(w io.Writer) {
		table(w, "ID AT BY ACTION QUEUE MESSAGE DETAILS", func(row func(...any)) {
			for _, x := range actions {
				message := ""
				if x.MessageID != 0 {
					message = x.MessageID.String()
				}
				row(strconv.FormatInt(x.ID, 10), clock(x.At), x.By, x.Action, x.Queue, message, string(x.Details))
			}
		})
	})
}
