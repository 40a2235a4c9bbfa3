package redis

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// While the registry's master is away the masters of queues give away nothing of a worker
// that lives: its heartbeats keep the leases there, for longer than one. When the registry
// is back and has expired it, it returns, since it has lost nothing. One that was lost
// meanwhile does not.
func TestLeasesWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	t.Run("its master is away", func(t *testing.T) {
		t.Parallel()
		leasesWithoutTheRegistry(t, func(m *node) error { m.Kill(); return nil }, func(m *node) error { return m.Start(t.Context()) })
	})
	t.Run("its master hangs", func(t *testing.T) {
		t.Parallel()
		testrun.Nightly(t, "each call waits until its client gives up")
		leasesWithoutTheRegistry(t,
			func(m *node) error { return m.client.Do(t.Context(), "client", "pause", 120_000, "write").Err() },
			func(m *node) error { return m.client.Do(t.Context(), "client", "unpause").Err() })
	})
}

// leaseTest is a cluster whose registry goes away, and a queue on another node.
type leaseTest struct {
	*testing.T
	e   *Engine
	ref posthaste.QueueRef
}

// The lease of the worker that lives is so long that a busy machine which stands still ends none.
const longLease, shortLease = 10 * time.Second, 2 * time.Second

func (l *leaseTest) worker(lease time.Duration) posthaste.WorkerID {
	w, err := l.e.Register(l.Context(), posthaste.WorkerInfo{Name: "tester", Lease: lease})
	if err != nil {
		l.Fatal(err)
	}
	return w
}

func (l *leaseTest) beat(w posthaste.WorkerID) error {
	ctx, cancel := context.WithTimeout(l.Context(), longLease/5)
	defer cancel()
	_, err := l.e.Heartbeat(ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{l.ref}})
	return err
}

// answer returns the error of a heartbeat that is answered.
func (l *leaseTest) answer(w posthaste.WorkerID) (err error) {
	until(l.T, "a heartbeat is answered", func() bool { err = l.beat(w); return posthaste.CodeOf(err) != posthaste.CodeUnavailable })
	return err
}

// claimed returns a delivery of a new message.
func (l *leaseTest) claimed(w posthaste.WorkerID) posthaste.DeliveryID {
	if _, err := l.e.Send(l.Context(), posthaste.Message{Queue: l.ref.Queue}); err != nil {
		l.Fatal(err)
	}
	reply, err := l.e.Claim(l.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: l.ref, Max: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		l.Fatalf("%+v: %v", reply, err)
	}
	return reply.Deliveries[0].ID
}

func (l *leaseTest) listed(w posthaste.WorkerID) bool {
	workers, err := l.e.Workers(l.Context())
	return err == nil && slices.ContainsFunc(workers, func(s posthaste.WorkerStatus) bool { return s.ID == w && s.Name == "tester" && s.LostAt.IsZero() })
}

// lost returns how many messages were redelivered, whether or not an answer reported it.
func (l *leaseTest) lost() int {
	n, err := l.e.client.HGet(l.Context(), l.e.keys.of(l.ref.Queue, "meta"), "lost").Int()
	if err != nil && !errors.Is(err, goredis.Nil) {
		l.Fatal(err)
	}
	return n
}

