package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// bellTest is a database with the doorbell's functions and a simple table of messages. The tests
// check which processes are woken and when.
type bellTest struct {
	*testing.T
	url    string
	pool   *pgxpool.Pool // senders and looks
	queues []string
	empty  atomic.Int64 // looks that found nothing
	// patience is how long an expected event may take.
	patience time.Duration
}

func newBellTest(t *testing.T, queues int) *bellTest {
	t.Helper()
	t.Parallel()
	b := &bellTest{T: t, url: emptyDB(t), patience: within}
	conn := dial(t, b.url)
	mustExec(t, conn, `create schema posthaste`)
	mustExec(t, conn, `create table posthaste.queue_settings (id int primary key generated always as identity, name text not null, dropped_at timestamptz)`)
	mustExec(t, conn, `create table posthaste.inbox (id bigint generated always as identity, queue text not null)`)
	for _, name := range []string{"lock_key", "bell_key", "doze_key", "ring", "arm"} {
		text, err := ledger.Function(name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, conn, text)
	}
	for i := range queues {
		b.queues = append(b.queues, fmt.Sprintf("q%d", i))
		mustExec(t, conn, `insert into posthaste.queue_settings (name) values ($1)`, b.queues[i])
	}
	b.pool = testPool(t, b.url, 12)
	return b
}

// open opens another doorbell, as another process would.
func (b *bellTest) open() *doorbell {
	b.Helper()
	e := New(testPool(b.T, b.url, 1), WithLogger(slog.New(slog.DiscardHandler)))
	bell, err := e.openDoorbell(testContext(b.T))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(bell.Close)
	return bell
}

const insertAndRing = `with m as (insert into posthaste.inbox (queue) values ($1))
	select posthaste.ring(id) from posthaste.queue_settings where name = $1`

// send sends in a transaction that stays open until commit is called.
func (b *bellTest) send(queue string) (commit func()) {
	b.Helper()
	tx, err := b.pool.Begin(testContext(b.T))
	if err == nil {
		_, err = tx.Exec(testContext(b.T), insertAndRing, queue)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return func() {
		if err := tx.Commit(testContext(b.T)); err != nil {
			b.Error(err)
		}
	}
}

func (b *bellTest) sendNow(queue string) {
	b.Helper()
	if _, err := b.pool.Exec(testContext(b.T), insertAndRing, queue); err != nil {
		b.Fatal(err)
	}
}

// take removes the messages of the queue and returns their number.
func (b *bellTest) take(ctx context.Context, queue string) (int, error) {
	tag, err := b.pool.Exec(ctx, `delete from posthaste.inbox where queue = $1`, queue)
	return int(tag.RowsAffected()), err
}

func (b *bellTest) look(queue string) func(context.Context) (posthaste.LookReply, error) {
	return func(ctx context.Context) (posthaste.LookReply, error) {
		r := posthaste.LookReply{NextDue: -1}
		err := b.pool.QueryRow(ctx, `select exists (select from posthaste.inbox where queue = $1)`, queue).Scan(&r.Found)
		if err == nil && !r.Found {
			b.empty.Add(1)
		}
		return r, err
	}
}

// work takes messages until ctx ends and sleeps while there are none. It does not look beyond
// Sleep, so a lost wake-up is noticed.
func (b *bellTest) work(ctx context.Context, bell posthaste.Doorbell, queue string, took func(n int)) {
	for ctx.Err() == nil {
		n, err := b.take(ctx, queue)
		if err == nil && n > 0 {
			took(n)
			continue
		}
		if err == nil {
			err = bell.Sleep(ctx, queue, b.look(queue))
		}
		if err != nil && ctx.Err() == nil {
			b.Errorf("worker of %s: %v", queue, err)
			return
		}
	}
}

// background runs f until the test is over.
func (b *bellTest) background(f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(testContext(b.T))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	b.Cleanup(stop)
	return stop
}

// holder returns the backend that holds the key of queue q0 exclusively, or 0.
func (b *bellTest) holder(key string) int32 {
	b.Helper()
	return one[int32](b.T, b.pool, `select coalesce(max(l.pid), 0) from pg_locks l, posthaste.queue_settings q
		where q.name = 'q0' and l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.mode = 'ExclusiveLock'
		  and l.database = (select oid from pg_database where datname = current_database())
		  and (l.classid::bigint << 32) | l.objid::bigint = posthaste.`+key+`_key(q.id)`)
}

func (b *bellTest) linePID() int32 {
	b.Helper()
	return one[int32](b.T, b.pool, `select coalesce(max(pid), 0) from pg_stat_activity
		where datname = current_database() and application_name like '% doorbell'`)
}

// sleeps starts one Sleep on q0 and returns a channel for its result.
func (b *bellTest) sleeps(ctx context.Context, bell *doorbell) <-chan error {
	done := make(chan error, 1)
	go func() { done <- bell.Sleep(ctx, "q0", b.look("q0")) }()
	return done
}

func (b *bellTest) returns(done <-chan error) error {
	b.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		b.Fatal("the Sleep did not end")
		return nil
	}
}

