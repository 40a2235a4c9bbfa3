package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// Histories in which faults explain everything pass, and each planted fault is found under its
// rule.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	effect := func(s *script, ms int, token string) {
		s.at(ms, history.Event{Kind: Effect, Token: token})
	}
	for name, c := range map[string]struct {
		plant func(*script)
		want  Rule // "" for none
		kinds []Fault
		open  bool // without an event of a good end
		busy  bool // all processes are busy
	}{
		"all is well": {plant: func(s *script) {}},
		"a lost one":  {want: Lost, plant: func(s *script) { s.sends(50, "l", Plain, 1, history.Sent) }},
		"a lost one that was started": {want: Lost, plant: func(s *script) {
			s.sends(50, "l", Plain, 1, history.Sent)
			s.runs(60, 0, "w1", "l", 0, 1, "")
		}},
		"run again by the process that runs it": {want: Twice, plant: func(s *script) {
			s.sends(50, "again", Plain, 1, history.Sent)
			s.runs(60, 30, "w1", "again", 0, 1, history.Handled)
			s.runs(80, 30, "w1", "again", 0, 2, history.Handled)
		}},
		"no answer, and all came": {plant: func(s *script) {
			s.sends(50, "u", Plain, 2, Unsure)
			s.runs(60, 1, "w1", "u", 0, 1, history.Handled)
			s.runs(60, 1, "w1", "u", 1, 1, history.Handled)
		}},
		"no answer, and none came": {plant: func(s *script) { s.sends(50, "u", Plain, 2, "") }},
		"no answer, and half came": {want: Half, plant: func(s *script) {
			s.sends(50, "u", Plain, 2, "")
			s.runs(60, 1, "w1", "u", 0, 1, history.Handled)
		}},
		"rolled back": {plant: func(s *script) { s.sends(50, "r", Plain, 2, RolledBack) }},
		"rolled back and handed out": {want: Ghost, plant: func(s *script) {
			s.sends(50, "r", Plain, 1, RolledBack)
			s.runs(60, 1, "w1", "r", 0, 1, history.Handled)
		}},
		"refused and handed out": {want: Ghost, plant: func(s *script) {
			s.strikes(40, 52, Cut, "s")
			s.sends(50, "r", Plain, 1, Refused)
			s.runs(60, 1, "w1", "r", 0, 1, history.Handled)
		}},
		"refused because the sender was struck": {plant: func(s *script) {
			s.strikes(40, 52, Cut, "s")
			s.sends(50, "r", Plain, 1, Refused)
		}},
		"refused, and nothing had happened": {want: NoReason, plant: func(s *script) { s.sends(50, "r", Plain, 1, Refused) }},
		"refused because another process was struck": {want: NoReason, plant: func(s *script) {
			s.strikes(40, 52, Cut, "w1")
			s.sends(50, "r", Plain, 1, Refused)
		}},
		"refused because of what strikes no sender": {want: NoReason, plant: func(s *script) {
			s.strikes(40, 9000, Backup, "")
			s.sends(50, "r", Plain, 1, Refused)
		}},
		"refused while the server started": {plant: func(s *script) {
			s.born(0, roleServer, "server")
			s.born(0, roleHTTPSender, "h")
			s.sends(50, "r", Plain, 1, Refused)
			s.events[len(s.events)-1].Process, s.events[len(s.events)-2].Process = "h", "h"
		}},
		"refused while the machine stood still": {plant: func(s *script) {
			s.at(1100, history.Event{Kind: Stalled, Took: time.Second})
			s.sends(50, "r", Plain, 1, Refused)
		}},
		"still refused when the database has been back for long": {want: NoReason, plant: func(s *script) {
			s.strikes(40, 1000, Fast, "")
			s.sends(50, "r", Plain, 1, Refused)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w1", "after", 0, 1, history.Handled)
			s.sends(6500, "s", Plain, 1, Refused)
		}},
		"invented": {want: Invented, plant: func(s *script) { s.runs(60, 1, "w1", "x", 0, 1, history.Handled) }},
		"under another id": {want: Mistaken, plant: func(s *script) {
			s.sends(50, "m", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, history.Handled)
			s.events[len(s.events)-2].ID++
		}},
		"altered": {want: Altered, plant: func(s *script) { s.at(60, history.Event{Kind: Damaged, Token: "p"}) }},
		"run again after a failure": {plant: func(s *script) {
			s.sends(50, "f", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "f", 0, 1, history.Failed)
			s.runs(80, 1, "w2", "f", 0, 2, history.Handled)
		}},
		"run again for no reason": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.runs(80, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"run again after another worker's death": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 70, KillWorker, "w2")
			s.born(75, roleWorker, "w3")
			s.runs(10_080, 1, "w3", "t", 0, 2, history.Handled)
		}},
		"run again after its worker's death": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 70, KillWorker, "w1")
			s.runs(10_080, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"run again long after it was settled": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(9000, 9000, KillWorker, "w1")
			s.runs(19_080, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"more run again than was in flight": {want: TooMany, plant: func(s *script) {
			s.sends(50, "t", Plain, 9, history.Sent)
			for i := range 9 {
				s.runs(60, 1, "w1", "t", i, 1, history.Handled)
				s.runs(10_080, 1, "w2", "t", i, 2, history.Handled)
			}
			s.strikes(70, 70, KillWorker, "w1")
		}},
		"the same attempt again": {want: Attempts, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.runs(10_080, 1, "w2", "t", 0, 1, history.Handled)
		}},
		"the same attempt again after a crash": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 1000, KillPostgres, "")
			s.runs(1080, 1, "w2", "t", 0, 1, history.Handled)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"an unseen first attempt, long after the machine stood still": {want: Twice, plant: func(s *script) {
			s.at(3000, history.Event{Kind: Stalled, Took: time.Second})
			s.sends(90_000, "t", Plain, 1, history.Sent)
			s.runs(90_010, 1, "w1", "t", 0, 2, history.Handled)
		}},
		"more run again after a crash than can have been unsettled": {want: TooMany, plant: func(s *script) {
			s.sends(50, "t", Plain, 9, history.Sent)
			for i := range 9 {
				s.runs(60, 1, "w1", "t", i, 1, history.Handled)
				s.runs(1080, 1, "w2", "t", i, 1, history.Handled)
			}
			s.strikes(70, 1000, KillPostgres, "")
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"as many run again after a crash as were running": {plant: func(s *script) {
			s.sends(50, "t", Plain, 9, history.Sent)
			for i := range 9 {
				s.runs(60, 100, "w1", "t", i, 1, history.Handled)
				s.runs(1080, 1, "w2", "t", i, 2, history.Handled)
			}
			s.strikes(70, 1000, KillPostgres, "")
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"the same attempt again after the disk was full, which PostgreSQL outlived": {want: Attempts, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 1000, DiskFull, "")
			s.runs(1080, 1, "w2", "t", 0, 1, history.Handled)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"the same attempt again after the disk was full, which ended PostgreSQL": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 1000, DiskFull, "")
			s.events[len(s.events)-1].Note = Crashed
			s.runs(1080, 1, "w2", "t", 0, 1, history.Handled)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"an unseen first attempt": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 2, history.Handled)
		}},
		"stopped for less than its lease": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 5500, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 5500, Pause, "w1")
			s.runs(5000, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"stopped for longer than its lease": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 13_000, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 13_000, LongPause, "w1")
			s.runs(11_000, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"run again after Redis was killed, which loses nothing": {want: Twice, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 1000, KillRedis, "")
			s.runs(1080, 1, "w2", "t", 0, 2, history.Handled)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"the same attempt again after Redis was killed": {want: Attempts, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 1000, KillRedis, "")
			s.runs(1080, 1, "w2", "t", 0, 1, history.Handled)
			s.sends(1100, "after", Plain, 1, history.Sent)
			s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"run again after Redis was away for most of a lease, which runs on": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, history.Handled)
			s.strikes(70, 7000, ShutRedis, "")
			s.runs(10_080, 1, "w2", "t", 0, 2, history.Handled)
			s.sends(7100, "after", Plain, 1, history.Sent)
			s.runs(7110, 1, "w2", "after", 0, 1, history.Handled)
		}},
		"Redis out of memory explains nothing": {want: Twice, plant: func(s *script) {
			s.strikes(15, 4000, FullMemory, "")
			s.runs(4100, 5, "w2", "p", 0, 2, history.Handled)
		}},
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
			effect(s, 130_000, "e")
		}},
		"an effect that was rolled back": {want: Lost, plant: func(s *script) {
			s.sends(50, "e", Effects, 1, history.Sent)
			s.runs(60, 1, "w1", "e", 0, 1, history.Handled)
		}},
		"two effects": {want: NotOnce, plant: func(s *script) {
			s.sends(50, "e", Effects, 1, history.Sent)
			s.runs(60, 1, "w1", "e", 0, 1, history.Handled)
			effect(s, 130_000, "e")
			effect(s, 130_000, "e")
		}},
		"an effect of a rolled back message": {want: Ghost, plant: func(s *script) {
			s.sends(50, "e", Effects, 1, RolledBack)
			effect(s, 130_000, "e")
		}},
		"a mail": {plant: func(s *script) {
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, history.Handled)
			effect(s, 130_000, "m")
		}},
		"a mail, and its worker killed before it was settled": {plant: func(s *script) {
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.runs(10_080, 1, "w2", "m", 0, 2, history.Handled)
			effect(s, 130_000, "m")
			effect(s, 130_000, "m")
		}},
		"a mail that did not arrive": {want: Lost, plant: func(s *script) {
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, "")
		}},
		"a mail that a worker claims to have delivered": {want: NotMailed, plant: func(s *script) {
			s.sends(50, "m", Mails, 1, Unsure)
			s.runs(60, 1, "w1", "m", 0, 1, history.Handled)
		}},
		"a mail twice in one call": {want: NotMailed, plant: func(s *script) {
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, history.Handled)
			effect(s, 130_000, "m")
			effect(s, 130_000, "m")
		}},
		"relayed again after a fault of the broker": {plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.strikes(60, 70, CutConfirm, "")
			s.runs(60, 5, "w1", "m", 0, 1, history.Failed)
			s.runs(200, 5, "w1", "m", 0, 2, history.Handled)
			effect(s, 130_000, "m")
			effect(s, 130_000, "m")
		}, kinds: []Fault{CutConfirm}},
		"settled as relayed, and the broker does not have it": {want: NotMailed, plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, Unsure)
			s.runs(60, 5, "w1", "m", 0, 1, history.Handled)
		}},
		"relayed, and not at the broker": {want: Lost, plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.runs(60, 0, "w1", "m", 0, 1, "")
		}},
		"relayed twice in one call": {want: NotMailed, plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.runs(60, 5, "w1", "m", 0, 1, history.Handled)
			effect(s, 130_000, "m")
			effect(s, 130_000, "m")
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
		"a mail of the shipped worker, and that killed before it was settled": {plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
			s.strikes(70, 70, KillWorker, "m1")
			s.runs(10_080, 5, "m2", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 10_080, "m")
		}},
		"a mail of the shipped worker twice, without reason": {want: Twice, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
			s.runs(80, 5, "m2", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 80, "m")
		}},
		"a mail of the shipped worker twice, and another one was killed": {want: Twice, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
			s.runs(80, 5, "m1", "m", 0, 0, history.Handled)
			s.strikes(9000, 9000, KillWorker, "m2")
			effect(s, 60, "m")
			effect(s, 80, "m")
		}},
		"a mail whose answer was lost comes again": {kinds: []Fault{CutMails}, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.strikes(55, 90, CutMails, "")
			s.runs(60, 5, "m1", "m", 0, 0, history.Failed)
			s.runs(200, 5, "m2", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 200, "m")
		}},
		"a fault of the mail server explains nothing elsewhere": {want: Twice, plant: func(s *script) {
			s.strikes(15, 40, CutMails, "")
			s.runs(300, 5, "w2", "p", 0, 2, history.Handled)
		}},
		"more mails twice than a shipped worker has in flight": {want: TooMany, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 9, history.Sent)
			for i := range 9 {
				s.runs(60, 5, "m1", "m", i, 0, history.Handled)
				s.runs(10_080, 5, "m2", "m", i, 0, history.Handled)
				s.at(60, history.Event{Kind: Effect, Token: "m", Part: i})
				s.at(10_080, history.Event{Kind: Effect, Token: "m", Part: i})
			}
			s.strikes(70, 70, KillWorker, "m1")
		}},
		"a shipped worker that stood still goes on after another had its mail": {plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.strikes(70, 13_000, LongPause, "m1")
			s.runs(10_500, 5, "m2", "m", 0, 0, history.Handled)
			s.runs(13_010, 5, "m1", "m", 0, 0, history.Handled)
			effect(s, 10_500, "m")
			effect(s, 13_010, "m")
		}},
		"a mail server that answers a worker after its death": {plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
			s.strikes(70, 70, KillWorker, "m1")
			s.runs(10_080, 5, "m2", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 10_080, "m")
		}},
		"a mail rescued late": {want: LateRescue, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
			s.strikes(70, 70, KillWorker, "m1")
			s.runs(13_500, 5, "m2", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 13_500, "m")
		}},
		"a mail rescued late, for its rescuer was killed as well": {plant: func(s *script) {
			s.born(0, roleMailWorker, "m1", "m2", "m3")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
			s.strikes(70, 70, KillWorker, "m1")
			s.strikes(10_500, 10_500, KillWorker, "m2")
			s.runs(20_600, 5, "m3", "m", 0, 0, history.Handled)
			effect(s, 60, "m")
			effect(s, 20_600, "m")
		}},
		"a mail under another message's id": {want: Mistaken, plant: func(s *script) {
			s.born(0, roleMailWorker, "m1")
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
			s.events[len(s.events)-2].ID++
			effect(s, 60, "m")
		}},
		"relayed at the second attempt, because the broker was away": {plant: func(s *script) {
			s.born(0, roleRelay, "r1")
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.strikes(40, 900, KillBroker, "")
			s.runs(1000, 5, "r1", "m", 0, 2, history.Handled)
			effect(s, 130_000, "m")
		}},
		"a relay that ended before its connection was seen to end": {plant: func(s *script) {
			s.born(0, roleRelay, "r1", "r2")
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.at(60, history.Event{Kind: Asked, Whom: "r1"})
			s.runs(100, 50, "r1", "m", 0, 1, history.Failed)
			s.at(120, history.Event{Kind: Died, Whom: "r1", Note: Ended})
			s.runs(1200, 5, "r2", "m", 0, 2, history.Handled)
			effect(s, 130_000, "m")
		}},
		"relayed at the second attempt, and nothing had happened": {want: Twice, plant: func(s *script) {
			s.born(0, roleRelay, "r1")
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.runs(1000, 5, "r1", "m", 0, 2, history.Handled)
			effect(s, 130_000, "m")
		}},
		"a relay does nothing while its broker is away": {busy: true, plant: func(s *script) {
			s.born(0, roleRelay, "r1")
			s.strikes(10, 94_900, BrokerAlarm, "")
			s.everybody(func(int, string) bool { return false })
		}},
		"a relay hangs": {want: Hung, busy: true, plant: func(s *script) {
			s.born(0, roleRelay, "r1")
			s.everybody(func(int, string) bool { return false })
		}},
		"a fault of the broker explains nothing elsewhere": {want: Twice, plant: func(s *script) {
			s.strikes(15, 40, KillBroker, "")
			s.runs(300, 5, "w2", "p", 0, 2, history.Handled)
		}},
		"a broker killed while nothing was relayed": {want: StruckNone, plant: func(s *script) { s.strikes(15, 40, KillBroker, "") }, kinds: []Fault{KillBroker}},
		"at most once, twice": {want: MoreThan, plant: func(s *script) {
			s.sends(50, "a", Once, 1, history.Sent)
			s.runs(60, 1, "w1", "a", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.runs(10_080, 1, "w2", "a", 0, 2, history.Handled)
		}},
		"at most once, lost with its worker": {plant: func(s *script) {
			s.sends(50, "a", Once, 4, history.Sent)
			s.strikes(70, 70, KillWorker, "w1")
		}},
		"at most once, lost for no reason": {want: TooMany, plant: func(s *script) { s.sends(50, "a", Once, 1, history.Sent) }},
		"at most once, more lost than a worker has": {want: TooMany, plant: func(s *script) {
			s.sends(50, "a", Once, 5, history.Sent)
			s.strikes(70, 70, KillWorker, "w1")
		}},
		"at most once, lost with a claim whose answer was": {plant: func(s *script) {
			s.sends(50, "a", Once, 3, history.Sent)
			s.strikes(70, 70, Cut, "w1")
		}},
		"at most once, lost with a claim that went on after its worker's death": {plant: func(s *script) {
			s.strikes(50, 50, KillWorker, "w1")
			s.sends(60, "a", Once, 3, history.Sent)
		}},
		"at most once, half lost, and a worker killed much later": {want: TooMany, plant: func(s *script) {
			for i := range 8 {
				token := fmt.Sprint("a", i)
				s.sends(1000*(i+1), token, Once, 1, history.Sent)
				if i%2 == 1 {
					s.runs(1000*(i+1)+10, 1, "w1", token, 0, 1, history.Handled)
				}
			}
			s.strikes(20_000, 20_000, KillWorker, "w2")
		}},
		"at most once, handed to a worker and not started when it was killed": {plant: func(s *script) {
			s.sends(50, "a", Once, 8, history.Sent)
			s.at(60, history.Event{Kind: Claimed, Process: "w1", Queue: Once, Count: 8})
			s.runs(70, 1, "w1", "a", 0, 1, history.Handled)
			s.sends(1000, "b", Once, 1, history.Sent)
			s.runs(1010, 1, "w2", "b", 0, 1, history.Handled)
			s.strikes(9000, 9000, KillWorker, "w1")
		}},
		"at most once, more lost with a worker than it had been handed": {want: TooMany, plant: func(s *script) {
			s.sends(50, "a", Once, 8, history.Sent)
			s.at(60, history.Event{Kind: Claimed, Process: "w1", Queue: Once, Count: 7})
			s.runs(70, 1, "w1", "a", 0, 1, history.Handled)
			s.sends(1000, "b", Once, 1, history.Sent)
			s.runs(1010, 1, "w2", "b", 0, 1, history.Handled)
			s.strikes(9000, 9000, KillWorker, "w1")
		}},
		"a claim left behind": {want: Behind, plant: func(s *script) { s.at(130_000, history.Event{Kind: Left, Note: "open claims", Count: 1}) }},
		"rescued late": {want: LateRescue, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.runs(13_500, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"rescued late, in a queue that was behind": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.sends(11_000, "b", Plain, 1, history.Sent)
			s.runs(13_400, 1, "w2", "b", 0, 1, history.Handled)
			s.runs(13_500, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"rescued later than its queue was behind": {want: LateRescue, plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.sends(13_000, "b", Plain, 1, history.Sent)
			s.runs(13_400, 1, "w2", "b", 0, 1, history.Handled)
			s.runs(13_700, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"rescued late, because the machine stood still": {plant: func(s *script) {
			s.sends(50, "t", Plain, 1, history.Sent)
			s.runs(60, 1, "w1", "t", 0, 1, "")
			s.strikes(70, 70, KillWorker, "w1")
			s.at(12_000, history.Event{Kind: Stalled, Took: time.Second})
			s.runs(13_500, 1, "w2", "t", 0, 2, history.Handled)
		}},
		"nothing flows when the database is back": {want: LateFlow, plant: func(s *script) {
			s.strikes(70, 1000, KillPostgres, "")
			s.sends(1100, "l", Plain, 1, history.Sent)
			s.runs(6200, 1, "w1", "l", 0, 1, history.Handled)
		}},
		"no process can send when the database is back": {want: LateFlow, plant: func(s *script) {
			s.sends(50, "l", Plain, 1, history.Sent)
			s.strikes(70, 1000, Fast, "")
			s.runs(1100, 1, "w1", "l", 0, 1, history.Handled)
			s.sends(7000, "m", Plain, 1, history.Sent)
			s.runs(7200, 1, "w1", "m", 0, 1, history.Handled)
		}},
		"one queue stands when the database is back": {want: LateFlow, plant: func(s *script) {
			s.strikes(70, 1000, Fast, "")
			s.sends(1100, "p2", Plain, 1, history.Sent)
			s.runs(1110, 1, "w1", "p2", 0, 1, history.Handled)
			s.sends(1200, "o", Ordered, 1, history.Sent)
			s.runs(6300, 1, "w1", "o", 0, 1, history.Handled)
		}},
		"all processes are busy": {busy: true, plant: func(s *script) { s.everybody(func(int, string) bool { return false }) }},
		"a worker does nothing when the database is back": {want: LateFlow, busy: true, plant: func(s *script) {
			s.strikes(20_100, 20_500, Fast, "")
			s.everybody(func(ms int, who string) bool { return who == "w2" && 20_000 < ms && ms < 26_000 })
		}},
		"a worker that was struck does nothing when the database is back": {busy: true, plant: func(s *script) {
			s.strikes(20_100, 20_500, Fast, "")
			s.strikes(20_200, 21_500, HalfOpen, "w2")
			s.everybody(func(ms int, who string) bool { return who == "w2" && 20_000 < ms && ms < 26_000 })
		}},
		"a worker hangs": {want: Hung, busy: true, plant: func(s *script) {
			s.everybody(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
		}},
		"a worker that was killed does nothing": {busy: true, plant: func(s *script) {
			s.strikes(60_500, 60_500, KillWorker, "w2")
			s.everybody(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
		}},
		"a worker that was asked to end does nothing": {busy: true, plant: func(s *script) {
			s.at(60_500, history.Event{Kind: Asked, Whom: "w2"})
			s.everybody(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
		}},
		"a sender hangs": {want: Hung, busy: true, plant: func(s *script) {
			s.born(0, roleSender, "s2")
			s.everybody(func(int, string) bool { return false })
		}},
		"a process ends by itself":               {want: Quit, plant: func(s *script) { s.at(60, history.Event{Kind: Died, Whom: "w1", Note: Failed}) }},
		"it does not end":                        {want: NotDrained, open: true, plant: func(s *script) {}},
		"a fault that strikes no process":        {want: StruckNone, kinds: []Fault{KillWorker}, plant: func(s *script) { s.strikes(70, 70, KillWorker, "w1") }},
		"a fault that missed messages in flight": {want: StruckNone, kinds: []Fault{Heartbeat}, plant: func(s *script) { s.misses(22, Heartbeat, "w1") }},
		"a fault left out of a long run": {want: NotTried, plant: func(s *script) {
			s.long()
			s.leavesOut(DiskFull, "mounting is not allowed here", 0)
		}},
		"a fault left out of a long run as it was asked for": {plant: func(s *script) {
			s.long()
			s.leavesOut(DiskFull, "it was asked for", 1)
		}},
		"a fault left out of a short run": {plant: func(s *script) { s.leavesOut(DiskFull, "mounting is not allowed here", 0) }},
		"the ring stands in a long run": {want: Stands, plant: func(s *script) {
			s.long()
			s.at(130_000, history.Event{Kind: Turned})
		}},
		"the ring goes on in a long run": {plant: func(s *script) {
			s.long()
			s.at(130_000, history.Event{Kind: Turned, Count: 1})
		}},
		"the ring stands in a short run":         {plant: func(s *script) { s.at(130_000, history.Event{Kind: Turned}) }},
		"a long run on an engine without a ring": {plant: func(s *script) { s.long() }},
		"a fault that strikes":                   {kinds: []Fault{KillWorker}, plant: func(s *script) { s.strikes(22, 22, KillWorker, "w1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			c.plant(s)
			if !c.open {
				s.ended()
			}
			for _, kind := range c.kinds {
				s.at(0, history.Event{Kind: Wanted, Note: string(kind)})
			}
			v, err := Check(s.sorted(), Bounds{Busy: c.busy})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && len(v.Violations) > 0 {
				t.Errorf("found %v", v.Violations)
			}
			if c.want != "" && !v.Broke(c.want) {
				t.Errorf("did not find %q, but %v", c.want, v.Violations)
			}
			for _, b := range v.Violations {
				if b.Rule != c.want {
					t.Errorf("found %v, too", b)
				}
			}
		})
	}
}

// A report shows the findings, and only a few violations of each rule.
func TestReport(t *testing.T) {
	t.Parallel()
	s := begun()
	s.strikes(22, 22, KillWorker, "w1")
	s.leavesOut(DiskFull, "a reason", 0)
	s.leavesOut(KillBroker, "another", 1)
	s.leavesOut(Slow, "a reason", 0)
	s.sends(50, "l", Plain, 20, history.Sent)
	v, err := Check(s.ended().sorted(), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	v.Report(&text)
	for _, want := range []string{"worker killed", "BROKEN lost: l.4 of plain", "BROKEN lost: 15 more"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if want := "left out (a reason): disk full, connections slowed\nleft out (another): broker killed\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
	if strings.Contains(text.String(), "l.5 ") {
		t.Errorf("all are told:\n%s", text.String())
	}
}

// Invalid histories are rejected.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]history.Event{
		"an answer to nothing": {{Kind: history.Sent, Token: "x"}},
		"a token twice":        {{Kind: Intent, Token: "x", Count: 1}, {Kind: Intent, Token: "x", Count: 1}},
		"an end of nothing":    {{Kind: Intent, Token: "x", Count: 1}, {Kind: history.Handled, Token: "x"}},
	} {
		if v, err := Check(events, Bounds{}); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v, err := Check(nil, Bounds{}); err != nil || !v.Broke(NothingDone) {
		t.Errorf("an empty history: %+v, %v", v, err)
	}
}
