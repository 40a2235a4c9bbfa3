package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// maxQueues is how many queues the sends of transactional may be spread over.
	maxQueues = 1000
	// handling is the share of the duration that is kept for the worker to end with what
	// was sent in a slice.
	handling = 0.2
)

// What transactions do beside their message, and by what they send it.
const (
	rowAlone   = "row alone"
	twoRows    = "row and payload into tables"
	bySQL      = "row and send, SQL"
	byIn       = "row and send, postgres.In"
	byEngine   = "send alone, Engine.Send"
	attended   = "with a worker"
	unattended = "without a worker"
)

// sending is what a run of transactional consists of.
type sending struct {
	run        *run
	t          *traffic
	plain      *plain // the connections, and the table that payloads are inserted into
	engine     *postgres.Engine
	contention *contention
	queues     map[string][]string // by attended and unattended
	next       atomic.Int64
	ways       []*txWay
	complete   bool
}

// txWay is one kind of transaction.
type txWay struct {
	TransactionalWay
	once func(ctx context.Context, i int) error // one transaction, on connection i
	laps []sendingLap
}

// sendingLap is one slice of a way. CPU is microseconds per transaction.
type sendingLap struct {
	perSecond, handled float64
	server, client     *float64
	contended
}

// transactional compares transactions that insert a row and send a message with
// transactions that insert the payload into a table instead, and with those that do
// neither. Messages of half of the ways are for queues that a worker reads, those of the
// other half for queues that nobody reads.
func transactional(ctx context.Context, r *run) (err error) {
	s := &sending{run: r, complete: true, queues: map[string][]string{}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	r.begin()
	r.phase("warming up")
	for _, w := range s.ways {
		if _, err := s.slice(ctx, w, r.part(warming)/time.Duration(len(s.ways))); err != nil {
			return err
		}
	}
	done := 0
	for done < rounds {
		if whole, err := s.round(ctx, done); err != nil {
			return err
		} else if !whole {
			break
		}
		done++
	}
	for _, w := range s.ways {
		w.laps = w.laps[:done]
	}
	s.t.audit(r, s.complete)
	s.conclude()
	return nil
}

// round measures each way once, unless the earlier rounds took too long.
func (s *sending) round(ctx context.Context, round int) (whole bool, err error) {
	during := s.run.part((1 - warming - handling) / float64(rounds*len(s.ways)))
	for i := range s.ways {
		if round > 0 && s.run.late() {
			return false, nil
		}
		w := s.ways[(round+i)%len(s.ways)] // none is always first
		s.run.phase(strings.TrimSpace(w.Way + " " + w.Worker))
		err := s.run.profiled(round == rounds-1 && w.Way == bySQL && w.Worker == attended, func() error {
			lap, err := s.slice(ctx, w, during)
			w.laps = append(w.laps, lap)
			return errors.Join(err, lap.failure)
		})
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// open makes the queues, the tables and the connections, and starts the worker.
func (s *sending) open(ctx context.Context) (err error) {
	at, err := s.run.home(ctx, "transactional")
	if err != nil {
		return err
	}
	queue := func(kind string, i int) string { return fmt.Sprint(strings.ReplaceAll(kind, " ", "-"), "-", i) }
	if s.t, err = newTraffic(ctx, s.run, at, queue(attended, 0), posthaste.QueueOptions{}); err != nil {
		return err
	}
	for _, kind := range []string{attended, unattended} {
		for i := range s.run.o.Queues {
			name := queue(kind, i)
			s.queues[kind] = append(s.queues[kind], name)
			if name == s.t.queue {
				continue
			}
			if err := s.t.engine.QueueCreate(ctx, name, posthaste.QueueOptions{}); err != nil {
				return err
			}
			if kind == attended {
				s.t.also = append(s.t.also, posthaste.QueueRef{Queue: name, Subscription: posthaste.DefaultSubscription})
			}
		}
	}
	senders := "bench-senders-" + s.run.server.token
	named, err := withApplicationName(at.URL, senders)
	if err != nil {
		return err
	}
	if s.contention, err = openContention(ctx, at.URL, senders); err != nil {
		return err
	}
	if s.engine, err = postgres.Open(ctx, named, postgres.Logger(s.run.o.Log), postgres.WithPoolSize(singles)); err != nil {
		return err
	}
	if s.plain, err = openPlain(ctx, named); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return s.t.work(ctx)
}

// prepare makes the table of the business rows and the ways.
func (s *sending) prepare(ctx context.Context) error {
	for i, conn := range s.plain.conns {
		if i == 0 {
			if _, err := conn.Exec(ctx, "create table public.business (id bigint generated always as identity primary key, customer bigint not null, amount numeric not null)"); err != nil {
				return fmt.Errorf("the business table cannot be made: %w", err)
			}
		}
		for name, statement := range map[string]string{
			"business": "insert into public.business (customer, amount) values ($1, 12.50)",
			"send":     "select posthaste.send($1, $2)",
		} {
			if _, err := conn.Prepare(ctx, name, statement); err != nil {
				return fmt.Errorf("the statement %q cannot be prepared: %w", statement, err)
			}
		}
	}
	s.ways = []*txWay{
		{TransactionalWay: TransactionalWay{Way: rowAlone}, once: s.within(func(context.Context, pgx.Tx) error { return nil })},
		{TransactionalWay: TransactionalWay{Way: twoRows}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "plain", []byte(payload))
			return err
		})},
	}
	for _, kind := range []string{attended, unattended} {
		s.ways = append(s.ways,
			&txWay{TransactionalWay: TransactionalWay{Way: bySQL, Worker: kind}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "send", s.queue(kind), payload)
				return err
			})},
			&txWay{TransactionalWay: TransactionalWay{Way: byIn, Worker: kind}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
				_, err := postgres.In(tx).Send(ctx, posthaste.Message{Queue: s.queue(kind), Payload: payload})
				return err
			})},
			&txWay{TransactionalWay: TransactionalWay{Way: byEngine, Worker: kind}, once: func(ctx context.Context, _ int) error {
				_, err := s.engine.Send(ctx, posthaste.Message{Queue: s.queue(kind), Payload: payload})
				return err
			}})
	}
	return nil
}

