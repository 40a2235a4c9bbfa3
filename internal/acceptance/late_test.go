//go:build unix

package acceptance

import (
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// A process is stopped while it handles a message, and declared lost. Its settlement comes too
// late when it resumes. The new attempt was not handed out yet and is withdrawn, so the
// message is not handled twice.
func TestDU5_LateAckWithdraws(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	late := s.spawn(task{Role: "worker", Queue: q, Concurrency: 1, Lease: 10 * time.Minute, Work: 3 * time.Second})
	id := s.send(q, 1)[0]
	s.until("the message runs", func() bool { return len(history.IDs(s.history(), history.Started)) == 1 })
	s.must(late.cmd.Process.Signal(syscall.SIGSTOP))
	if len(history.IDs(s.history(), history.Handled)) > 0 {
		t.Fatal("it was not stopped in the middle of its 3 s")
	}
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "test"), posthaste.OfQueue(q), posthaste.PauseOptions{})) // no worker takes the new attempt
	s.lose(late)
	s.until("its message is rescued", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		return s.state(id).State == posthaste.StateRetrying
	})
	s.must(late.cmd.Process.Signal(syscall.SIGCONT))
	s.until("its late ack has ended the message", func() bool { return s.state(id).State == posthaste.StateDone })
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "test"), posthaste.OfQueue(q)))
	other := s.recorder()
	s.work(q, other, worker.Config{}, nothing)
	after := s.send(q, 1)[0]
	s.until("a message sent after it is done", func() bool { return s.state(after).State == posthaste.StateDone })
	s.settled(q)
	events := s.history()
	s.must(history.Merge(history.EveryOne([]posthaste.MessageID{id, after}, events), history.Once(events)))
	if a := s.state(id).Attempts; len(a) != 1 || a[0].Outcome != posthaste.OutcomeLost || a[0].Worker != late.name {
		t.Errorf("its story tells %+v", a)
	}
}

// The new attempt was already handed out: then the late ack changes nothing and fails, and
// both attempts are recorded.
func TestDU5_LateAckIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	id := s.send(q, 1)[0]
	receive := func(lease time.Duration) posthaste.DeliveryID {
		t.Helper()
		var got []posthaste.RawDelivery
		s.until("it is handed out", func() (ok bool) {
			reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 1, Lease: lease})
			s.must(err)
			got = reply.Deliveries
			return len(got) == 1
		})
		return got[0].ID
	}
	first := receive(time.Millisecond)
	second := receive(time.Minute)
	for _, c := range []struct {
		delivery posthaste.DeliveryID
		settled  bool
	}{{first, false}, {second, true}, {first, false}, {second, false}} {
		results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{{Delivery: c.delivery, Outcome: posthaste.OutcomeDone}})
		s.must(err)
		if results[0].Settled != c.settled {
			t.Errorf("delivery %s of %s and %s was settled: %t", c.delivery, first, second, results[0].Settled)
		}
	}
	state := s.state(id)
	if a := state.Attempts; state.State != posthaste.StateDone || len(a) != 2 || a[0].Outcome != posthaste.OutcomeLost || a[1].Outcome != posthaste.OutcomeDone {
		t.Errorf("it is %s, and its story tells %+v", state.State, a)
	}
}

// lose lets a child's lease expire.
func (s *stage) lose(c *child) {
	s.Helper()
	if s.redis() {
		workers, err := s.engine.Workers(s.ctx)
		s.must(err)
		for _, w := range workers {
			if w.Name != c.name {
				continue
			}
			for _, leases := range []string{"{posthaste}:beats", key(c.queue, "leases")} {
				s.must(s.keys().ZAddXX(s.ctx, leases, goredis.Z{Score: 1, Member: w.ID.String()}).Err())
			}
		}
		return
	}
	_, err := s.conn().Exec(s.ctx, "update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where name = $1", c.name)
	s.must(err)
}
