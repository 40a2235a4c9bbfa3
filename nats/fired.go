package nats

import (
	"sync"
	"time"
)

// fired remembers the entries of schedules that came to this process lately.
//
// A schedule can fire twice while another server becomes the leader of its stream: the server collects the
// schedules that are due, and asks only then whether it leads the stream. By that time it may have applied
// what the former leader published for them (nats-server 2.15.2, runMsgScheduling). Then the stream has
// two entries, which differ in their sequences alone. The second one is acknowledged and does not run, if
// both come to one process. If they come to two, both run, and followSubject lets only one of them be
// continued.
type fired struct {
	mu           sync.Mutex
	last, before map[string]uint64 // the sequence of an entry by its followSubject
}

// firedMost is how many entries each of the two maps has at most. Both entries are stored within some
// hundred milliseconds of each other.
const firedMost = 10_000

// isSecond reports whether an entry is that of a schedule whose entry came before, in another place of the
// stream. The first one is acknowledged by its holder, or redelivered.
func (f *fired) isSecond(a *arrival, q *queue, sub *subscription, b *buffer) bool {
	if a.Header.Get(headerScheduler) == "" {
		return false
	}
	entry := a.held(q, sub, b, time.Time{}).followSubject()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range [...]map[string]uint64{f.last, f.before} {
		if seq, was := known[entry]; was {
			return seq != a.seq
		}
	}
	if f.last == nil || len(f.last) >= firedMost {
		f.last, f.before = map[string]uint64{}, f.last
	}
	f.last[entry] = a.seq
	return false
}