func TestSleepEndsByRingWakeDueContextAndClose(t *testing.T) {
	b := newBellTest(t, 1)
	ctx := testContext(t)
	bell := b.open()
	asleep := func() <-chan error {
		// The key of the last Sleep is released shortly after it returned.
		eventually(t, "the bell is free", func() bool { return b.holder("bell") == 0 })
		done := b.sleeps(ctx, bell)
		eventually(t, "the bell is taken", func() bool { return b.holder("bell") == b.linePID() })
		return done
	}

	done := asleep()
	b.sendNow("q0")
	if err := b.returns(done); err != nil {
		t.Errorf("rung: %v", err)
	}
	eventually(t, "the bell is let go of on waking", func() bool { return b.holder("bell") == 0 })
	if n, err := b.take(ctx, "q0"); n != 1 || err != nil {
		t.Fatalf("took %d, %v", n, err)
	}

	done = asleep()
	bell.Wake("q0")
	if err := b.returns(done); err != nil {
		t.Errorf("Wake: %v", err)
	}

	due := make(chan error, 1)
	started := time.Now()
	go func() {
		due <- bell.Sleep(ctx, "q0", func(context.Context) (posthaste.LookReply, error) {
			return posthaste.LookReply{NextDue: 60 * time.Millisecond}, nil
		})
	}()
	if err := b.returns(due); err != nil || time.Since(started) < 60*time.Millisecond {
		t.Errorf("due after 60 ms: returned %v after %v", err, time.Since(started))
	}

	failure := errors.New("look failed")
	if err := bell.Sleep(ctx, "q0", func(context.Context) (posthaste.LookReply, error) {
		return posthaste.LookReply{}, failure
	}); !errors.Is(err, failure) {
		t.Errorf("failing look: %v", err)
	}

	short, cancel := context.WithCancel(ctx)
	eventually(t, "the bell is free", func() bool { return b.holder("bell") == 0 })
	done = b.sleeps(short, bell)
	eventually(t, "the bell is taken", func() bool { return b.holder("bell") != 0 })
	if err := bell.Sleep(ctx, "q0", b.look("q0")); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("second Sleep on the same queue: %v", err)
	}
	cancel()
	if err := b.returns(done); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	eventually(t, "the bell is let go of", func() bool { return b.holder("bell") == 0 })

	if err := bell.Sleep(ctx, "nosuch", b.look("nosuch")); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("unknown queue: %v", err)
	}

	done = asleep()
	bell.Close()
	if err := b.returns(done); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := bell.Sleep(ctx, "q0", b.look("q0")); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("Sleep after Close: %v", err)
	}
	eventually(t, "the key is gone with the connection", func() bool { return b.holder("bell") == 0 })
	bell.Close()
}

