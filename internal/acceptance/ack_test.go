//go:build unix

package acceptance

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// By every way into a transaction, an acknowledgment commits with the effects or not at all.
// If another worker has the message by then, the acknowledgment fails and the effects roll
// back.
func TestDS4_AckInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	type effects interface {
		business
		ack(ctx context.Context, id posthaste.DeliveryID) error
	}
	ways := map[string]func(s *stage) func() effects{
		"pgx": func(s *stage) func() effects {
			pool := s.pool()
			return func() effects {
				tx, err := pool.Begin(s.ctx)
				s.must(err)
				return pgxBusiness{tx}
			}
		},
	}
	for _, driver := range []string{"pgx", "postgres"} {
		ways["database/sql with "+driver] = func(s *stage) func() effects {
			db, err := sql.Open(driver, s.url)
			s.must(err)
			s.Cleanup(func() { _ = db.Close() })
			return func() effects {
				tx, err := db.BeginTx(s.ctx, nil)
				s.must(err)
				return sqlBusiness{tx}
			}
		}
	}
	for way, open := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			begin, pool := open(s), s.pool()
			q := s.queue(posthaste.QueueOptions{})
			_, err := pool.Exec(s.ctx, `create table effects (message bigint primary key)`)
			s.must(err)
			ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: q, Payload: 1}))
			s.must(err)
			receive := func(lease time.Duration) (id posthaste.DeliveryID) {
				t.Helper()
				s.until("it is handed out", func() bool {
					err := pool.QueryRow(s.ctx, `select delivery_id from posthaste.receive($1, 1, $2)`, q, lease).Scan(&id)
					if err != nil && err != pgx.ErrNoRows {
						s.Fatal(err)
					}
					return err == nil
				})
				return id
			}
			work := func(id posthaste.DeliveryID, commit bool) error {
				t.Helper()
				tx := begin()
				s.must(tx.exec(s.ctx, `insert into effects values ($1)`, int64(ids[0])))
				err := tx.ack(s.ctx, id)
				s.must(tx.end(s.ctx, commit && err == nil))
				return err
			}
			stands := func(state posthaste.State, effects int) {
				t.Helper()
				m, err := s.engine.Message(s.ctx, ids[0])
				s.must(err)
				var n int
				s.must(pool.QueryRow(s.ctx, `select count(*) from effects`).Scan(&n))
				if m.Subscriptions[0].State != state || n != effects {
					t.Errorf("the message is %s with %d effects, want %s with %d", m.Subscriptions[0].State, n, state, effects)
				}
			}
			refused := begin()
			_, err = refused.send(s.ctx, posthaste.Message{Queue: q, Payload: 1, Kind: strings.Repeat("k", 1000)})
			var e *posthaste.Error
			if !errors.As(err, &e) || e.Code != posthaste.CodeTooLarge && e.Code != posthaste.CodeInvalid || e.Field != "kind" || strings.Contains(e.Message, "pq: ") {
				t.Errorf("a kind that is too long: %#v; want the field named", err)
			}
			s.must(refused.end(s.ctx, false))
			refused = begin()
			if _, err = refused.send(s.ctx, posthaste.Message{Queue: "none", Payload: 1}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
				t.Errorf("a queue that is not there: %#v", err)
			}
			s.must(refused.end(s.ctx, false))
			late := receive(10 * time.Millisecond)
			mine := receive(time.Hour) // when that lease has ended
			if late == mine {
				t.Fatal("it was not handed out again")
			}
			if err := work(late, true); posthaste.CodeOf(err) != posthaste.CodeConflict {
				t.Errorf("acknowledging another worker's delivery: %v; want a conflict", err)
			}
			stands(posthaste.StateRunning, 0)
			s.must(work(mine, false))
			stands(posthaste.StateRunning, 0)
			s.must(work(mine, true))
			stands(posthaste.StateDone, 1)
		})
	}
}

func (b pgxBusiness) ack(ctx context.Context, id posthaste.DeliveryID) error {
	return postgres.In(b.Tx).Ack(ctx, id)
}

func (b sqlBusiness) ack(ctx context.Context, id posthaste.DeliveryID) error {
	return postgres.InSQL(b.Tx).Ack(ctx, id)
}
