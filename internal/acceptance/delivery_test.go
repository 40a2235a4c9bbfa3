//go:build unix

package acceptance

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// After 1,000 ids were returned the sender is killed immediately: all messages are delivered.
func TestDS1_SenderKilled(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		const ids, senders = 1000, 8
		q := s.queueOf(k)
		sender := s.spawn(task{Role: "sender", Queue: q, Count: ids, Concurrency: senders, Ordered: k.Ordered})
		select {
		case <-sender.ended:
		case <-s.ctx.Done():
			t.Fatal("the sender does not come to its end")
		}
		if sender.byStatus() {
			t.Fatalf("the sender was not killed: %v", sender.err)
		}
		sent := history.IDs(s.history(), history.Sent)
		if len(sent) != ids {
			t.Fatalf("%d ids are on record", len(sent))
		}
		r := s.recorder()
		s.work(q, r, worker.Config{}, nothing)
		s.recorded(r, history.Handled, ids)
		s.settled(q)
		events := s.history()
		s.must(history.Merge(history.EveryOne(sent, events), history.Once(events), history.Attempts(events, 1)))
		// Messages sent without an answer may be stored, and no others.
		if n := len(history.IDs(events, history.Handled)); n > ids+senders {
			t.Errorf("%d messages came of %d answered calls and %d senders", n, ids, senders)
		}
	})
}

// business is a transaction of a user's program that sends.
type business interface {
	exec(ctx context.Context, sql string, args ...any) error
	send(ctx context.Context, m posthaste.Message) ([]posthaste.Sent, error)
	end(ctx context.Context, commit bool) error
}

type pgxBusiness struct{ pgx.Tx }

func (b pgxBusiness) exec(ctx context.Context, sql string, args ...any) error {
	_, err := b.Exec(ctx, sql, args...)
	return err
}

func (b pgxBusiness) send(ctx context.Context, m posthaste.Message) ([]posthaste.Sent, error) {
	return postgres.In(b.Tx).Send(ctx, m)
}

func (b pgxBusiness) end(ctx context.Context, commit bool) error {
	if commit {
		return b.Commit(ctx)
	}
	return b.Rollback(ctx)
}

type sqlBusiness struct{ *sql.Tx }

func (b sqlBusiness) exec(ctx context.Context, sql string, args ...any) error {
	_, err := b.ExecContext(ctx, sql, args...)
	return err
}

func (b sqlBusiness) send(ctx context.Context, m posthaste.Message) ([]posthaste.Sent, error) {
	return postgres.InSQL(b.Tx).Send(ctx, m)
}

func (b sqlBusiness) end(_ context.Context, commit bool) error {
	if commit {
		return b.Commit()
	}
	return b.Rollback()
}

// Of 1,000 business transactions that send, 500 roll back: exactly the messages of the other
// 500 are delivered, by every way into a transaction.
func TestDS2_HalfRollBack(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		pool := s.pool()
		halfRollBack(s, k, func(ctx context.Context) (business, error) {
			tx, err := pool.Begin(ctx)
			return pgxBusiness{tx}, err
		})
	})
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run("database/sql with "+driver, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			db, err := sql.Open(driver, s.url)
			s.must(err)
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(8)
			halfRollBack(s, kind{}, func(ctx context.Context) (business, error) {
				tx, err := db.BeginTx(ctx, nil)
				return sqlBusiness{tx}, err
			})
		})
	}
}

