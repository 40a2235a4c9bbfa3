//go:build unix

package sqlimport

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A job whose message is in another database is never released to the workers of the product,
// although another job of its chunk was rejected.
func TestSentJobsAreNotReleased(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	p.exec(plain + "; update jobs set body = repeat('x', 2000) where id = 2")
	worker := newConn(p)
	report := p.imports(Options{Query: strings.Replace(plainQuery, "'default'", "case when id < 6 then 'default' else 'mail' end", 1),
		Lock: DefaultLock, Done: plainDone, Progress: func(int) {
			tag, err := worker.Exec(p.ctx, "delete from jobs where not sent and id <> 2")
			if err != nil || tag.RowsAffected() > 0 {
				t.Errorf("a worker took %d jobs (%v)", tag.RowsAffected(), err)
			}
		}})
	if n := len(p.messages()); n != 9 || report.Imported != 9 || report.Known != 0 || report.Left != 1 {
		t.Errorf("%d messages; the report is %+v", n, report)
	}
}

// A statement that does not exclude imported jobs is noticed, although the first jobs are rejected.
func TestDoneIsCheckedAfterRejections(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain + "; update jobs set due = 'infinity' where id < 4")
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	chunks := 0
	_, err := Import(ctx, p.conn, p.engine, Options{Same: true, Query: "select id, 'mail' as queue, body as payload, due as send_at from jobs order by id", Lock: DefaultLock,
		Done: "update jobs set due = now() where id = any($1)", Batch: 3, Progress: func(int) {
			if chunks++; chunks > 10 {
				cancel()
			}
		}})
	if err == nil || !strings.Contains(err.Error(), "--query selects them again") {
		t.Errorf("after %d chunks: %v", chunks, err)
	}
	if n := len(p.messages()); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// interrupted is an engine whose user presses Ctrl-C as soon as it has sent.
type interrupted struct {
	posthaste.Engine
	interrupt func()
}

func (e interrupted) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	defer e.interrupt()
	return e.Engine.Send(ctx, messages...)
}

// An interrupted import deletes or marks the jobs that it sent to another database, so that no
// worker runs them again.
func TestInterruptedImportFinishesItsChunk(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	p.exec(plain)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	_, err := Import(ctx, newConn(p), interrupted{p.engine, cancel}, Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 4})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the import ends with %v", err)
	}
	if sent, marked := len(p.messages()), p.number("select count(*) from jobs where sent"); sent != 4 || marked != 4 {
		t.Errorf("%d messages were sent and %d jobs are marked, want 4", sent, marked)
	}
}

// A job with the id of an earlier one is another job if its payload is another one.
func TestIDsAreUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	p.exec(plain)
	o := Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone}
	p.imports(o)
	p.exec("truncate jobs; insert into jobs (id, body) values (1, 'another job')")
	if report := p.imports(o); report.Imported != 1 || report.Known != 0 {
		t.Errorf("the report is %+v", report)
	}
	if n := len(p.messages()); n != 11 {
		t.Errorf("%d messages, want 11", n)
	}
}

// counted is an engine that notes the size of its largest send.
type counted struct {
	posthaste.Engine
	largest *int
}

func (e counted) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	*e.largest = max(*e.largest, len(messages))
	return e.Engine.Send(ctx, messages...)
}

// Every engine can store the messages of a chunk with their dedupe keys.
func TestChunksBetweenDatabases(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	p.exec(plain + "; insert into jobs (id, body) select n, 'job ' || n from generate_series(11, 700) n")
	largest := 0
	report, err := Import(p.ctx, p.conn, counted{p.engine, &largest}, Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 1000})
	if err != nil || report.Imported != 700 || largest != 500 {
		t.Errorf("%d jobs were imported with at most %d at once (%v), want 700 with 500", report.Imported, largest, err)
	}
}
