package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// A step is what a worker did with one delivery. All times are nanoseconds of the same
// machine's clock.
type step struct {
	id       uint64 // of the message
	seq      uint64 // stream sequence of the delivery
	from     uint64 // stream sequence of the entry that it copies or retries; 0 if it was sent
	fails    int    // failures of the handler before this step
	attempt  int
	outcome  byte // done, failed or copied
	start    int64
	end      int64 // when the handler had returned, or the copy was made
	lease    int64 // when the lease ended
	settled  int64 // when the acknowledgment was confirmed; 0 if it was not
	delivery uint64
}

const (
	done   byte = 'd' // the handler succeeded
	failed byte = 'f' // the handler failed; a schedule is the retry
	copied byte = 'c' // a second delivery: it was not run but copied
)

const stepFormat = "%c %d %d %d %d %d %d %d %d %d %d\n"

func (s *step) write(w io.Writer) {
	fmt.Fprintf(w, stepFormat, s.outcome, s.id, s.seq, s.from, s.fails, s.attempt, s.delivery, s.start, s.end, s.lease, s.settled)
}

// readSteps reads a worker's log.
func readSteps(r io.Reader) (steps []*step, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		s := new(step)
		if _, err := fmt.Sscanf(lines.Text()+"\n", stepFormat, &s.outcome, &s.id, &s.seq, &s.from, &s.fails, &s.attempt, &s.delivery,
			&s.start, &s.end, &s.lease, &s.settled); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		steps = append(steps, s)
	}
	return steps, lines.Err()
}

// kept reports whether the acknowledgment was confirmed within the lease.
func (s *step) kept() bool { return s.settled != 0 && s.settled <= s.lease }

// A sent message has the knowledge of its sender.
type sent struct {
	keyed     bool // with a record in the same batch
	confirmed bool
	tries     int
}

// A history is the input of the checker.
type history struct {
	sent  map[uint64]*sent
	steps []*step
	left  map[uint64]bool // ids of messages that are still in the queue or in a retry's schedule
	// leftOther counts entries that are left and could not be read.
	leftOther int
	// schedules lie in the stream for the whole run.
	schedules, schedulesLeft int
	// repeats are batches that were sent again long after their confirmation; each must be refused.
	repeats, repeatsAccepted int
	// leaked are acknowledged messages that a server still has, or unfinished ones that it lacks.
	leaked int
}

// findings are what the checker found in a history.
type findings struct {
	Confirmed       int `json:"confirmed"`
	OutcomeUnknown  int `json:"outcome_unknown"`
	Runs            int `json:"runs"`
	Copies          int `json:"copies"`
	Retries         int `json:"retries"`
	Lost            int `json:"lost"`
	Doubles         int `json:"doubles"`
	LeaseEnded      int `json:"doubles_lease_ended"`
	Unconfirmed     int `json:"doubles_ack_unconfirmed"`
	SentAgain       int `json:"doubles_send_repeated"`
	Unexplained     int `json:"doubles_unexplained"`
	Stuck           int `json:"stuck"`
	SchedulesLost   int `json:"schedules_lost"`
	Leaked          int `json:"leaked"`
	Repeats         int `json:"repeats"`
	RepeatsAccepted int `json:"repeats_accepted"`
	// Examples are some of the faults.
	Examples []string `json:"examples,omitempty"`
}

// passed reports whether the history keeps the rule: nothing acknowledged is lost, each double
// is explained by an unconfirmed acknowledgment or an ended lease, and nothing is stuck. A
// double of a repeated send has neither explanation.
func (f *findings) passed() bool {
	return f.Lost+f.SentAgain+f.Unexplained+f.Stuck+f.SchedulesLost+f.Leaked+f.RepeatsAccepted == 0
}

func (f *findings) example(format string, args ...any) {
	if len(f.Examples) < 20 {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// check checks a history.
func check(h *history) *findings {
	f := &findings{Stuck: len(h.left) + h.leftOther, SchedulesLost: max(0, h.schedules-h.schedulesLeft),
		Leaked: h.leaked, Repeats: h.repeats, RepeatsAccepted: h.repeatsAccepted}
	messages := map[uint64][]*step{}
	for _, s := range h.steps {
		messages[s.id] = append(messages[s.id], s)
		switch s.outcome {
		case copied:
			f.Copies++
		case failed:
			f.Retries++
			f.Runs++
		default:
			f.Runs++
		}
	}
	for id, m := range h.sent {
		if !m.confirmed {
			f.OutcomeUnknown++
			continue
		}
		f.Confirmed++
		isDone := slices.ContainsFunc(messages[id], func(s *step) bool { return s.outcome == done })
		if !isDone && !h.left[id] {
			f.Lost++
			f.example("message %d was confirmed and is lost after steps %s", id, describe(messages[id]))
		}
	}
	for id := range h.left {
		f.example("message %d is stuck after steps %s", id, describe(messages[id]))
	}
	for id, steps := range messages {
		f.doubles(id, h.sent[id], steps)
	}
	return f
}

// doubles finds each run of a message after the first with the same number of failures, and its
// explanation.
func (f *findings) doubles(id uint64, m *sent, steps []*step) {
	slices.SortFunc(steps, func(a, b *step) int { return cmp.Compare(a.start, b.start) })
	first := map[int]*step{}
	for _, s := range steps {
		if s.outcome == copied {
			continue
		}
		before, again := first[s.fails]
		if !again {
			first[s.fails] = s
			continue
		}
		f.Doubles++
		switch cause, common := explain(before, s, steps); {
		case cause != nil && (cause.end > cause.lease):
			f.LeaseEnded++
		case cause != nil:
			f.Unconfirmed++
		case !common && m != nil && !m.keyed && m.tries > 1:
			f.SentAgain++
			f.example("message %d was sent %d times and stored twice: %s", id, m.tries, describe(steps))
		default:
			f.Unexplained++
			f.example("message %d ran twice without an explanation: %s", id, describe(steps))
		}
	}
}

// explain returns a step that allows b although a ran: one with the entry from which both come,
// before b and not confirmed within its lease. common is false if they were stored by different
// sends.
func explain(a, b *step, steps []*step) (cause *step, common bool) {
	ofA := lineage(a, steps)
	for _, seq := range lineage(b, steps) {
		if !slices.Contains(ofA, seq) {
			continue
		}
		for _, s := range steps {
			if s.seq == seq && s != b && s.start < b.start && !s.kept() {
				return s, true
			}
		}
		return nil, true
	}
	return nil, false
}

// lineage returns the entries from which a step comes, its own first.
func lineage(s *step, steps []*step) (seqs []uint64) {
	from := map[uint64]uint64{}
	for _, other := range steps {
		from[other.seq] = other.from
	}
	for seq := s.seq; seq != 0 && !slices.Contains(seqs, seq); seq = from[seq] {
		seqs = append(seqs, seq)
	}
	return seqs
}

func describe(steps []*step) (text string) {
	if len(steps) == 0 {
		return "(none)"
	}
	origin := steps[0].start
	for _, s := range steps {
		settled := int64(-1)
		if s.settled != 0 {
			settled = (s.settled - origin) / 1e6
		}
		text += fmt.Sprintf("[%c seq %d from %d delivery %d at %d ms, end %d, lease %d, settled %d]", s.outcome, s.seq, s.from, s.delivery,
			(s.start-origin)/1e6, (s.end-origin)/1e6, (s.lease-origin)/1e6, settled)
	}
	return text
}
