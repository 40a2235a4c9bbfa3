package cli

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDead(a *app) *cobra.Command {
	return newGroup("dead", "Inspect, replay and discard dead letters",
		newDeadLs(a), newDeadShow(a),
		newDecide(a, decision{verb: "replay", short: "Replay dead letters under the same ids", done: "replayed", decide: posthaste.Store.Replay}),
		newDecide(a, decision{verb: "discard", short: "Discard dead letters", done: "discarded", asks: true, decide: posthaste.Store.Discard}))
}

// deadFlags adds the flags that filter dead letters.
func deadFlags(flags *pflag.FlagSet, f *posthaste.DeadLetterFilter) {
	flags.StringVarP(&f.Queue, "queue", "q", "", "only of this queue")
	flags.StringVar(&f.Subscription, "subscription", "", "only of this subscription")
	flags.StringVar(&f.Kind, "kind", "", "only of this kind")
	flags.StringVar(&f.Key, "key", "", "only with this key")
	flags.StringVar(&f.Reference, "reference", "", "only with this reference")
	flags.StringVar(&f.Term, "term", "", "only with this term")
	flags.StringVar(&f.Error, "error", "", "only if the last error contains this text, ignoring case")
	flags.Var(instant{&f.DiedFrom}, "died-from", "only dead letters since this time (RFC 3339)")
	flags.Var(instant{&f.DiedBefore}, "died-before", "only dead letters before this time (RFC 3339)")
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
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listDeadLetters(ctx, a, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	deadFlags(flags, &f)
	flags.IntVar(&f.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	return cmd
}

func listDeadLetters(ctx context.Context, a *app, e posthaste.Store, f posthaste.DeadLetterFilter) error {
	dead, err := e.DeadLetters(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.DeadLetter, len(dead.Items))
	for i, d := range dead.Items {
		shown[i] = wire.NewDeadLetter(d)
	}
	return page{shown, "no dead letters", dead.Next}.print(a, len(dead.Items), func(w *screen) {
		table(w, "ID QUEUE KIND DIED ATTEMPTS REFERENCE ERROR", func(row func(...any)) {
			for _, d := range dead.Items {
				row(d.ID, d.Queue, d.Kind, d.DiedAt, len(d.Attempts), d.Reference, d.Error)
			}
		})
	})
}

func newDeadShow(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter with all attempts",
		Args: exactly(1, "a message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return showDeadLetter(ctx, a, e, ids[0]) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func showDeadLetter(ctx context.Context, a *app, e posthaste.Store, id posthaste.MessageID) error {
	dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	if err != nil {
		return err
	}
	if len(dead.Items) == 0 {
		return noDeadLetter(ctx, e, []posthaste.MessageID{id})
	}
	d := dead.Items[0]
	return a.print(wire.NewDeadLetter(d), func(w *screen) {
		fields(w, "message", d.ID, "queue", d.Queue, "subscription", d.Subscription, "key", d.Key, "kind", d.Kind, "reference", d.Reference,
			"terms", strings.Join(d.Terms, " "), "headers", headerText(d.Headers), "type", d.ContentType,
			"created", d.CreatedAt, "died", d.DiedAt, "erased", d.ErasedAt, "error", d.Error)
		fmt.Fprintln(w)
		showAttempts(w, d.Attempts)
		writePayload(w, d.Payload, d.PayloadHidden)
	})
}

// decision is an action on dead letters: replay or discard.
type decision struct {
	verb, short, done string
	// asks says that the decision needs a confirmation.
	asks   bool
	decide func(posthaste.Store, context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)
}

// newDecide returns the command of a decision, which is recorded with its actor.
func newDecide(a *app, b decision) *cobra.Command {
	var db database
	yes := confirmed(!b.asks)
	var f posthaste.DeadLetterFilter
	cmd := &cobra.Command{
		Use: b.verb + " [ID...]", Short: b.short,
		Long: b.short + `: those with the given ids, or all that match the filter.
With a filter, the command works in batches of 1,000, newest first. If it is
interrupted, repeat it to process the rest.`,
		Args: between(0, 1000, "at most 1000 message ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filtered := !reflect.DeepEqual(f, posthaste.DeadLetterFilter{})
			if filtered == (len(args) > 0) {
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "id", Message: "no dead letters are selected, or both by ids and by a filter",
					Hint: "give ids, or flags such as --queue; ids and flags are mutually exclusive; --all selects all"}
			}
			ids, err := messageIDs(args)
			if err != nil {
				return err
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				place := ""
				if b.asks {
					place = db.place()
				}
				if err := a.confirm(ctx, yes, place, func() (string, error) {
					if filtered {
						return b.verb + " all dead letters that match the flags", nil
					}
					return b.verb + " " + counted(int64(len(ids)), "dead letter"), nil
				}); err != nil {
					return err
				}
				if filtered {
					return decideMatching(ctx, a, e, b, f)
				}
				were, err := b.decide(e, ctx, posthaste.DeadLetterFilter{IDs: ids})
				if err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound { // no id is a dead letter; printDecided reports it
					return err
				}
				return printDecided(ctx, a, e, b.done, ids, were)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	deadFlags(flags, &f)
	flags.BoolVar(&f.All, "all", false, "all dead letters")
	if b.asks {
		yes.flag(cmd)
	}
	return cmd
}

// decideMatching applies a decision to all dead letters that match f, in batches. It prints
// the number of processed dead letters even if a batch fails.
func decideMatching(ctx context.Context, a *app, e posthaste.Store, b decision, f posthaste.DeadLetterFilter) error {
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
	shown := a.print(map[string]int{b.done: count}, func(w *screen) { fmt.Fprintf(w, "%d %s\n", count, b.done) })
	return cmp.Or(err, shown)
}

// printDecided prints the ids that were dead letters. It fails if some were not.
func printDecided(ctx context.Context, a *app, e posthaste.Store, done string, asked []posthaste.MessageID, page posthaste.Page[posthaste.MessageID]) error {
	were := page.Items
	missing := slices.DeleteFunc(slices.Clone(asked), func(id posthaste.MessageID) bool {
		return slices.Contains(were, id) || slices.Contains(page.Conflicts, id)
	})
	shown := struct {
		IDs      []posthaste.MessageID `json:"ids"`
		NotFound []posthaste.MessageID `json:"not_found"`
		// UniqueConflict are dead letters that stay.
		UniqueConflict []posthaste.MessageID `json:"unique_conflict,omitempty"`
	}{append([]posthaste.MessageID{}, were...), append([]posthaste.MessageID{}, missing...), page.Conflicts}
	err := a.print(shown, func(w *screen) {
		for _, id := range were {
			fmt.Fprintf(w, "%s %s\n", id, done)
		}
		for _, id := range page.Conflicts {
			fmt.Fprintf(w, "%s stays: another message holds its unique key\n", id)
		}
	})
	if err == nil && len(missing) > 0 {
		err = noDeadLetter(ctx, e, missing)
	}
	return err
}

// noDeadLetter returns the error for messages that are not dead letters. It gives the last
// recorded action of the first ones as the reason.
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
	what := "message " + texts[0] + " is not a dead letter"
	if len(texts) > 1 {
		what = "these messages are not dead letters: " + strings.Join(texts, ", ")
	}
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: what}
}
