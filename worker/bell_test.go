package worker

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sharedbell"
)

func TestBellIsSharedWhereNeeded(t *testing.T) {
	t.Parallel()
	subsOf := func(queues ...string) (subs []*subscription) {
		for _, q := range queues {
			subs = append(subs, &subscription{ref: posthaste.QueueRef{Queue: q}})
		}
		return subs
	}
	if shareBell(t.Context(), stubBell{}, subsOf("a", "b")) != posthaste.Doorbell(stubBell{}) {
		t.Error("a bell is shared though no queue has two subscriptions")
	}
	if _, shared := shareBell(t.Context(), stubBell{}, subsOf("a", "b", "a")).(*sharedbell.Bell); !shared {
		t.Error("a bell is not shared though a queue has two subscriptions")
	}
}
