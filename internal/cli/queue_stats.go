package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newQueueStats(a *app) *cobra.Command {
	var db database
	var query posthaste.StatsQuery
	var since time.Duration
	var by []string
	cmd := &cobra.Command{
		Use: "stats QUEUE", Short: "Show how many messages were handled, and how long it took",
		Long: `Show how many messages of a queue were handled, how many attempts failed, how long
messages waited and how long handlers ran. Worker processes report these counts every
15 seconds. Percentiles are estimates.`,
		Example: "  posthaste queue stats orders --by kind,version --since 30m\n  posthaste queue stats orders --since 24h --step 1h",
		Args:    exactly(1, "the name of a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if since <= 0 {
				return posthaste.Invalidf("since", "--since must be above 0, got %s", since)
			}
			query.Queue, query.From = args[0], time.Now().Add(-since)
			for _, name := range by {
				of, known := posthaste.StatsByName(name)
				if !known {
					return posthaste.Invalidf("by", "--by must be one or more of queue, kind, version and worker, got %q", name)
				}
				query.By |= of
			}
			if err := query.Check(); err != nil {
				return err
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return showStats(ctx, a, e, query) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVar(&query.Subscription, "subscription", "", "only messages of this subscription")
	flags.StringVar(&query.Kind, "kind", "", "only messages of this kind")
	flags.StringSliceVar(&by, "by", []string{"kind"}, "group by queue, kind, version or worker, with commas between them")
	since = time.Hour
	flags.Var(duration{&since}, "since", "only messages of this time until now, at most 30 days (720h)")
	flags.Var(duration{&query.Step}, "step", "one result for each step: whole minutes below an hour, or whole hours (default: one for the whole time)")
	return cmd
}

func showStats(ctx context.Context, a *app, e posthaste.Store, query posthaste.StatsQuery) error {
	if err := keepsCharts(e); err != nil {
		return err
	}
	all, err := e.HandlerStats(ctx, query)
	if err != nil {
		return err
	}
	shown := make([]wire.Stats, len(all))
	for i, s := range all {
		shown[i] = wire.NewStats(s)
	}
	return page{shown, "no messages were handled in this time", 0}.print(a, len(all), func(w *screen) {
		table(w, "FROM KIND VERSION WORKER DONE RETRIED FAILED WAIT-P95 RUN-P50 RUN-P95 RUN-P99", func(row func(...any)) {
			for i, s := range all {
				row(s.At, s.Kind, s.Version, s.Worker, s.Done, s.Retried, s.Failed, brief(shown[i].Wait.P95), brief(shown[i].Run.P50), brief(shown[i].Run.P95), brief(shown[i].Run.P99))
			}
		})
	})
}

// brief shortens a duration to three digits.
func brief(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	for unit := time.Hour; unit > 0; unit /= 10 {
		if d >= 100*unit {
			return d.Round(unit).String()
		}
	}
	return strings.TrimSpace(fmt.Sprint(d))
}
