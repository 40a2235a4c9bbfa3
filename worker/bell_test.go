package worker

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sharedbell"
)

func TestBellIsSharedWhereNeeded(t *testing.T) {
	t.Parallel()
	routesOf := func(queues ...string) (routes []*route) {
		for _, q := range queues {
			routes = append(routes, &route{ref: posthaste.QueueRef{Queue: q}})
		}
		return routes
	}
	if shareBell(t.Context(), stubBell{}, routesOf("a", "b")) != posthaste.Doorbell(stubBell{}) {
		t.Error("a bell is shared though no queue has two subscriptions")
	}
	if _, shared := shareBell(t.Context(), stubBell{}, routesOf("a", "b", "a")).(*sharedbell.Bell); !shared {
		t.Error("a bell is not shared though a queue has two subscriptions")
	}
}
