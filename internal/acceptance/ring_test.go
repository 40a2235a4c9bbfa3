//go:build unix

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// ring counts how often the sequence moved to another slot, and the messages sent until then.
type ring struct {
	sent  atomic.Int64 // messages
	mu    sync.Mutex
	marks []int64 // number sent at each move
	epoch int64
}

// slots is the number of slots of the ring: a turn is as many moves.
const slots = 16

// turn keeps the ring turning. It runs upkeep without the pauses of workers, so that the
// traffic of hours fits into a test.
func (s *stage) turn(ctx context.Context, g *ring) error {
	engine, conn := s.engine, s.conn()
	for ; ctx.Err() == nil; rest(ctx, 2*time.Millisecond) { // leaves the processors to the load
		_, err := engine.Maintain(context.WithoutCancel(ctx), posthaste.UpkeepSpace)
		if errors.Is(err, context.DeadlineExceeded) { // it did not get through in time
			continue
		}
		if err != nil {
			return fmt.Errorf("upkeep: %w", err)
		}
		var epoch int64
		if err := conn.QueryRow(context.WithoutCancel(ctx), "select last_value >> 22 from posthaste.positions").Scan(&epoch); err != nil {
			return err
		}
		g.mu.Lock()
		if epoch != g.epoch {
			g.marks = append(g.marks, g.sent.Load())
			g.epoch = epoch
		}
		g.mu.Unlock()
	}
	return nil
}

func (g *ring) turns() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(len(g.marks)) / slots
}

// lately counts the messages that were sent during the last moves.
func (g *ring) lately(moves int) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent.Load() - g.marks[len(g.marks)-moves]
}

// space is the ledger's size on disk, including indexes.
const space = `select sum(pg_total_relation_size(c.oid))::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = 'posthaste' and c.relkind = 'r'`

// spaciest names the largest tables, with those of all slots together.
const spaciest = `select string_agg(format('%s %s kB', x.name, x.kb), ', ' order by x.kb desc) from (
	select regexp_replace(c.relname, '_[0-9]+$', '') as name, sum(pg_total_relation_size(c.oid))::bigint / 1024 as kb from pg_class c join pg_namespace n on n.oid = c.relnamespace
	 where n.nspname = 'posthaste' and c.relkind = 'r' group by 1 order by 2 desc limit 8) x`

// ringTest is the state of TestLP9_RingTurnsOver.
type ringTest struct {
	*stage
	ring
	queue string
	mu    sync.Mutex
	ids   []posthaste.MessageID
	far   map[posthaste.MessageID]bool // due in more than a turn, and not handled yet
	long  chan struct{}                // closed when the handler that runs longer than a turn may end
}

// handle waits in the handler of the long message, and removes the far ones from the list.
func (r *ringTest) handle(ctx context.Context, d posthaste.RawDelivery) error {
	switch d.Kind {
	case "long":
		select {
		case <-r.long:
		case <-ctx.Done():
			return ctx.Err()
		}
	case "far":
		if early := time.Until(d.DueAt); early > 0 { // PostgreSQL runs on this machine and uses the same clock
			r.Errorf("message %s came %s before its time", d.MessageID, early)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.far, d.MessageID)
	}
	return nil
}

func (r *ringTest) sendAll(messages ...posthaste.Message) {
	sent, err := posthaste.IDs(r.client.Send(r.ctx, messages...))
	if err != nil {
		r.Errorf("a sender was refused: %v", err)
	}
	r.sent.Add(int64(len(sent)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, sent...)
	for i, id := range sent {
		if messages[i].Kind == "far" {
			r.far[id] = true
		}
	}
}

// ringPayload is the size of each message. PostgreSQL does not compress rows of this size.
const ringPayload = 1000

// spaceOfMessage bounds the ledger's size on disk per message, including indexes.
const spaceOfMessage = 1600

// load sends batches until ctx ends. Some messages are due later.
func (r *ringTest) load(ctx context.Context) {
	payload := make([]byte, ringPayload)
	for ctx.Err() == nil {
		batch := make([]posthaste.Message, 1+rand.IntN(20))
		for i := range batch {
			batch[i] = posthaste.Message{Queue: r.queue, Payload: append([]byte(nil), payload...)}
			if rand.IntN(50) == 0 {
				batch[i].Delay = rand.N(testrun.Size(10*time.Second, time.Minute))
			}
		}
		r.sendAll(batch...)
		testrun.Pause(10 * time.Millisecond)
	}
}

// beyond sends messages that are due in more than a turn of the ring, and waits until they are
// handled. If the ring turned more slowly in the meantime, it sends others that are due even
// later.
func (r *ringTest) beyond(turn time.Duration) {
	for delay := 2 * turn; r.ctx.Err() == nil; delay *= 2 {
		begun := r.turns()
		r.sendAll(slices.Repeat([]posthaste.Message{{Queue: r.queue, Kind: "far", Delay: delay}}, 20)...)
		r.until("messages due beyond a turn are handled", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.far) == 0
		})
		passed := r.turns() - begun
		r.Logf("messages that were due in %s were handled after %.1f turns", delay, passed)
		if passed > 1 {
			return
		}
	}
}

