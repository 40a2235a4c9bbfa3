package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// ◆ The connection that holds the keys never sends, because a session's own exclusive lock does
// not block it.
func TestKeysLiveOnAConnectionThatNeverSends(t *testing.T) {
	b := newBellTest(t, 1)
	ctx := testContext(t)
	// The process has a pool of one connection, on which it sends.
	pool := testPool(t, b.url, 1)
	d, err := New(pool).openDoorbell(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for range 20 {
		done := b.sleeps(ctx, d)
		eventually(t, "the bell is taken", func() bool { return b.holder("bell") != 0 })
		if _, err := pool.Exec(ctx, insertAndRing, "q0"); err != nil {
			t.Fatal(err)
		}
		if err := b.returns(done); err != nil {
			t.Fatal(err)
		}
		if _, err := b.take(ctx, "q0"); err != nil {
			t.Fatal(err)
		}
	}
	// Without the separate connection: a send on the session that holds the key does not
	// notify. The release of a key may notify, too, shortly after the key is free.
	d.Close()
	eventually(t, "the doorbell's connection has ended", func() bool { return b.linePID() == 0 })
	holder, listener := b.session(), b.session()
	mustExec(t, listener, `listen posthaste`)
	eventually(t, "the bell is free", func() bool { return b.holder("bell") == 0 })
	if word := one[string](t, holder, `select armed from posthaste.arm('q0')`); word != "bell" {
		t.Fatalf("armed %q", word)
	}
	mustExec(t, holder, insertAndRing, "q0")
	mustExec(t, b.session(), `select pg_notify('posthaste', 'after')`)
	n, err := listener.WaitForNotification(ctx)
	if err != nil || n.Payload != "after" {
		t.Errorf("a send on the holder's own connection notified: %v, %v", n, err)
	}
}

// ◆ A send probes and releases the doze key in one expression. With two statements, a cancel
// between them would leave the session with the key.
func TestDozeProbeLeaksNothingUnderCancels(t *testing.T) {
	b := newBellTest(t, 1)
	setup := b.session()
	mustExec(t, setup, `create function public.split_ring(queue_id int) returns void language plpgsql as $$
		begin
			if pg_try_advisory_xact_lock_shared(posthaste.bell_key(queue_id)) then
				if pg_try_advisory_lock_shared(posthaste.doze_key(queue_id)) then
					perform pg_advisory_unlock_shared(posthaste.doze_key(queue_id));
				end if;
			end if;
		end $$`)
	for _, ring := range []string{"posthaste.ring", "public.split_ring"} {
		mustExec(t, setup, `create or replace procedure public.ring_often() language plpgsql as $$
			begin for i in 1..1000000000 loop perform `+ring+`(1); end loop; end $$`)
		leaked := b.leaks(testrun.Size(250, 1500))
		t.Logf("%s: %d locks leaked", ring, leaked)
		if ring == "posthaste.ring" && leaked > 0 {
			t.Errorf("%d doze keys leaked", leaked)
		}
		if ring != "posthaste.ring" && leaked == 0 {
			t.Errorf("the broken twin leaked nothing, so this test finds nothing")
		}
	}
}

// leaks cancels senders during a send and counts the cancels after which the session still held
// the doze key.
func (b *bellTest) leaks(cancels int) (leaked int) {
	b.Helper()
	ctx := testContext(b.T)
	sender, operator := b.session(), b.session()
	pid := int32(sender.PgConn().PID())
	held := `select count(*) from pg_locks where locktype = 'advisory' and pid = $1`
	for range cancels {
		done := make(chan error, 1)
		go func() {
			_, err := sender.Exec(ctx, `call public.ring_often()`)
			done <- err
		}()
		eventually(b.T, "the sender sends", func() bool { return one[int](b.T, operator, held, pid) > 0 })
		mustExec(b.T, operator, `select pg_cancel_backend($1)`, pid)
		if state := sqlState(<-done); state != "57014" {
			b.Fatalf("the cancelled sender ended with SQLSTATE %q", state)
		}
		if one[int](b.T, operator, held, pid) > 0 {
			leaked++
			mustExec(b.T, sender, `select pg_advisory_unlock_all()`)
		}
	}
	return leaked
}

// The doze key is kept after one find, and released after two in a row and when the process does
// not sleep again: under load senders should not notify.
func TestDozeKeyIsLetGoOfUnderLoad(t *testing.T) {
	b := newBellTest(t, 1)
	ctx := testContext(t)
	bell := b.open()
	commit := b.send("q0")
	found := func(context.Context) (posthaste.LookReply, error) { return posthaste.LookReply{Found: true}, nil }
	for {
		begun := time.Now()
		var kept [2]bool
		for i := range kept {
			if err := bell.Sleep(ctx, "q0", found); err != nil {
				t.Fatal(err)
			}
			kept[i] = bell.keepsDoze("q0")
		}
		late := time.Since(begun) >= awakeDoze
		eventually(t, "the doze key is free", func() bool { return b.holder("doze") == 0 })
		if kept == [2]bool{true, false} {
			break
		}
		if !late { // otherwise it was released because there was no Sleep
			t.Fatalf("the doze key was kept over one find: %v, over two in a row: %v", kept[0], kept[1])
		}
	}
	if err := bell.Sleep(ctx, "q0", found); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the doze key is free though no Sleep came", func() bool { return b.holder("doze") == 0 })
	commit()
}

// A process that relied on the key of another one takes it over when the other one closes its
// doorbell or loses its connection.
func TestKeyOfALeavingProcessIsTakenOver(t *testing.T) {
	b := newBellTest(t, 1)
	first, second := b.open(), b.open()
	ctx, leave := context.WithCancel(testContext(t))
	done := b.sleeps(ctx, first)
	eventually(t, "the first takes the bell", func() bool { return b.holder("bell") != 0 })
	pid := b.holder("bell")
	var taken atomic.Int64
	b.background(func(ctx context.Context) {
		b.work(ctx, second, "q0", func(n int) { taken.Add(int64(n)) })
	})
	eventually(t, "the second sleeps", func() bool { return second.asleep("q0") })
	leave()
	if err := b.returns(done); err == nil {
		t.Error("a cancelled Sleep returned nil")
	}
	eventually(t, "the second takes the bell", func() bool { h := b.holder("bell"); return h != 0 && h != pid })
	done = b.sleeps(testContext(t), first)
	mustExec(t, b.session(), `select pg_terminate_backend($1)`, b.holder("bell"))
	eventually(t, "a process takes the bell", func() bool { return b.holder("bell") != 0 })
	b.sendNow("q0")
	eventually(t, "it is found", func() bool {
		select {
		case err := <-done:
			return err == nil
		default:
			return taken.Load() > 0
		}
	})
}
