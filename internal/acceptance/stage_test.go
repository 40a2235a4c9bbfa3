//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// patience bounds waits for conditions that do not test speed.
var patience = size(2*time.Minute, 20*time.Minute)

// stage is one test's database with the steps of the test.
type stage struct {
	*testing.T
	ctx    context.Context
	url    string
	engine posthaste.Store
	client *posthaste.Client
	dir    string // of the histories
	log    *slog.Logger
	names  *atomic.Int64
	web    *api            // created when it is first used
	keyed  sync.Map        // ordered queues, whose messages need keys
	look   *goredis.Client // a client of a Redis, created when it is first used
}

// newStage creates a stage on its own database, or on a Redis (onRedis).
func newStage(t *testing.T) *stage {
	t.Helper()
	if onRedis(t) {
		return stageOn(t, startRedis(t).URL())
	}
	return stageOn(t, testpg.New(t))
}

func stageOn(t *testing.T, url string) *stage {
	t.Helper()
	s := closedStage(t, url)
	s.reopen()
	return s
}

// reopen opens the stage's engine.
func (s *stage) reopen() {
	s.Helper()
	s.engine = s.open()
	s.client = posthaste.NewClient(s.engine)
}

// closedStage creates a stage whose engine is not open, on a database that may have no schema or
// an older one.
func closedStage(t *testing.T, url string) *stage {
	t.Helper()
	// A test waits for several conditions, and one alone may take all the patience.
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	t.Cleanup(cancel)
	return &stage{T: t, ctx: ctx, url: url, dir: t.TempDir(), names: &atomic.Int64{},
		log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// name returns a name that the stage has not used yet.
func (s *stage) name(what string) string { return fmt.Sprintf("%s-%d", what, s.names.Add(1)) }

// open opens another engine, as another process would.
func (s *stage) open(options ...postgres.Option) posthaste.Store {
	s.Helper()
	e, err := openStore(s.ctx, s.url, append(options, postgres.WithLogger(s.log))...)
	s.must(err)
	s.Cleanup(e.Close)
	return e
}

// failing keeps the workers' log back, because expected errors need no log, unless the test fails.
func (s *stage) failing() {
	var kept testrun.Log
	s.log = slog.New(slog.NewTextHandler(&kept, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.Cleanup(func() {
		if s.Failed() {
			const most = 16 << 10
			log := kept.String()
			s.Logf("the end of the workers' log:\n%s", log[max(0, len(log)-most):])
		}
	})
}

// http returns the stage's HTTP API.
func (s *stage) http() *api {
	s.Helper()
	if s.web == nil {
		s.web = s.serve(s.engine)
	}
	return s.web
}

// pool opens plain connections, to inspect the database.
func (s *stage) pool() *pgxpool.Pool {
	s.Helper()
	p, err := pgxpool.New(s.ctx, s.url)
	s.must(err)
	s.Cleanup(p.Close)
	return p
}

func (s *stage) conn() *pgx.Conn {
	s.Helper()
	c, err := pgx.Connect(s.ctx, s.url)
	s.must(err)
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// querier is a connection, a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// one queries one value.
func one[T any](s *stage, q querier, sql string, args ...any) (value T) {
	s.Helper()
	if err := q.QueryRow(s.ctx, sql, args...).Scan(&value); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (s *stage) queue(o posthaste.QueueOptions) string {
	s.Helper()
	name := s.name("q")
	s.must(s.engine.CreateQueue(s.ctx, name, o))
	if o.Ordered {
		s.keyed.Store(name, true)
	}
	return name
}

// keeping returns options of a queue that keeps all settled messages for the duration of the
// test. PostgreSQL does so anyway.
func (s *stage) keeping(o posthaste.QueueOptions) posthaste.QueueOptions {
	if s.redis() {
		o.Retention, o.RetainPayload = 24*time.Hour, true
	}
	return o
}

// kind is a kind of queue.
type kind struct {
	posthaste.QueueOptions
	// several says that the queue has a second subscription, which is processed in the
	// meantime.
	several bool
}

// allKinds are the kinds of queues with the same guarantees. Limits that are never reached
// still serialize claims, and count.
var allKinds = map[string]kind{
	"plain":   {},
	"ordered": {QueueOptions: posthaste.QueueOptions{Ordered: true}},
	"limited": {QueueOptions: posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 100_000, RateLimit: posthaste.Rate{Limit: 1_000_000, Burst: 1_000_000}}}},
	"several": {several: true},
}

// queueOf creates a queue of a kind.
func (s *stage) queueOf(k kind) string {
	s.Helper()
	q := s.queue(k.QueueOptions)
	if k.several {
		s.beside(q)
	}
	return q
}

// beside gives a queue a second subscription with a worker. No message may come to it twice,
// whatever happens in the first one. settled waits until each has come.
func (s *stage) beside(queue string) {
	s.Helper()
	const name = "beside"
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "test"), queue, name, posthaste.SubscriptionOptions{}))
	var mu sync.Mutex
	times := map[posthaste.MessageID]int{}
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
		mu.Lock()
		defer mu.Unlock()
		times[d.MessageID]++
		return nil
	}, worker.WithSubscription(name))
	s.Cleanup(func() { // after the worker's end
		for id, n := range times {
			if n != 1 {
				s.Errorf("subscription %s of %s got message %s %d times", name, queue, id, n)
			}
		}
	})
	s.run(w)
}

