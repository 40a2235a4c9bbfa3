package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// probe measures bare NOTIFY round trips as long as the test runs: where they
// stall too, the machine and not the doorbell was slow. One that begins late,
// for the machine stood still before it, counts from when it should have begun.
type probe struct {
	mu    sync.Mutex
	trips []trip
}

type trip struct{ from, to time.Time } // to is zero during the trip

func (b *bellTest) probe() *probe {
	p := &probe{}
	listener, notifier := b.session(), b.session()
	mustExec(b.T, listener, `listen control`)
	b.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			const pause = 10 * time.Millisecond
			p.mu.Lock()
			p.trips = append(p.trips, trip{from: time.Now().Add(pause)})
			p.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			if _, err := notifier.Exec(ctx, `select pg_notify('control', '')`); err != nil {
				return
			}
			if _, err := listener.WaitForNotification(ctx); err != nil {
				return
			}
			p.mu.Lock()
			p.trips[len(p.trips)-1].to = time.Now()
			p.mu.Unlock()
		}
	})
	return p
}

// stalled reports whether a slow round trip overlaps the time.
func (p *probe) stalled(from, to time.Time, long time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(p.trips, func(t trip) bool {
		if t.to.IsZero() {
			t.to = now
		}
		return t.from.Before(to) && t.to.After(from) && t.to.Sub(t.from) > long
	})
}

