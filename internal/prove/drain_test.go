//go:build unix

package prove

import (
	"testing"
	"time"
)

// A backlog that is still being handled is no loss, however long that takes.
func TestStandstill(t *testing.T) {
	t.Parallel()
	s := standstill{since: 10 * time.Second}
	for _, step := range []struct {
		handled   int
		now, want time.Duration
	}{
		{0, 15, 5}, {1, 100, 0}, {1, 150, 50}, {2, 200, 0}, {2, 201, 1},
	} {
		if got := s.lasts(step.handled, step.now*time.Second); got != step.want*time.Second {
			t.Errorf("at %d s with %d messages it lasts %s, want %d s", step.now, step.handled, got, step.want)
		}
	}
}
