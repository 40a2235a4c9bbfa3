package cli

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDead(a *app) *cobra.Command {
	return newGroup("dead", "Look at dead letters, send them once more or discard them",
		newDeadLs(a), newDeadShow(a),
		newDecide(a, "replay", "Send dead letters once more, under their old ids", "replayed", posthaste.Engine.Replay),
		newDecide(a, "discard", "Remove dead letters for good", "discarded", posthaste.Engine.Discard))
}

func newDeadLs(a *app) *cobra.Command {
	var db database
	var f posthaste.DeadLetterFilter
	var before string
	cmd := &cobra.Command{
		Use: "ls", Short: "List dead letters, newest first",
		Args: exactly(0, "no arguments; flags select dead letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := paging(f.Limit, before, &f.Before); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error { return a.deadLetters(ctx, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVarP(&f.Queue, "queue", "q", "", "only of this queue")
	flags.IntVar(&f.Limit, "limit", 100, "how many, 1 to 1000")
	flags.StringVar(&before, "before", "", "only with lower ids than this, for the next page")
	return cmd
}

func (a *app) deadLetters(ctx context.Context, e posthaste.Engine, f posthaste.DeadLetterFilter) error {
	dead, err := e.DeadLetters(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.DeadLetter, len(dead))
	for i, d := range dead {
		shown[i] = wire.NewDeadLetter(d)
	}
	return a.print(shown, func(w io.Writer) {
		if len(dead) == 0 {
			fmt.Fprintln(w, "there are no dead letters")
			return
		}
		table(w, "ID QUEUE DIED ATTEMPTS REFERENCE ERROR", func(row func(...any)) {
			for _, d := range dead {
				row(d.ID, d.Queue, clock(d.DiedAt), len(d.Attempts), d.Reference, d.Error)
			}
		})
	})
}

func newDeadShow(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter with its whole story",
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error { return a.deadLetter(ctx, e, ids[0]) })
		},
	}
	db.flag(cmd)
	return cmd
}

func (a *app) deadLetter(ctx context.Context, e posthaste.Engine, id posthaste.MessageID) error {
	dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	if err != nil {
		return err
	}
	if len(dead) == 0 {
		return noDeadLetter([]string{id.String()})
	}
	d := dead[0]
	return a.print(wire.NewDeadLetter(d), func(w io.Writer) {
		fields(w, "message", d.ID, "queue", d.Queue, "subscription", d.Subscription, "key", d.Key, "kind", d.Kind, "reference", d.Reference,
			"terms", strings.Join(d.Terms, " "), "headers", headerText(d.Headers), "type", d.ContentType,
			"created", clock(d.CreatedAt), "died", clock(d.DiedAt), "error", d.Error)
		fmt.Fprintln(w)
		showAttempts(w, d.Attempts)
		fmt.Fprintf(w, "\n%s\n", payloadText(d.Payload))
	})
}

// newDecide makes replay and discard. Each is recorded with who asked.
func newDecide(a *app, verb, short, done string, decide func(posthaste.Engine, context.Context, string, ...posthaste.MessageID) ([]posthaste.MessageID, error)) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: verb + " ID...", Short: short,
		Args: between(1, 1000, "1 to 1000 message ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Engine) error {
				were, err := decide(e, ctx, caller(), ids...)
				if err != nil {
					return err
				}
				return a.decided(done, ids, were)
			})
		},
	}
	db.flag(cmd)
	return cmd
}

// decided shows which ids were dead letters. That some were none is a failure,
// though the others are done.
func (a *app) decided(done string, asked, were []posthaste.MessageID) error {
	missing := []string{}
	for _, id := range asked {
		if !slices.Contains(were, id) {
			missing = append(missing, id.String())
		}
	}
	shown := struct {
		IDs      []posthaste.MessageID `json:"ids"`
		NotFound []string              `json:"not_found"`
	}{append([]posthaste.MessageID{}, were...), missing}
	err := a.print(shown, func(w io.Writer) {
		for _, id := range were {
			fmt.Fprintf(w, "%s %s\n", id, done)
		}
	})
	if err == nil && len(missing) > 0 {
		err = noDeadLetter(missing)
	}
	return err
}

func noDeadLetter(ids []string) error {
	what := "message " + ids[0] + " is no dead letter"
	if len(ids) > 1 {
		what = "these messages are no dead letters: " + strings.Join(ids, ", ")
	}
	return &posthaste.Error{Code: posthaste.NotFound, Field: "id", Message: what, Hint: "`posthaste dead ls` lists them"}
}

// caller names who decides, for the record.
func caller() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
