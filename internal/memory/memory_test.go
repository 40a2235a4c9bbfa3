package memory_test

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	can := enginetest.All()
	can.Subscriptions, can.MaxLag, can.Limits, can.Ordered, can.OrderedRuns, can.StopOnDead, can.SQL = false, false, false, false, false, false, false
	enginetest.Run(t, can, func(*testing.T) posthaste.Store { return memory.Open() })
}
