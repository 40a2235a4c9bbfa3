package chaos

import (
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// plantedQueues are histories of delays, keys, effects, ticks, limits, subscriptions and dedupe keys.
var plantedQueues = map[string]planted{
	"held back, and handed out in time": {plant: func(s *script) {
		s.sends(50, "d", Plain, 1, history.Sent)
		s.events[len(s.events)-2].Took = time.Second
		s.runs(1051, 1, "w1", "d", 0, 1, history.Handled)
	}},
	"held back, and handed out before": {want: Early, plant: func(s *script) {
		s.sends(50, "d", Plain, 1, history.Sent)
		s.events[len(s.events)-2].Took = time.Second
		s.runs(1030, 1, "w1", "d", 0, 1, history.Handled)
	}},
	"out of order": {want: Order, plant: func(s *script) {
		s.sends(50, "o1", Ordered, 1, history.Sent)
		s.sends(60, "o2", Ordered, 1, history.Sent)
		s.runs(80, 1, "w1", "o2", 0, 1, history.Handled)
		s.runs(90, 1, "w1", "o1", 0, 1, history.Handled)
	}},
	"out of order within a transaction": {want: Order, plant: func(s *script) {
		s.sends(50, "o", Ordered, 2, history.Sent)
		s.runs(80, 1, "w1", "o", 1, 1, history.Handled)
		s.runs(90, 1, "w1", "o", 0, 1, history.Handled)
	}},
	"before a failed one of its key came again": {want: Order, plant: func(s *script) {
		s.sends(50, "o", Ordered, 2, history.Sent)
		s.runs(80, 1, "w1", "o", 0, 1, history.Failed)
		s.runs(90, 1, "w1", "o", 1, 1, history.Handled)
		s.runs(100, 1, "w1", "o", 0, 2, history.Handled)
	}},
	"two of a key at the same time": {want: Together, plant: func(s *script) {
		s.sends(50, "o", Ordered, 2, history.Sent)
		s.runs(60, 1, "w1", "o", 0, 1, history.Handled)
		s.strikes(70, 70, KillWorker, "w1")
		s.born(75, roleWorker, "w3")
		s.runs(10_080, 20, "w2", "o", 0, 2, history.Handled)
		s.runs(10_090, 20, "w3", "o", 1, 1, history.Handled)
	}},
	"of a key, one after the other and again": {plant: func(s *script) {
		s.sends(50, "o", Ordered, 2, history.Sent)
		s.runs(60, 1, "w1", "o", 0, 1, history.Handled)
		s.runs(70, 1, "w1", "o", 1, 1, "")
		s.strikes(80, 80, KillWorker, "w1")
		s.runs(10_080, 1, "w2", "o", 0, 2, history.Handled)
		s.runs(10_090, 1, "w2", "o", 1, 2, history.Handled)
	}},
	"an effect": {plant: func(s *script) {
		s.sends(50, "e", Effects, 1, history.Sent)
		s.runs(60, 1, "w1", "e", 0, 1, history.Handled)
		s.effects(130_000, "e")
	}},
	"an effect that was rolled back": {want: Lost, plant: func(s *script) {
		s.sends(50, "e", Effects, 1, history.Sent)
		s.runs(60, 1, "w1", "e", 0, 1, history.Handled)
	}},
	"two effects": {want: NotOnce, plant: func(s *script) {
		s.sends(50, "e", Effects, 1, history.Sent)
		s.runs(60, 1, "w1", "e", 0, 1, history.Handled)
		s.effects(130_000, "e")
		s.effects(130_000, "e")
	}},
	"an effect of a rolled back message": {want: Ghost, plant: func(s *script) {
		s.sends(50, "e", Effects, 1, RolledBack)
		s.effects(130_000, "e")
	}},
	"every tick has its message": {plant: func(s *script) {
		s.schedules(4)
		for n := range 4 {
			s.tick(1000+1000*n, n, fmt.Sprint("tick", n))
		}
	}},
	"ticks that were caught up, out of order": {plant: func(s *script) {
		s.schedules(4)
		for n, at := range []int{9000, 9002, 9001, 9100} {
			s.tick(at, n, fmt.Sprint("tick", n))
		}
	}},
	"a tick without a message": {want: NoTick, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, 0, "tick0")
		s.tick(1000, 2, "tick2")
	}},
	"the first tick without a message": {want: NoTick, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, 1, "tick1")
	}},
	"ticks that end too early": {want: NoTick, plant: func(s *script) {
		s.schedules(20)
		s.tick(1000, 0, "tick0")
	}},
	"a tick with two messages": {want: NotOne, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, 0, "tick0")
		s.tick(1020, 0, "other")
		for i := len(s.events) - 2; i < len(s.events); i++ {
			s.events[i].Attempt = 2 // as if it had failed
		}
		s.events[len(s.events)-3].Kind = history.Failed
	}},
	"a tick's message that runs twice": {want: Twice, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, 0, "tick0")
		s.tick(1020, 0, "tick0")
		for i := len(s.events) - 2; i < len(s.events); i++ {
			s.events[i].Attempt = 2
		}
	}},
	"a tick that was not handled": {want: Lost, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, 0, "tick0")
		s.events[len(s.events)-1].Kind = history.Failed
	}},
	"a tick from before the schedule": {want: Invented, plant: func(s *script) {
		s.schedules(4)
		s.tick(1000, -1, "before")
		s.tick(1000, 0, "tick0")
	}},
	"at the limit": {plant: func(s *script) {
		s.sends(50, "l", Limited, 2*limit, history.Sent)
		for i := range 2 * limit {
			s.runs(60+100*(i/limit), 100, "w1", "l", i, 1, history.Handled)
		}
	}},
	"one more than the limit": {want: OverLimit, plant: func(s *script) {
		s.sends(50, "l", Limited, limit+1, history.Sent)
		for i := range limit + 1 {
			s.runs(60+i, 100, []string{"w1", "w2"}[i%2], "l", i, 1, history.Handled)
		}
	}},
	"one more than the limit while a worker is slow to end": {want: OverLimit, plant: func(s *script) {
		s.sends(50, "l", Limited, limit+1, history.Sent)
		s.strikes(70, 4000, Pause, "w1")
		for i := range limit {
			s.runs(60, 4000, "w1", "l", i, 1, history.Handled)
		}
		s.runs(3000, 10, "w2", "l", limit, 1, history.Handled)
	}},
	"those of a worker that stood still for its lease do not count": {plant: func(s *script) {
		s.sends(50, "l", Limited, limit, history.Sent)
		s.strikes(70, 13_000, LongPause, "w1")
		for i := range limit {
			s.runs(60, 13_000, "w1", "l", i, 1, history.Handled)
			s.runs(11_000, 10, "w2", "l", i, 2, history.Handled)
		}
	}},
	"those of a crashed database do not count": {plant: func(s *script) {
		s.sends(50, "l", Limited, limit, history.Sent)
		s.strikes(70, 1000, KillPostgres, "")
		for i := range limit {
			s.runs(60, 3000, "w1", "l", i, 1, history.Handled)
			s.runs(1100, 10, "w2", "l", i, 1, history.Handled)
		}
		s.sends(1100, "after", Plain, 1, history.Sent)
		s.runs(1110, 1, "w1", "after", 0, 1, history.Handled)
	}},
	"as quick as the rate allows": {plant: func(s *script) {
		s.sends(50, "l", Limited, limitBurst+limitRate, history.Sent)
		for i := range limitBurst {
			s.runs(60+2*i, 1, "w1", "l", i, 1, history.Handled)
		}
		for i := range limitRate {
			s.runs(80+i*1000/limitRate, 5, "w1", "l", limitBurst+i, 1, history.Handled)
		}
	}},
	"quicker than the rate allows": {want: OverRate, plant: func(s *script) {
		s.sends(50, "l", Limited, 2*limitRate, history.Sent)
		for i := range 2 * limitRate {
			s.runs(60+i*500/limitRate, 5, "w1", "l", i, 1, history.Handled)
		}
	}},
	"handled once for each subscription": {plant: func(s *script) {
		s.sends(50, "s", Shared, 2, history.Sent)
		for part := range 2 {
			s.runs(60, 5, "w1", "s", part, 1, history.Handled)
			s.audits(62, 5, "w1", "s", part, 1, history.Handled)
		}
	}},
	"lost for one subscription": {want: Lost, plant: func(s *script) {
		s.sends(50, "s", Shared, 1, history.Sent)
		s.runs(60, 5, "w1", "s", 0, 1, history.Handled)
	}},
	"twice for one subscription": {want: Twice, plant: func(s *script) {
		s.sends(50, "s", Shared, 1, history.Sent)
		s.runs(60, 5, "w1", "s", 0, 1, history.Handled)
		s.audits(60, 5, "w1", "s", 0, 1, history.Handled)
		s.audits(90, 5, "w2", "s", 0, 2, history.Handled)
	}},
	"no answer, and it came for one subscription": {want: Half, plant: func(s *script) {
		s.sends(50, "s", Shared, 1, "")
		s.audits(60, 5, "w1", "s", 0, 1, history.Handled)
	}},
	"for a subscription that the queue has not": {want: Invented, plant: func(s *script) {
		s.sends(50, "s", Plain, 1, history.Sent)
		s.runs(60, 5, "w1", "s", 0, 1, history.Handled)
		s.audits(60, 5, "w1", "s", 0, 1, history.Handled)
	}},
	"under one dedupe key, and all are told of one": {plant: func(s *script) {
		s.dedupes(50, "a", "a", "k1")
		s.dedupes(51, "b", "a", "k1")
		s.dedupes(52, "c", "c", "k2")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
		s.runs(60, 5, "w1", "c", 0, 1, history.Handled)
	}},
	"under one dedupe key, and that of a sender without an answer came": {plant: func(s *script) {
		s.sends(50, "a", Deduped, 1, Unsure)
		s.dedupes(51, "b", "a", "k")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
	}},
	"under one dedupe key, and the first rolled back": {plant: func(s *script) {
		s.sends(50, "a", Deduped, 1, RolledBack)
		s.dedupes(51, "b", "b", "k")
		s.runs(60, 5, "w1", "b", 0, 1, history.Handled)
	}},
	"under one dedupe key two came": {want: NotOne, plant: func(s *script) {
		s.dedupes(50, "a", "a", "k")
		s.sends(51, "b", Deduped, 1, "")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
		s.runs(60, 5, "w1", "b", 0, 1, history.Handled)
	}},
	"under one dedupe key two were told": {want: NotOne, plant: func(s *script) {
		s.dedupes(50, "b", "b", "k")
		s.dedupes(51, "a", "a", "k")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
	}},
	"under one dedupe key, and none came": {want: Lost, plant: func(s *script) {
		s.dedupes(50, "a", "a", "k")
		s.dedupes(51, "b", "a", "k")
	}},
	"under one dedupe key, and another came than was told": {want: Mistaken, plant: func(s *script) {
		s.sends(50, "a", Deduped, 1, Unsure)
		s.dedupes(51, "b", "b", "k")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
	}},
	"under one dedupe key, and one that was rolled back came": {want: Ghost, plant: func(s *script) {
		s.sends(50, "a", Deduped, 1, RolledBack)
		s.dedupes(51, "b", "a", "k")
		s.runs(60, 5, "w1", "a", 0, 1, history.Handled)
	}},
	"refused under a dedupe key, for another who uses it was struck": {plant: func(s *script) {
		s.strikes(40, 52, Pause, "w1")
		s.sends(50, "r", Deduped, 1, Refused)
	}},
}