func leasesWithoutTheRegistry(t *testing.T, leave, back func(*node) error) {
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	l := &leaseTest{T: t, e: e, ref: posthaste.QueueRef{Queue: queues[(registry+1)%3]}}
	lives, dies := l.worker(longLease), l.worker(shortLease)
	held := l.claimed(lives)
	l.claimed(dies)
	if err := leave(all[registry]); err != nil {
		t.Fatal(err)
	}
	stop := every(longLease/20, func() { // as a worker does, which waits for nothing else
		if err := l.beat(lives); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			t.Errorf("a heartbeat without the registry: %v", err)
		}
	})
	for begun, last := time.Now(), false; !last; {
		last = time.Since(begun) > longLease+shortLease // none but heartbeats has kept it
		if _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			t.Errorf("a rescue without the registry: %v", err)
		}
	}
	stop()
	if n := l.lost(); n != 1 {
		t.Errorf("%d were redelivered; want the one of the worker without heartbeats", n)
	}
	if err := back(all[registry]); err != nil {
		t.Fatal(err)
	}
	stop = every(longLease/20, func() { // as they do until it is back
		if _, kept, err := e.keepLeases(t.Context(), lives); !kept && err == nil {
			t.Error("the living worker has lost a lease")
		}
	})
	until(t, "the registry has expired both", func() bool {
		_, err := e.Maintain(t.Context(), posthaste.UpkeepRescue)
		left, fault := e.client.ZCard(t.Context(), e.keys.beats()).Result()
		return err == nil && fault == nil && left == 0
	})
	stop()
	if l.listed(lives) {
		t.Error("the registry has not expired the living worker")
	}
	if err := l.answer(lives); err != nil || !l.listed(lives) {
		t.Errorf("the living worker has not returned: %v", err)
	}
	for range 2 {
		if err := l.answer(dies); posthaste.CodeOf(err) != posthaste.CodeWorkerLost || l.listed(dies) {
			t.Errorf("a lost worker's heartbeat: %v", err)
		}
	}
	until(t, "all is looked at once more", func() bool { _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); return err == nil })
	if n := l.lost(); n != 1 {
		t.Errorf("%d were redelivered, want 1", n)
	}
	results, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: held, Outcome: posthaste.OutcomeDone}})
	if err != nil || len(results) != 1 || !results[0].Settled {
		t.Errorf("settling what the living worker held: %+v, %v", results, err)
	}
}

// every does something again and again, until stop is called.
func every(pause time.Duration, do func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			do()
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() { close(ended); <-done }
}

// While a queue's master is away, the engine does not guess whether a worker that the registry
// has expired has lost messages. If the worker has lost none, it returns. If it has lost the
// lease of one queue, it is lost, and its messages of other queues are redelivered before
// their leases end.
func TestWorkerThatTheRegistryHasExpired(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	away := (registry + 1) % 3
	refs := []posthaste.QueueRef{{Queue: queues[away]}, {Queue: queues[(registry+2)%3]}}
	w, err := e.Register(t.Context(), posthaste.WorkerInfo{Name: "tester", Lease: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: ref.Queue}); err != nil {
			t.Fatal(err)
		}
		if reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: ref, Max: 1}); err != nil || len(reply.Deliveries) != 1 {
			t.Fatalf("%+v: %v", reply, err)
		}
	}
	beat := func() error {
		_, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: w, Queues: refs})
		return err
	}
	expire := func() {
		if n, err := e.client.ZRem(t.Context(), e.keys.beats(), w.String()).Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	expire()
	all[away].Kill()
	for range 3 {
		if err := beat(); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			t.Errorf("with a queue's master away: %v", err)
		}
	}
	if err := all[away].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "it returns", func() bool { return beat() == nil })

	q, err := e.registry.find(t.Context(), refs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.runEach(t.Context(), beatScript, []*queue{q}, func(q *queue) arguments { return beatArgs(q, w, -1, "", "", "") }); err != nil {
		t.Fatal(err)
	}
	rescue := func() int {
		n, err := e.Maintain(t.Context(), posthaste.UpkeepRescue)
		if err != nil {
			t.Error(err)
		}
		return n.Rescued
	}
	until(t, "its message of one queue is redelivered", func() bool { return rescue() == 1 })
	expire()
	if err := beat(); posthaste.CodeOf(err) != posthaste.CodeWorkerLost {
		t.Errorf("having lost the lease of one queue: %v", err)
	}
	until(t, "its message of the other queue is redelivered", func() bool { return rescue() == 1 })
}
