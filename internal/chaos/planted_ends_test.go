package chaos

import (
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// plantedEnds are histories of at-most-once queues, rescues, restarts and ends of runs.
var plantedEnds = map[string]planted{
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
	"all processes are busy": {busy: true, plant: func(s *script) { s.keepsBusy(func(int, string) bool { return false }) }},
	"a worker does nothing when the database is back": {want: LateFlow, busy: true, plant: func(s *script) {
		s.strikes(20_100, 20_500, Fast, "")
		s.keepsBusy(func(ms int, who string) bool { return who == "w2" && 20_000 < ms && ms < 26_000 })
	}},
	"a worker that was struck does nothing when the database is back": {busy: true, plant: func(s *script) {
		s.strikes(20_100, 20_500, Fast, "")
		s.strikes(20_200, 21_500, HalfOpen, "w2")
		s.keepsBusy(func(ms int, who string) bool { return who == "w2" && 20_000 < ms && ms < 26_000 })
	}},
	"a worker hangs": {want: Hung, busy: true, plant: func(s *script) {
		s.keepsBusy(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
	}},
	"a worker that was killed does nothing": {busy: true, plant: func(s *script) {
		s.strikes(60_500, 60_500, KillWorker, "w2")
		s.keepsBusy(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
	}},
	"a worker that was asked to end does nothing": {busy: true, plant: func(s *script) {
		s.at(60_500, history.Event{Kind: Asked, Whom: "w2"})
		s.keepsBusy(func(ms int, who string) bool { return who == "w2" && ms > 60_000 })
	}},
	"a sender hangs": {want: Hung, busy: true, plant: func(s *script) {
		s.born(0, roleSender, "s2")
		s.keepsBusy(func(int, string) bool { return false })
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
}