// LA3: messages that are sent just before, during and after the start of a Sleep wait at most
// 100 ms from their commit, unless a control probe stalled too.
func TestLA3SentWhileFallingAsleep(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	p := b.probe()
	took := make(chan time.Time, 1)
	b.background(func(ctx context.Context) {
		b.work(ctx, bell, "q0", func(int) { took <- time.Now() })
	})
	var waits, unexplained []time.Duration
	for range testrun.Size(600, 10000) {
		// The worker looks and starts to sleep within a few milliseconds after it took
		// the last message.
		testrun.Pause([]time.Duration{200 * time.Microsecond, time.Millisecond, 4 * time.Millisecond, 15 * time.Millisecond}[rand.N(4)])
		commit := b.send("q0")
		if rand.N(4) == 0 {
			testrun.Pause(5 * time.Millisecond)
		}
		commit()
		committed := time.Now()
		select {
		case at := <-took:
			wait := at.Sub(committed)
			waits = append(waits, wait)
			if wait > 100*time.Millisecond && !p.stalled(committed, at, 10*time.Millisecond) {
				unexplained = append(unexplained, wait)
			}
		case <-time.After(within):
			t.Fatal("a wake-up was lost")
		}
	}
	// Beside other tests this process may stall while the probe pauses. A lost wake-up waits
	// until the next look, and occurs more than once.
	if len(unexplained) > testrun.Size(6, 0) || len(unexplained) > 0 && slices.Max(unexplained) > time.Second {
		t.Errorf("waited %v from their commits, and nothing else stalled", unexplained)
	}
	slices.Sort(waits)
	t.Logf("p50 %v, p99 %v, max %v", waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
}

// Several processes on several queues, with senders that stay open for a while or roll back, take
// all committed messages without looks beyond those of Sleep.
func TestNoWakeUpLostAmongProcesses(t *testing.T) {
	b := newBellTest(t, 3)
	var taken, sent atomic.Int64
	for range 3 {
		bell := b.open()
		for _, queue := range b.queues {
			b.background(func(ctx context.Context) {
				b.work(ctx, bell, queue, func(n int) { taken.Add(int64(n)) })
			})
		}
	}
	var senders sync.WaitGroup
	for range 3 {
		senders.Go(func() {
			for range testrun.Size(120, 3000) {
				tx, err := b.pool.Begin(testContext(t))
				if err != nil {
					t.Error(err)
					return
				}
				n := 1 + rand.N(2)
				for range n {
					if _, err = tx.Exec(testContext(t), insertAndRing, b.queues[rand.N(3)]); err != nil {
						t.Error(err)
					}
				}
				if rand.N(3) == 0 {
					testrun.Pause(40 * time.Millisecond)
				}
				if rand.N(5) == 0 {
					err = tx.Rollback(testContext(t))
				} else if err = tx.Commit(testContext(t)); err == nil {
					sent.Add(int64(n))
				}
				if err != nil {
					t.Error(err)
					return
				}
				testrun.Pause(10 * time.Millisecond)
			}
		})
	}
	senders.Wait()
	eventually(t, "all are taken", func() bool { return taken.Load() == sent.Load() })
}

// armRule tests the doorbell with the real posthaste.arm, which must pass, and with each broken
// twin, which must fail.
func armRule(t *testing.T, examine func(b *bellTest) (fault string), broken ...armTwin) {
	t.Helper()
	t.Parallel()
	t.Run("holds", func(t *testing.T) {
		if fault := examine(newBellTest(t, 1)); fault != "" {
			t.Error(fault)
		}
	})
	text, err := ledger.Function("arm.sql")
	if err != nil {
		t.Fatal(err)
	}
	test, err := os.ReadFile("doorbell_rules_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, twin := range broken {
		t.Run("without_"+strings.ReplaceAll(twin.name, " ", "_"), func(t *testing.T) {
			found := testrun.Twin(t, text, string(test))
			if n := strings.Count(text, twin.old); n != 1 {
				t.Fatalf("the patch of arm.sql no longer applies: %q stands there %d times", twin.old, n)
			}
			b := newBellTest(t, 1)
			b.patience = 5 * time.Second
			mustExec(t, b.session(), strings.Replace(text, twin.old, twin.new, 1))
			fault := examine(b)
			if fault == "" {
				t.Fatal("without its protection nothing was found, so this test finds nothing")
			}
			t.Logf("found: %s", fault)
			found()
		})
	}
}

// armTwin is posthaste.arm without one condition.
type armTwin struct{ name, old, new string }

// ◆ A worker that does not get the doze key must distinguish a send that holds it for a moment
// from another worker that holds it and looks.
func TestArmTellsWhoIsInTheWay(t *testing.T) {
	armRule(t, func(b *bellTest) (fault string) {
		t := b.T
		worker, other, sender := b.session(), b.session(), b.session()
		expect := func(what string, conn *pgx.Conn, dozing bool, want string) {
			t.Helper()
			got := one[string](t, conn, `select armed from posthaste.arm('q0', $1)`, dozing)
			if got != want && fault == "" {
				fault = fmt.Sprintf("%s: armed %q, want %q", what, got, want)
			}
		}
		locks := func(what string, conn *pgx.Conn, want int) {
			t.Helper()
			got := one[int](t, sender, `select count(*) from pg_locks where pid = $1 and locktype = 'advisory'`, int32(conn.PgConn().PID()))
			if got != want && fault == "" {
				fault = fmt.Sprintf("%s: %d locks, want %d", what, got, want)
			}
		}
		expect("no worker sleeps", other, false, "bell")
		expect("another worker sleeps", worker, false, "heard")
		mustExec(t, other, `select pg_advisory_unlock(posthaste.bell_key(1))`)

		mustExec(t, sender, `begin`)
		mustExec(t, sender, insertAndRing, "q0")
		mustExec(t, sender, `select pg_advisory_lock_shared(posthaste.doze_key(1))`)
		expect("a send probes the doze key", worker, false, "again")
		locks("after that", worker, 0)
		mustExec(t, sender, `select pg_advisory_unlock_shared(posthaste.doze_key(1))`)
		expect("a sender is in flight", worker, false, "doze")
		expect("it still is", worker, true, "doze")
		expect("another worker dozes", other, false, "dozed")
		mustExec(t, sender, `commit`)
		expect("the sender is gone", worker, true, "bell")
		locks("the worker has its bell and its doze key", worker, 2)
		locks("the other has probed", other, 0)
		mustExec(t, worker, `select pg_advisory_unlock(posthaste.bell_key(1)), pg_advisory_unlock(posthaste.doze_key(1))`)
		locks("the worker has given each back once", worker, 0)
		return fault
	},
		armTwin{"probing it shared", "then 'again'", "and false then 'again'"},
		armTwin{"releasing the key that it probed", "\n     and pg_advisory_unlock_shared(posthaste.doze_key(queue_id)) then 'again'", " then 'again'"},
		armTwin{"another worker", "else 'dozed'", "else 'again'"},
		armTwin{"its own doze key", "when p_dozing then 'doze'", "when false then 'doze'"})
}

// A send that holds the doze key for a moment must not make the worker stop looking while
// another sender is in flight.
func TestPassingSendIsWaitedFor(t *testing.T) {
	armRule(t, func(b *bellTest) string {
		t := b.T
		passing := b.session()
		mustExec(t, passing, `select pg_advisory_lock_shared(posthaste.doze_key(1))`)
		commit := b.send("q0")
		bell := b.open()
		var looks atomic.Int64
		done := make(chan error, 1)
		go func() {
			look := b.look("q0")
			done <- bell.Sleep(testContext(t), "q0", func(ctx context.Context) (r posthaste.LookReply, err error) {
				looks.Add(1)
				return look(ctx)
			})
		}()
		// If it relied on another worker it would look once.
		if !happens(b.patience, func() bool { return looks.Load() > 20 }) {
			return fmt.Sprintf("beside a sender in flight it looked %d times in %s", looks.Load(), b.patience)
		}
		mustExec(t, passing, `select pg_advisory_unlock_shared(posthaste.doze_key(1))`)
		eventually(t, "it takes the doze key", func() bool { return b.holder("doze") == b.linePID() })
		commit()
		if err := b.returns(done); err != nil {
			return err.Error()
		}
		return ""
	}, armTwin{"probing it shared", "then 'again'", "and false then 'again'"})
}

// A sender that stays open must not make messages of other senders wait for the next look.
func TestOpenSenderDelaysNobody(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	commit := b.send("q0")
	type take struct {
		at    time.Time
		empty int64
	}
	took := make(chan take, 1)
	b.background(func(ctx context.Context) {
		b.work(ctx, bell, "q0", func(int) { took <- take{time.Now(), b.empty.Load()} })
	})
	var last take
	next := func() time.Time {
		t.Helper()
		select {
		case last = <-took:
			return last.at
		case <-time.After(within):
			t.Fatal("a wake-up was lost")
			return time.Time{}
		}
	}
	// Wait until the worker holds the doze key and has looked since.
	dozes := func() bool { return b.empty.Load() > last.empty && bell.dozes("q0") }
	listener := b.session()
	mustExec(t, listener, `listen posthaste`)
	var waits []time.Duration
	var longest time.Duration
	var sent time.Time
	calm := 0 // successive rounds in which the worker slept again before it released its doze key
	for round := 0; round < testrun.Size(40, 1000) || longest < slowestLook/4 && calm < 20; round++ {
		eventually(t, "the worker dozes", dozes)
		if calm++; time.Since(sent) >= awakeDoze {
			calm = 0
		}
		sent = time.Now()
		b.sendNow("q0")
		if n, err := listener.WaitForNotification(testContext(t)); err != nil || n.Payload != "1" {
			t.Fatalf("a send beside an open sender did not notify: %v, %v", n, err)
		}
		waits = append(waits, next().Sub(sent))
		longest = max(longest, bell.interval("q0"))
	}
	// The worker looks in every round. The interval only grows if notifications do not restart
	// it.
	if longest < slowestLook/4 {
		t.Errorf("the pauses between looks grew to %v only: notifications restarted them", longest)
	}
	slices.Sort(waits)
	t.Logf("beside the open sender: p50 %v, p99 %v", waits[len(waits)/2], waits[len(waits)*99/100])
	eventually(t, "the worker dozes", dozes)
	commit()
	committed := time.Now()
	t.Logf("the open sender's own: %v", next().Sub(committed))
	eventually(t, "the bell is taken and the doze key let go of", func() bool { return b.holder("bell") != 0 && b.holder("doze") == 0 })
}

func (d *doorbell) asleep(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiters[queue] != nil && d.waiters[queue].waiting
}

// dozes reports whether a Sleep on queue holds the doze key.
func (d *doorbell) dozes(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.waiters[queue]
	return s.waiting && s.doze && s.arming == nil
}

func (d *doorbell) interval(queue string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiters[queue].interval
}

func (d *doorbell) keepsDoze(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiters[queue].doze
}

// A lost connection is replaced, and messages that were sent meanwhile are found.
func TestLostConnectionIsReplaced(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	var taken atomic.Int64
	b.background(func(ctx context.Context) {
		b.work(ctx, bell, "q0", func(n int) { taken.Add(int64(n)) })
	})
	operator := b.session()
	for i := range testrun.Size(20, 300) {
		eventually(t, "the bell is taken", func() bool { return b.holder("bell") != 0 })
		mustExec(t, operator, `select pg_terminate_backend($1)`, b.holder("bell"))
		testrun.Pause(3 * time.Millisecond)
		b.sendNow("q0")
		eventually(t, "it is taken", func() bool { return taken.Load() == int64(i+1) })
	}
}
