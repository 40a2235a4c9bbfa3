package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newErase(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "erase TERM", Short: "Erase what is kept of messages with a term, such as a recipient",
		Long: `Erase what is kept of messages with a term, such as a recipient's address: payload,
headers, key, reference, terms, error texts and receipts. That there was a message
stays, with its queue, kind, states and times. What is still to be delivered is
left as it is and told: erase again when it is settled.`,
		Args: exactly(1, "a term"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.erase(ctx, e, args[0]) })
		},
	}
	db.flag(cmd)
	return cmd
}

// erase goes on until there is nothing more, and tells how far it came also
// where it fails.
func (a *app) erase(ctx context.Context, e posthaste.Store, term string) error {
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
	return cmp.Or(err, a.print(shown, func(w io.Writer) {
		fmt.Fprintf(w, "%d erased\n", shown.Erased)
		for _, id := range shown.Pending {
			fmt.Fprintf(w, "%s is still to be delivered: erase again when it is settled\n", id)
		}
	}))
}
