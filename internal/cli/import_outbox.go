package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/outbox"
)

// outboxFlags holds the flags of import outbox.
type outboxFlags struct {
	mapping outbox.Mapping
	options outbox.Options
	headers []string
	trigger string
}

func newImportOutbox(a *app) *cobra.Command {
	var db database
	m := outboxFlags{}
	cmd := &cobra.Command{
		Use: "outbox", Short: "Import the rows of an outbox table",
		Long: `Send the rows of an outbox table that its poller has not sent yet, and mark each in
the same transaction, so that it is not sent twice. The command can run beside a
poller that locks the rows it publishes (for update). If it is killed, run it again.

--trigger install creates a trigger that sends and marks each new row in the
transaction that inserts it; --trigger print prints the trigger, and --trigger
remove drops it. With --trigger nothing is imported. For the order of the steps and
possible duplicates, see docs/migrate/outbox.md.`,
		Example: `  posthaste import outbox --table outbox --id id --payload payload --sent sent --queue outbox --dry-run
  posthaste import outbox --table outbox --id id --payload payload --sent sent --queue outbox --trigger install
  posthaste import outbox --table outbox --id id --payload payload --sent sent --queue outbox`,
		Args: exactly(0, "no arguments; flags name the table and its columns"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.read(); err != nil {
				return err
			}
			return db.connected(cmd.Context(), func(conn *pgx.Conn) error { return m.run(a, cmd, conn) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.sqlFlag(cmd, "the outbox table and the queue must be in the same database")
	x := &m.mapping
	flags.StringVar(&x.Table, "table", "", "the outbox table, with its schema if it is not in the search path")
	flags.StringVar(&x.ID, "id", "", "column that identifies a row; it becomes the reference and, with the table name, the deduplication key")
	flags.StringVar(&x.Payload, "payload", "", "column with the payload: json, jsonb, text or bytea")
	flags.StringVar(&x.ContentType, "content-type", "", "content type of the payload (default application/json, text/plain or application/octet-stream, by the type of the column)")
	flags.StringVarP(&x.Queue, "queue", "q", "", "queue of all messages")
	flags.StringVar(&x.QueueColumn, "queue-column", "", "column with the queue of each message, instead of --queue")
	flags.StringVar(&x.Key, "key", "", "column with the key of the message")
	flags.StringVar(&x.Kind, "kind", "", "column with the kind of the message")
	flags.StringVar(&x.Headers, "headers", "", "column with a JSON object of headers")
	flags.StringArrayVar(&m.headers, "header", nil, "header from a column, NAME=COLUMN; may be repeated")
	flags.StringVar(&x.CreatedAt, "created-at", "", "column that orders the rows, oldest first; it becomes the header created-at")
	flags.StringVar(&x.SendAt, "send-at", "", "column with the delivery time of a scheduled message")
	flags.StringVar(&x.SendAtZone, "send-at-zone", "", "time zone of --send-at, such as Europe/Berlin or UTC; required for a timestamp without time zone")
	flags.StringVar(&x.Sent, "sent", "", "column that marks sent rows: a boolean, or a time that is null before")
	flags.StringVar(&x.SentValue, "sent-value", "", "value of --sent for sent rows, for columns of other types")
	flags.BoolVar(&x.Delete, "delete", false, "delete imported rows, if the poller deletes sent rows, instead of --sent")
	flags.StringVar(&x.Where, "where", "", "import only rows that match this SQL condition")
	flags.StringVar(&m.trigger, "trigger", "", "instead of importing: print, install or remove the trigger that sends new rows")
	flags.IntVar(&m.options.Batch, "batch", 500, "maximum number of rows per transaction, 1 to 1000")
	m.options.Wait = 30 * time.Second
	flags.Var(duration{&m.options.Wait}, "wait", "how long to wait for locked rows, or with --trigger for transactions that lock the table")
	flags.BoolVar(&m.options.DryRun, "dry-run", false, "check everything, try one batch, roll it back, and print the number of rows to import")
	return cmd
}

// read checks the flags and completes the mapping.
func (m *outboxFlags) read() (err error) {
	if m.mapping.HeaderColumns, err = parseHeaders(m.headers); err != nil {
		return err
	}
	if m.options.Batch < 1 || m.options.Batch > 1000 {
		return posthaste.Invalidf("batch", "--batch must be 1 to 1000")
	}
	if !slices.Contains([]string{"", "print", "install", "remove"}, m.trigger) {
		return posthaste.Invalidf("trigger", "--trigger must be print, install or remove, got %q", m.trigger)
	}
	if m.trigger != "" && m.options.DryRun {
		return posthaste.Invalidf("dry-run", "--dry-run and --trigger are mutually exclusive; --trigger print shows what --trigger install does")
	}
	return nil
}

func (m *outboxFlags) run(a *app, cmd *cobra.Command, conn *pgx.Conn) error {
	ctx := cmd.Context()
	table, err := outbox.Open(ctx, conn, m.mapping)
	if err != nil {
		return err
	}
	done := map[string]string{"table": table.Name(), "trigger": "installed"}
	switch m.trigger {
	case "print":
		done["trigger"], done["sql"] = "printed", table.TriggerSQL()
		return a.print(done, func(w *screen) { fmt.Fprint(w, table.TriggerSQL()) })
	case "install":
		if err := table.InstallTrigger(ctx, m.options.Wait); err != nil {
			return err
		}
		return a.print(done, func(w *screen) {
			fmt.Fprintf(w, "new rows of %s are now sent in the transaction that inserts them\n", table.Name())
		})
	case "remove":
		if err := table.RemoveTrigger(ctx, m.options.Wait); err != nil {
			return err
		}
		done["trigger"] = "removed"
		return a.print(done, func(w *screen) {
			fmt.Fprintf(w, "new rows of %s are no longer sent\n", table.Name())
		})
	}
	bar := newCountBar(a.stderr, "imported")
	m.options.Progress = bar.add
	report, err := table.Import(ctx, m.options)
	bar.end()
	if err != nil && report.Imported == 0 {
		return err
	}
	if printed := a.print(report, func(w *screen) { printImport(w, report) }); err == nil {
		err = printed
	}
	if err == nil && (report.Locked || len(report.Refused) > 0) {
		return &exitError{code: exitFailed}
	}
	return err
}

func printImport(w io.Writer, r outbox.Report) {
	if r.DryRun {
		fmt.Fprintf(w, "%d rows of %s would be imported\n", r.Pending, r.Table)
	} else {
		fmt.Fprintf(w, "imported %d rows of %s; %d are not imported yet\n", r.Imported, r.Table, r.Pending)
	}
	if r.Known > 0 {
		fmt.Fprintf(w, "%d of these were already sent (same id) and only marked\n", r.Known)
	}
	printRejected(w, r.Refused, func(x outbox.Refusal) (what, why string) { return "row " + oneLine(x.ID, 64), x.Error })
	if r.Locked {
		fmt.Fprintln(w, "the remaining rows are locked, possibly by the poller; run the command again")
	}
	if !r.Trigger {
		fmt.Fprintln(w, "new rows are not imported; to send them, use --trigger install")
	}
}
