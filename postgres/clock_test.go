package postgres_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A clock that was set back is reported once. An hour without upkeep is not reported.
func TestClockSetBackIsTold(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	var said bytes.Buffer
	e := postgres.New(a.pool, postgres.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
	// The test cannot set the clock back, so it moves the time of the last round.
	last := func(ago string) {
		t.Helper()
		_, err := a.pool.Exec(a.ctx, `update posthaste.counted set at = clock_timestamp() - $1::text::interval`, ago)
		a.check(err)
	}
	rounds := func(want int) {
		t.Helper()
		said.Reset()
		told := 0
		for range 3 {
			reply, err := e.Maintain(a.ctx, posthaste.UpkeepSpace)
			a.check(err)
			if reply.ClockSetBack {
				told++
			}
		}
		if told != want {
			t.Errorf("the answers told of it %d times, want %d", told, want)
		}
		if n := strings.Count(said.String(), "level=WARN"); n != want || want > 0 && !strings.Contains(said.String(), "set back by 00:59:") {
			t.Errorf("said %d times, want %d: %s", n, want, said.String())
		}
	}
	rounds(0)
	last("-1 hour")
	rounds(1)
	last("1 hour")
	rounds(0)
}
