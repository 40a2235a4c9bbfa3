package memory_test

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.RunWith(t, enginetest.Capabilities{NoSubscriptions: true, NoLimits: true, NoOrder: true}, func(*testing.T) posthaste.Store { return memory.Open() })
}
