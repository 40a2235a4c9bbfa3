package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newErase(a *app) *cobra.Command {
	var db database
	var yes confirmed
	cmd := &cobra.Command{
		Use: "erase TERM", Short: "Erase personal data of messages with a term",
		Long: `Erase the payload, headers, key, reference, terms, error texts and receipts of
messages with a term, such as the address of a recipient. The queue, kind, states
and times of the messages are kept. Messages that are not settled yet are not
erased, but listed; run the command again after they are settled.`,
		Args: exactly(1, "a term"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := a.confirm(ctx, yes, db.place(), func() (string, error) {
					return fmt.Sprintf("erase the content of all settled messages with the term %q", args[0]), nil
				}); err != nil {
					return err
				}
				return eraseTerm(ctx, a, e, args[0])
			})
		},
	}
	db.flag(cmd)
	yes.flag(cmd)
	return cmd
}

// eraseTerm erases all messages with a term, page by page. It prints the result even if a
// page fails.
func eraseTerm(ctx context.Context, a *app, e posthaste.Store, term string) error {
	bar := newCountBar(a.stderr, "erased")
	shown := struct {
		Erased  int                   `json:"erased"`
		Pending []posthaste.MessageID `json:"pending"`
	}{Pending: []posthaste.MessageID{}}
	var before posthaste.MessageID
	var err error
	for {
		var found posthaste.Page[posthaste.Erasure]
		found, err = e.Erase(ctx, term, before)
		before = found.Next
		for _, x := range found.Items {
			if x.Pending {
				shown.Pending = append(shown.Pending, x.MessageID)
			} else {
				shown.Erased++
			}
		}
		bar.add(len(found.Items))
		if err != nil || before == 0 {
			break
		}
	}
	bar.end()
	if err != nil && shown.Erased == 0 && len(shown.Pending) == 0 {
		return err
	}
	return cmp.Or(err, a.print(shown, func(w *screen) {
		fmt.Fprintf(w, "%d erased\n", shown.Erased)
		for _, id := range shown.Pending {
			fmt.Fprintf(w, "%s is not settled yet; run erase again after it is\n", id)
		}
	}))
}
