//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// ring counts how often the sequence moved to another slot.
type ring struct {
	mu    sync.Mutex
	moves int
	epoch int64
}

// slots are the slots of the ring: a turn is as many moves.
const slots = 16

// turn keeps the ring turning: it calls upkeep without the pauses that workers
// make, so that hours of traffic fit into a test.
func (s *stage) turn(ctx context.Context, g *ring) error {
	engine, conn := s.engine, s.conn()
	for ctx.Err() == nil {
		if _, err := engine.Maintain(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("upkeep: %w", err)
		}
		var epoch int64
		if err := conn.QueryRow(context.WithoutCancel(ctx), "select last_value >> 22 from posthaste.positions").Scan(&epoch); err != nil {
			return err
		}
		g.mu.Lock()
		if epoch != g.epoch {
			g.moves++
			g.epoch = epoch
		}
		g.mu.Unlock()
	}
	return nil
}

func (g *ring) turns() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(g.moves) / slots
}

// space is what the ledger takes on disk, indexes and all.
const space = `select sum(pg_total_relation_size(c.oid))::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = 'posthaste' and c.relkind = 'r'`

// The ring is turned over under load, with a pinned snapshot, a backup that
// holds locks for a part of it, a handler that runs longer than a turn and
// messages due beyond it: nothing is lost, space is bounded, and senders are
// never refused.
func TestLP9_RingTurnsOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	turns := size(3.0, 50.0)
	q := s.queue(posthaste.QueueOptions{Timeout: time.Hour})
	conn := s.conn()
	_, err := conn.Exec(s.ctx, "update posthaste.settings set slot_rows = 100, carry_after = '1 second'")
	s.must(err)

	r := s.recorder()
	long := make(chan struct{})
	s.work(q, r, worker.Config{Concurrency: 20}, func(ctx context.Context, d posthaste.RawDelivery) error {
		if d.Kind == "long" {
			select {
			case <-long:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	var ids []posthaste.MessageID
	send := func(messages ...posthaste.Message) {
		sent, err := s.client.Send(s.ctx, messages...)
		if err != nil {
			s.Errorf("a sender was refused: %v", err)
		}
		mu.Lock()
		ids = append(ids, sent...)
		mu.Unlock()
	}
	send(posthaste.Message{Queue: q, Kind: "long"})
	first := ids[0]
	pinned := s.conn()
	snapshot, err := pinned.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	s.must(err)
	one[int](s, snapshot, "select 1") // a snapshot is taken by the first statement

	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var busy sync.WaitGroup
	defer busy.Wait()
	g := &ring{}
	busy.Go(func() {
		if err := s.turn(ctx, g); err != nil {
			s.Error(err)
		}
	})
	reach := func(n float64) {
		s.Helper()
		s.until(fmt.Sprintf("the ring has turned %.1f times", n), func() bool { return g.turns() >= n })
	}
	for range 2 {
		busy.Go(func() {
			for ctx.Err() == nil {
				batch := make([]posthaste.Message, 1+rand.IntN(20))
				for i := range batch {
					batch[i] = posthaste.Message{Queue: q, Payload: fmt.Sprintf("%0100d", i)}
					if rand.IntN(50) == 0 {
						batch[i].Delay = rand.N(size(10*time.Second, time.Minute)) // mostly beyond a turn
					}
				}
				send(batch...)
				time.Sleep(rand.N(10 * time.Millisecond))
			}
		})
	}
	reach(turns * 0.3)
	early := one[int64](s, conn, space)

	// A backup reads all tables and holds its locks; the ring cannot turn, and
	// everything goes on.
	backup, err := s.conn().Begin(s.ctx)
	s.must(err)
	_, err = backup.Exec(s.ctx, `do $$ declare t text; begin
		for t in select c.oid::regclass from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = 'posthaste' and c.relkind in ('r', 'p') loop execute format('lock table %s in access share mode', t); end loop; end $$`)
	s.must(err)
	before, _ := r.Count(history.Handled)
	s.recorded(r, history.Handled, before+1000)
	during := one[int64](s, conn, space)
	s.must(backup.Rollback(s.ctx))

	reach(turns * 0.7)
	if state := s.state(first); state.State != posthaste.StateRunning {
		t.Errorf("the message whose handler runs for turns is %s", state.State)
	}
	close(long)
	s.must(snapshot.Rollback(s.ctx))
	reach(turns)
	late := one[int64](s, conn, space)
	stop()
	busy.Wait()

	t.Logf("%.1f turns, %d messages; space %d kB early, %d kB after the backup, %d kB at the end", g.turns(), len(ids), early>>10, during>>10, late>>10)
	if late > 3*early+32<<20 {
		t.Errorf("space grew from %d kB to %d kB", early>>10, late>>10)
	}
	s.until("all are handled", func() bool {
		n, _ := r.Count(history.Handled)
		return n >= len(ids)
	})
	s.must(history.Exactly(ids, s.history()))
}
