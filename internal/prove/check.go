package prove

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// settling is how much later than its handler's end a message may be settled: a fault within
// that time explains that the message is handled again. A fault after it does so only if the
// worker had fewer confirmed acknowledgments than handled messages up to this one.
const settling = 2 * time.Second

// flowPatience is how long after a fault messages must flow again.
const flowPatience = 30 * time.Second

// account is the content of the histories.
type account struct {
	sends  map[string]*sendRecord
	order  []string // tokens, by time
	calls  map[place][]*call
	faults []*fault
	begun  time.Duration // the first event
	calm   time.Duration // 0 if the run did not reach it
	// finished counts the handled messages of each process, and settled has its confirmed
	// acknowledgments, by time.
	finished map[string]int
	settled  map[string][]settlement
	// strays are calls of messages that no sender sent.
	strays []history.Event
}

// sendRecord is a send of a sender.
type sendRecord struct {
	count  int
	from   time.Duration
	answer history.Kind // "" if the sender was killed before
}

// settlement is the number of confirmed acknowledgments of a process at a time.
type settlement struct {
	at    time.Duration
	total int
}

// call is a run of a handler. It was cut short if handled is false.
type call struct {
	process  string
	id       posthaste.MessageID
	from, to time.Duration
	handled  bool
	number   int // among the handled messages of its process, from 1
}

// fault is a fault with its consequences.
type fault struct {
	kind     Fault
	whom     string
	number   int
	from, to time.Duration
	down     time.Duration // when its target was gone
	inFlight int
}

// Check accounts for every message by the histories alone. It returns an error if they are
// incomplete.
func Check(events []history.Event) (*Report, error) {
	a, err := read(events)
	if err != nil {
		return nil, err
	}
	r := &Report{Faults: make([]FaultReport, len(a.faults)), Doubles: []Double{}, Broken: []string{}}
	for i, f := range a.faults {
		r.Faults[i] = FaultReport{Number: f.number, Kind: f.kind, Whom: f.whom, At: duration(f.from - a.begun), InFlight: f.inFlight}
	}
	if n := len(events); n > 0 {
		r.Took = duration(events[n-1].At - a.begun)
	}
	for _, token := range a.order {
		a.checkSend(r, token)
	}
	for _, e := range a.strays {
		r.broken("%s got message %s, which no sender sent", e.Process, e.ID)
	}
	if r.Acknowledged == 0 || r.Handled == 0 {
		r.broken("%d messages were acknowledged and %d handled, which proves nothing", r.Acknowledged, r.Handled)
	}
	a.flows(r)
	return r, nil
}

// checkSend accounts for the messages of one send.
func (a *account) checkSend(r *Report, token string) {
	s := a.sends[token]
	r.Attempted += s.count
	arrived := 0
	for part := range s.count {
		p := place{token, part}
		calls := a.calls[p]
		done := 0
		for _, c := range calls {
			if c.handled {
				done++
			}
		}
		if done > 0 {
			arrived++
			r.Handled++
		}
		switch {
		case s.answer == history.Sent && done == 0:
			r.Lost++
			r.broken("lost: message %d of %s was acknowledged to its sender and never handled; handlers began it %d times", part+1, token, len(calls))
		case (s.answer == Refused || s.answer == RolledBack) && len(calls) > 0:
			r.Ghosts++
			r.broken("never sent: message %d of %s was %s, and %s got it", part+1, token, s.answer, calls[0].process)
		}
		a.again(r, p, calls)
	}
	switch s.answer {
	case history.Sent:
		r.Acknowledged += s.count
	case Refused:
		r.Refused += s.count
	case RolledBack:
		r.RolledBack += s.count
	default:
		r.Unknown += s.count
		r.UnknownHandled += arrived
		if arrived > 0 && arrived < s.count {
			r.broken("half a transaction: of %s, whose sender got no answer, %d of %d messages were handled", token, arrived, s.count)
		}
	}
}

// again explains each further run of a message. A run after one that was cut short is a
// redelivery. A run after one that was handled is a double, which needs a fault: one that
// came between the handler's end and the settlement.
func (a *account) again(r *Report, p place, calls []*call) {
	var before *call // the last one that was handled
	for i, c := range calls {
		if i > 0 {
			r.Redelivered++
			if f := a.explains(calls[i-1]); f != nil {
				after := duration(c.from - f.from)
				of := &r.Faults[f.number-1]
				of.LastRedelivery = max(of.LastRedelivery, after)
			}
		}
		if !c.handled {
			continue
		}
		if before != nil {
			r.Doubled++
			d := Double{Message: fmt.Sprintf("%s.%d", p.token, p.part), ID: c.id, First: before.process, Second: c.process}
			if f := a.explains(before); f != nil {
				d.Fault = f.number
				r.Faults[f.number-1].Doubled++
			} else {
				r.Unexplained++
				r.broken("handled twice without a fault: message %d of %s, by %s until %s and by %s from %s",
					p.part+1, p.token, before.process, seconds(before.to-a.begun), c.process, seconds(c.from-a.begun))
			}
			r.Doubles = append(r.Doubles, d)
		}
		before = c
	}
}

