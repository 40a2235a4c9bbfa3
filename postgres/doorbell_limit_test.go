package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// While messages wait for a limit, senders do not notify and sends wake no worker, but
// notifications, as settlements send them, do. Afterwards sends wake again.
func TestSleepAtALimitHoldsNoBell(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	ctx := testContext(t)
	var atLimit atomic.Bool
	var looks atomic.Int64
	look := func(ctx context.Context) (posthaste.LookReply, error) {
		looks.Add(1)
		if atLimit.Load() {
			return posthaste.LookReply{NextDue: within, AtLimit: true}, nil
		}
		return b.look("q0")(ctx)
	}
	sleep := func() <-chan error {
		before, done := looks.Load(), make(chan error, 1)
		go func() { done <- bell.Sleep(ctx, "q0", look) }()
		eventually(t, "it looks", func() bool { return looks.Load() > before })
		return done
	}
	listener := b.session()
	mustExec(t, listener, `listen posthaste`)
	notified := func(within time.Duration) bool {
		wait, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		_, err := listener.WaitForNotification(wait)
		return err == nil
	}

	atLimit.Store(true)
	done := sleep()
	eventually(t, "it lets go of the bell", func() bool { return b.holder("bell") == 0 })
	// The release of the bell key notifies other sessions, on a busy machine late, and nothing
	// shows that it has.
	before := looks.Load()
	for quiet := false; !quiet; {
		quiet = !notified(300 * time.Millisecond)
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			done, quiet = sleep(), false
		default:
		}
		if n := looks.Load(); n != before {
			before, quiet = n, false
		}
	}
	b.sendNow("q0")
	if notified(100 * time.Millisecond) {
		t.Error("a sender notified although no worker waits for sends")
	}
	select {
	case err := <-done:
		t.Fatalf("a send ended the Sleep (%v)", err)
	default:
	}
	if n := looks.Load() - before; n != 0 {
		t.Errorf("a send caused %d looks", n)
	}
	if pid := b.holder("bell"); pid != 0 {
		t.Errorf("%d holds the bell", pid)
	}
	if _, err := b.pool.Exec(ctx, `select pg_notify('posthaste', id::text) from posthaste.queue_settings`); err != nil {
		t.Fatal(err)
	}
	if err := b.returns(done); err != nil {
		t.Error(err)
	}
	done = sleep()
	bell.Wake("q0")
	if err := b.returns(done); err != nil {
		t.Error(err)
	}

	// The limit is over, and the bell key is needed again.
	atLimit.Store(false)
	if _, err := b.take(ctx, "q0"); err != nil {
		t.Fatal(err)
	}
	done = sleep()
	eventually(t, "it has the bell", func() bool { return b.holder("bell") != 0 })
	b.sendNow("q0")
	if err := b.returns(done); err != nil {
		t.Error(err)
	}
}

// A Sleep at a limit ends when the limit does.
func TestSleepAtALimitEnds(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		done <- bell.Sleep(testContext(t), "q0", func(context.Context) (posthaste.LookReply, error) {
			return posthaste.LookReply{NextDue: 50 * time.Millisecond, AtLimit: true}, nil
		})
	}()
	if err := b.returns(done); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > within {
		t.Errorf("it took %v", took)
	}
}
