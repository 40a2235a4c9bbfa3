package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/user"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDead(a *app) *cobra.Command {
	return newGroup("dead", "Look at dead letters, send them once more or discard them",
		newDeadLs(a), newDeadShow(a),
		newDecide(a, burial{"replay", "Send dead letters once more, under their old ids", "replayed", posthaste.Store.Replay}),
		newDecide(a, burial{"discard", "Remove dead letters for good", "discarded", posthaste.Store.Discard}))
}

// deadFlags are what dead letters are chosen by.
func deadFlags(flags *pflag.FlagSet, f *posthaste.DeadLetterFilter) {
	flags.StringVarP(&f.Queue, "queue", "q", "", "only of this queue")
	flags.StringVar(&f.Subscription, "subscription", "", "only of this subscription of the queue")
	flags.StringVar(&f.Kind, "kind", "", "only of this kind")
	flags.StringVar(&f.Key, "key", "", "only with this key")
	flags.StringVar(&f.Reference, "reference", "", "only with this reference")
	flags.StringVar(&f.Term, "term", "", "only with this term")
	flags.StringVar(&f.Error, "error", "", "only where the last error has this text in it, in any case")
	flags.Var(instant{&f.DiedFrom}, "died-from", "only what died at this time (RFC 3339) or later")
	flags.Var(instant{&f.DiedBefore}, "died-before", "only what died before this time (RFC 3339)")
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
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.deadLetters(ctx, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	deadFlags(flags, &f)
	flags.IntVar(&f.Limit, "limit", 100, "how many, 1 to 1000")
	flags.StringVar(&before, "before", "", "only with lower ids than this, for the next page")
	return cmd
}

func (a *app) deadLetters(ctx context.Context, e posthaste.Store, f posthaste.DeadLetterFilter) error {
	dead, err := e.DeadLetters(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.DeadLetter, len(dead.Items))
	for i, d := range dead.Items {
		shown[i] = wire.NewDeadLetter(d)
	}
	return a.printPage(page{"dead_letters", shown, "there are no dead letters", dead.Next}, len(dead.Items), func(w io.Writer) {
		table(w, "ID QUEUE DIED ATTEMPTS REFERENCE ERROR", func(row func(...any)) {
			for _, d := range dead.Items {
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
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.deadLetter(ctx, e, ids[0]) })
		},
	}
	db.flag(cmd)
	return cmd
}

func (a *app) deadLetter(ctx context.Context, e posthaste.Store, id posthaste.MessageID) error {
	dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	if err != nil {
		return err
	}
	if len(dead.Items) == 0 {
		return noDeadLetter(ctx, e, []posthaste.MessageID{id})
	}
	d := dead.Items[0]
	return a.print(wire.NewDeadLetter(d), func(w io.Writer) {
		fields(w, "message", d.ID, "queue", d.Queue, "subscription", d.Subscription, "key", d.Key, "kind", d.Kind, "reference", d.Reference,
			"terms", strings.Join(d.Terms, " "), "headers", headerText(d.Headers), "type", d.ContentType,
			"created", clock(d.CreatedAt), "died", clock(d.DiedAt), "erased", clock(d.ErasedAt), "error", d.Error)
		fmt.Fprintln(w)
		showAttempts(w, d.Attempts)
		fmt.Fprintf(w, "\n%s\n", payloadText(d.Payload))
	})
}

// burial is what can be done with dead letters.
type burial struct {
	verb, short, done string
	decide            func(posthaste.Store, context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)
}

// newDecide makes replay and discard. Each is recorded with who asked.
func newDecide(a *app, b burial) *cobra.Command {
	var db database
	var f posthaste.DeadLetterFilter
	cmd := &cobra.Command{
		Use: b.verb + " [ID...]", Short: b.short,
		Long: b.short + `: those with the given ids, or all that are like the flags.
By flags it is done in batches of 1,000 from the newest on. What was interrupted
can be repeated: it goes on with what is left.`,
		Args: between(0, 1000, "at most 1000 message ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filtered := !reflect.DeepEqual(f, posthaste.DeadLetterFilter{})
			if filtered == (len(args) > 0) {
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "id", Message: "say which dead letters: ids, or flags such as --queue",
					Hint: "--all means every one; ids and flags exclude each other"}
			}
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if filtered {
					return a.decideMatching(ctx, e, b, f)
				}
				were, err := b.decide(e, ctx, posthaste.DeadLetterFilter{IDs: ids})
				if err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound { // none of them was, as decided tells
					return err
				}
				return a.decided(ctx, e, b.done, ids, were.Items)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	deadFlags(flags, &f)
	flags.BoolVar(&f.All, "all", false, "every dead letter there is")
	return cmd
}

// decideMatching does it batch by batch, and tells how far it came also where
// it fails.
func (a *app) decideMatching(ctx context.Context, e posthaste.Store, b burial, f posthaste.DeadLetterFilter) error {
	bar := newCountBar(a.stderr, b.done)
	count := 0
	var err error
	for f.Limit = 1000; ; {
		var were posthaste.Page[posthaste.MessageID]
		were, err = b.decide(e, ctx, f)
		f.Before = were.Next
		count += len(were.Items)
		bar.add(len(were.Items))
		if err != nil || f.Before == 0 {
			break
		}
	}
	bar.end()
	if err != nil && count == 0 {
		return err
	}
	shown := a.print(map[string]int{b.done: count}, func(w io.Writer) { fmt.Fprintf(w, "%d %s\n", count, b.done) })
	return cmp.Or(err, shown)
}

// decided shows which ids were dead letters. That some were none is a failure,
// though the others are done.
func (a *app) decided(ctx context.Context, e posthaste.Store, done string, asked, were []posthaste.MessageID) error {
	missing := slices.DeleteFunc(slices.Clone(asked), func(id posthaste.MessageID) bool { return slices.Contains(were, id) })
	shown := struct {
		IDs      []posthaste.MessageID `json:"ids"`
		NotFound []posthaste.MessageID `json:"not_found"`
	}{append([]posthaste.MessageID{}, were...), append([]posthaste.MessageID{}, missing...)}
	err := a.print(shown, func(w io.Writer) {
		for _, id := range were {
			fmt.Fprintf(w, "%s %s\n", id, done)
		}
	})
	if err == nil && len(missing) > 0 {
		err = noDeadLetter(ctx, e, missing)
	}
	return err
}

// noDeadLetter says of which messages there is no dead letter to deal with, and
// of the first ones why, where that is on record.
func noDeadLetter(ctx context.Context, e posthaste.Store, ids []posthaste.MessageID) error {
	var texts []string
	for i, id := range ids {
		text := id.String()
		if i < 20 {
			actions, err := e.Actions(ctx, posthaste.ActionFilter{MessageID: id, Limit: 1})
			if err != nil {
				return err
			}
			if len(actions) > 0 {
				text += fmt.Sprintf(" (%s by %s at %s)", actions[0].Action, oneLine(actions[0].By, 80), clock(actions[0].At))
			}
		}
		texts = append(texts, text)
	}
	what := "message " + texts[0] + " is no dead letter"
	if len(texts) > 1 {
		what = "these messages are no dead letters: " + strings.Join(texts, ", ")
	}
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: what}
}

// caller names who decides, for the record.
func caller() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
