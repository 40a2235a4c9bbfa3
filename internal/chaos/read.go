package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

type place struct {
	token        string
	part         int
	subscription string
}

// openCall is a call that a process has not ended. The process may run a message again, as
// another attempt, next to the previous one.
type openCall struct {
	place
	attempt int
}

// read makes an account of histories, which are ordered by time.
func read(events []history.Event) (*account, error) {
	r := reader{account: &account{sends: map[string]*send{}, of: map[*send][]*message{}, processes: map[string]*process{}, calm: never, drained: never},
		struck: map[string]*fault{}, open: map[string]map[openCall][]*call{}}
	// Events that several processes wrote at the same time may be slightly out of order: a
	// sender's intent is always first.
	for _, e := range events {
		if err := r.begins(e); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		var err error
		switch e.Kind {
		case history.Sent, Refused, RolledBack, Unsure:
			err = r.answers(e)
		case history.Started:
			r.starts(e)
		case history.Handled, history.Failed:
			err = r.ends(e)
		case Began, Rests:
			err = r.schedules(e)
		default:
			r.other(e)
		}
		if err != nil {
			return nil, err
		}
	}
	r.cutShort()
	r.hits()
	return r.account, nil
}

// reader is the state while an account is made.
type reader struct {
	*account
	struck map[string]*fault // by token
	// open are the calls that have not ended, by process. A process has two of the same attempt
	// if the store crashed and lost the claim of the first.
	open map[string]map[openCall][]*call
}

// begins adds the send or process that begins with an event.
func (r *reader) begins(e history.Event) error {
	switch e.Kind {
	case Intent:
		if r.sends[e.Token] != nil {
			return fmt.Errorf("%s sends token %s again", e.Process, e.Token)
		}
		r.add(&send{token: e.Token, queue: e.Queue, key: e.Key, process: e.Process, delay: e.Took, span: span{e.At, never}, count: e.Count})
	case history.Started:
		if strings.HasPrefix(e.Token, tickPrefix) && r.sends[e.Token] == nil {
			r.add(ticked(e))
		}
	case Born:
		r.processes[e.Whom] = &process{name: e.Whom, role: e.Note, span: span{e.At, never}, asked: never, lease: e.Took, holds: e.Count}
	}
	return nil
}

// add adds a send and its messages.
func (r *reader) add(s *send) {
	for _, subscription := range subscriptions(s.queue) {
		for i := range s.count {
			r.of[s] = append(r.of[s], &message{send: s, part: i, subscription: subscription})
		}
	}
	r.sends[s.token] = s
	r.list = append(r.list, s)
}

// answers adds the answer to a send.
func (r *reader) answers(e history.Event) error {
	s := r.sends[e.Token]
	if s == nil || s.answer != "" {
		return fmt.Errorf("%s has an answer to token %s, which it did not send, or another one before", e.Process, e.Token)
	}
	s.answer, s.note, s.to, s.ids = e.Kind, e.Note, e.At, e.IDs
	if e.Kind == history.Sent && len(e.IDs) != s.count {
		return fmt.Errorf("token %s: %d ids for %d messages", e.Token, len(e.IDs), s.count)
	}
	return nil
}

// starts adds a call.
func (r *reader) starts(e history.Event) {
	m := r.message(e)
	if m == nil {
		r.invented = append(r.invented, e)
		return
	}
	c := &call{message: m, process: e.Process, id: e.ID, attempt: e.Attempt, alone: e.Alone, span: span{e.At, never}}
	m.calls = append(m.calls, c)
	r.calls = append(r.calls, c)
	if r.open[e.Process] == nil {
		r.open[e.Process] = map[openCall][]*call{}
	}
	key := openCall{place{e.Token, e.Part, e.Subscription}, e.Attempt}
	r.open[e.Process][key] = append(r.open[e.Process][key], c)
}

// ends adds the end of a call.
func (r *reader) ends(e history.Event) error {
	if r.message(e) == nil {
		return nil // its start is in the history
	}
	key := openCall{place{e.Token, e.Part, e.Subscription}, e.Attempt}
	open := r.open[e.Process][key]
	if len(open) == 0 {
		return fmt.Errorf("%s ended a call of %s.%d that it did not start", e.Process, e.Token, e.Part)
	}
	r.open[e.Process][key] = open[1:]
	open[0].to, open[0].ended = e.At, e.Kind
	return nil
}

// schedules adds the first or the last tick.
func (r *reader) schedules(e history.Event) error {
	at, err := time.Parse(time.RFC3339Nano, e.Note)
	if err != nil {
		return fmt.Errorf("the schedule %s at %q", e.Kind, e.Note)
	}
	if e.Kind == Began {
		r.first = at
	} else {
		r.last = at
	}
	return nil
}

// other adds an event that needs no other event to be valid.
func (r *reader) other(e history.Event) {
	switch e.Kind {
	case Effect:
		if m := r.message(e); m == nil {
			r.invented = append(r.invented, e)
		} else {
			m.effects++
		}
	case Damaged:
		r.damaged = append(r.damaged, e)
	case Struck:
		f := &fault{kind: Fault(e.Note), whom: e.Whom, span: span{e.At, never}, struck: e.Count}
		r.faults = append(r.faults, f)
		r.struck[e.Token] = f
	case Healed:
		if f := r.struck[e.Token]; f != nil {
			f.to, f.crashed = e.At, e.Note == Crashed
			f.struck += e.Count
		}
	case LeftOut:
		r.leftOut = append(r.leftOut, e)
	case Wanted:
		r.wanted = append(r.wanted, Fault(e.Note))
	case Planned:
		r.planned = e.Took
	case Stalled:
		r.stalls = append(r.stalls, span{e.At - e.Took, e.At})
	case Left:
		r.left = append(r.left, e)
	case Calm:
		r.calm = e.At
	case Drained:
		r.drained = e.At
	case Turned:
		r.turns, r.ring = r.turns+e.Count, true
	default:
		r.ofProcess(e)
	}
}

// ofProcess adds an event to its process.
func (r *reader) ofProcess(e history.Event) {
	name := e.Whom
	if e.Kind == Claimed {
		name = e.Process
	}
	p := r.processes[name]
	if p == nil {
		return
	}
	switch e.Kind {
	case Asked:
		p.asked = e.At
	case Died:
		p.to, p.how = e.At, e.Note
	case Memory:
		p.memory = append(p.memory, resident{e.At, e.Count})
	case Claimed:
		if e.Queue == Once {
			p.once += e.Count
		}
	}
}

// cutShort ends the calls that a process did not end: they lasted until the process died. Its
// peer may believe that a call ended later. A process that ended gracefully had given it up.
func (r *reader) cutShort() {
	for _, c := range r.calls {
		p := r.processes[c.process]
		if p == nil {
			continue
		}
		later := needed[p.role] != "" && c.ended != "" && c.to > p.to
		if c.ended == "" || later {
			c.ended, c.to = "", max(c.from, p.to)
		}
		if later && p.how == Ended {
			c.ended = history.Failed
		}
	}
}
