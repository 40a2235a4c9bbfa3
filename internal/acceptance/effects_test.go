//go:build unix

package acceptance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

func init() {
	roles["effects"], roles["effects by SQL"], roles["dies"] = effectsRole, effectsBySQLRole, diesRole
}

// The table has no key, so that duplicate effects are visible.
const effectsTable = "create table effects (message bigint not null, process text not null)"

const effect = "insert into effects (message, process) values ($1, $2)"

// effectsRole inserts a row into its own table for each message, in the transaction that
// acknowledges it.
func effectsRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	pool, err := pgxpool.New(ctx, t.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Concurrency: t.Concurrency, Lease: t.Lease,
		Middleware: []func(posthaste.Handler) posthaste.Handler{recording(record)}})
	worker.HandleRaw(w, t.Queue, func(ctx context.Context, d posthaste.RawDelivery) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, effect, int64(d.MessageID), t.Name); err != nil {
				return err
			}
			works(t.Work)
			return postgres.In(tx).Ack(ctx, d.ID)
		})
	}, worker.WithOwnTransaction())
	return runReady(ctx, w, ready)
}

// effectsBySQLRole does the same with SQL only, as a program in any language can. Now and then
// it takes longer than its lease, and another worker has the message.
func effectsBySQLRole(ctx context.Context, t task, ready func()) error {
	record, err := history.Open(t.Dir, t.Name)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	ready()
	stopped := ctx
	ctx = context.WithoutCancel(ctx) // a started message is finished
	for stopped.Err() == nil {
		type delivery struct {
			ID, Message int64
			Attempt     int
		}
		rows, err := conn.Query(ctx, "select delivery_id, message_id, attempt from posthaste.receive($1, 10, $2)", t.Queue, t.Lease)
		if err != nil {
			return err
		}
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery])
		if err != nil {
			return err
		}
		if len(got) == 0 {
			rest(stopped, 10*time.Millisecond)
		}
		for _, d := range got {
			e := history.Event{Kind: history.Started, ID: posthaste.MessageID(d.Message), Attempt: d.Attempt}
			record.Record(e)
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, effect, d.Message, t.Name); err != nil {
					return err
				}
				takes := t.Work
				if d.Message%201 == 0 && d.Attempt == 1 {
					takes = t.Lease + time.Second
				}
				works(takes)
				_, err := tx.Exec(ctx, `select posthaste.ack(array[$1::bigint], '{"strict": true}')`, d.ID)
				return err
			})
			e.Kind = history.Handled
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == "PH409" {
				e.Kind, e.Note = history.Failed, refused.Message
			} else if err != nil {
				return err
			}
			record.Record(e)
		}
	}
	return nil
}

// Exactly-once effects: each message's handler inserts a row and settles in one transaction,
// while workers are killed 20 times. Each message has exactly one row. In Go, and with a
// strict ack from SQL.
func TestDS4_ExactlyOnceEffects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role  string
		lease time.Duration
		kind  string
	}{{"effects", 6 * time.Second, "plain"}, {"effects by SQL", 3 * time.Second, "plain"}, {"effects", 6 * time.Second, "ordered"}, {"effects by SQL", 3 * time.Second, "ordered"},
		{"effects", 6 * time.Second, "limited"}, {"effects by SQL", 3 * time.Second, "several"}} {
		t.Run(c.role+" "+c.kind, func(t *testing.T) {
			t.Parallel()
			if c.kind != "plain" && c.kind != "ordered" || c.role == "effects" && c.kind == "ordered" {
				testrun.Nightly(t, "the plain queue and an ordered one by SQL run on each change")
			}
			s := newStage(t)
			messages, kills := size(900, 10_000), size(4, 20)
			k := allKinds[c.kind]
			k.MaxAttempts = 100
			q := s.queueOf(k)
			conn := s.conn()
			_, err := conn.Exec(s.ctx, effectsTable)
			s.must(err)
			ids := s.send(q, messages)
			begin := func() *child {
				return s.spawn(task{Role: c.role, Queue: q, Concurrency: 8, Lease: c.lease, Work: size(30*time.Millisecond, 10*time.Millisecond)})
			}
			workers := []*child{begin(), begin(), begin()}
			hits := 0
			// Kill during the whole work, and continue if none of the kills hit a message in
			// flight.
			for n := 0; n < kills || hits == 0 && n < 2*kills; n++ {
				s.until("more is handled", func() bool {
					return one[int](s, conn, "select count(*) from effects") >= messages*(n+1)/(2*kills+2)
				})
				// Kill a worker that has a message in flight, because a single claim may have
				// taken all messages.
				at := n % len(workers)
				s.until("a worker has a message in flight, or all are done", func() bool {
					for range workers {
						if len(s.inHand(workers[at])) > 0 {
							return true
						}
						at = (at + 1) % len(workers)
					}
					return one[int](s, conn, "select count(*) from effects") >= messages
				})
				victim := workers[at]
				victim.kill()
				if !victim.killed() {
					t.Fatalf("%s ended by itself: %v", victim.name, victim.err)
				}
				if len(s.inHand(victim)) > 0 {
					hits++
				}
				workers[at] = begin()
			}
			s.settled(q)
			for _, w := range workers {
				s.must(w.term())
			}
			rows, err := conn.Query(s.ctx, "select message from effects order by message")
			s.must(err)
			got, err := pgx.CollectRows(rows, pgx.RowTo[posthaste.MessageID])
			s.must(err)
			slices.Sort(ids)
			if !slices.Equal(got, ids) {
				t.Errorf("%d effects of %d messages, %d different ones", len(got), len(ids), len(slices.Compact(slices.Clone(got))))
			}
			again, refused := 0, 0
			for _, e := range s.history() {
				if e.Kind == history.Started && e.Attempt > 1 {
					again++
				}
				if e.Kind == history.Failed {
					refused++
				}
			}
			t.Logf("%d of at least %d kills hit a handler, %d further attempts, %d refused", hits, kills, again, refused)
			if hits == 0 || again == 0 {
				t.Errorf("%d kills hit a handler, and %d messages were tried again", hits, again)
			}
			if c.role == "effects by SQL" && refused == 0 {
				t.Error("no worker was later than its lease")
			}
		})
	}
}

