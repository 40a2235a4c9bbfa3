package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// onCluster opens an engine on a cluster.
func onCluster(t *testing.T, all []*node) *Engine {
	t.Helper()
	var addresses []string
	for _, m := range all {
		addresses = append(addresses, m.Address())
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { client.Close() })
	e, err := New(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// slotOf is the slot of a key.
func slotOf(t *testing.T, all []*node, key string) int {
	t.Helper()
	slot, err := all[0].client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// owner returns the node that serves a slot according to sees, or nil if none does.
func owner(t *testing.T, all []*node, sees *node, slot int) *node {
	t.Helper()
	text, err := sees.client.ClusterNodes(t.Context()).Result()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // id, address, flags, ..., and from the ninth on the slots of a master
		for _, slots := range fields[min(8, len(fields)):] {
			from, to, ranged := strings.Cut(slots, "-")
			if !ranged {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 != nil || err2 != nil || slot < first || slot > last { // one that is moving is told in brackets
				continue
			}
			for _, m := range all {
				if m.id == fields[0] {
					return m
				}
			}
		}
	}
	return nil
}

// replicated reports whether a replica of the node has all that was written to it.
func (m *node) replicated(key string) bool {
	conn := m.client.Conn() // for WAIT looks at what its own connection has written
	defer conn.Close()
	ctx := context.Background()
	if conn.Set(ctx, key, 1, 0).Err() != nil {
		return false
	}
	n, err := conn.Wait(ctx, 1, 500*time.Millisecond).Result()
	return err == nil && n >= 1
}

// willing are settings with which a replica takes over however old its data is, but not
// because a busy machine stood still: see [impatient].
var willing = []string{"--cluster-node-timeout", "15000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}

// impatient says whether masters are replaced as soon as is safe on a machine that does other
// things. Nodes that are away are not told.
func impatient(all []*node, is bool) {
	timeout := "15000"
	if is {
		timeout = "2000"
	}
	for _, m := range all {
		_ = m.client.ConfigSet(context.Background(), "cluster-node-timeout", timeout).Err()
	}
}

// accountsForFailovers checks that the account names the message that ran again and those that were
// lost with a master.
func accountsForFailovers(t *testing.T, b *books, again posthaste.MessageID, missed []posthaste.MessageID) {
	t.Helper()
	a := b.account()
	if account(without(a.events, died)).err() == nil {
		t.Error("it is as promised, though no master had died")
	}
	if !slices.Contains(a.again, again) {
		t.Errorf("message %d is not among what ran again: %v", again, a.again)
	}
	for _, id := range missed {
		if !slices.Contains(a.lost, id) {
			t.Errorf("message %d, which no replica had, is not lost", id)
		}
	}
}

// A master is killed while messages flow, and its replica takes over. Only writes that were
// not replicated yet are lost, no message is settled without being handled, and workers and
// senders go on by themselves. Then the next master is killed, whose replica has missed some
// writes: only these are lost, and a message that was settled meanwhile runs again.
func TestRE_Failover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := nodes(t, 6, willing...)
	e := onCluster(t, all)
	create(t, e, posthaste.QueueOptions{Retention: time.Hour}) // so that each is known
	b := openBooks(t, e)
	var holding atomic.Bool
	begun, end := make(chan posthaste.MessageID, 10), make(chan struct{})
	work(t, b.engine(), worker.Config{Lease: time.Minute}, func(d posthaste.RawDelivery) error {
		b.handle(d, func() {
			if holding.Load() {
				begun <- d.MessageID
				<-end
			}
		})
		return nil
	})
	release := sync.OnceFunc(func() { close(end) })
	t.Cleanup(release)
	slot, probe := slotOf(t, all, e.keys.of(jobs, "meta")), e.keys.of(jobs, "probe")
	var first *node
	until(t, "a node serves the queue", func() bool { first = owner(t, all, all[0], slot); return first != nil })
	witness := all[0]
	if first == witness {
		witness = all[1]
	}

	s := startStream(b)
	safe := 0
	until(t, "replicas have some", func() bool {
		if n := s.sent(); n > safe && b.copied(first, probe) {
			safe = n
		}
		return safe >= 300
	})
	impatient(all, true)
	b.killed(first)
	atDeath := s.sent()
	var second *node
	until(t, "its replica takes its place", func() bool {
		second = owner(t, all, witness, slot)
		return second != nil && second != first
	})
	served := time.Now()
	impatient(all, false)
	until(t, "senders go on", func() bool { return s.sent() > atDeath })
	if took := time.Since(served); took > 30*time.Second { // a client asks by itself once a minute
		t.Errorf("it took %s until they found who serves the queue", took)
	}
	until(t, "more is sent", func() bool { return s.sent() > atDeath+300 })
	s.end()
	until(t, "all are settled", settledAll(t, e))

	// The killed node comes back as the replica, and misses some writes.
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "it is a replica now", first.follows)
	holding.Store(true)
	again := sendUntil(b, 0)
	for id := <-begun; id != again; id = <-begun { // one whose answer was lost may come first
	}
	until(t, "the replica knows that it is handed out", func() bool { return b.copied(second, probe) })
	first.Shutdown()
	holding.Store(false)
	release()
	until(t, "it is settled where the replica does not know", settledAll(t, e))
	var missed []posthaste.MessageID
	for range 20 {
		missed = append(missed, sendUntil(b, time.Hour))
	}
	impatient(all, true)
	b.killed(second)
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	impatient(all, true) // also who has just come
	until(t, "the old replica takes its place", func() bool { return owner(t, all, witness, slot) == first })
	impatient(all, false)
	next := sendUntil(b, 0)
	if next <= missed[len(missed)-1] {
		t.Errorf("the id %d is given after %d, which is lost", next, missed[len(missed)-1])
	}
	until(t, "the next message is handled", func() bool { return b.runsOf(next) > 0 })
	until(t, "the message whose settlement was lost runs again", func() bool { return b.runsOf(again) >= 2 })
	until(t, "all are settled", settledAll(t, e))
	accountsForFailovers(t, b, again, missed)
}

// sendUntil sends one until it is acknowledged.
func sendUntil(b *books, delay time.Duration) (id posthaste.MessageID) {
	b.t.Helper()
	until(b.t, "it is sent", func() bool {
		ids, err := b.send(1, delay)
		if err == nil {
			id = ids[0]
		}
		return err == nil
	})
	return id
}

// move moves a slot, as an operator does who reshards.
func move(t *testing.T, all []*node, slot int, from, to *node, half func()) {
	t.Helper()
	ctx := t.Context()
	host, port, err := net.SplitHostPort(to.Address())
	if err != nil {
		t.Fatal(err)
	}
	must := func(m *node, args ...any) {
		t.Helper()
		if err := m.client.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	must(to, "cluster", "setslot", slot, "importing", from.id)
	must(from, "cluster", "setslot", slot, "migrating", to.id)
	for n := 0; ; n++ {
		keys, err := from.client.ClusterGetKeysInSlot(ctx, slot, 2).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		must(from, args...)
		if n == 0 {
			half()
		}
	}
	must(to, "cluster", "setslot", slot, "node", to.id)
	must(from, "cluster", "setslot", slot, "node", to.id)
	for _, m := range all {
		if m != from && m != to {
			must(m, "cluster", "setslot", slot, "node", to.id)
		}
	}
}

// The slots of a queue and of the registry move while messages flow: meanwhile calls are
// refused, and nothing is lost, done by half, or handled twice.
func TestRE_SlotsMove(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3)
	e := onCluster(t, all)
	create(t, e, posthaste.QueueOptions{Retention: time.Hour}) // so that each is known
	b := openBooks(t, e)
	// A worker that has a lease of this queue and of others.
	w := register(t, e)
	claim(t, e, w, 1, 1)
	others := map[string]float64{"a": 0, "b": 0, "c": 0, "d": 0} // to when their leases ended
	for name := range others {
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: name}, Max: 1}); err != nil {
			t.Fatal(err)
		}
	}
	beats := func() (fault error) {
		if _, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: w}); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			fault = fmt.Errorf("a heartbeat while a queue cannot be reached: %w", err)
		}
		for name, before := range others {
			ends, err := e.client.ZScore(t.Context(), e.keys.of(name, "leases"), w.String()).Result()
			if err != nil || ends <= before {
				fault = errors.Join(fault, fmt.Errorf("the lease of queue %s was not kept: %w", name, err))
				continue
			}
			others[name] = ends
		}
		return fault
	}
	kept := func() {
		t.Helper()
		for {
			began := time.Now()
			fault := beats()
			if fault == nil {
				return
			}
			if time.Since(began) < 2*time.Second {
				t.Error(fault)
				return
			}
			t.Log(fault) // the machine stood still, and answers were lost: once more
		}
	}
	work(t, b.engine(), worker.Config{Lease: 5 * time.Minute, Heartbeat: 200 * time.Millisecond}, func(d posthaste.RawDelivery) error {
		b.handle(d, func() {})
		return nil
	})
	s := startStream(b)
	queue, registry := slotOf(t, all, e.keys.of(jobs, "meta")), slotOf(t, all, e.keys.queues())
	for i := range 3 {
		sent := s.sent()
		until(t, "messages flow", func() bool { return s.sent() > sent+50 })
		for slot, half := range map[int]func(){
			queue: func() { // some of its keys are there, and some here
				refused := s.refusals()
				until(t, "sending is refused", func() bool { return s.refusals() > refused+2 })
				kept()
			},
			registry: func() {},
		} {
			from := owner(t, all, all[0], slot)
			if from == nil {
				t.Fatalf("no node serves slot %d", slot)
			}
			to := all[i]
			if to == from {
				to = all[(i+1)%3]
			}
			move(t, all, slot, from, to, half)
		}
	}
	sent := s.sent()
	until(t, "messages flow again", func() bool { return s.sent() > sent+50 })
	s.end()
	until(t, "all are settled", settledAll(t, e))
	for code, n := range s.refused {
		// The machine may stand still until an answer is lost. The books know of that.
		if code != posthaste.CodeUnavailable && code != posthaste.CodeOutcomeUnknown {
			t.Errorf("%d were answered %s", n, code)
		}
	}
	b.account()
}
