package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sqlimport"
	"github.com/posthaste-mq/posthaste/postgres"
)

func newImportSQL(a *app) *cobra.Command {
	var db database
	var o sqlimport.Options
	var from string
	var queues []string
	cmd := &cobra.Command{
		Use: "sql", Short: "Import the jobs of another queue in PostgreSQL",
		Long: `Send the jobs that wait, are scheduled or are to be retried in the tables of another
queue, and delete each in the same transaction. --preset names the product. For any
other table, --query selects the jobs, and --done deletes or marks them.

Let the workers of the other product finish the jobs that are due, and import those
that are scheduled for later. Jobs that a worker holds are not imported. If the
command is killed, run it again with the same flags. If the queues are in another
database than the jobs, name that of the jobs with --from: jobs are then deduplicated
by id and queue for a week, and unique keys are not imported. For the columns of a
query and the mapping of each product, see docs/migrate/index.md.`,
		Example: `  posthaste import sql --preset river --map default=jobs --dry-run
  posthaste import sql --preset river --map default=jobs
  posthaste import sql --query "select id, 'mail' as queue, body as payload, due as send_at from jobs" \
    --done 'delete from jobs where id = any($1)'`,
		Args: exactly(0, "no arguments; --preset or --query selects the jobs"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkImportSQL(&o); err != nil {
				return err
			}
			if o.Queues, err = parseQueueMap(queues); err != nil {
				return err
			}
			if err := db.resolve(); err != nil {
				return err
			}
			o.Same = from == ""
			if other, is := db.otherThanPostgres(); is && o.Same {
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "from", Message: "the database with the jobs is unknown",
					Hint: "set --from, since --" + other.flag + " selects the store of the queues"}
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				return importSQL(ctx, a, cmp.Or(from, db.urls.DatabaseURL), e, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	needsStore(cmd, "it moves jobs inside the database")
	flags.StringVar(&o.Preset, "preset", "", "product of the jobs: "+strings.Join(sqlimport.Presets(), ", "))
	flags.StringVar(&o.Schema, "schema", "", "schema of the product's tables (default: its usual schema, or the one in the search path)")
	flags.BoolVar(&o.Held, "held", false, "also import the jobs that a worker of the product holds; all of them must have stopped")
	flags.StringVar(&o.Query, "query", "", "SQL query that selects the jobs, instead of --preset")
	flags.StringVar(&o.Lock, "lock", sqlimport.DefaultLock, "SQL clause after --query that locks the jobs; for joins name the table, such as 'for update of j skip locked'; empty locks nothing")
	flags.StringVar(&o.Done, "done", "", "SQL statement that deletes or marks the jobs with the ids in the array $1, with --query")
	flags.StringVar(&from, "from", "", "URL of the PostgreSQL database with the jobs, if it is not the one of the queues")
	flags.StringVarP(&o.Queue, "queue", "q", "", "queue of all messages (default: the queue with the same name)")
	flags.StringArrayVar(&queues, "map", nil, "import the jobs of one queue into another, OLD=NEW; may be repeated")
	flags.IntVar(&o.Batch, "batch", 500, "maximum number of jobs per transaction, 1 to 1000; at most 500 with --from")
	flags.BoolVar(&o.DryRun, "dry-run", false, "check everything, and only count the jobs")
	return cmd
}

// checkImportSQL checks the flags of import sql.
func checkImportSQL(o *sqlimport.Options) error {
	switch {
	case (o.Preset == "") == (o.Query == ""):
		return posthaste.Invalidf("preset", "one of --preset and --query is required")
	case (o.Query == "") != (o.Done == ""):
		return posthaste.Invalidf("done", "--query and --done are required together: --done deletes or marks the imported jobs")
	case o.Query != "" && (o.Schema != "" || o.Held):
		return posthaste.Invalidf("query", "--schema and --held are for --preset; write the query accordingly")
	case o.Batch < 1 || o.Batch > 1000:
		return posthaste.Invalidf("batch", "--batch must be 1 to 1000")
	}
	return nil
}

func importSQL(ctx context.Context, a *app, from string, to posthaste.Store, o sqlimport.Options) error {
	conn, err := postgres.Connect(ctx, from, postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	bar := newCountBar(a.stderr, "imported")
	o.Progress = bar.add
	report, err := sqlimport.Import(ctx, conn, to, o)
	bar.end()
	if err != nil && len(report.Jobs) == 0 {
		return err
	}
	if printed := a.print(report, func(w *screen) { printImportSQL(w, report) }); err == nil {
		err = printed
	}
	if err == nil && report.Left > 0 && !report.DryRun {
		return &exitError{code: exitFailed}
	}
	return err
}

func printImportSQL(w *screen, r sqlimport.Report) {
	switch {
	case r.DryRun:
		table(w, "FROM QUEUE KIND FOUND", func(row func(...any)) {
			for _, c := range r.Jobs {
				row(c.From, c.Queue, c.Kind, c.Found)
			}
		})
		fmt.Fprintf(w, "%d jobs would be imported\n", r.Found)
	default:
		table(w, "FROM QUEUE KIND FOUND IMPORTED LEFT", func(row func(...any)) {
			for _, c := range r.Jobs {
				row(c.From, c.Queue, c.Kind, c.Found, c.Imported, c.Left)
			}
		})
		fmt.Fprintf(w, "imported %d of %d jobs; %d are left\n", r.Imported, r.Found, r.Left)
	}
	if r.Known > 0 {
		fmt.Fprintf(w, "%d of these were already sent by an interrupted import, and only deleted or marked\n", r.Known)
	}
	if r.Held > 0 {
		fmt.Fprintf(w, "%d more jobs are not imported: a worker holds them, or they wait for other jobs\n", r.Held)
	}
	var queues []string
	for _, c := range r.Jobs {
		queues = append(queues, c.From)
	}
	printUnmatched(w, r.Unmatched, slices.Compact(queues))
	printRejected(w, r.Refused, func(x sqlimport.Refusal) (what, why string) { return "job " + oneLine(x.ID, 64), x.Error })
	switch {
	case r.DryRun:
	case r.Left > len(r.Refused):
		fmt.Fprintf(w, "%d jobs are locked or new: stop the workers and senders of the other product, and run the command again\n", r.Left-len(r.Refused))
	case r.Found != r.Imported+r.Left:
		fmt.Fprintf(w, "%d jobs were found and %d are imported or left: workers or senders of the other product still run\n", r.Found, r.Imported+r.Left)
	}
}
