package sqlimport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// take imports the jobs of a source, in chunks.
func (i *importer) take(ctx context.Context, s *source) error {
	rejected := []string{} // ids
	for {
		jobs, refused, err := i.chunk(ctx, s, rejected)
		for _, x := range refused {
			rejected = append(rejected, x.ID)
		}
		i.report.Refused = append(i.report.Refused, refused...)
		for _, r := range jobs {
			i.counter(job{text(r.queue), text(r.kind)}).Imported++
		}
		if err != nil {
			return err
		}
		if n := len(i.report.Refused); n >= maxRefused {
			return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("%d jobs were rejected, the last with: %s", n, i.report.Refused[n-1].Error),
				Hint: "check that their queues accept payloads of that size, and exclude other jobs with --query"}
		}
		if i.Progress != nil {
			i.Progress(len(jobs))
		}
		if len(jobs) == 0 && len(refused) == 0 {
			return nil
		}
	}
}

// chunk imports some jobs. It returns them, and those that were rejected instead; both also with
// an error that came after some were sent to another database. The jobs are locked until they are
// deleted or marked, so that workers of the product that respect the locks do not take them. Work
// that must be done again without rejected jobs is therefore undone to a savepoint only: a rollback
// would release jobs whose messages are in another database already.
func (i *importer) chunk(ctx context.Context, s *source, except []string) (jobs []*row, refused []Refusal, err error) {
	tx, err := i.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // locked rows are read in their current state
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // committed, or given up
	read, err := s.read(ctx, tx, except, i.Batch)
	if err != nil {
		return nil, nil, err
	}
	messages := make([]posthaste.Message, 0, len(read))
	for _, r := range read {
		m, err := i.message(s, r)
		if err != nil {
			refused = append(refused, Refusal{r.id, err.Error()})
			continue
		}
		jobs, messages = append(jobs, r), append(messages, m)
	}
	var failed error
	for sent := false; len(jobs) > 0; {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return nil, nil, err
		}
		if err := i.finish(ctx, inner, s, jobs); err != nil {
			return nil, nil, err
		}
		why := map[int]string{}
		if !sent {
			if why, failed = i.send(ctx, inner, messages); failed != nil && (i.Same || len(why) == len(jobs)) {
				return nil, nil, failed
			}
		}
		if !i.Same && !sent {
			// The messages in another database are committed now. If this transaction is not, the
			// jobs stay, and are recognized by their dedupe keys. A signal must not cause that.
			sent = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
			defer cancel()
		}
		if len(why) == 0 {
			if err := errors.Join(inner.Commit(ctx), tx.Commit(ctx)); err != nil {
				return nil, nil, errors.Join(failed, err)
			}
			return jobs, refused, failed
		}
		if err := inner.Rollback(ctx); err != nil {
			return nil, nil, err
		}
		refused = append(refused, refusals(jobs, why)...)
		jobs, messages = without(jobs, why), without(messages, why)
	}
	return nil, refused, nil
}

// commitPatience bounds the deletion of jobs whose messages were sent to another database.
const commitPatience = 30 * time.Second

// notSent is the reason of jobs that were not sent because of an error.
const notSent = ""

// refusals returns the rejected jobs with the indexes of why, and the reasons.
func refusals(jobs []*row, why map[int]string) (all []Refusal) {
	for _, at := range slices.Sorted(maps.Keys(why)) {
		if why[at] != notSent {
			all = append(all, Refusal{jobs[at].id, why[at]})
		}
	}
	return all
}

// without returns all except those with the indexes of why.
func without[T any](all []T, why map[int]string) (rest []T) {
	for at, one := range all {
		if _, refused := why[at]; !refused {
			rest = append(rest, one)
		}
	}
	return rest
}

// message converts a job to a message of the queue that receives it.
func (i *importer) message(s *source, r *row) (posthaste.Message, error) {
	m, err := r.message(s.types["payload"])
	if err != nil {
		return m, err
	}
	m.Queue = i.target(m.Queue)
	switch {
	case !i.Same:
		// Dedupe keys exclude unique keys, and make the import idempotent.
		m.DedupeKey, m.DedupeWindow = i.dedupeKey(s, r), dedupeWindow
	case text(r.uniqueKey) != "":
		m.Unique = &posthaste.Unique{Key: *r.uniqueKey}
	}
	return m, m.Check()
}

// dedupeKey identifies a job among all databases. Ids may be used again, so the creation time is a
// part of it, or the payload if that is unknown.
func (i *importer) dedupeKey(s *source, r *row) string {
	born := text(r.createdAt)
	if r.createdAt == nil {
		born = string(r.payload)
	}
	sum := sha256.Sum256([]byte(i.server + "\x00" + s.name + "\x00" + r.id + "\x00" + born))
	return "import:" + hex.EncodeToString(sum[:])
}

