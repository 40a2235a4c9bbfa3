package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// tickPrefix is the prefix of the tokens of a schedule's messages. The time of the tick
// follows.
const tickPrefix = "tick/"

// everyTick is the time between ticks.
const everyTick = time.Second

// ticked returns the send of a tick of the schedule, which has no sender to ask.
func ticked(e history.Event) *send {
	return &send{token: e.Token, queue: Ticks, span: span{e.At, e.At}, answer: Ticked, count: 1}
}

// ticks checks that each tick of the schedule had its message, from the first one to the last
// before sending ended. Duplicates are checked as for any message.
func (c *checker) ticks() {
	var times []time.Time
	for _, s := range c.list {
		if s.queue != Ticks {
			continue
		}
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(s.token, tickPrefix))
		if err != nil {
			c.broken(Invented, "%s is not a tick: %s", s.token, err)
			continue
		}
		times = append(times, at)
		c.v.Ticks++
		if m := c.of[s][0]; !m.handled() {
			c.v.Lost++
			c.broken(Lost, "%s: it was not handled, after %d calls", s.token, len(m.calls))
		}
	}
	if c.first.IsZero() {
		return
	}
	slices.SortFunc(times, time.Time.Compare)
	before := c.first.Add(-everyTick)
	missed := func(until time.Time) {
		for at := before.Add(everyTick); at.Before(until); at = at.Add(everyTick) {
			c.v.Lost++
			c.broken(NoTick, "the schedule sent nothing for %s", at.Format(time.RFC3339))
		}
	}
	for _, at := range times {
		missed(at)
		before = at
		if at.Before(c.first) {
			c.broken(Invented, "a tick at %s, and the first one is %s", at.Format(time.RFC3339), c.first.Format(time.RFC3339))
		}
	}
	if !c.last.IsZero() {
		// The ticking process must be back, and know of the schedule.
		late := 2*resume + c.paused(span{c.calm - 4*resume, c.calm}) + c.b.Slack
		missed(c.last.Add(-late))
	}
}
