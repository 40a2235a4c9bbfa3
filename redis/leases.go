package redis

import (
	"maps"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// leases are what this process knows of its workers: the subscriptions that each claimed
// from, and so has a lease of, and its entry in Redis as it was read last.
type leases struct {
	mu     sync.Mutex
	joined map[posthaste.WorkerID]map[posthaste.QueueRef]bool
	stood  map[posthaste.WorkerID]string
}

func (l *leases) begin(worker posthaste.WorkerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joined[worker] = map[posthaste.QueueRef]bool{}
}

func (l *leases) stand(worker posthaste.WorkerID, entry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stood[worker] = entry
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
}
