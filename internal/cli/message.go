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

func newMessage(a *app) *cobra.Command {
	return newGroup("message", "Look at messages and their stories, and take them back", newMessageLs(a), newMessageShow(a), newMessageCancel(a), newMessageReschedule(a))
}

func newMessageLs(a *app) *cobra.Command {
	var db database
	var f posthaste.MessageFilter
	var state, before string
	var states []string
	for _, s := range posthaste.States() {
		states = append(states, string(s))
	}
	cmd := &cobra.Command{
		Use: "ls", Short: "List messages, newest first",
		Long: `List messages, newest first. With --state, other than dead, it looks at the
10,000 newest messages that match the rest, and no further, and with --key at the
500,000 newest positions: there may be older ones. Go on with --before and an
older id.`,
		Args: exactly(0, "no arguments; flags select messages"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.State = posthaste.State(state)
			if state != "" && !slices.Contains(states, state) {
				return posthaste.Invalidf("state", "--state must be one of %s, and is %q", strings.Join(states, ", "), state)
			}
			if err := paging(f.Limit, before, &f.Before); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.messages(ctx, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVarP(&f.Queue, "queue", "q", "", "only of this queue")
	flags.StringVar(&f.Reference, "reference", "", "only with this reference")
	flags.StringVar(&f.Key, "key", "", "only with this key")
	flags.StringVar(&f.Term, "term", "", "only with this term")
	flags.StringVar(&state, "state", "", "only in this state: "+strings.Join(states, ", "))
	flags.IntVar(&f.Limit, "limit", 100, "how many, 1 to 1000")
	flags.StringVar(&before, "before", "", "only with lower ids than this, for the next page")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// paging checks --limit and reads --before.
func paging(limit int, text string, before *posthaste.MessageID) error {
	if limit < 1 || limit > 1000 {
		return posthaste.Invalidf("limit", "--limit must be 1 to 1000, and is %d", limit)
	}
	if text == "" {
		return nil
	}
	if before.UnmarshalText([]byte(text)) != nil {
		return posthaste.Invalidf("before", "--before must be a message id, and is %q", text)
	}
	return nil
}

// page is one page of a listing: what is shown, under its name in JSON, what is said where
// there is nothing, and where the listing goes on, 0 if this is its end.
type page struct {
	name  string
	shown any
	none  string
	next  posthaste.MessageID
}

// printPage prints a page. One that is not the end says so, also in JSON: it may be empty
// because a search looked at so many that it stopped.
func (a *app) printPage(p page, rows int, text func(w io.Writer)) error {
	value := map[string]any{p.name: p.shown}
	if p.next != 0 {
		value["next"] = p.next
		fmt.Fprintf(a.stderr, "posthaste: there may be more: go on with --before %s\n", p.next)
	}
	return a.print(value, func(w io.Writer) {
		switch {
		case rows > 0:
			text(w)
		case p.next != 0:
			fmt.Fprintf(w, "found none so far: the search stopped at message %s, and goes on with --before %[1]s\n", p.next)
		default:
			fmt.Fprintln(w, p.none)
		}
	})
}

func (a *app) messages(ctx context.Context, e posthaste.Store, f posthaste.MessageFilter) error {
	messages, err := e.Messages(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.Message, len(messages.Items))
	for i, m := range messages.Items {
		shown[i] = wire.NewMessage(m, false)
	}
	return a.printPage(page{"messages", shown, "no message is like that", messages.Next}, len(messages.Items), func(w io.Writer) {
		table(w, "ID QUEUE STATE ATTEMPTS CREATED REFERENCE KIND KEY", func(row func(...any)) {
			for _, m := range messages.Items {
				for _, s := range m.Subscriptions {
					row(m.ID, m.Queue, stateText(s), len(s.Attempts), clock(m.CreatedAt), m.Reference, m.Kind, m.Key)
				}
			}
		})
	})
}

// stateText is the state, with its subscription where that is not the usual one.
func stateText(s posthaste.MessageState) string {
	if s.Subscription == posthaste.DefaultSubscription {
		return string(s.State)
	}
	return string(s.State) + " (" + s.Subscription + ")"
}

func newMessageShow(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a message with its state and its whole story",
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.message(ctx, e, ids[0]) })
		},
	}
	db.flag(cmd)
	return cmd
}

func (a *app) message(ctx context.Context, e posthaste.Store, id posthaste.MessageID) error {
	m, err := e.Message(ctx, id)
	if err != nil {
		return err
	}
	return a.print(wire.NewMessage(m, true), func(w io.Writer) {
		fields(w, "message", m.ID, "queue", m.Queue, "key", m.Key, "kind", m.Kind, "reference", m.Reference,
			"terms", strings.Join(m.Terms, " "), "headers", headerText(m.Headers), "type", m.ContentType, "created", clock(m.CreatedAt), "erased", clock(m.ErasedAt))
		for _, s := range m.Subscriptions {
			fmt.Fprintln(w)
			fields(w, "state", stateText(s), "due", clock(s.DueAt))
			showAttempts(w, s.Attempts)
		}
		fmt.Fprintf(w, "\n%s\n", payloadText(m.Payload))
	})
}
