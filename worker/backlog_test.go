package worker

import (
	goruntime "runtime"
	"testing"
	"weak"

	"github.com/posthaste-mq/posthaste"
)

// A handler that runs for long keeps the messages of its own claim in memory, and none of
// later claims that were handled meanwhile.
func TestSlowHandlerKeepsNoLaterClaims(t *testing.T) {
	t.Parallel()
	b := newBacklog()
	claim := func() (*segment, weak.Pointer[segment]) {
		b.append(newSegment(&route{}, 1, make([]posthaste.RawDelivery, 1)))
		seg, _, _ := b.take(1)
		return seg, weak.Make(seg)
	}
	slow, _ := claim()
	_, later := claim()
	claim() // because the list keeps the last one
	goruntime.GC()
	if later.Value() != nil {
		t.Error("messages that were handled meanwhile are still in memory")
	}
	goruntime.KeepAlive(slow)
}
