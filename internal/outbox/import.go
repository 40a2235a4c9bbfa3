package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// Options configures an import.
type Options struct {
	// Batch is the maximum number of rows per transaction, 1 to 1000; 500 by default.
	Batch int
	// Wait is how long to wait at the end for rows that another transaction has locked, such
	// as that of a poller. Zero: do not wait.
	Wait time.Duration
	// DryRun imports one batch and rolls it back. The report counts the rows that would be
	// imported.
	DryRun bool
	// Progress is called with the number of rows after each batch. It may be nil.
	Progress func(rows int)
}

// Report is the result of an import.
type Report struct {
	Table string `json:"table"`
	// Imported counts the rows that were sent into the ledger and marked.
	Imported int `json:"imported"`
	// Known counts the imported rows whose id was already sent within the last day: they were
	// marked and not sent again.
	Known int `json:"known"`
	// Pending counts the rows that still wait in the table, including rejected ones. In a dry
	// run it counts the rows that would be imported.
	Pending int `json:"pending"`
	// Refused are rows that the ledger rejects; they stay unchanged.
	Refused []Refusal `json:"refused"`
	// Locked is true if rows were still locked after the wait.
	Locked bool `json:"locked"`
	// Trigger is true if the trigger is installed. Without it, rows that are inserted from now
	// on are not sent.
	Trigger bool `json:"trigger"`
	DryRun  bool `json:"dry_run"`
}

// Refusal is a row that the ledger rejects, and the reason.
type Refusal struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// maxRefused ends an import: so many rejections have a common cause.
const maxRefused = 1000

// Import imports all pending rows in batches. One transaction locks, sends and marks each
// batch, so an import may be killed and run again at any time, even next to other imports and
// a poller. Locked rows are skipped until no others are left, and then waited for. A rejected
// row does not block others. The report is valid even with an error.
func (t *Table) Import(ctx context.Context, o Options) (Report, error) {
	r := Report{Table: t.Name(), Refused: []Refusal{}, DryRun: o.DryRun}
	if o.Batch == 0 {
		o.Batch = 500
	}
	i := importer{Table: t, Options: o, report: &r, refused: []string{}}
	if err := i.run(ctx); err != nil {
		return r, explain(err)
	}
	err := t.conn.QueryRow(ctx, fmt.Sprintf("select count(*) from %s as r where %s", t.sql, t.pending)).Scan(&r.Pending)
	if err == nil {
		r.Trigger, err = t.installed(ctx)
	}
	return r, explain(err)
}

type importer struct {
	*Table
	Options
	report  *Report
	refused []string // ids
	known   int      // in the current batch
}

func (i *importer) run(ctx context.Context) error {
	for waiting := false; ; {
		n, err := i.batch(ctx, waiting)
		var pg *pgconn.PgError
		if waiting && errors.As(err, &pg) && pg.Code == "55P03" {
			i.report.Locked = true
			return nil
		}
		if err != nil || i.DryRun {
			return err
		}
		if n > 0 {
			waiting = false
			continue
		}
		if waiting || i.Wait <= 0 {
			return nil
		}
		waiting = true
	}
}

// batch imports rows and returns how many it processed. With waiting it waits for locked rows.
// Rows that their holder has sent are no longer pending then.
func (i *importer) batch(ctx context.Context, waiting bool) (int, error) {
	var ids []string
	var refused []Refusal
	sent := 0
	i.known = 0
	err := i.inTx(ctx, func(tx pgx.Tx) error {
		lock := "for update skip locked"
		if waiting {
			lock = "for update"
			if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", max(i.Wait.Milliseconds(), 1))); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, fmt.Sprintf("select %s::text from %s as r where %s and not (%s = any($1::text[]::%s[])) order by %s limit $2 %s",
			i.id, i.sql, i.pending, i.id, i.idType, i.order, lock), i.refused, i.Batch)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(ids) == 0 {
			return err
		}
		done := ids
		if err = i.send(ctx, tx, ids); isRefusal(err) {
			done, refused, err = i.singly(ctx, tx, ids)
		}
		if err != nil || len(done) == 0 {
			return err
		}
		sent = len(done)
		tag, err := tx.Exec(ctx, fmt.Sprintf("%s where %s = any($1::text[]::%s[]) and %s", i.mark, i.id, i.idType, i.pending), done)
		if err == nil && tag.RowsAffected() != int64(sent) {
			return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id",
				Message: fmt.Sprintf("%d rows of %s were to be marked as sent and %d were, so this batch was not imported", sent, i.Name(), tag.RowsAffected()),
				Hint:    "the id must be unique, and no trigger of the table may prevent rows from being marked"}
		}
		return err
	}, !i.DryRun)
	if err != nil {
		return 0, err
	}
	for _, x := range refused {
		i.refused = append(i.refused, x.ID)
	}
	i.report.Refused = append(i.report.Refused, refused...)
	if len(i.report.Refused) >= maxRefused {
		return 0, &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("%d rows were rejected, the last with: %s", len(i.report.Refused), i.report.Refused[len(i.refused)-1].Error),
			Hint: "check that the columns are the right ones, and exclude other rows with --where"}
	}
	if !i.DryRun {
		i.report.Imported += sent
		i.report.Known += i.known
		if i.Progress != nil {
			i.Progress(sent)
		}
	}
	return len(ids), nil
}

// send sends locked rows, oldest first, and counts those that were known.
func (i *importer) send(ctx context.Context, tx pgx.Tx, ids []string) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
		rows, err := tx.Query(ctx, fmt.Sprintf(`with chosen as materialized (select * from %s as r where %s = any($1::text[]::%s[]) and %s order by %s)
			select posthaste.send_bytes(%s, %s, %s) from chosen as r`, i.sql, i.id, i.idType, i.pending, i.order, i.queue, i.payload, i.options), ids)
		if err != nil {
			return err
		}
		sent, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if len(sent) != len(ids) {
			return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id", Message: fmt.Sprintf("%d rows were locked and %d of them found, so this batch was not imported", len(ids), len(sent)),
				Hint: "the id must be unique among the rows of " + i.Name() + " apart"}
		}
		for _, id := range sent {
			if id <= i.probe {
				i.known++
			}
		}
		return nil
	})
}

// singly sends rows of which at least one is rejected.
func (i *importer) singly(ctx context.Context, tx pgx.Tx, ids []string) (sent []string, refused []Refusal, err error) {
	for _, id := range ids {
		err := i.send(ctx, tx, []string{id})
		switch {
		case err == nil:
			sent = append(sent, id)
		case isRefusal(err):
			refused = append(refused, Refusal{id, explain(err).Error()})
		default:
			return nil, nil, err
		}
	}
	return sent, refused, nil
}

// isRefusal reports whether a row itself is at fault: the ledger rejected it, or its values do
// not form a message.
func isRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (ledgerCode(pg) != "" || pg.Code[:2] == "22")
}
