//go:build unix

package acceptance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// 1,000 messages with 2, 4 and 8 workers: exactly 1,000 calls.
func TestDU1_Workers(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			q := s.queue(posthaste.QueueOptions{})
			r := s.recorder()
			ids := s.send(q, 500)
			for range workers {
				s.work(q, r, worker.Config{}, nothing)
			}
			for range 500 { // small sends, among workers that fall asleep
				ids = append(ids, s.send(q, 1)...)
			}
			s.recorded(r, history.Handled, len(ids))
			s.settled(q)
			s.must(history.Exactly(ids, s.history()))
		})
	}
}

// 35 receivers with 11 senders.
func TestDU1_ManyReceivers(t *testing.T) {
	t.Parallel()
	const receivers, senders = 35, 11
	each := size(40, 100)
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	r := s.recorder()
	var receiving, sending sync.WaitGroup
	var stop atomic.Bool
	for i := range receivers {
		receiving.Go(func() {
			for !stop.Load() {
				reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 1 + i%7, Lease: time.Minute})
				got := reply.Deliveries
				if err != nil && strings.Contains(err.Error(), "has been claiming from this queue") { // for seconds
					continue
				}
				if err != nil {
					s.Error(err)
					return
				}
				if len(got) == 0 {
					rest(s.ctx, 5*time.Millisecond)
					continue
				}
				settle := make([]posthaste.Settlement, len(got))
				for i, d := range got {
					r.Record(history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt})
					r.Record(history.Event{Kind: history.Handled, ID: d.MessageID, Attempt: d.Attempt})
					settle[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone}
				}
				results, err := s.engine.Settle(s.ctx, settle)
				if err != nil {
					s.Error(err)
					return
				}
				for _, result := range results {
					if !result.Settled {
						s.Errorf("delivery %s was not the caller's", result.Delivery)
					}
				}
			}
		})
	}
	sent := make([][]posthaste.MessageID, senders)
	for i := range senders {
		sending.Go(func() {
			for range each {
				ids, err := posthaste.IDs(s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: i}))
				if err != nil {
					s.Error(err)
					return
				}
				sent[i] = append(sent[i], ids...)
			}
		})
	}
	sending.Wait()
	ids := slices.Concat(sent...)
	s.recorded(r, history.Handled, len(ids))
	s.settled(q)
	stop.Store(true)
	receiving.Wait()
	s.must(history.Exactly(ids, s.history()))
}

// A worker is stopped with SIGTERM during a backlog, ten times: handled messages are settled,
// none stays claimed, and messages that were not started can be claimed immediately.
func TestDU2_Stopped(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rounds := size(4, 10)
	messages := rounds * 400
	q := s.queue(s.keeping(posthaste.QueueOptions{}))
	ids := s.send(q, messages)
	for round := range rounds {
		// The lease is so long that a rescue cannot help.
		w := s.spawn(task{Role: "worker", Queue: q, Concurrency: 10, Lease: 10 * time.Minute, Work: 20 * time.Millisecond})
		s.until("the worker is in the middle of its work", func() bool { return s.lines(w.name) > 100 })
		if err := w.term(); err != nil {
			t.Fatalf("round %d: the worker ended with %v", round, err)
		}
		if n := s.count(q, posthaste.StateRunning); n > 0 {
			t.Fatalf("round %d: %d claimed messages were left behind", round, n)
		}
		events := s.history()
		for _, e := range events {
			if e.Kind == history.Started && e.Process == w.name {
				if state := s.state(e.ID); state.State != posthaste.StateDone {
					t.Fatalf("round %d: message %s was handled, and is %s", round, e.ID, state.State)
				}
			}
		}
	}
	left := messages - len(history.IDs(s.history(), history.Handled))
	if left == 0 {
		t.Fatal("all messages were handled before the last stop: it was in no backlog")
	}
	r := s.recorder()
	for left > 0 {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 1000, Lease: time.Hour})
		got := reply.Deliveries
		s.must(err)
		if len(got) == 0 {
			t.Fatalf("%d messages cannot be claimed at once", left)
		}
		left -= len(got)
		for _, d := range got {
			if d.Attempt != 1 {
				t.Errorf("message %s was released and has attempt %d", d.MessageID, d.Attempt)
			}
			r.Record(history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt})
			r.Record(history.Event{Kind: history.Handled, ID: d.MessageID, Attempt: d.Attempt})
		}
	}
	s.must(history.Exactly(ids, s.history()))
}

// 1,000 expired leases and 4 concurrent rescuers: each message comes once more.
func TestDU3_RescuersTogether(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const rescuers = 4
	messages := size(250, 1000)
	q := s.queue(posthaste.QueueOptions{})
	ids := s.send(q, messages)
	r := s.recorder()
	receive := func(most int) (got []posthaste.RawDelivery) {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: most, Lease: time.Hour})
		got = reply.Deliveries
		s.must(err)
		for _, d := range got {
			r.Record(history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt})
		}
		return got
	}
	var held []posthaste.DeliveryID
	for range messages { // each has its own lease
		for _, d := range receive(1) {
			held = append(held, d.ID)
		}
	}
	if len(held) != messages {
		t.Fatalf("received %d", len(held))
	}
	engines := []posthaste.Store{s.open(), s.open(), s.open(), s.open()}
	_, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: held, Lease: 50 * time.Millisecond})
	s.must(err)
	s.until("all leases are over", func() bool {
		if s.redis() {
			now, err := s.keys().Time(s.ctx).Result()
			s.must(err)
			left, err := s.keys().ZCount(s.ctx, key(q, "timed"), fmt.Sprint(now.UnixMicro()-1735689600_000_000), "+inf").Result()
			s.must(err)
			return left == 0
		}
		conn := s.conn()
		defer conn.Close(s.ctx)
		return one[bool](s, conn, "select bool_and(until < clock_timestamp()) from (select distinct on (claim) until from posthaste.leases order by claim, xid desc) l")
	})
	var together sync.WaitGroup
	var lost atomic.Int64
	start := make(chan struct{})
	for i := range rescuers {
		together.Go(func() {
			<-start
			for lost.Load() < int64(messages) {
				n, err := engines[i].Maintain(s.ctx, posthaste.UpkeepRescue)
				if err != nil {
					s.Error(err)
					return
				}
				lost.Add(int64(n.Rescued))
				if n.Rescued == 0 { // another rescuer is active
					rest(s.ctx, time.Millisecond)
				}
			}
		})
	}
	close(start)
	together.Wait()
	for _, e := range engines {
		n, err := e.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		lost.Add(int64(n.Rescued))
	}
	if lost.Load() != int64(messages) {
		t.Errorf("%d deliveries were rescued", lost.Load())
	}
	var again []posthaste.MessageID
	for got := receive(1000); len(got) > 0; got = receive(1000) {
		for _, d := range got {
			if d.Attempt != 2 {
				t.Errorf("message %s came again with attempt %d", d.MessageID, d.Attempt)
			}
			again = append(again, d.MessageID)
			r.Record(history.Event{Kind: history.Handled, ID: d.MessageID, Attempt: d.Attempt})
		}
	}
	if len(again) != messages {
		t.Errorf("%d messages came again", len(again))
	}
	s.must(history.Exactly(ids, s.history()))
}