// queue is the next one to send to.
func (s *sending) queue(kind string) string {
	of := s.queues[kind]
	return of[int(s.next.Add(1))%len(of)]
}

// within is a transaction that inserts a business row and does something else.
func (s *sending) within(also func(context.Context, pgx.Tx) error) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		tx, err := s.plain.conns[i].Begin(ctx)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, "business", int64(i)); err == nil {
			err = also(ctx, tx)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
		}
		return tx.Commit(ctx)
	}
}

// slice measures one way for a while, and lets the worker handle what was sent.
func (s *sending) slice(ctx context.Context, w *txWay, during time.Duration) (lap sendingLap, err error) {
	own := cost{meter: s.run.server.meter}
	var turn atomic.Int64
	looked, end := s.contention.used(), own.span()
	watched := s.contention.watch(ctx, during)
	begun := time.Now()
	sent, took, err := forAWhile(ctx, singles, during, func(ctx context.Context, i int) (int64, error) {
		if rate := s.run.o.Rate; rate > 0 {
			at := time.Duration(float64(turn.Add(1)) / rate * float64(time.Second))
			select {
			case <-time.After(min(at, during) - time.Since(begun)):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if at > during {
				return 0, nil
			}
		}
		if err := w.once(ctx, i); err != nil {
			return 0, fmt.Errorf("the transaction %q failed: %w", w.Way, err)
		}
		if w.Worker == attended {
			s.t.sent.Add(1)
		}
		return 1, nil
	})
	lap.contended = watched()
	if err != nil {
		return lap, err
	}
	if w.Worker == attended {
		limited, stop := context.WithTimeout(ctx, s.run.o.drain)
		defer stop()
		s.complete = s.t.await(limited, 0) && s.complete
		lap.handled = rate(sent, time.Since(begun))
	}
	end(sent)
	own.server -= s.contention.used() - looked
	lap.perSecond, lap.server, lap.client = rate(sent, took), own.serverPerMessage(), own.clientPerMessage()
	w.Transactions += sent
	return lap, ctx.Err()
}

func (s *sending) close() (err error) {
	if s.plain != nil {
		s.plain.close()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.contention != nil {
		s.contention.close()
	}
	if s.t != nil {
		err = s.t.stop()
	}
	return err
}

// conclude sums the slices up.
func (s *sending) conclude() {
	row, payloads := s.ways[0], s.ways[1]
	result := &TransactionalResult{Connections: singles, SentTo: s.run.o.Queues, AskedPerSecond: s.run.o.Rate}
	for _, w := range s.ways {
		var nobody *txWay
		if w.Worker == attended {
			i := slices.IndexFunc(s.ways, func(o *txWay) bool { return o.Way == w.Way && o.Worker == unattended })
			nobody = s.ways[i]
		}
		w.sumUp(row, payloads, nobody)
		result.Ways = append(result.Ways, w.TransactionalWay)
	}
	res := s.run.result
	res.TransactionalResult = result
	main := result.Ways[2] // by SQL, with a worker
	res.PerSecond, res.Ratio, res.Messages = known(main.PerSecond), main.RatioToPayloads, main.Transactions
	res.ServerCPU, res.ClientCPU = main.ServerCPU, main.ClientCPU
}

// sumUp takes medians over the rounds: of a ratio, of those in each round. nobody is the
// same way without a worker, for one that has one.
func (w *txWay) sumUp(row, payloads, nobody *txWay) {
	column := func(f func(i int) *float64) *float64 {
		var values []float64
		for i := range w.laps {
			if v := f(i); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil
		}
		return known(median(values))
	}
	rates := func(i int) *float64 { return &w.laps[i].perSecond }
	against := func(other *txWay) func(i int) *float64 {
		return func(i int) *float64 { return quotient(w.laps[i].perSecond, other.laps[i].perSecond) }
	}
	w.PerSecond = *column(rates)
	for i := range w.laps {
		w.Rounds = append(w.Rounds, *known(*rates(i)))
	}
	w.ServerCPU = column(func(i int) *float64 { return w.laps[i].server })
	w.ClientCPU = column(func(i int) *float64 { return w.laps[i].client })
	w.RatioToRow, w.RatioToPayloads = column(against(row)), column(against(payloads))
	w.ServerCPUAbove = column(func(i int) *float64 {
		if w.laps[i].server == nil || payloads.laps[i].server == nil {
			return nil
		}
		return known(*w.laps[i].server - *payloads.laps[i].server)
	})
	if nobody != nil {
		w.Handled = column(func(i int) *float64 { return &w.laps[i].handled })
		w.RatioToNobody = column(against(nobody))
	}
	var all contended
	for _, lap := range w.laps {
		all.notified += lap.notified
		all.took += lap.took
		all.active += lap.active
		all.waiting += lap.waiting
	}
	w.Notifications = *known(rate(all.notified, all.took))
	w.LockWaits, w.Sampled = quotient(float64(all.waiting), float64(all.active)), all.active
}

// withApplicationName is the same database, whose sessions bear a name.
func withApplicationName(at, name string) (string, error) {
	if !strings.HasPrefix(at, "postgres://") && !strings.HasPrefix(at, "postgresql://") {
		return at + " application_name='" + name + "'", nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", posthaste.Invalidf("database_url", "the database URL cannot be read")
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String(), nil
}
