package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// Histories in which faults explain everything hold, and each planted fault is
// found for what it is.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	effect := func(s *script, ms int, token string) {
		s.at(ms, history.Event{Kind: Effect, Token: token})
	}
	for name, c := range map[string]struct {
		plant func(*script)
		want  Rule // "" for none
		kinds []Fault
		open  bool // nobody says that it ended well
		busy  bool // everybody is
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
		"refused because somebody else was struck": {want: NoReason, plant: func(s *script) {
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
		"a first attempt that nobody saw, long after the machine stood still": {want: Twice, plant: func(s *script) {
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
		"a first attempt that nobody saw": {want: Twice, plant: func(s *script) {
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
		"an effect of what was rolled back": {want: Ghost, plant: func(s *script) {
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
		"a mail that nobody got": {want: Lost, plant: func(s *script) {
			s.sends(50, "m", Mails, 1, history.Sent)
			s.runs(60, 1, "w1", "m", 0, 1, "")
		}},
		"a mail that somebody claims to have delivered": {want: NotMailed, plant: func(s *script) {
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
		"relayed, and nobody has it": {want: Lost, plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.runs(60, 0, "w1", "m", 0, 1, "")
		}},
		"relayed twice in one call": {want: NotMailed, plant: func(s *script) {
			s.sends(50, "m", Relayed, 1, history.Sent)
			s.runs(60, 5, "w1", "m", 0, 1, history.Handled)
			effect(s, 130_000, "m")
			effect(s, 130_000, "m")
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
		"rescued late, for the machine stood still": {plant: func(s *script) {
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
		"nobody can send when the database is back": {want: LateFlow, plant: func(s *script) {
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
		"everybody is busy": {busy: true, plant: func(s *script) { s.everybody(func(int, string) bool { return false }) }},
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
		"a fault that strikes nobody":            {want: StruckNone, kinds: []Fault{KillWorker}, plant: func(s *script) { s.strikes(70, 70, KillWorker, "w1") }},
		"a fault that missed what was in flight": {want: StruckNone, kinds: []Fault{Heartbeat}, plant: func(s *script) { s.misses(22, Heartbeat, "w1") }},
		"a fault that strikes":                   {kinds: []Fault{KillWorker}, plant: func(s *script) { s.strikes(22, 22, KillWorker, "w1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			c.plant(s)
			if !c.open {
				s.ended()
			}
			v, err := Check(s.sorted(), Bounds{Kinds: c.kinds, Busy: c.busy})
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

// A report tells what was found, and of many violations of a rule a few.
func TestReport(t *testing.T) {
	t.Parallel()
	s := begun()
	s.strikes(22, 22, KillWorker, "w1")
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
	if strings.Contains(text.String(), "l.5 ") {
		t.Errorf("all are told:\n%s", text.String())
	}
}

// What is no history is refused, and proves nothing.
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
