package redis

import (
	"maps"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// leases are what this process knows of its workers: the subscriptions that each claimed
// from, and so has a lease of, its entry in Redis as it was read last, and the kinds that it
// handles in those subscriptions in which it does not handle all.
type leases struct {
	mu     sync.Mutex
	joined map[posthaste.WorkerID]map[posthaste.QueueRef]bool
	stood  map[posthaste.WorkerID]string
	kinds  map[posthaste.WorkerID]map[string][]string // by subscription (enrolled)
}

func newLeases() leases {
	return leases{joined: map[posthaste.WorkerID]map[posthaste.QueueRef]bool{}, stood: map[posthaste.WorkerID]string{},
		kinds: map[posthaste.WorkerID]map[string][]string{}}
}

func (l *leases) begin(worker posthaste.WorkerID, kinds map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joined[worker], l.kinds[worker] = map[posthaste.QueueRef]bool{}, kinds
}

// kindsOf returns the kinds that a worker handles in a subscription, in the form of claim.lua.
// known is false for a worker that this process knows nothing of.
func (l *leases) kindsOf(worker posthaste.WorkerID, ref posthaste.QueueRef) (kinds string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, known := l.kinds[worker]
	if some, names := all[enrolled(ref.Queue, ref.Subscription)]; names {
		return packed(some), known
	}
	return "", known
}

// kindsHere returns the kinds that the workers of this process handle in a subscription, in the
// form of claim.lua.
func (l *leases) kindsHere(ref posthaste.QueueRef) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []string{} // not nil, which would mean all kinds
	for _, of := range l.kinds {
		kinds, some := of[enrolled(ref.Queue, ref.Subscription)]
		if !some {
			return ""
		}
		all = append(all, kinds...)
	}
	if len(l.kinds) == 0 { // there are only receivers
		return ""
	}
	slices.Sort(all)
	return packed(slices.Compact(all))
}

func (l *leases) stand(worker posthaste.WorkerID, entry string, kinds map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stood[worker], l.kinds[worker] = entry, kinds
}

func (l *leases) join(worker posthaste.WorkerID, ref posthaste.QueueRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joined[worker] == nil {
		l.joined[worker] = map[posthaste.QueueRef]bool{}
	}
	l.joined[worker][ref] = true
}

func (l *leases) leave(worker posthaste.WorkerID, ref posthaste.QueueRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.joined[worker], ref)
}

// of returns a worker's entry and a copy of its subscriptions.
func (l *leases) of(worker posthaste.WorkerID) (entry string, refs map[posthaste.QueueRef]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stood[worker], maps.Clone(l.joined[worker])
}

func (l *leases) forget(worker posthaste.WorkerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.joined, worker)
	delete(l.stood, worker)
	delete(l.kinds, worker)
}