// finish deletes or marks jobs. The first time it also checks that the query selects them no more.
func (i *importer) finish(ctx context.Context, tx pgx.Tx, s *source, jobs []*row) error {
	ids := make([]string, len(jobs))
	for at, r := range jobs {
		ids[at] = r.id
	}
	// The server infers the type of the parameter, which it cannot from a typed one.
	result := tx.Conn().PgConn().ExecParams(ctx, s.done, [][]byte{[]byte(arrayOf(ids))}, nil, nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	if n := result.CommandTag.RowsAffected(); n != int64(len(ids)) {
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "done", Message: fmt.Sprintf("%d jobs were to be deleted or marked and %d were, so this chunk was not imported", len(ids), n),
			Hint: "stop the workers; with --query, ids must be unique and --done must change one row for each"}
	}
	if s.checked {
		return nil
	}
	var again bool
	err := tx.QueryRow(ctx, fmt.Sprintf("select exists (select from (%s\n) as job where %s = any($1::text[]))", s.query, s.expression("id")), ids).Scan(&again)
	if err == nil && again {
		return posthaste.Invalidf("done", "--done does not exclude imported jobs: --query selects them again")
	}
	s.checked = err == nil
	return err
}

// arrayOf returns the literal of an array of texts.
func arrayOf(texts []string) string {
	quoted := make([]string, len(texts))
	for at, s := range texts {
		quoted[at] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// send sends the messages, queue by queue, until an error that is not about a message. It returns
// why some were not sent, by their indexes.
func (i *importer) send(ctx context.Context, tx pgx.Tx, messages []posthaste.Message) (map[int]string, error) {
	byQueue, why := map[string][]int{}, map[int]string{}
	for at := range messages {
		byQueue[messages[at].Queue] = append(byQueue[messages[at].Queue], at)
		why[at] = notSent
	}
	for _, group := range byQueue {
		some := make([]posthaste.Message, len(group))
		for n, at := range group {
			some[n] = messages[at]
		}
		sent, err := i.sendSome(ctx, tx, some)
		if err == nil {
			for n, at := range group {
				i.told(at, some[n], sent[n], why)
			}
			continue
		}
		if !refusal(err) {
			return why, err
		}
		// At least one of them is rejected.
		for n, at := range group {
			sent, err := i.sendSome(ctx, tx, some[n:n+1])
			switch {
			case refusal(err):
				why[at] = err.Error()
			case err != nil:
				return why, err
			default:
				i.told(at, some[n], sent[0], why)
			}
		}
	}
	return why, nil
}

// told notes that a message was sent, or not stored because of an earlier one.
func (i *importer) told(at int, m posthaste.Message, sent posthaste.Sent, why map[int]string) {
	if sent.Duplicate && i.Same {
		why[at] = fmt.Sprintf("message %d of queue %s has its unique key %q and is unfinished", sent.ID, m.Queue, m.Unique.Key)
		return
	}
	delete(why, at)
	if sent.Duplicate {
		i.report.Known++
	}
}

// sendSome sends messages of one queue: in the transaction, or to another database.
func (i *importer) sendSome(ctx context.Context, tx pgx.Tx, messages []posthaste.Message) (sent []posthaste.Sent, err error) {
	if !i.Same {
		return i.to.Send(ctx, messages...)
	}
	err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		sent, err = postgres.In(savepoint).Send(ctx, messages...)
		return err
	})
	return sent, err
}

// refusal reports whether a job itself, or its queue, is at fault.
func refusal(err error) bool {
	switch posthaste.CodeOf(err) {
	case posthaste.CodeInvalid, posthaste.CodeTooLarge, posthaste.CodeNotFound, posthaste.CodeUniqueConflict:
		return true
	}
	return false
}

// again is the hint of errors after which the import may be repeated.
const again = "run it again: imported jobs are not imported twice"

// explain adds remedies to the errors of the source's database.
func explain(err error) error {
	var pg interface {
		error
		SQLState() string
	}
	var ours *posthaste.Error
	var unreadable pgx.ScanArgError
	switch {
	case err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unreadable):
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "query", Message: "a job cannot be read: " + err.Error(),
			Hint: "exclude it with --query, or convert the column there; id must not be null, and terms must contain no nulls", Cause: err}
	case !errors.As(err, &pg):
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the connection to the database with the jobs was lost: " + strings.Join(strings.Fields(err.Error()), " "), Hint: again, Cause: err}
	}
	e := &posthaste.Error{Message: "the database with the jobs reported: " + pg.Error(), Cause: err}
	switch state := pg.SQLState(); {
	case denied(err):
		e.Code, e.Hint = posthaste.CodeDenied, "grant select, update and delete on the tables with the jobs to this user, or run this as their owner"
	case state == "25006":
		e.Code, e.Hint = posthaste.CodeReadOnly, "the database is a standby or set to read only: use the primary's address"
	case state == "55P03", state == "40P01", state == "40001", strings.HasPrefix(state, "57"), strings.HasPrefix(state, "08"), strings.HasPrefix(state, "53"):
		e.Code, e.Hint = posthaste.CodeUnavailable, again
	default:
		e.Code, e.Hint = posthaste.CodeInvalid, "check --query, --lock and --done; with --preset, check that the tables are those of a version that the documents name"
	}
	return e
}

// denied reports whether a privilege is missing.
func denied(err error) bool {
	var pg interface{ SQLState() string }
	return errors.As(err, &pg) && pg.SQLState() == "42501"
}
