//go:build unix

package acceptance

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// A worker that settles fast in a queue at its concurrency limit wakes itself. Its settlements
// rarely notify, because commits with notifications wait for each other in the whole database.
func TestSettlesAtALimitHardlyNotify(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const places, takes = 10, 2 * time.Millisecond
	q := s.queue(posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: places}})
	n := int64(len(s.send(q, size(1500, 10000))))
	heard := s.listen(q)
	var handled atomic.Int64
	began := time.Now()
	w := worker.New(s.open(), worker.Config{Concurrency: 5 * places, Logger: s.log})
	worker.HandleRaw(w, q, func(context.Context, posthaste.RawDelivery) error {
		works(takes)
		handled.Add(1)
		return nil
	})
	s.run(w)
	s.until("all are handled", func() bool { return handled.Load() == n })
	took := time.Since(began).Seconds()
	t.Logf("%d messages in %.1f s, %.0f a second: %d notifications, %.0f a second", n, took, float64(n)/took, heard.Load(), float64(heard.Load())/took)
	// One for each 50 ms in which no place was taken, and some for settlements that come
	// before the woken worker has claimed.
	if most := 40 * took; float64(heard.Load()) > most {
		t.Errorf("%d notifications in %.1f s, want at most %.0f", heard.Load(), took, most)
	}
}
