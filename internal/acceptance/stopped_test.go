//go:build unix

package acceptance

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A worker is stopped under load for ten times its lease and resumed, repeatedly. Its
// prefetched messages run elsewhere in the meantime, and it starts none of them when it
// resumes.
func TestFT3_NothingStartsAfterItsLease(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		const lease = 2 * time.Second
		k.QueueOptions = s.keeping(k.QueueOptions)
		k.MaxAttempts = 1000
		q := s.queueOf(k)
		backlog := s.send(q, size(3_000, 50_000)) // so that much is prefetched
		sleeper := s.spawn(task{Role: "worker", Queue: q, Concurrency: 2, Lease: lease, Work: 5 * time.Millisecond})
		c := newCrew(s, q, 10*time.Second, 2, 1)
		both := append(slices.Clone(c.workers), sleeper)
		var woken []waking
		for range size(1, 20) {
			c.each(both, history.Handled, 100)
			testrun.Pause(20 * time.Millisecond)
			s.must(sleeper.cmd.Process.Signal(syscall.SIGSTOP))
			c.each(c.workers, history.Handled, 100)
			time.Sleep(size(2*lease, 10*lease)) // how long it is stopped is the scenario
			woken = append(woken, waking{history.Now(), time.Now()})
			s.must(sleeper.cmd.Process.Signal(syscall.SIGCONT))
		}
		c.each(both, history.Handled, 100)
		s.must(sleeper.term())
		ids, events, _ := c.end()
		// A handler that was stopped before its start was recorded started before that.
		for i := range events {
			events[i].At -= events[i].Took
		}
		slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
		s.must(history.Merge(history.EveryOne(append(ids, backlog...), events), history.Attempts(events, 0)))
		s.startedLate(events, sleeper.name, woken)
	})
}

// waking is when a process was resumed, by the clock of histories and by that of the store.
type waking struct {
	at   time.Duration
	wall time.Time
}

// startedLate checks that a process started no attempt after it was resumed that it had been
// handed before, because such an attempt is lost by then.
func (s *stage) startedLate(events []history.Event, process string, woken []waking) {
	s.Helper()
	looked := 0
	for _, e := range events {
		i := len(woken) - 1
		for i >= 0 && e.At <= woken[i].at {
			i--
		}
		if e.Process != process || e.Kind != history.Started || i < 0 || e.At > woken[i].at+30*time.Second {
			continue
		}
		looked++
		all := s.state(e.ID).Attempts
		j := slices.IndexFunc(all, func(a posthaste.Attempt) bool { return a.Attempt == e.Attempt && a.Outcome == posthaste.OutcomeLost })
		if j >= 0 && all[j].ClaimedAt.Before(woken[i].wall) {
			s.Errorf("attempt %d of message %s, which was lost while the process was stopped, was started %s after it was woken", e.Attempt, e.ID, e.At-woken[i].at)
		}
	}
	if looked == 0 {
		s.Error("the process started nothing after it was woken, which tests nothing")
	}
	s.Logf("%d starts within half a minute of %d times that the process was woken", looked, len(woken))
}
