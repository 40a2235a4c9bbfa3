package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sidekiq"
)

func newImportSidekiq(a *app) *cobra.Command {
	var db database
	var o sidekiq.Options
	var from string
	var queues []string
	cmd := &cobra.Command{
		Use: "sidekiq", Short: "Take over the jobs that Sidekiq or jiggler has in a Redis",
		Long: `Send the jobs that are queued, scheduled and to be retried, and remove each from its
Redis once it is sent. Stop its processes first. It may be killed at any moment, and is
run again then: what was sent is known by its jid for a week. What becomes of what:
docs/moving-in.md.`,
		Example: `  posthaste import sidekiq --from redis://localhost:6379/0 --dry-run
  posthaste import sidekiq --from redis://localhost:6379/0 --map default=jobs --dead dead-jobs`,
		Args: exactly(0, "no arguments; --from says where the jobs are"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Batch < 1 || o.Batch > 1000 {
				return posthaste.Invalidf("batch", "--batch must be 1 to 1000")
			}
			if o.Layout != "sidekiq" && o.Layout != "jiggler" {
				return posthaste.Invalidf("layout", "--layout must be sidekiq or jiggler, and is %q", o.Layout)
			}
			o.Queues = map[string]string{}
			for _, pair := range queues {
				old, mapped, ok := strings.Cut(pair, "=")
				if !ok || old == "" || mapped == "" {
					return posthaste.Invalidf("map", "--map must be OLD=NEW, and is %q", pair)
				}
				o.Queues[old] = mapped
			}
			redis, err := goredis.ParseURL(from)
			if err != nil {
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "from", Message: "--from is not the URL of a Redis server", Hint: "it looks like redis://user:password@host:6379/0"} // the cause could hold the password
			}
			redis.ContextTimeoutEnabled = true // one server, as Sidekiq needs: no other can take its place behind the client's back
			client := goredis.NewClient(redis)
			defer client.Close()
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.importSidekiq(ctx, client, e, o) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVar(&from, "from", "", "the Redis that has the jobs, redis://user:password@host:6379/0")
	flags.StringVar(&o.Layout, "layout", "sidekiq", "whose keys they are: sidekiq or jiggler")
	flags.StringVar(&o.Namespace, "namespace", "", "what all its keys begin with, before a colon")
	flags.StringVarP(&o.Queue, "queue", "q", "", "the queue that all jobs go to (default: that of the same name)")
	flags.StringArrayVar(&queues, "map", nil, "a queue's jobs go to another, OLD=NEW; may be repeated")
	flags.StringVar(&o.Dead, "dead", "", "the queue, empty and of nobody else, whose dead letters the dead jobs become (default: they stay)")
	flags.BoolVar(&o.Keep, "keep", false, "leave the jobs in Redis")
	flags.IntVar(&o.Batch, "batch", 500, "how many jobs go at a time, 1 to 1000")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only count the jobs")
	return cmd
}

func (a *app) importSidekiq(ctx context.Context, from *goredis.Client, to posthaste.Store, o sidekiq.Options) error {
	bar := newCountBar(a.stderr, "taken over")
	o.Progress = bar.add
	report, err := sidekiq.Import(ctx, from, to, o)
	bar.end()
	if err != nil && report.Imported == 0 {
		return err
	}
	if printed := a.print(report, func(w io.Writer) { tellSidekiq(w, report) }); err == nil {
		err = printed
	}
	if err == nil && len(report.Refused) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func tellSidekiq(w io.Writer, r sidekiq.Report) {
	if !r.DryRun {
		fmt.Fprintf(w, "%d jobs are taken over, %d of them as dead letters\n", r.Imported, r.Dead)
	}
	if r.Duplicates > 0 {
		fmt.Fprintf(w, "%d jobs more have the jid of one of these, or are the same without one, and are one with it\n", r.Duplicates)
	}
	for _, set := range slices.Sorted(maps.Keys(r.Pending)) {
		fmt.Fprintf(w, "%d jobs are in Redis: %s\n", r.Pending[set], set)
	}
	for i, x := range r.Refused {
		if i == toldRefusals {
			fmt.Fprintf(w, "… and %d more are refused; --json lists all\n", len(r.Refused)-i)
			break
		}
		fmt.Fprintf(w, "job %s of %s is refused and left as it is: %s\n", oneLine(x.JID, 64), oneLine(x.In, 64), strings.TrimSpace(x.Error))
	}
}
