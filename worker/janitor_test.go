package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// clocked is a store of which the first of three rounds of upkeep finds that
// its clock was set back.
type clocked struct {
	posthaste.Engine
	rounds atomic.Int32
}

func (c *clocked) Maintain(context.Context) (posthaste.MaintainReply, error) {
	n := c.rounds.Add(1)
	return posthaste.MaintainReply{More: n < 3, ClockSetBack: n == 1}, nil
}

// A clock that was set back is an event, once.
func TestClockSetBackIsAnEvent(t *testing.T) {
	f := newFixture(t, posthaste.QueueOptions{})
	c := &clocked{Engine: f.memory}
	f.run(c, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
	f.until("upkeep went three rounds", func() bool { return c.rounds.Load() >= 3 })
	if n := f.seen.told(posthaste.EventClock, ""); n != 1 {
		t.Errorf("it was told %d times", n)
	}
}
