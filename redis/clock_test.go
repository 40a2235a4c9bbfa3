package redis

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Redis's clock that was set back is told once, and an hour without upkeep is no sign
// of it.
func TestClockSetBackIsTold(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	// The clock itself cannot be turned here, so the time of the last round is.
	last := func(ago time.Duration) {
		t.Helper()
		if err := e.client.HSet(t.Context(), e.keys.workers(), "#clock", micros(time.Now().Add(-ago))).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rounds := func(want int) {
		t.Helper()
		told := 0
		for range 3 {
			if _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil { // does not report it
				t.Fatal(err)
			}
			reply, err := e.Maintain(t.Context(), posthaste.UpkeepSpace)
			if err != nil {
				t.Fatal(err)
			}
			if reply.ClockSetBack {
				told++
			}
		}
		if told != want {
			t.Errorf("the answers told of it %d times, want %d", told, want)
		}
	}
	rounds(0)
	last(-time.Hour)
	rounds(1)
	last(time.Hour)
	rounds(0)
}