func halfRollBack(s *stage, k kind, begin func(context.Context) (business, error)) {
	const transactions = 1000
	q := s.queueOf(k)
	conn := s.conn()
	_, err := conn.Exec(s.ctx, "create table orders (id int primary key, message_id bigint not null)")
	s.must(err)
	r := s.recorder()
	s.work(q, r, worker.Config{}, nothing) // alternately awake and asleep in the meantime

	commits := make([]bool, transactions)
	for i := range commits {
		commits[i] = i%2 == 0
	}
	rand.Shuffle(transactions, func(i, j int) { commits[i], commits[j] = commits[j], commits[i] })
	order := func(i int) error {
		tx, err := begin(s.ctx)
		if err != nil {
			return err
		}
		m := posthaste.Message{Queue: q, Payload: map[string]int{"order": i}, Reference: fmt.Sprint(i), Priority: i % 4}
		if k.Ordered {
			m.Key, m.Priority = s.key(q), 0
		}
		if i%5 == 0 {
			m.DedupeKey, m.DedupeWindow = fmt.Sprint("order ", i), time.Hour
		}
		ids, err := posthaste.IDs(tx.send(s.ctx, m))
		if err == nil {
			err = tx.exec(s.ctx, "insert into orders values ($1, $2)", i, int64(ids[0]))
		}
		if err != nil {
			_ = tx.end(s.ctx, false)
			return err
		}
		return tx.end(s.ctx, commits[i])
	}
	var all sync.WaitGroup
	for first := range 8 {
		all.Go(func() {
			for i := first; i < transactions; i += 8 {
				if err := order(i); err != nil {
					s.Errorf("transaction %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	rows, err := conn.Query(s.ctx, "select message_id from orders")
	s.must(err)
	kept, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	s.must(err)
	if len(kept) != transactions/2 {
		s.Fatalf("%d transactions committed", len(kept))
	}
	ids := make([]posthaste.MessageID, len(kept))
	for i := range kept {
		ids[i] = posthaste.MessageID(kept[i])
	}
	s.recorded(r, history.Handled, len(ids))
	s.settled(q)
	s.must(history.Exactly(ids, s.history()))
}

// First in, first out for a single reader.
func TestDS3_FirstInFirstOut(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		q := s.queueOf(k)
		send := func(n int) []posthaste.MessageID { return s.send(q, n) }
		many := 1
		if k.Ordered { // of one key, with many messages at a time
			many = 16
			send = func(n int) []posthaste.MessageID {
				batch := make([]posthaste.Message, n)
				for i := range batch {
					batch[i] = posthaste.Message{Queue: q, Payload: i, Key: "all"}
				}
				ids, err := posthaste.IDs(s.client.Send(s.ctx, batch...))
				s.must(err)
				return ids
			}
		}
		var ids []posthaste.MessageID
		for range 100 {
			ids = append(ids, send(1)...)
		}
		r := s.recorder()
		s.work(q, r, worker.Config{}, nothing, worker.WithConcurrency(many))
		for range 100 {
			ids = append(ids, send(1)...)
		}
		ids = append(ids, send(600)...)
		s.recorded(r, history.Handled, len(ids))
		events := s.history()
		s.must(history.Exactly(ids, events))
		s.must(history.Merge(history.InOrder(ids, events)))
	})
}

// A batch of 2 out of 3 returns 2 and then 1, in order. Receiving from an empty queue does not
// block, including by SQL.
func TestDS3_BatchOfTwoOutOfThree(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		if k.Ordered {
			k.Lanes = 1 // keys come in the order of sending
		}
		q := s.queueOf(k)
		ids := s.send(q, 3)
		receive := func() (got []posthaste.MessageID) {
			if s.redis() {
				reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 2, Lease: time.Minute})
				s.must(err)
				for _, d := range reply.Deliveries {
					got = append(got, d.MessageID)
				}
				return got
			}
			rows, err := s.conn().Query(s.ctx, "select message_id from posthaste.receive($1, 2, '1 minute')", q)
			s.must(err)
			got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id posthaste.MessageID, err error) {
				return id, row.Scan((*int64)(&id))
			})
			s.must(err)
			return got
		}
		for _, want := range [][]posthaste.MessageID{ids[:2], ids[2:], {}} {
			got := receive()
			if !slices.Equal(got, want) {
				t.Errorf("received %v instead of %v", got, want)
			}
		}
	})
}

// A message wakes a sleeping worker: the worker's own looks, of the heartbeat and of due
// times, are minutes away.
func TestDS3_WorkerIsWoken(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		q := s.queueOf(k)
		r := s.recorder()
		s.work(q, r, worker.Config{Lease: 10 * time.Minute, Heartbeat: 5 * time.Minute}, nothing)
		for n := range 5 {
			s.asleep(q)
			s.send(q, 1)
			s.recorded(r, history.Handled, n+1)
		}
	})
}

// HTTP's receive from an empty queue waits as long as requested, and a message wakes it.
func TestDS3_HTTPReceiveWaits(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		a := s.http()
		q := s.queueOf(k)
		begun := time.Now()
		if got := a.want(200, "POST", "/v1/queues/"+q+"/receive", `{"wait":"1s"}`); string(got.entries(t)) != "[]" {
			t.Errorf("received %s", got.body)
		}
		if waited := time.Since(begun); waited < time.Second {
			t.Errorf("waited %s", waited)
		}
		for range 3 {
			answered := make(chan answer, 1)
			go func() {
				got, err := a.try("POST", "/v1/queues/"+q+"/receive", `{"wait":"1m","lease":"1h"}`)
				if err != nil {
					s.Error(err)
				}
				answered <- got
			}()
			s.asleep(q)
			id := s.send(q, 1)[0]
			select {
			case got := <-answered:
				if got.status != 200 || !strings.Contains(string(got.body), `"message_id":"`+id.String()+`"`) {
					t.Errorf("received %d %s", got.status, got.body)
				}
			case <-time.After(30 * time.Second): // half of its wait
				t.Fatal("a waiting receiver was not woken")
			}
		}
	})
}
