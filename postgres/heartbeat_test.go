package postgres_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A look that takes long, or waits for a lock, does not delay the heartbeat, which commits before
// the look starts.
func TestHeartbeatDoesNotWaitForItsLook(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := testpg.New(t)
	said := &lines{}
	e := openAt(t, url, postgres.WithLogger(slog.New(slog.NewTextHandler(said, nil))))
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	worker, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var before time.Time
	if err := conn.QueryRow(ctx, `select heartbeat_at from posthaste.registrations where id = $1`, int64(worker)).Scan(&before); err != nil {
		t.Fatal(err)
	}
	// Each look reads this table and now waits for the lock.
	if _, err := conn.Exec(ctx, `begin; lock table posthaste.counted in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := e.Heartbeat(ctx, posthaste.Heartbeat{Worker: worker, Queues: []posthaste.QueueRef{{Queue: "q"}}})
		answered <- err
	}()
	testrun.Until(t, time.Minute, "the worker is seen alive while its look waits", func() (alive bool) {
		if err := conn.QueryRow(ctx, `select heartbeat_at > $2 and exists (
			select from pg_locks where relation = 'posthaste.counted'::regclass and not granted) from posthaste.registrations where id = $1`, int64(worker), before).Scan(&alive); err != nil {
			t.Fatal(err)
		}
		return alive
	})
	if _, err := conn.Exec(ctx, `rollback`); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	// A look that fails does not fail the heartbeat: the worker would consider itself lost
	// while it is registered as alive.
	b := blockedBeat{t, ctx, e, conn, worker}
	if reply := b.endedBy(context.DeadlineExceeded); !reply.QueuesUnknown {
		t.Errorf("the beat was committed, nothing was looked at, and its answer is %+v", reply)
	}
	warned := said.n.Load()
	if warned == 0 {
		t.Error("a look that took too long was not logged")
	}
	// The look of a worker that stops fails, too, and is not logged.
	b.endedBy(context.Canceled)
	if said.n.Load() > warned {
		t.Error("a worker that ends is told as one whose look failed")
	}
}

// blockedBeat sends heartbeats whose looks wait for a lock.
type blockedBeat struct {
	*testing.T
	ctx    context.Context
	engine posthaste.Store
	conn   *pgx.Conn // holds the lock
	worker posthaste.WorkerID
}

// endedBy ends the context of a heartbeat with a cause while its look waits, and returns the
// heartbeat's reply. The engine must have read that the heartbeat committed, and the test cannot
// observe when it has. If it has not, the heartbeat correctly fails, and the next one gets more
// time.
func (b blockedBeat) endedBy(cause error) (reply posthaste.HeartbeatReply) {
	b.Helper()
	for pause := 10 * time.Millisecond; ; pause *= 4 {
		err := b.once(cause, pause, &reply)
		if err == nil {
			return reply
		}
		if pause > 10*time.Second {
			b.Fatalf("the beat was committed %s before its look was given up, and it failed: %v", pause, err)
		}
	}
}

func (b blockedBeat) once(cause error, pause time.Duration, reply *posthaste.HeartbeatReply) (err error) {
	b.Helper()
	exec := func(sql string) {
		b.Helper()
		if _, err := b.conn.Exec(b.ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	var before time.Time
	if err := b.conn.QueryRow(b.ctx, `select heartbeat_at from posthaste.registrations where id = $1`, int64(b.worker)).Scan(&before); err != nil {
		b.Fatal(err)
	}
	exec(`begin; lock table posthaste.counted in access exclusive mode`)
	defer exec(`rollback`)
	beating := &endedByHand{Context: b.ctx, done: make(chan struct{})}
	answered := make(chan error, 1)
	go func() {
		var err error
		*reply, err = b.engine.Heartbeat(beating, posthaste.Heartbeat{Worker: b.worker, Queues: []posthaste.QueueRef{{Queue: "q"}}})
		answered <- err
	}()
	testrun.Until(b.T, time.Minute, "the worker is seen alive", func() (alive bool) {
		if err := b.conn.QueryRow(b.ctx, `select heartbeat_at > $2 from posthaste.registrations where id = $1`, int64(b.worker), before).Scan(&alive); err != nil {
			b.Fatal(err)
		}
		return alive
	})
	time.Sleep(pause) // the engine reads that it was committed, which only its result shows
	beating.end(cause)
	return <-answered
}

// endedByHand is a context that a test ends, by a deadline as well.
type endedByHand struct {
	context.Context
	done  chan struct{}
	cause atomic.Pointer[error]
}

func (c *endedByHand) Done() <-chan struct{} { return c.done }

func (c *endedByHand) Err() error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

func (c *endedByHand) end(cause error) {
	c.cause.Store(&cause)
	close(c.done)
}

// lines counts log records.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}
