package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// clocked is a store whose upkeep takes three rounds. The first finds that the clock was set
// back, and rescues two lost deliveries.
type clocked struct {
	posthaste.Store
	rounds atomic.Int32
}

func (c *clocked) Maintain(ctx context.Context, what posthaste.Upkeep) (posthaste.MaintainReply, error) {
	if what != posthaste.UpkeepSpace {
		return c.Store.Maintain(ctx, what)
	}
	n := c.rounds.Add(1)
	return posthaste.MaintainReply{More: n < 3, ClockSetBack: n == 1, Rescued: map[int32]int{1: 2}[n]}, nil
}

// A worker reports the findings of an upkeep round: a clock that was set back, and deliveries
// that it rescued before the rescuer did.
func TestUpkeepTellsWhatItFinds(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		c := &clocked{Store: f.memory}
		f.run(c, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.now("upkeep went three rounds", func() bool { return c.rounds.Load() == 3 })
		if n := f.seen.told(posthaste.EventClock, ""); n != 1 {
			f.Errorf("the clock was told of %d times", n)
		}
		if n := f.seen.told(posthaste.EventRescued, ""); n != 2 {
			f.Errorf("%d rescued deliveries were told of, not 2", n)
		}
	})
}
