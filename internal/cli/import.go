package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/outbox"
)

func newImport(a *app) *cobra.Command {
	return newGroup("import", "Take over what other ways of sending hold", newImportOutbox(a), newImportSidekiq(a))
}

// moving is the flags of import outbox.
type moving struct {
	mapping outbox.Mapping
	options outbox.Options
	headers []string
	trigger string
}

func newImportOutbox(a *app) *cobra.Command {
	var db database
	m := moving{}
	cmd := &cobra.Command{
		Use: "outbox", Short: "Take over an outbox table that has a poller of its own",
		Long: `Send the rows of a hand-written outbox table that its poller has not sent yet, and
mark each in the same transaction, so that it is not sent twice. It may run beside
a poller that locks the rows it publishes (for update), may be killed at any
moment, and is run again then.

--trigger install makes a trigger that from then on sends each row in the
transaction that inserts it, and marks it; --trigger print shows it, --trigger
remove removes it. With --trigger nothing is imported. In which order to do what,
and what can come twice: docs/moving-in.md.`,
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
	db.sqlFlag(cmd, "an outbox table lies in the database that its messages are sent in")
	x := &m.mapping
	flags.StringVar(&x.Table, "table", "", "the outbox table, with its schema where the search path does not find it")
	flags.StringVar(&x.ID, "id", "", "column that identifies a row: the message's reference, and with the table's name its dedupe key")
	flags.StringVar(&x.Payload, "payload", "", "column with what is sent: json, jsonb, text or bytea")
	flags.StringVar(&x.ContentType, "content-type", "", "what the payload is (default application/json, text/plain or application/octet-stream, by the column's type)")
	flags.StringVarP(&x.Queue, "queue", "q", "", "the queue that all rows go to")
	flags.StringVar(&x.QueueColumn, "queue-column", "", "column with the queue of each row, instead")
	flags.StringVar(&x.Key, "key", "", "column with the message's key")
	flags.StringVar(&x.Kind, "kind", "", "column with the message's kind")
	flags.StringVar(&x.Headers, "headers", "", "column with a JSON object of headers")
	flags.StringArrayVar(&m.headers, "header", nil, "a header of a column, NAME=COLUMN; may be repeated")
	flags.StringVar(&x.CreatedAt, "created-at", "", "column by which rows are taken, oldest first; it becomes the header created-at")
	flags.StringVar(&x.SendAt, "send-at", "", "column with a time before which the message is held back")
	flags.StringVar(&x.SendAtZone, "send-at-zone", "", "the time zone that --send-at is meant in, such as Europe/Berlin or UTC; required for a timestamp without time zone")
	flags.StringVar(&x.Sent, "sent", "", "column that marks what was sent: a boolean, or a time that is null before")
	flags.StringVar(&x.SentValue, "sent-value", "", "the value of --sent that means sent, for columns of other types")
	flags.BoolVar(&x.Delete, "delete", false, "the poller deletes what it has sent: delete what is taken, instead of --sent")
	flags.StringVar(&x.Where, "where", "", "take only rows for which this condition in SQL holds")
	flags.StringVar(&m.trigger, "trigger", "", "instead of importing: print, install or remove the trigger that sends what is inserted")
	flags.IntVar(&m.options.Batch, "batch", 500, "rows that a transaction takes at most, 1 to 1000")
	m.options.Wait = 30 * time.Second
	flags.Var(duration{&m.options.Wait}, "wait", "how long to wait for rows, or with --trigger for transactions, that hold locks")
	flags.BoolVar(&m.options.DryRun, "dry-run", false, "check everything, try one batch and roll it back, and say how many rows would be taken")
	return cmd
}

// read checks the flags and puts them into the mapping.
func (m *moving) read() (err error) {
	if m.mapping.HeaderColumns, err = parseHeaders(m.headers); err != nil {
		return err
	}
	if m.options.Batch < 1 || m.options.Batch > 1000 {
		return posthaste.Invalidf("batch", "--batch must be 1 to 1000")
	}
	if !slices.Contains([]string{"", "print", "install", "remove"}, m.trigger) {
		return posthaste.Invalidf("trigger", "--trigger must be print, install or remove, and is %q", m.trigger)
	}
	if m.trigger != "" && m.options.DryRun {
		return posthaste.Invalidf("dry-run", "--dry-run and --trigger exclude each other: --trigger print shows what --trigger install does")
	}
	return nil
}

func (m *moving) run(a *app, cmd *cobra.Command, conn *pgx.Conn) error {
	ctx := cmd.Context()
	table, err := outbox.Open(ctx, conn, m.mapping)
	if err != nil {
		return err
	}
	done := map[string]string{"table": table.Name(), "trigger": "installed"}
	switch m.trigger {
	case "print":
		done["trigger"], done["sql"] = "printed", table.TriggerSQL()
		return a.print(done, func(w io.Writer) { fmt.Fprint(w, table.TriggerSQL()) })
	case "install":
		if err := table.InstallTrigger(ctx, m.options.Wait); err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "each row that is inserted into %s is sent in its writer's transaction from now on\n", table.Name())
		})
	case "remove":
		if err := table.RemoveTrigger(ctx, m.options.Wait); err != nil {
			return err
		}
		done["trigger"] = "removed"
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "rows that are inserted into %s are not sent any more\n", table.Name())
		})
	}
	bar := newCountBar(a.stderr, "taken over")
	m.options.Progress = bar.add
	report, err := table.Import(ctx, m.options)
	bar.end()
	if err != nil && report.Imported == 0 {
		return err
	}
	if printed := a.print(report, func(w io.Writer) { tellImport(w, report) }); err == nil {
		err = printed
	}
	if err == nil && (report.Locked || len(report.Refused) > 0) {
		return &exitError{code: exitFailed}
	}
	return err
}

// toldRefusals is how many refused rows a person is shown.
const toldRefusals = 10

func tellImport(w io.Writer, r outbox.Report) {
	if r.DryRun {
		fmt.Fprintf(w, "%d rows of %s would be taken over\n", r.Pending, r.Table)
	} else {
		fmt.Fprintf(w, "%d rows of %s are taken over, %d are still waiting there\n", r.Imported, r.Table, r.Pending)
	}
	if r.Known > 0 {
		fmt.Fprintf(w, "%d of those had been sent before, by their ids, and were only marked\n", r.Known)
	}
	for i, x := range r.Refused {
		if i == toldRefusals {
			fmt.Fprintf(w, "… and %d more are refused; --json lists all\n", len(r.Refused)-i)
			break
		}
		fmt.Fprintf(w, "row %s is refused and left as it is: %s\n", oneLine(x.ID, 64), strings.TrimSpace(x.Error))
	}
	if r.Locked {
		fmt.Fprintln(w, "somebody holds the rows that are left: is the poller publishing them? Run it again")
	}
	if !r.Trigger {
		fmt.Fprintln(w, "rows inserted from now on are not taken over: --trigger install does that")
	}
}