// backup holds the locks of a backup, under which the ring cannot turn, until 1,000 messages
// were handled in the meantime.
func (r *ringTest) backup(record *history.Recorder) {
	r.Helper()
	tx, err := r.conn().Begin(r.ctx)
	r.must(err)
	_, err = tx.Exec(r.ctx, `do $$ declare t text; begin
		for t in select c.oid::regclass from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = 'posthaste' and c.relkind in ('r', 'p') loop execute format('lock table %s in access share mode', t); end loop; end $$`)
	r.must(err)
	before, _ := record.Count(history.Handled)
	r.recorded(record, history.Handled, before+1000)
	r.must(tx.Rollback(r.ctx))
}

func (r *ringTest) reach(turns float64) {
	r.Helper()
	r.until(fmt.Sprintf("the ring has turned %.1f times", turns), func() bool { return r.turns() >= turns })
}

// spaceOfCancelled is the size of the table cancelled, which is an ordinary one: an open
// snapshot keeps its deleted rows.
const spaceOfCancelled = `select pg_total_relation_size('posthaste.cancelled')`

// holdsATurn checks that the ledger's size on disk grew at most by the messages of one turn.
// The total of all messages must be clearly larger, which takes three turns.
func (r *ringTest) holdsATurn(conn *pgx.Conn, empty int64) {
	r.Helper()
	most := func() int64 { return empty + r.lately(slots*5/4)*spaceOfMessage }
	r.until("much more was sent than the ring holds", func() bool { return empty+r.ring.sent.Load()*ringPayload > most()*5/4 })
	late, bound, kept := one[int64](r.stage, conn, space), most(), r.lately(slots*5/4)
	r.Logf("%d messages in the last turn and a quarter; space %d kB at first, %d kB at the end", kept, empty>>10, late>>10)
	if late > bound {
		r.Errorf("space grew from %d kB to %d kB, at most %d kB may be; most of it: %s", empty>>10, late>>10, bound>>10, one[string](r.stage, conn, spaciest))
	}
}

// The ring is turned over under load, with an open snapshot, a backup that holds locks for a
// part of it, a handler that runs longer than a turn and messages due beyond it: nothing is
// lost, and no send fails. At full size the space is bounded, too.
func TestLP9_RingTurnsOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	turns := testrun.Size(1.5, 50.0)
	r := &ringTest{stage: s, queue: s.queue(posthaste.QueueOptions{Timeout: time.Hour}), far: map[posthaste.MessageID]bool{}, long: make(chan struct{})}
	conn := s.conn()
	_, err := conn.Exec(s.ctx, "update posthaste.settings set slot_rows = 100, carry_after = '1 second'")
	s.must(err)
	record := s.recorder()
	s.work(r.queue, record, worker.Config{Concurrency: 20}, r.handle)
	r.sendAll(posthaste.Message{Queue: r.queue, Kind: "long"})
	first := r.ids[0]
	snapshot, err := s.conn().BeginTx(s.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	s.must(err)
	one[int](s, snapshot, "select 1") // the first statement takes the snapshot
	empty := one[int64](s, conn, space)

	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var busy, far sync.WaitGroup
	defer busy.Wait()
	begun := time.Now()
	busy.Go(func() {
		if err := s.turn(ctx, &r.ring); err != nil {
			s.Error(err)
		}
	})
	for range 2 {
		busy.Go(func() { r.load(ctx) })
	}
	r.reach(turns * 0.3)
	turn := time.Duration(float64(time.Since(begun)) / r.turns())
	r.backup(record)
	far.Go(func() { r.beyond(turn) })
	r.reach(turns * 0.7)
	if state := s.state(first); state.State != posthaste.StateRunning {
		t.Errorf("the message whose handler runs for turns is %s", state.State)
	}
	close(r.long)
	pinned := one[int64](s, conn, spaceOfCancelled)
	s.must(snapshot.Rollback(s.ctx))
	far.Wait()
	r.reach(turns)
	if full() {
		// As much again is added until autovacuum runs, once a minute.
		r.holdsATurn(conn, empty+2*pinned)
	}
	stop()
	busy.Wait()
	t.Logf("%.1f turns, %d messages", r.turns(), r.sent.Load())
	s.until("all are handled", func() bool {
		n, _ := record.Count(history.Handled)
		return n >= len(r.ids)
	})
	s.must(history.Exactly(r.ids, s.history()))
}