// explains returns the fault because of which a call may not have been settled: its process or
// the database was killed during the call, or soon after it.
func (a *account) explains(c *call) *fault {
	for _, f := range a.faults {
		concerned := f.kind == KillDatabase || f.whom == c.process
		if concerned && c.from <= f.to && (f.from <= c.to+settling || c.number > a.confirmed(c.process, f.from)) {
			return f
		}
	}
	return nil
}

// confirmed returns the number of confirmed acknowledgments of a process at a time.
func (a *account) confirmed(process string, at time.Duration) int {
	all := a.settled[process]
	i, _ := slices.BinarySearchFunc(all, at, func(s settlement, at time.Duration) int { return cmp.Compare(s.at, at) })
	if i == 0 {
		return 0
	}
	return all[i-1].total
}

// flows computes how long after each fault a message that was sent after it was handled.
func (a *account) flows(r *Report) {
	type flow struct{ sent, handled time.Duration }
	var all []flow
	for p, calls := range a.calls {
		for _, c := range calls {
			if c.handled {
				all = append(all, flow{a.sends[p.token].from, c.to})
				break
			}
		}
	}
	slices.SortFunc(all, func(x, y flow) int { return cmp.Compare(x.handled, y.handled) })
	for i, f := range a.faults {
		from, _ := slices.BinarySearchFunc(all, f.down, func(x flow, at time.Duration) int { return cmp.Compare(x.handled, at) })
		for _, x := range all[from:] {
			if x.sent > f.down {
				r.Faults[i].FlowedAfter = duration(x.handled - f.down)
				break
			}
		}
		if r.Faults[i].FlowedAfter == 0 && f.from < a.calm-flowPatience {
			r.broken("no message that was sent after fault %d was handled", f.number)
		}
	}
}

// read makes an account of events, which are in the order of their times.
func read(events []history.Event) (*account, error) {
	a := &account{sends: map[string]*sendRecord{}, calls: map[place][]*call{}, finished: map[string]int{}, settled: map[string][]settlement{}}
	if len(events) > 0 {
		a.begun = events[0].At
	}
	// Events of several processes at the same time may be out of order: an intent is always first.
	for _, e := range events {
		if e.Kind == Intent {
			if a.sends[e.Token] != nil {
				return nil, fmt.Errorf("the histories are damaged: %s sends %s twice", e.Process, e.Token)
			}
			a.sends[e.Token] = &sendRecord{count: e.Count, from: e.At}
			a.order = append(a.order, e.Token)
		}
	}
	open := map[string]map[place]*call{}
	for _, e := range events {
		var err error
		switch e.Kind {
		case history.Sent, Refused, RolledBack, Unknown:
			err = a.answered(e)
		case history.Started:
			a.started(e, open)
		case history.Handled:
			err = a.handled(e, open)
		case Struck:
			a.faults = append(a.faults, &fault{kind: Fault(e.Note), whom: e.Whom, number: len(a.faults) + 1, from: e.At, to: e.At, down: e.At, inFlight: e.Count})
		case Down:
			if n := len(a.faults); n > 0 {
				a.faults[n-1].down = e.At
			}
		case Healed:
			if n := len(a.faults); n > 0 {
				a.faults[n-1].to = e.At
			}
		case Settled:
			total := a.confirmed(e.Process, e.At+1) + e.Count
			a.settled[e.Process] = append(a.settled[e.Process], settlement{e.At, total})
		case Calm:
			a.calm = e.At
		}
		if err != nil {
			return nil, err
		}
	}
	a.cutShort(open)
	return a, nil
}

func (a *account) answered(e history.Event) error {
	s := a.sends[e.Token]
	if s == nil || s.answer != "" {
		return fmt.Errorf("the histories are damaged: %s has an answer to %s without a send", e.Process, e.Token)
	}
	s.answer = e.Kind
	return nil
}

func (a *account) started(e history.Event, open map[string]map[place]*call) {
	p := place{e.Token, e.Part}
	if s := a.sends[e.Token]; s == nil || e.Part < 0 || e.Part >= s.count {
		a.strays = append(a.strays, e)
		return
	}
	c := &call{process: e.Process, id: e.ID, from: e.At, to: e.At}
	a.calls[p] = append(a.calls[p], c)
	if open[e.Process] == nil {
		open[e.Process] = map[place]*call{}
	}
	open[e.Process][p] = c
}

func (a *account) handled(e history.Event, open map[string]map[place]*call) error {
	p := place{e.Token, e.Part}
	c := open[e.Process][p]
	if c == nil {
		if a.sends[e.Token] == nil {
			return nil // its start is a stray
		}
		return fmt.Errorf("the histories are damaged: %s handled %s without a start", e.Process, e.Token)
	}
	a.finished[e.Process]++
	c.handled, c.to, c.number = true, e.At, a.finished[e.Process]
	delete(open[e.Process], p)
	return nil
}

// cutShort ends the calls that no process ended: they lasted until their process was killed.
func (a *account) cutShort(open map[string]map[place]*call) {
	for process, calls := range open {
		for _, c := range calls {
			for _, f := range a.faults {
				if f.whom == process {
					c.to = f.from
				}
			}
		}
	}
}
