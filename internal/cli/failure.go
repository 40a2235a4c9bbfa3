package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newFailure(a *app) *cobra.Command {
	return newGroup("failure", "List failed attempts by error", newFailureLs(a))
}

func newFailureLs(a *app) *cobra.Command {
	var db database
	var query posthaste.FailureQuery
	var since time.Duration
	cmd := &cobra.Command{
		Use: "ls", Short: "List failed attempts by kind, version and error, most frequent first",
		Long: `List failed attempts by queue, kind, version of the program and error. Numbers, ids and
quoted text in errors count as equal. Workers report the most frequent errors of each
kind every 15 seconds, long before a message has used up its attempts.`,
		Example: "  posthaste failure ls --since 15m",
		Args:    exactly(0, "no arguments; flags select failures"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since <= 0 {
				return posthaste.Invalidf("since", "--since must be above 0, got %s", since)
			}
			if err := query.Check(); err != nil {
				return err
			}
			query.From = time.Now().Add(-since)
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listFailures(ctx, a, e, query) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVarP(&query.Queue, "queue", "q", "", "only failures of this queue")
	flags.StringVar(&query.Subscription, "subscription", "", "only failures of this subscription")
	flags.StringVar(&query.Kind, "kind", "", "only failures of messages of this kind")
	since = time.Hour
	flags.Var(duration{&since}, "since", "only failures of this time until now, at most 30 days (720h)")
	flags.IntVar(&query.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	return cmd
}

func listFailures(ctx context.Context, a *app, e posthaste.Store, query posthaste.FailureQuery) error {
	if err := keepsCharts(e); err != nil {
		return err
	}
	failures, err := e.Failures(ctx, query)
	if err != nil {
		return err
	}
	shown := make([]wire.Failure, len(failures))
	for i, f := range failures {
		shown[i] = wire.NewFailure(f)
	}
	return page{shown, "no failures found", 0}.print(a, len(failures), func(w *screen) {
		table(w, "ATTEMPTS QUEUE KIND VERSION FIRST LAST MESSAGE ERROR", func(row func(...any)) {
			for _, f := range failures {
				row(f.Count, f.Queue, f.Kind, f.Version, f.First, f.Last, f.Message, f.Fingerprint)
			}
		})
	})
}

// keepsCharts returns an error if the store keeps no figures about the past.
func keepsCharts(e posthaste.Store) error {
	if e.Capabilities().Charts {
		return nil
	}
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "this store keeps no figures about the past"}
}
