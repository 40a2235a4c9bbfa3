package pacedbell

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A queue whose messages another process takes is claimed from seldom, and soon again
// once a claim finds something.
func TestQueueOfAnotherProcessRests(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		p := New(func(_ context.Context, refs []posthaste.QueueRef) ([]bool, error) {
			time.Sleep(probeTakes)
			return slices.Repeat([]bool{true}, len(refs)), nil
		})
		bell := s.polls(p)
		p.Served(posthaste.QueueRef{Queue: "q"})
		const misses = 30
		one := s.sleeps(bell, "q", func(n int) posthaste.LookReply { return posthaste.LookReply{Found: n > misses, NextDue: -1} })
		<-one.ended
		for i, at := range one.looks[5:] {
			if gap, most := at-one.looks[i+4], longestRest+2*emptyPause+probeTakes; gap < longestRest || gap > most {
				t.Errorf("look %d came %s after the one before, want %s to %s", i+6, gap, longestRest, most)
			}
		}
		var last time.Duration
		for range 4 {
			began := time.Now()
			<-s.sleeps(bell, "q", func(int) posthaste.LookReply { return posthaste.LookReply{Found: true} }).ended
			last = time.Since(began)
		}
		if most := 2*emptyPause + probeTakes; last > most {
			t.Errorf("after five finds in a row a look came after %s, want %s at most", last, most)
		}
		bell.Close()
	})
}
