package redis

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A message that is due in centuries is reported with its time, whatever its priority, and
// holds up nothing.
func TestFarTimes(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	for priority := range 4 {
		for _, year := range []int{2095, 2096, 2097, 2999, 9999} {
			when := time.Date(year, 6, 1, 12, 0, 1, 0, time.UTC)
			ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Priority: priority, SendAt: when}))
			if err != nil {
				t.Fatal(err)
			}
			m, err := e.Message(t.Context(), ids[0])
			if err != nil || m.Subscriptions[0].State != posthaste.StateScheduled || !m.Subscriptions[0].DueAt.Equal(when) {
				t.Errorf("of priority %d, due at %s: %+v, %v", priority, when, m.Subscriptions, err)
			}
		}
	}
	reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: register(t, e), Number: 1, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10})
	if err != nil || len(reply.Deliveries) > 0 || reply.NextDue < 50*365*24*time.Hour {
		t.Errorf("%d were handed out, the next in %s: %v", len(reply.Deliveries), reply.NextDue, err)
	}
}
