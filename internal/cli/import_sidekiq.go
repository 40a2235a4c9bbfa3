package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

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
		Use: "sidekiq", Short: "Import the jobs of Sidekiq or jiggler",
		Long: `Send the jobs that are enqueued, scheduled or to be retried, and remove each from Redis
after it is sent. Stop the Sidekiq processes first. If the command is killed, run it
again with the same flags: jobs are deduplicated by jid and queue for a week. For the
mapping of jobs to messages, see docs/migrate/sidekiq.md.`,
		Example: `  posthaste import sidekiq --from redis://localhost:6379/0 --dry-run
  posthaste import sidekiq --from redis://localhost:6379/0 --map default=jobs --dead dead-jobs`,
		Args: exactly(0, "no arguments; --from names the Redis with the jobs"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Batch < 1 || o.Batch > 1000 {
				return posthaste.Invalidf("batch", "--batch must be 1 to 1000")
			}
			if o.Layout != "sidekiq" && o.Layout != "jiggler" {
				return posthaste.Invalidf("layout", "--layout must be sidekiq or jiggler, got %q", o.Layout)
			}
			if o.Queues, err = parseQueueMap(queues); err != nil {
				return err
			}
			redis, err := goredis.ParseURL(from)
			if err != nil {
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "from", Message: "--from is not the URL of a Redis server", Hint: "expected redis://user:password@host:6379/0"} // the cause can contain the password
			}
			redis.ContextTimeoutEnabled = true // Sidekiq uses one server, so there is no failover that the client could miss
			client := goredis.NewClient(redis)
			defer client.Close()
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return importSidekiq(ctx, a, client, e, o) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	needsStore(cmd, "the API cannot import dead jobs")
	flags.StringVar(&from, "from", "", "URL of the Redis with the jobs, redis://user:password@host:6379/0")
	flags.StringVar(&o.Layout, "layout", "sidekiq", "layout of the keys: sidekiq or jiggler")
	flags.StringVar(&o.Namespace, "namespace", "", "prefix of all keys, without the colon")
	flags.StringVarP(&o.Queue, "queue", "q", "", "queue of all messages (default: the queue with the same name)")
	flags.StringArrayVar(&queues, "map", nil, "import the jobs of one queue into another, OLD=NEW; may be repeated")
	flags.StringVar(&o.Dead, "dead", "", "import dead jobs as dead letters of this queue, which must be empty and otherwise unused (default: dead jobs are not imported)")
	flags.BoolVar(&o.Keep, "keep", false, "leave the jobs in Redis")
	flags.IntVar(&o.Batch, "batch", 500, "jobs per batch, 1 to 1000")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only count the jobs")
	return cmd
}

func importSidekiq(ctx context.Context, a *app, from *goredis.Client, to posthaste.Store, o sidekiq.Options) error {
	bar := newCountBar(a.stderr, "imported")
	o.Progress = bar.add
	report, err := sidekiq.Import(ctx, from, to, o)
	bar.end()
	if err != nil && report.Imported == 0 {
		return err
	}
	if printed := a.print(report, func(w *screen) { printSidekiq(w, report) }); err == nil {
		err = printed
	}
	if err == nil && len(report.Refused) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func printSidekiq(w io.Writer, r sidekiq.Report) {
	if !r.DryRun {
		fmt.Fprintf(w, "imported %d jobs, %d of them as dead letters\n", r.Imported, r.Dead)
	}
	if r.Duplicates > 0 {
		fmt.Fprintf(w, "%d more jobs were duplicates: same jid, or identical without a jid\n", r.Duplicates)
	}
	for _, set := range slices.Sorted(maps.Keys(r.Pending)) {
		fmt.Fprintf(w, "%d jobs are in Redis: %s\n", r.Pending[set], set)
	}
	printUnmatched(w, r.Unmatched, r.Queues)
	printRejected(w, r.Refused, func(x sidekiq.Refusal) (what, why string) {
		return "job " + oneLine(x.JID, 64) + " of " + oneLine(x.In, 64), x.Error
	})
}