// key returns the key of the next message of a queue: none unless it is ordered.
func (s *stage) key(queue string) string {
	if _, ordered := s.keyed.Load(queue); !ordered {
		return ""
	}
	return fmt.Sprint("key ", s.names.Add(1)%17)
}

// kinds runs a test with every kind of queue that has the guarantee, on each change with plain
// and ordered ones.
func kinds(t *testing.T, test func(t *testing.T, k kind)) {
	for name, k := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "plain" && name != "ordered" {
				testrun.Nightly(t, "another kind of queue with the same promise")
			}
			test(t, k)
		})
	}
}

// send sends n messages whose payloads count from 0, some in a transaction.
func (s *stage) send(queue string, n int) (ids []posthaste.MessageID) {
	s.Helper()
	for len(ids) < n {
		batch := make([]posthaste.Message, min(n-len(ids), 1000))
		for i := range batch {
			batch[i] = posthaste.Message{Queue: queue, Payload: len(ids) + i, Key: s.key(queue)}
		}
		more, err := posthaste.IDs(s.client.Send(s.ctx, batch...))
		s.must(err)
		ids = append(ids, more...)
	}
	return ids
}

func (s *stage) recorder() *history.Recorder {
	s.Helper()
	r, err := history.Open(s.dir, s.name("test"))
	s.must(err)
	s.Cleanup(func() { _ = r.Close() })
	return r
}

func (s *stage) history() []history.Event {
	s.Helper()
	events, err := history.Read(s.dir)
	s.must(err)
	return events
}

// lines counts the events that a child has recorded so far.
func (s *stage) lines(child string) int {
	s.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, child+".history"))
	s.must(err)
	return bytes.Count(content, []byte{'\n'})
}

// recorded waits until n events of a kind are in the recorder's history.
func (s *stage) recorded(r *history.Recorder, kind history.Kind, n int) {
	s.Helper()
	for {
		got, changed := r.Count(kind)
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			s.Fatalf("only %d of %d %s", got, n, kind)
		}
	}
}

// until waits for a condition.
func (s *stage) until(what string, met func() bool) {
	s.Helper()
	s.within(patience, what, met)
}

// within waits for a condition that must be met within a time.
func (s *stage) within(most time.Duration, what string, met func() bool) {
	s.Helper()
	testrun.Until(s.T, most, what, met)
}

