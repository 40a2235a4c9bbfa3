//go:build unix

package outbox

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
)

// handover runs a poller, writers and an import on the same table.
type handover struct {
	t    *testing.T
	ctx  context.Context
	url  string
	pool *pgxpool.Pool

	mu        sync.Mutex
	committed []string // ids that writers have committed
	published []string // ids that the poller has published
}

func (h *handover) add(to *[]string, ids ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to = append(*to, ids...)
}

func (h *handover) size(of *[]string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(*of)
}

// write inserts a few rows in a transaction, which may roll back.
func (h *handover) write() error {
	// The pause keeps the number of waiting rows low.
	if _, err := h.pool.Exec(h.ctx, "select pg_catalog.pg_sleep(0.002)"); err != nil {
		return err
	}
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(h.ctx) //nolint:errcheck // committed, or meant
	var ids []string
	for range 1 + rand.IntN(3) {
		var id string
		if err := tx.QueryRow(h.ctx, `insert into outbox (body) values ('{"n": 1}') returning id::text`).Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if rand.IntN(8) == 0 {
		return nil
	}
	if err := tx.Commit(h.ctx); err != nil {
		return err
	}
	h.add(&h.committed, ids...)
	return nil
}

// poll is one round of the old poller, which locks the rows that it publishes.
func (h *handover) poll() error {
	return pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(h.ctx, "select id::text from outbox where not sent order by id limit 5 for update skip locked")
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err = tx.Exec(h.ctx, "update outbox set sent = true where id = any($1::text[]::bigint[])", ids); err == nil {
			h.add(&h.published, ids...)
		}
		return err
	})
}

// loop runs f until stop is closed.
func (h *handover) loop(group *sync.WaitGroup, stop chan struct{}, f func() error) {
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := f(); err != nil {
				h.t.Errorf("%v", err)
				return
			}
		}
	})
}

// until waits until met.
func (h *handover) until(what string, met func() bool) {
	h.t.Helper()
	for !met() {
		if h.t.Failed() {
			h.t.FailNow()
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-h.ctx.Done():
			h.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// takeOver imports over connections that are cut repeatedly, until nothing is left or stop is
// closed, and returns the reported number of rows.
func (h *handover) takeOver(taken *atomic.Int64) error {
	for {
		err := func() error {
			conn, err := pgx.Connect(h.ctx, h.url)
			if err != nil {
				return err
			}
			defer conn.Close(h.ctx)
			table, err := Open(h.ctx, conn, plainMapping())
			if err != nil {
				return err
			}
			// Cut at any moment, or at least after some batches, so that the import makes
			// progress.
			cutNow := func() { _, _ = h.pool.Exec(h.ctx, "select pg_terminate_backend($1)", conn.PgConn().PID()) }
			left := rand.IntN(6)
			if left == 0 {
				timer := time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, cutNow)
				defer timer.Stop()
			}
			_, err = table.Import(h.ctx, Options{Batch: 10, Wait: patience, Progress: func(n int) {
				taken.Add(int64(n))
				if left--; left == 0 {
					go cutNow()
				}
			}})
			return err
		}()
		if err == nil || posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			return err
		}
	}
}

// run runs a handover: poller and import next to writers, then the trigger, the poller's end,
// and the rest. With broken the trigger does not mark the rows that it sends. It returns the
// ids that were sent twice and those that were never sent.
func (h *handover) run(broken bool) (twice, lost []string) {
	ctx := h.ctx
	conn := connect(h.t, ctx, h.url)
	exec(h.t, ctx, conn, plain)
	exec(h.t, ctx, conn, "select posthaste.create_queue('events')")
	var writers, poller, importer sync.WaitGroup
	stopWriters, stopPoller, stopImport := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range 2 {
		h.loop(&writers, stopWriters, h.write)
	}
	h.loop(&poller, stopPoller, h.poll)
	var taken atomic.Int64
	h.loop(&importer, stopImport, func() error { return h.takeOver(&taken) })
	h.until("poller and import both take rows", func() bool { return h.size(&h.published) > 50 && taken.Load() > 50 })

	table, err := Open(ctx, conn, plainMapping())
	if err != nil {
		h.t.Fatal(err)
	}
	if broken {
		table.mark = "update " + table.sql + " as r set sent = r.sent"
	}
	if err := table.InstallTrigger(ctx, patience); err != nil {
		h.t.Fatal(err)
	}
	before := h.size(&h.committed)
	h.until("the trigger sends rows", func() bool { return h.size(&h.committed) > before+100 })
	close(stopPoller)
	poller.Wait()
	if broken {
		close(stopWriters) // with a broken trigger rows stay forever
		writers.Wait()
	}
	close(stopImport)
	importer.Wait()
	if err := h.takeOver(&taken); err != nil {
		h.t.Fatal(err)
	}
	if !broken {
		close(stopWriters)
		writers.Wait()
	}

	times := map[string]int{}
	for _, id := range append(query[string](h.t, ctx, conn, "select reference from posthaste.messages"), h.published...) {
		times[id]++
	}
	for _, id := range h.committed {
		if times[id] == 0 {
			lost = append(lost, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(times)) {
		if times[id] > 1 {
			twice = append(twice, id)
		}
	}
	h.t.Logf("%d rows: %d by the poller, at least %d imported, %d twice", len(h.committed), len(h.published), taken.Load(), len(twice))
	return twice, lost
}

func newHandover(t *testing.T) *handover {
	h := &handover{t: t, ctx: newContext(t), url: database(t)}
	pool, err := pgxpool.New(h.ctx, h.url)
	if err != nil {
		t.Fatal(err)
	}
	h.pool = pool
	t.Cleanup(pool.Close)
	return h
}

// Every committed row is sent once, by the poller or the ledger, wherever the import is cut.
func TestHandingOver(t *testing.T) {
	t.Parallel()
	twice, lost := newHandover(t).run(false)
	if len(twice) > 0 || len(lost) > 0 {
		t.Errorf("twice: %v\nnever: %v", twice, lost)
	}
}

// The twin: a trigger that does not mark the rows that it sends. On a busy machine the poller
// may be too late to show the fault, so the test repeats the handover.
func TestHandingOverFindsABrokenTrigger(t *testing.T) {
	t.Parallel()
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		twice, lost := newHandover(t).run(true)
		if len(lost) > 0 {
			t.Errorf("never: %v", lost)
		}
		if len(twice) > 0 {
			return
		}
	}
	t.Error("nothing went twice, so the test finds nothing")
}
