package nats

import (
	"sync"
	"time"
)

// fired remembers the entries of schedules that came to this process lately.
//
// A schedule can fire twice while another server becomes the leader of its stream: the server collects the
// due schedules, and checks only afterwards whether it leads the stream. By then it may have applied what
// the former leader published for them (nats-server 2.15.2, runMsgScheduling). Then the stream has
// two entries, which differ in their sequences alone. The second one is acknowledged and does not run, if
// both come to one process. If they come to two, both run, and followSubject lets only one of them be
// continued.
type fired struct {
	mu           sync.Mutex
	last, before map[string]firedEntry // by followSubject
}

// firedEntry is an entry that a schedule has fired.
type firedEntry struct {
	seq uint64
	at  time.Time // when it was stored
}

const (
	// firedMost is how many entries each of the two maps has at most.
	firedMost = 10_000
	// firedWithin is more than the time between the two entries, which is some hundred milliseconds. A
	// later one is not a second one: if all servers lose power, a stream can lose the first one and its
	// retry, and still have the schedule, which then fires again.
	firedWithin = 3 * time.Second
)

// isSecond reports whether a schedule fired twice and its other entry, which has another sequence, came
// before. The first one is acknowledged by its holder, or redelivered.
func (f *fired) isSecond(q *queue, sub *subscription, a *arrival, stored time.Time) bool {
	if a.Header.Get(headerScheduler) == "" {
		return false
	}
	entry := followSubject(q, sub, a.meta, a.seq)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range [...]map[string]firedEntry{f.last, f.before} {
		if first, was := known[entry]; was && stored.Sub(first.at).Abs() <= firedWithin {
			return first.seq != a.seq
		}
	}
	if f.last == nil || len(f.last) >= firedMost {
		f.last, f.before = map[string]firedEntry{}, f.last
	}
	f.last[entry] = firedEntry{a.seq, stored}
	return false
}
