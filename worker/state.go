package worker

import (
	"cmp"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// state returns what the pool does at this moment, for operators.
func (p *pool) state() (s posthaste.WorkerState) {
	s.Concurrency = p.limit
	p.mu.Lock()
	for _, t := range p.teams {
		ref := t.route.ref
		s.Loads = append(s.Loads, posthaste.WorkerLoad{Queue: ref.Queue, Subscription: ref.Subscription,
			Concurrency: min(t.route.concurrency, p.limit), Running: t.active, Claimed: int(t.backlog.buffered())})
	}
	slots := slices.Clone(p.slots)
	p.mu.Unlock()
	at := now()
	for _, slot := range slots {
		r := slot.current.Load()
		if r == nil || r.state.Load() != runActive {
			continue
		}
		d, ref := &r.seg.items[r.low], r.seg.route.ref
		s.Running = append(s.Running, posthaste.RunningMessage{Message: d.MessageID, Queue: ref.Queue, Subscription: ref.Subscription,
			Kind: d.Kind, Attempt: d.Attempt, Ran: at - r.began})
	}
	slices.SortFunc(s.Running, func(a, b posthaste.RunningMessage) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(a.Message, b.Message))
	})
	s.Running = s.Running[:min(len(s.Running), posthaste.MaxRunningShown)]
	return s
}
