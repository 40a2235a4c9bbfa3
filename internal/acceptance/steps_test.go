//go:build unix

package acceptance

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A handler whose process is killed at step 7 of 10 goes on at step 7 in another process.
func TestJB5_KilledAtAStep(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	role := task{Role: "steps", Queue: q, Concurrency: 1, Count: 7, Lease: 3 * time.Second}
	first := s.spawn(role)
	id := s.send(q, 1)[0]
	<-first.ended
	second := s.spawn(role)
	s.settled(q)
	s.must(second.term())
	m := s.state(id)
	if len(m.Attempts) != 2 || m.Attempts[0].Outcome != posthaste.OutcomeLost || m.Attempts[1].Outcome != posthaste.OutcomeDone || string(m.Attempts[1].Receipt) != "7" {
		t.Errorf("the attempts are %+v, want a lost one and one that began with step 7", m.Attempts)
	}
}