// recording wraps handlers so that each run is recorded before it does anything and again
// before its result is returned.
func recording(r *history.Recorder) func(posthaste.Handler) posthaste.Handler {
	return func(h posthaste.Handler) posthaste.Handler {
		return func(ctx context.Context, d posthaste.RawDelivery) error {
			begun := history.Now() // the process may be stopped before it is recorded
			e := history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt, Alone: d.Alone, Note: lastHolder(d)}
			e.Took = history.Now() - begun
			r.Record(e)
			err := h(ctx, d)
			e.Kind, e.Note, e.Took = history.Handled, "", 0
			if err != nil {
				e.Kind, e.Note = history.Failed, err.Error()
			}
			r.Record(e)
			return err
		}
	}
}

// lastHolder returns the worker of the previous attempt.
func lastHolder(d posthaste.RawDelivery) string {
	if len(d.Story) == 0 {
		return ""
	}
	return d.Story[len(d.Story)-1].Worker
}

// nothing is a handler that does nothing.
func nothing(context.Context, posthaste.RawDelivery) error { return nil }

// run starts a worker and waits until it works. stop stops it, at the latest at the end of the
// test.
func (s *stage) run(w *worker.Worker) (stop func()) {
	s.Helper()
	ended := make(chan struct{})
	stop = testrun.Background(s, func(ctx context.Context) error {
		defer close(ended)
		return w.Run(ctx)
	})
	select {
	case <-w.Started():
	case <-ended:
		s.Fatal("the worker did not start")
	case <-s.ctx.Done():
		s.Fatal("the worker does not start")
	}
	return stop
}

// work runs a worker of one queue with its own engine.
func (s *stage) work(queue string, r *history.Recorder, c worker.Config, h posthaste.Handler, options ...worker.Option) (stop func()) {
	s.Helper()
	c.Logger = s.log
	c.Middleware = append(c.Middleware, recording(r))
	w := worker.New(s.open(), c)
	worker.HandleRaw(w, queue, h, options...)
	return s.run(w)
}

// state returns the state of a message for the default subscription.
func (s *stage) state(id posthaste.MessageID) posthaste.MessageState {
	s.Helper()
	m, err := s.engine.Message(s.ctx, id)
	s.must(err)
	for _, state := range m.Subscriptions {
		if state.Subscription == posthaste.DefaultSubscription {
			return state
		}
	}
	s.Fatalf("message %s has no state for the default subscription: %+v", id, m)
	return posthaste.MessageState{}
}

// settled waits until no message of the queue waits or runs, for any subscription. It may ask
// the store, because the results are checked by the receivers' records.
func (s *stage) settled(queue string) {
	s.Helper()
	begun := time.Now() // PostgreSQL runs on this machine and uses the same clock
	s.until("everything in "+queue+" is settled", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace) // updates the counts, too
		s.must(err)
		infos, err := s.engine.Queues(s.ctx, queue)
		s.must(err)
		for _, n := range infos[0].Subscriptions {
			if !n.CountedAt.After(begun) || n.Depth > 0 || n.InFlight > 0 {
				return false
			}
		}
		return true
	})
}

// count counts the queue's messages in a state, up to 1,000.
func (s *stage) count(queue string, state posthaste.State) int {
	s.Helper()
	found, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: queue, State: state, Limit: 1000})
	s.must(err)
	return len(found.Items)
}

// asleep waits until a worker sleeps on the queue's bell: it found nothing and waits to be
// woken.
func (s *stage) asleep(queue string) {
	s.Helper()
	if s.redis() {
		s.until("a worker sleeps on "+queue, func() bool {
			n, err := s.keys().Exists(s.ctx, key(queue, "asleep")).Result()
			s.must(err)
			return n == 1
		})
		return
	}
	conn := s.conn()
	defer conn.Close(s.ctx)
	s.until("a worker sleeps on "+queue, func() bool {
		return one[bool](s, conn, `select exists (select from pg_locks l, posthaste.queue_settings q
			where l.locktype = 'advisory' and l.granted and l.mode = 'ExclusiveLock' and l.objsubid = 1
			  and l.database = (select oid from pg_database where datname = current_database())
			  and q.name = $1 and (l.classid::bigint << 32 | l.objid::bigint) = posthaste.bell_key(q.id))`, queue)
	})
}