// The error of an unknown queue must not fail the requests in the same round trip or the
// connection.
func TestUnknownQueueBesideOthers(t *testing.T) {
	b := newBellTest(t, 8)
	ctx := testContext(t)
	bell := b.open()
	pid := b.linePID()
	var taken atomic.Int64
	for _, queue := range b.queues {
		b.background(func(ctx context.Context) {
			b.work(ctx, bell, queue, func(n int) { taken.Add(int64(n)) })
		})
	}
	for i := range 100 {
		if err := bell.Sleep(ctx, "nosuch", b.look("nosuch")); posthaste.CodeOf(err) != posthaste.CodeNotFound {
			t.Fatalf("unknown queue: %v", err)
		}
		b.sendNow(b.queues[i%len(b.queues)])
	}
	eventually(t, "all are taken", func() bool { return taken.Load() == 100 })
	if now := b.linePID(); now != pid {
		t.Errorf("the doorbell connected again: %d, then %d", pid, now)
	}
}

// Many queues share the connection. Each request interrupts the wait for notifications, which
// must neither close the connection nor lose a notification.
func TestInterruptedWaitsKeepTheConnection(t *testing.T) {
	b := newBellTest(t, 6)
	ctx := testContext(t)
	bell := b.open()
	pid := b.linePID()
	var taken atomic.Int64
	for _, queue := range b.queues[1:] {
		b.background(func(ctx context.Context) {
			b.work(ctx, bell, queue, func(n int) { taken.Add(int64(n)) })
		})
	}
	// Another queue sleeps and is woken repeatedly.
	b.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = bell.Sleep(ctx, "q0", b.look("q0"))
		}
	})
	b.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			bell.Wake("q0")
			testrun.Pause(300 * time.Microsecond)
		}
	})
	sent := testrun.Size(1500, 20000)
	for i := range sent {
		b.sendNow(b.queues[1+i%5])
	}
	eventually(t, "all are taken", func() bool { return taken.Load() == int64(sent) })
	if now := b.linePID(); now != pid || ctx.Err() != nil {
		t.Errorf("the doorbell connected again: %d, then %d", pid, now)
	}
}

// A queue that is dropped and created again has the same name and another id.
func TestQueueMadeAnewIsHeard(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	commit := b.send("q0") // so that the first Sleep takes the doze key
	done := b.sleeps(testContext(t), bell)
	eventually(t, "the doze key is taken", func() bool { return b.holder("doze") != 0 })
	mustExec(t, dial(t, b.url), `update posthaste.queue_settings set dropped_at = now() where name = 'q0'`)
	if err := b.returns(done); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Fatalf("Sleep on a dropped queue: %v", err)
	}
	mustExec(t, dial(t, b.url), `update posthaste.queue_settings set name = 'old' where name = 'q0'`)
	mustExec(t, dial(t, b.url), `insert into posthaste.queue_settings (name) values ('q0')`)
	commit()
	if _, err := b.take(testContext(t), "q0"); err != nil {
		t.Fatal(err)
	}
	done = b.sleeps(testContext(t), bell)
	eventually(t, "the new queue's bell is taken", func() bool { return b.holder("bell") == b.linePID() })
	b.sendNow("q0")
	if err := b.returns(done); err != nil {
		t.Error(err)
	}
	eventually(t, "no key is left", func() bool {
		return one[int](t, b.pool, `select count(*) from pg_locks l join pg_database d on d.oid = l.database
			where l.locktype = 'advisory' and d.datname = current_database()`) == 0
	})
}

// A queue is dropped and created again during a Sleep on it, which is not notified. The next Wake
// releases the bell key of the old queue.
func TestQueueMadeAnewBeneathASleeperIsHeard(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	b.background(func(ctx context.Context) { b.work(ctx, bell, "q0", func(int) {}) })
	armed := func() bool { return b.holder("bell") == b.linePID() }
	eventually(t, "the bell is taken", armed)
	mustExec(t, dial(t, b.url), `begin; update posthaste.queue_settings set dropped_at = now(), name = 'old' where name = 'q0';
		insert into posthaste.queue_settings (name) values ('q0'); commit`)
	bell.Wake("q0") // as a heartbeat does that finds a message
	eventually(t, "the new queue's bell is taken", armed)
}