// inHand returns the messages that a child has started and not ended, by its own history.
func (s *stage) inHand(c *child) map[posthaste.MessageID]bool {
	s.Helper()
	open := map[posthaste.MessageID]bool{}
	for _, e := range s.history() {
		switch {
		case e.Process != c.name:
		case e.Kind == history.Started:
			open[e.ID] = true
		default:
			delete(open, e.ID)
		}
	}
	return open
}

// diesRole handles messages, and is killed directly after the effect of one of them, before it
// is settled.
func diesRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Concurrency: t.Concurrency, Lease: t.Lease})
	worker.HandleRaw(w, t.Queue, func(_ context.Context, d posthaste.RawDelivery) error {
		e := history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt, Note: lastHolder(d)}
		record.Record(e)
		works(t.Work)
		e.Kind = history.Handled
		record.Record(e)
		if n, _ := record.Count(history.Handled); n >= t.Count {
			dieNow()
		}
		return nil
	})
	return runReady(ctx, w, ready)
}

// If a worker is killed between a handler's effect and its settlement, only messages in flight
// are handled twice, and each repetition is a further attempt.
func TestDU4_KilledBeforeTheSettle(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const messages = 200
	twice, held := 0, 0
	rounds := size(3, 15)
	for range rounds { // each in its own queue, because a message that is lost repeatedly runs alone
		q := s.queue(posthaste.QueueOptions{})
		ids := s.send(q, messages)
		w := s.spawn(task{Role: "dies", Queue: q, Concurrency: 8, Lease: 10 * time.Minute, Work: 5 * time.Millisecond, Count: 60})
		<-w.ended
		if !w.killed() {
			t.Fatalf("%s ended by itself: %v", w.name, w.err)
		}
		running, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: q, State: posthaste.StateRunning, Limit: messages})
		s.must(err)
		inFlight := map[posthaste.MessageID]bool{}
		for _, m := range running.Items {
			inFlight[m.ID] = true
		}
		// Its lease would last for minutes; end it now.
		s.lose(w)
		s.until("its messages are rescued", func() bool {
			_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
			s.must(err)
			return s.count(q, posthaste.StateRunning) == 0
		})
		other := s.spawn(task{Role: "worker", Queue: q, Concurrency: 8, Lease: time.Minute})
		s.settled(q)
		s.must(other.term())
		times := map[posthaste.MessageID]int{}
		for _, e := range s.history() {
			if e.Kind == history.Handled {
				times[e.ID]++
			}
		}
		held += len(inFlight)
		for _, id := range ids {
			switch n := times[id]; {
			case n == 0 || n > 2:
				t.Errorf("message %s was handled %d times", id, n)
			case n == 2:
				twice++
				a := s.state(id).Attempts
				if !inFlight[id] || len(a) != 2 || a[0].Outcome != posthaste.OutcomeLost || a[0].Worker != w.name || a[1].Outcome != posthaste.OutcomeDone || a[1].Worker != other.name {
					t.Errorf("message %s was handled twice (in flight at the kill: %t), and its story tells %+v", id, inFlight[id], a)
				}
			}
		}
	}
	t.Logf("%d of %d handled twice, %d were in flight at a kill", twice, rounds*messages, held)
	if twice < rounds || twice > held {
		t.Errorf("%d messages were handled twice: each kill came after the effect of one, and %d were in flight", twice, held)
	}
}

// killed reports whether SIGKILL ended the dead child.
func (c *child) killed() bool { return c.err != nil && !c.byStatus() }
