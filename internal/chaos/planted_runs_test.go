package chaos

import (
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// plantedRuns are histories of sends, losses and messages that ran again.
var plantedRuns = map[string]planted{
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
}
