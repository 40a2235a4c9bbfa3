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

// Options say how rows are taken.
type Options struct {
	// Batch is how many rows a transaction takes at most, 1 to 1000; 500 unless
	// given.
	Batch int
	// Wait is how long to wait at the end for rows that somebody else has
	// locked, such as a poller that is publishing them. Zero: not at all.
	Wait time.Duration
	// DryRun takes one batch to try it and rolls it back. The report counts what
	// would be taken.
	DryRun bool
	// Progress is told how many rows were taken with each batch. It may be nil.
	Progress func(rows int)
}

// Report is what an import did.
type Report struct {
	Table string `json:"table"`
	// Imported counts the rows that were sent into the ledger and marked.
	Imported int `json:"imported"`
	// Known counts those of them whose id was sent before, within the last day: they
	// were marked and not sent again.
	Known int `json:"known"`
	// Pending counts the rows that are still waiting in the table, with those
	// that were refused. In a dry run it is what would be taken.
	Pending int `json:"pending"`
	// Refused are rows that the ledger does not take; they stay as they are.
	Refused []Refusal `json:"refused"`
	// Locked is true where the wait for locked rows was in vain.
	Locked bool `json:"locked"`
	// Trigger is true where the trigger is installed. Without it rows that are
	// inserted from now on wait for somebody.
	Trigger bool `json:"trigger"`
	DryRun  bool `json:"dry_run"`
}

// Refusal is a row that the ledger does not take, and why.
type Refusal struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// maxRefused ends an import: so many refusals are no accident.
const maxRefused = 1000

// Import takes all pending rows, in batches. In one transaction each batch is
// locked, sent and marked, so that it may be killed and run again at any time,
// also beside others and beside a poller. Rows that others have locked are left
// to them until nothing else is there, and then waited for. A row that is
// refused holds up none of its neighbours. The report is valid with an error,
// too.
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
	known   int      // in the batch in hand
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

// batch takes rows and returns how many it has dealt with. With waiting it
// waits for rows that others have locked; what they have sent meanwhile is not
// pending any more then.
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
			return &posthaste.Error{Code: posthaste.Conflict, Field: "id",
				Message: fmt.Sprintf("%d rows of %s were to be marked as sent and %d were, so this batch was not taken", sent, i.Name(), tag.RowsAffected()),
				Hint:    "the id must tell rows apart, and no trigger of the table may keep rows from being marked"}
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
		return 0, &posthaste.Error{Code: posthaste.Refused, Message: fmt.Sprintf("%d rows are refused, the last with: %s", len(i.report.Refused), i.report.Refused[len(i.refused)-1].Error),
			Hint: "see whether the columns are the right ones, and leave out with --where what shall not be taken"}
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

// send sends rows that are locked, oldest first, and counts those that were known.
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
			return &posthaste.Error{Code: posthaste.Conflict, Field: "id", Message: fmt.Sprintf("%d rows were locked and %d of them found, so this batch was not taken", len(ids), len(sent)),
				Hint: "the id must tell rows of " + i.Name() + " apart"}
		}
		for _, id := range sent {
			if id <= i.probe {
				i.known++
			}
		}
		return nil
	})
}

// singly sends rows of which at least one is refused.
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

// isRefusal reports whether a row itself is at fault: what the ledger refuses,
// and values that do not become a message.
func isRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (ledgerCode(pg) != "" || pg.Code[:2] == "22")
}
