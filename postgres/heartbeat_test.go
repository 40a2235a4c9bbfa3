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
	"github.com/posthaste-mq/posthaste/postgres"
)

// A look that takes long, or waits for somebody, does not keep the worker from
// being seen alive: that is committed before the look begins.
func TestHeartbeatDoesNotWaitForItsLook(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := testpg.New(t)
	said := &lines{}
	e, err := postgres.Open(ctx, url, postgres.Logger(slog.New(slog.NewTextHandler(said, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.QueueCreate(ctx, "q", posthaste.QueueOptions{}); err != nil {
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
	// Each look reads this table, and now waits for it.
	if _, err := conn.Exec(ctx, `begin; lock table posthaste.counted in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := e.Heartbeat(ctx, posthaste.Heartbeat{Worker: worker, Queues: []posthaste.QueueRef{{Queue: "q"}}})
		answered <- err
	}()
	for alive := false; !alive; time.Sleep(2 * time.Millisecond) {
		if err := conn.QueryRow(ctx, `select heartbeat_at > $2 and exists (
			select from pg_locks where relation = 'posthaste.counted'::regclass and not granted) from posthaste.registrations where id = $1`, int64(worker), before).Scan(&alive); err != nil {
			t.Fatalf("the worker is not seen alive while its look waits: %v", err)
		}
	}
	if _, err := conn.Exec(ctx, `rollback`); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	// A look that is given up does not turn the beat into a failure: the worker
	// would take itself for lost while everybody sees it alive.
	if _, err := conn.Exec(ctx, `begin; lock table posthaste.counted in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	short, giveUp := context.WithTimeout(ctx, 20*time.Second) // the beat itself must get through
	defer giveUp()
	if reply, err := e.Heartbeat(short, posthaste.Heartbeat{Worker: worker, Queues: []posthaste.QueueRef{{Queue: "q"}}}); err != nil || !reply.Blind {
		t.Errorf("the beat was committed, nothing was looked at, and its answer is %+v, %v", reply, err)
	}
	warned := said.n.Load()
	if warned == 0 {
		t.Error("a look that took too long is not told")
	}
	// That of a worker that ends is given up, too, and nobody needs to hear of it.
	if err := conn.QueryRow(ctx, `select heartbeat_at from posthaste.registrations where id = $1`, int64(worker)).Scan(&before); err != nil {
		t.Fatal(err)
	}
	ending, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, err := e.Heartbeat(ending, posthaste.Heartbeat{Worker: worker, Queues: []posthaste.QueueRef{{Queue: "q"}}})
		answered <- err
	}()
	// Long enough for the answer to the beat to be read, which nothing shows.
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; time.Sleep(2 * time.Millisecond) {
		var alive bool
		if err := conn.QueryRow(ctx, `select heartbeat_at > $2 from posthaste.registrations where id = $1`, int64(worker), before).Scan(&alive); err != nil {
			t.Fatal(err)
		}
		if !alive {
			began = time.Now()
		}
	}
	end()
	<-answered
	if said.n.Load() > warned {
		t.Error("a worker that ends is told as one whose look failed")
	}
	if _, err := conn.Exec(ctx, `rollback`); err != nil {
		t.Fatal(err)
	}
}

// lines counts what is logged.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}
