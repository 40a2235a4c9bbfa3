package chaos

import "github.com/posthaste-mq/posthaste/internal/history"

// plantedDeliveries are histories of mails and relayed messages.
var plantedDeliveries = map[string]planted{
	"a mail": {plant: func(s *script) {
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 1, "w1", "m", 0, 1, history.Handled)
		s.effects(130_000, "m")
	}},
	"a mail, and its worker killed before it was settled": {plant: func(s *script) {
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 1, "w1", "m", 0, 1, "")
		s.strikes(70, 70, KillWorker, "w1")
		s.runs(10_080, 1, "w2", "m", 0, 2, history.Handled)
		s.effects(130_000, "m")
		s.effects(130_000, "m")
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
		s.effects(130_000, "m")
		s.effects(130_000, "m")
	}},
	"relayed again after a fault of the broker": {plant: func(s *script) {
		s.sends(50, "m", Relayed, 1, history.Sent)
		s.strikes(60, 70, CutConfirm, "")
		s.runs(60, 5, "w1", "m", 0, 1, history.Failed)
		s.runs(200, 5, "w1", "m", 0, 2, history.Handled)
		s.effects(130_000, "m")
		s.effects(130_000, "m")
	}, kinds: []Fault{CutConfirm}},
	"relayed by two calls of a process, because the store crashed and lost the claim of the first": {plant: func(s *script) {
		s.relaysAfterACrash("w1", "w1")
	}, kinds: []Fault{KillPostgres}},
	"relayed by calls of two processes, although only a crash before them may have lost a claim": {want: Attempts, plant: func(s *script) {
		s.relaysAfterACrash("w1", "w2")
	}, kinds: []Fault{KillPostgres}},
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
		s.effects(130_000, "m")
		s.effects(130_000, "m")
	}},
	"a mail of the shipped worker, and that killed before it was settled": {plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
		s.strikes(70, 70, KillWorker, "m1")
		s.runs(10_080, 5, "m2", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(10_080, "m")
	}},
	"a mail of the shipped worker twice, without reason": {want: Twice, plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
		s.runs(80, 5, "m2", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(80, "m")
	}},
	"a mail of the shipped worker twice, and another one was killed": {want: Twice, plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
		s.runs(80, 5, "m1", "m", 0, 0, history.Handled)
		s.strikes(9000, 9000, KillWorker, "m2")
		s.effects(60, "m")
		s.effects(80, "m")
	}},
	"a mail whose answer was lost comes again": {kinds: []Fault{CutMails}, plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.strikes(55, 90, CutMails, "")
		s.runs(60, 5, "m1", "m", 0, 0, history.Failed)
		s.runs(200, 5, "m2", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(200, "m")
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
		s.effects(10_500, "m")
		s.effects(13_010, "m")
	}},
	"a mail server that answers a worker after its death": {plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
		s.strikes(70, 70, KillWorker, "m1")
		s.runs(10_080, 5, "m2", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(10_080, "m")
	}},
	"a mail rescued late": {want: LateRescue, plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
		s.strikes(70, 70, KillWorker, "m1")
		s.runs(13_500, 5, "m2", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(13_500, "m")
	}},
	"a mail rescued late, for its rescuer was killed as well": {plant: func(s *script) {
		s.born(0, roleMailWorker, "m1", "m2", "m3")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 50, "m1", "m", 0, 0, history.Handled)
		s.strikes(70, 70, KillWorker, "m1")
		s.strikes(10_500, 10_500, KillWorker, "m2")
		s.runs(20_600, 5, "m3", "m", 0, 0, history.Handled)
		s.effects(60, "m")
		s.effects(20_600, "m")
	}},
	"a mail under another message's id": {want: Mistaken, plant: func(s *script) {
		s.born(0, roleMailWorker, "m1")
		s.sends(50, "m", Mails, 1, history.Sent)
		s.runs(60, 5, "m1", "m", 0, 0, history.Handled)
		s.events[len(s.events)-2].ID++
		s.effects(60, "m")
	}},
	"relayed at the second attempt, because the broker was away": {plant: func(s *script) {
		s.born(0, roleRelay, "r1")
		s.sends(50, "m", Relayed, 1, history.Sent)
		s.strikes(40, 900, KillBroker, "")
		s.runs(1000, 5, "r1", "m", 0, 2, history.Handled)
		s.effects(130_000, "m")
	}},
	"a relay that ended before its connection was seen to end": {plant: func(s *script) {
		s.born(0, roleRelay, "r1", "r2")
		s.sends(50, "m", Relayed, 1, history.Sent)
		s.at(60, history.Event{Kind: Asked, Whom: "r1"})
		s.runs(100, 50, "r1", "m", 0, 1, history.Failed)
		s.at(120, history.Event{Kind: Died, Whom: "r1", Note: Ended})
		s.runs(1200, 5, "r2", "m", 0, 2, history.Handled)
		s.effects(130_000, "m")
	}},
	"relayed at the second attempt, and nothing had happened": {want: Twice, plant: func(s *script) {
		s.born(0, roleRelay, "r1")
		s.sends(50, "m", Relayed, 1, history.Sent)
		s.runs(1000, 5, "r1", "m", 0, 2, history.Handled)
		s.effects(130_000, "m")
	}},
	"a relay does nothing while its broker is away": {busy: true, plant: func(s *script) {
		s.born(0, roleRelay, "r1")
		s.strikes(10, 94_900, BrokerAlarm, "")
		s.keepsBusy(func(int, string) bool { return false })
	}},
	"a relay hangs": {want: Hung, busy: true, plant: func(s *script) {
		s.born(0, roleRelay, "r1")
		s.keepsBusy(func(int, string) bool { return false })
	}},
	"a fault of the broker explains nothing elsewhere": {want: Twice, plant: func(s *script) {
		s.strikes(15, 40, KillBroker, "")
		s.runs(300, 5, "w2", "p", 0, 2, history.Handled)
	}},
	"a broker killed while nothing was relayed": {want: StruckNone, plant: func(s *script) { s.strikes(15, 40, KillBroker, "") }, kinds: []Fault{KillBroker}},
}

// relaysAfterACrash relays a message that was sent before a crash by two overlapping calls.
func (s *script) relaysAfterACrash(first, second string) {
	s.sends(50, "m", Relayed, 1, history.Sent)
	s.sends(50, "t", Plain, 1, history.Sent)
	s.runs(60, 10, "w1", "t", 0, 1, history.Handled)
	s.strikes(65, 1000, KillPostgres, "")
	s.sends(1100, "after", Plain, 1, history.Sent)
	s.runs(1110, 1, "w2", "after", 0, 1, history.Handled)
	s.runs(5000, 500, first, "m", 0, 1, history.Handled)
	s.runs(5100, 500, second, "m", 0, 1, history.Handled)
	s.effects(130_000, "m")
	s.effects(130_000, "m")
}
