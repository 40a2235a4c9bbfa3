//go:build unix

package acceptance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// An ordered queue cannot be at-most-once, because it would never learn when a message has
// ended and the next of its key may start. Every interface rejects it, and creates nothing.
func TestDS6_OrderedIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	err := s.engine.CreateQueue(s.ctx, "both", posthaste.QueueOptions{Ordered: true, Mode: posthaste.AtMostOnce})
	if posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "at-most-once") {
		t.Errorf("Go was answered by %v", err)
	}
	if !s.redis() {
		if _, err := s.conn().Exec(s.ctx, `select posthaste.create_queue('both', '{"ordered": true, "mode": "at_most_once"}')`); err == nil {
			t.Error("SQL took it")
		}
	}
	s.http().want(400, "PUT", "/v1/queues/both", `{"ordered":true,"mode":"at_most_once"}`)
	queues, err := s.engine.Queues(s.ctx)
	s.must(err)
	if len(queues) != 0 {
		t.Errorf("there are %d queues", len(queues))
	}
}

// At most once: workers are killed with messages in flight. Executed and lost messages add up
// to all, at most those in flight are lost, and none runs twice.
func TestDS6_AtMostOnce(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "fair"}[fair], func(t *testing.T) {
			t.Parallel()
			atMostOnce(t, fair)
		})
	}
}

func atMostOnce(t *testing.T, fair bool) {
	s := newStage(t)
	q := s.queue(s.keeping(posthaste.QueueOptions{Mode: posthaste.AtMostOnce, Fair: fair}))
	if fair {
		s.keyed.Store(q, true)
	}
	const concurrency = 4
	// A worker prefetches the work of 250 ms for its handlers, which is 20 messages here, and
	// up to 32 before it knows their speed.
	const mostInFlight = concurrency + 60
	total := testrun.Size(600, 6000)
	ids := s.send(q, total)
	var killed []string
	for range 3 {
		// Handlers take so long that messages remain at the time of the kill.
		c := s.spawn(task{Role: "worker", Queue: q, Concurrency: concurrency, Lease: time.Second, Work: 50 * time.Millisecond})
		s.until("it is in the middle of its work", func() bool { return s.lines(c.name) >= 40 })
		c.kill()
		killed = append(killed, c.name)
	}
	r := s.recorder()
	s.work(q, r, worker.Config{}, nothing)
	if !s.redis() {
		conn := s.conn()
		s.until("nothing is left to hand out", func() bool {
			return one[int](s, conn, `select coalesce(sum(c.places - coalesce(bit_count(c.withheld), 0)), 0)::int from posthaste.claims c`) == total
		})
	}
	s.settled(q)
	handedTo := s.handedTo(ids)
	// Ask the store only now, because a claim may be committed after its worker's death.
	inFlight := 0
	for _, name := range killed {
		started, handled := s.did(name, history.Started), s.did(name, history.Handled)
		lost := handedTo(name) - handled
		if lost <= 0 {
			t.Fatalf("%s was handed %d and handled %d: none was in flight", name, handedTo(name), handled)
		}
		if lost > mostInFlight || started-handled > concurrency {
			t.Errorf("%s had %d in flight, %d of them started; at most %d and %d may be", name, lost, started-handled, mostInFlight, concurrency)
		}
		inFlight += lost
	}
	// Rescue finds nothing, even if called repeatedly.
	for range 3 {
		if lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue); err != nil || lost.Rescued != 0 {
			t.Errorf("%d were rescued, %v", lost.Rescued, err)
		}
	}
	s.until("all that live workers got is handled", func() bool {
		return len(history.IDs(s.history(), history.Handled))+inFlight >= total
	})
	events := s.history()
	executed := history.IDs(events, history.Handled)
	slices.Sort(executed)
	executed = slices.Compact(executed)
	s.must(history.Merge(history.Once(events), history.NoOther(ids, events), history.Attempts(events, 1)))
	// Only by the receivers' records: a message that was not executed is lost.
	if lost := total - len(executed); lost > len(killed)*mostInFlight {
		t.Errorf("%d were lost, at most %d may be in flight at %d kills", lost, len(killed)*mostInFlight, len(killed))
	}
	for _, id := range []posthaste.MessageID{ids[0], ids[total-1]} {
		if state := s.state(id).State; state != posthaste.StateHandedOut {
			t.Errorf("message %d is %s, want %s: the store cannot know more", id, state, posthaste.StateHandedOut)
		}
	}
}

// did counts the events of a kind that a process has recorded.
func (s *stage) did(process string, kind history.Kind) (n int) {
	s.Helper()
	for _, e := range s.history() {
		if e.Process == process && e.Kind == kind {
			n++
		}
	}
	return n
}

// handedTo returns a function that counts how many of the at-most-once messages a worker was
// handed, by its name.
func (s *stage) handedTo(ids []posthaste.MessageID) func(name string) int {
	s.Helper()
	if !s.redis() {
		conn := s.conn()
		return func(name string) int {
			return one[int](s, conn, `select coalesce(sum(c.places - coalesce(bit_count(c.withheld), 0)), 0)::int from posthaste.claims c join posthaste.registrations r on r.id = c.holder where r.name = $1`, name)
		}
	}
	handed := map[string]int{}
	for _, id := range ids {
		for _, a := range s.state(id).Attempts {
			handed[a.Worker]++
		}
	}
	return func(name string) int { return handed[name] }
}
