package sqlimport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// take imports the jobs of a source, in chunks.
func (i *importer) take(ctx context.Context, s *source) error {
	rejected := []string{} // ids
	for first := true; ; first = false {
		jobs, refused, err := i.chunk(ctx, s, rejected, first)
		if err != nil {
			return err
		}
		for _, x := range refused {
			rejected = append(rejected, x.ID)
		}
		i.report.Refused = append(i.report.Refused, refused...)
		if n := len(i.report.Refused); n >= maxRefused {
			return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("%d jobs were rejected, the last with: %s", n, i.report.Refused[n-1].Error),
				Hint: "check that their queues accept payloads of that size, and exclude other jobs with --query"}
		}
		for _, r := range jobs {
			i.counter(job{text(r.queue), text(r.kind)}).Imported++
		}
		if i.Progress != nil {
			i.Progress(len(jobs))
		}
		if len(jobs) == 0 && len(refused) == 0 {
			return nil
		}
	}
}

// chunk imports some jobs and returns them, or if any is rejected, imports none and returns the
// rejected ones, without which the chunk is then repeated. The jobs are locked until they are
// deleted or marked, so that workers of the product that respect the locks do not take them.
func (i *importer) chunk(ctx context.Context, s *source, except []string, first bool) (jobs []*row, refused []Refusal, err error) {
	tx, err := i.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // locked rows are read in their current state
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // committed, or given up
	if jobs, err = s.read(ctx, tx, except, i.Batch); err != nil || len(jobs) == 0 {
		return nil, nil, err
	}
	messages := make([]posthaste.Message, len(jobs))
	for at, r := range jobs {
		if messages[at], err = i.message(s, r); err != nil {
			refused = append(refused, Refusal{r.id, err.Error()})
		}
	}
	if len(refused) > 0 {
		return nil, refused, nil
	}
	if err := s.finish(ctx, tx, jobs, first); err != nil {
		return nil, nil, err
	}
	if refused, err = i.send(ctx, tx, jobs, messages); err != nil || len(refused) > 0 {
		return nil, refused, err
	}
	// The messages in another database are committed now. If this commit fails, the jobs stay,
	// and are recognized by their dedupe keys.
	return jobs, nil, tx.Commit(ctx)
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

// dedupeKey identifies a job among all databases.
func (i *importer) dedupeKey(s *source, r *row) string {
	sum := sha256.Sum256([]byte(i.server + "\x00" + s.name + "\x00" + r.id + "\x00" + text(r.createdAt)))
	return "import:" + hex.EncodeToString(sum[:])
}

// finish deletes or marks jobs. With check it also checks that the query selects them no more.
func (s *source) finish(ctx context.Context, tx pgx.Tx, jobs []*row, check bool) error {
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
	if !check {
		return nil
	}
	var again bool
	err := tx.QueryRow(ctx, fmt.Sprintf("select exists (select from (%s\n) as job where %s = any($1::text[]))", s.query, s.expression("id")), ids).Scan(&again)
	if err == nil && again {
		return posthaste.Invalidf("done", "--done does not exclude imported jobs: --query selects them again")
	}
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

// send sends the messages, queue by queue, or returns those that are rejected.
func (i *importer) send(ctx context.Context, tx pgx.Tx, jobs []*row, messages []posthaste.Message) (refused []Refusal, err error) {
	byQueue := map[string][]int{}
	for at := range messages {
		byQueue[messages[at].Queue] = append(byQueue[messages[at].Queue], at)
	}
	known := 0
	for _, group := range byQueue {
		some := make([]posthaste.Message, len(group))
		for n, at := range group {
			some[n] = messages[at]
		}
		sent, err := i.sendSome(ctx, tx, some)
		if refusal(err) {
			single, err := i.singly(ctx, tx, jobs, messages, group)
			if err != nil {
				return nil, err
			}
			refused = append(refused, single...)
			continue
		}
		if err != nil {
			return nil, err
		}
		for n, at := range group {
			switch {
			case !sent[n].Duplicate:
			case i.Same:
				refused = append(refused, Refusal{jobs[at].id, fmt.Sprintf("message %d of queue %s has its unique key %q and is unfinished", sent[n].ID, some[n].Queue, some[n].Unique.Key)})
			case !i.resent[some[n].DedupeKey]:
				known++
			}
		}
	}
	if len(refused) == 0 {
		i.report.Known += known
	}
	return refused, nil
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

// singly sends messages of which at least one is rejected, and returns those.
func (i *importer) singly(ctx context.Context, tx pgx.Tx, jobs []*row, messages []posthaste.Message, group []int) (refused []Refusal, err error) {
	for _, at := range group {
		_, err := i.sendSome(ctx, tx, messages[at:at+1])
		switch {
		case refusal(err):
			refused = append(refused, Refusal{jobs[at].id, err.Error()})
		case err != nil:
			return nil, err
		default:
			i.resent[messages[at].DedupeKey] = true
		}
	}
	return refused, nil
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
	switch {
	case err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled):
		return err
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
