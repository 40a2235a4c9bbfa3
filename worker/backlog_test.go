package worker

import (
	goruntime "runtime"
	"testing"
	"weak"

	"github.com/posthaste-mq/posthaste"
)

// A handler that runs for long holds what its own claim handed out, and none of what
// others handed out and handled since.
func TestSlowHandlerKeepsNoLaterClaims(t *testing.T) {
	t.Parallel()
	s := &subscription{}
	s.ready()
	claim := func() (*segment, weak.Pointer[segment]) {
		s.append(newSegment(s, 1, make([]posthaste.RawDelivery, 1)))
		seg, _, _ := s.take(1)
		return seg, weak.Make(seg)
	}
	slow, _ := claim()
	_, later := claim()
	claim() // the last one is held by the list
	goruntime.GC()
	if later.Value() != nil {
		t.Error("what was handled meanwhile is still held")
	}
	goruntime.KeepAlive(slow)
}