func TestPollingTakesNoLocks(t *testing.T) {
	b := newBellTest(t, 1)
	e := New(b.pool, WithPollingOnly())
	bell, err := e.Doorbell(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if pid := b.linePID(); pid != 0 {
		t.Errorf("a polling doorbell has a connection of its own: %d", pid)
	}
	var taken atomic.Int64
	b.background(func(ctx context.Context) {
		b.work(ctx, bell, "q0", func(n int) { taken.Add(int64(n)) })
	})
	for i := range 20 {
		b.sendNow("q0")
		eventually(t, "it is taken", func() bool { return taken.Load() == int64(i+1) })
		if b.holder("bell") != 0 || b.holder("doze") != 0 {
			t.Fatal("a polling doorbell holds a key")
		}
	}
	done := make(chan error, 1)
	woken := make(chan struct{})
	other, _ := e.Doorbell(testContext(t))
	var once sync.Once
	go func() {
		done <- other.Sleep(testContext(t), "q9", func(context.Context) (posthaste.LookReply, error) {
			once.Do(func() { close(woken) })
			return posthaste.LookReply{NextDue: -1}, nil
		})
	}()
	<-woken
	other.Wake("q9")
	if err := b.returns(done); err != nil {
		t.Errorf("Wake: %v", err)
	}
	other.Close()
	if err := other.Sleep(testContext(t), "q9", b.look("q9")); posthaste.CodeOf(err) != posthaste.CodeRefused {
		t.Errorf("Sleep after Close: %v", err)
	}
}

// session returns another connection.
func (b *bellTest) session() *pgx.Conn { return dial(b.T, b.url) }

// The roles have the required privileges: a receiver sleeps and a sender wakes it, but neither
// can do the other's work.
func TestRolesAreEnoughToSleepAndToWake(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	owner := dial(t, url)
	mustMigrate(t, owner)
	mustExec(t, owner, `select posthaste.create_queue('q')`)
	member := func(role string) string {
		name := role[len("posthaste_"):] + owner.Config().Database
		mustExec(t, owner, `create role `+name+` login password 'geheim' in role `+role)
		t.Cleanup(func() { mustExecLater(t, url, `drop role `+name) })
		return withUser(t, url, name, "geheim")
	}
	receiver, err := Open(ctx, member("posthaste_receiver"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(receiver.Close)
	bell, err := receiver.Doorbell(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bell.Close)
	sender := dial(t, member("posthaste_sender"))
	for range 3 {
		looked := make(chan struct{})
		var once sync.Once // Sleep may call it several times
		done := make(chan error, 1)
		go func() {
			done <- bell.Sleep(ctx, "q", func(context.Context) (posthaste.LookReply, error) {
				defer once.Do(func() { close(looked) })
				return posthaste.LookReply{NextDue: -1}, nil
			})
		}()
		<-looked
		mustExec(t, sender, `select posthaste.send('q', '{}')`)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := receiver.pool.Exec(ctx, `select posthaste.send('q', '{}')`); posthaste.CodeOf(readError(err)) != posthaste.CodeDenied {
		t.Errorf("a receiver sends: %v", err)
	}
	if _, err := sender.Exec(ctx, `select posthaste.receive('q', 1, '1 minute')`); posthaste.CodeOf(readError(err)) != posthaste.CodeDenied {
		t.Errorf("a sender receives: %v", err)
	}
	if _, err := sender.Exec(ctx, `insert into posthaste.entries_plain (xid, pos, queue_id, payload) values ('1', 1, 1, '')`); posthaste.CodeOf(readError(err)) != posthaste.CodeDenied {
		t.Errorf("a sender sets an entry's transaction id: %v", err)
	}
}
