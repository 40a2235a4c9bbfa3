package postgres_test

import (
	"context"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	ledger "github.com/posthaste-mq/posthaste/sql"
	"github.com/posthaste-mq/posthaste/worker"
)

// nextRelease is the schema of a later program: each table of messages has another column, and
// each function and view another text.
func nextRelease(t *testing.T) fs.FS {
	t.Helper()
	later := fstest.MapFS{"migrations/9999_later.sql": {Data: []byte(`-- compatible
alter table posthaste.queue_settings add column later int;
alter table posthaste.subscriptions add column later int default 1;
alter table posthaste.entries_plain add column later int;
alter table posthaste.claims add column later int;
alter table posthaste.settlements add column later int;
alter table posthaste.outcomes add column later int;
alter table posthaste.registrations add column later int;
alter table posthaste.parked add column later int;
`)}}
	err := fs.WalkDir(ledger.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(ledger.Files, path)
		if folder, _, _ := strings.Cut(path, "/"); folder == "functions" {
			text = append([]byte("-- As a later release has it.\n"), text...)
			text = []byte(strings.ReplaceAll(string(text), "\nbegin\n", "\nbegin\n  -- Later.\n"))
		}
		later[path] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return later
}

// Programs continue during the migration to a later, compatible release: sends do not fail, no
// message is lost, and none runs twice. An older program can be started on the new schema.
func TestUpgradeUnderTraffic(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := testpg.New(t)
	engine := openAt(t, url)
	queues := map[string]posthaste.QueueOptions{"plain": {}, "ordered": {Ordered: true}}
	ran := map[string]*sync.Map{}
	var handled atomic.Int64
	work := func(e posthaste.Store) (stop func()) {
		w := worker.New(e, worker.Config{Logger: slog.New(slog.DiscardHandler)})
		for queue := range queues {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
				if _, again := ran[queue].LoadOrStore(d.MessageID, true); again {
					t.Errorf("message %d of %s ran twice", d.MessageID, queue)
				}
				handled.Add(1)
				return nil
			})
		}
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(running) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the worker ended with %v", err)
			}
		}
	}
	var sent atomic.Int64
	for queue, options := range queues {
		ran[queue] = &sync.Map{}
		if err := engine.CreateQueue(ctx, queue, options); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, reached func() bool) {
		t.Helper()
		if !testrun.Happens(2*time.Minute, reached) {
			t.Fatalf("waited in vain until %s: %d sent, %d handled", what, sent.Load(), handled.Load())
		}
	}
	stop := work(engine)
	sending, enough := context.WithCancel(ctx)
	var senders sync.WaitGroup
	for queue := range queues {
		for i := range 2 {
			senders.Go(func() {
				for n := 0; sending.Err() == nil; n++ {
					if _, err := engine.Send(ctx, posthaste.Message{Queue: queue, Key: strconv.Itoa(i), Payload: n}); err != nil {
						t.Errorf("sending to %s was refused: %v", queue, err)
						return
					}
					sent.Add(1)
				}
			})
		}
	}
	defer senders.Wait()
	defer enough()

	until("messages flow", func() bool { return handled.Load() > 200 })
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := postgres.MigrateTo(ctx, conn, nextRelease(t), postgres.MigrateOptions{}); err != nil {
		t.Fatalf("the migration: %v", err)
	}
	before := handled.Load()
	until("messages flow on the newer schema", func() bool { return handled.Load() > before+200 })

	// Start an older program on the new schema.
	older, err := postgres.Open(ctx, url)
	if err != nil {
		t.Fatalf("an older program on the newer schema: %v", err)
	}
	defer older.Close()
	stop()
	stop = work(older)
	before = handled.Load()
	until("messages flow in a program that was started later", func() bool { return handled.Load() > before+200 })
	enough()
	senders.Wait()
	until("everything that was sent is handled", func() bool { return handled.Load() == sent.Load() })
	stop()
}

// told passes on that something was logged.
type told struct {
	slog.Handler
	c chan string
}

func (h told) Enabled(context.Context, slog.Level) bool { return true }

func (h told) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.c <- r.Message:
	default:
	}
	return nil
}

// A migration that waits for a long transaction does not block senders, and completes after the
// transaction ended.
func TestMigrationLetsSendersThrough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := testpg.New(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		return conn
	}
	reader, sender, migrator := connect(), connect(), connect()
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(sender, `select posthaste.create_queue('q')`)
	exec(reader, `begin; select count(*) from posthaste.entries`)
	waited, migrated := told{slog.DiscardHandler, make(chan string, 1)}, make(chan error, 1)
	go func() {
		migrated <- postgres.MigrateTo(ctx, migrator, nextRelease(t), postgres.MigrateOptions{Log: slog.New(waited)})
	}()
	select {
	case <-waited.c:
	case err := <-migrated:
		t.Fatalf("the migration went through under the reader: %v", err)
	}
	exec(sender, `select posthaste.send('q', '1')`)
	select {
	case err := <-migrated:
		t.Fatalf("the migration ended under the reader: %v", err)
	default:
	}
	exec(reader, `commit`)
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
}
