package nats

import (
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// held is a delivery that this process holds. Once it is handed out, only the fields that holding.mu
// guards change.
type held struct {
	id          posthaste.DeliveryID
	q           *queue
	sub         *subscription
	lane        int // of its queue
	meta        *meta
	body        []byte
	reply       string // where acknowledgments go
	seq         uint64 // its entry in the stream
	delivered   int    // how often the server has handed out the entry
	claimedAt   time.Time
	alone       bool
	claimNumber int64 // ClaimRequest.Number

	// holding.mu guards what follows.
	worker    posthaste.WorkerID // 0 for a receiver
	lease     time.Duration      // by uptime; the server may redeliver it after that
	until     time.Duration      // for a receiver: when the requested lease ends; until then lease is extended
	settling  bool               // a settlement is under way
	cancelled bool               // the message was cancelled meanwhile
	note      posthaste.Attempt  // what the handler has noted: Checkpoint, Progress, ProgressText, Log
	noted     bool               // a note of this attempt is stored
}

// holding has the deliveries that this process holds. A delivery's id has the number of the
// process, so that other processes can ask it to settle: see forward.go.
type holding struct {
	mu      sync.Mutex
	process int64 // of this process, 0 before startLoops
	last    int64
	byID    map[posthaste.DeliveryID]*held
	byWork  map[posthaste.WorkerID]map[posthaste.DeliveryID]*held
	// withheld has the entries that must not be handed out, and until when, by uptime.
	withheld map[entryKey]time.Duration
}

func (h *holding) init() {
	h.byID, h.byWork = map[posthaste.DeliveryID]*held{}, map[posthaste.WorkerID]map[posthaste.DeliveryID]*held{}
}

// handedOutBit marks the ids of deliveries of at-most-once queues. No process holds these.
const handedOutBit = 1 << 31

// add gives a delivery its id and its holder, 0 for a receiver. It reports whether the delivery may be
// handed out: a cancelled one may not.
func (h *holding) add(d *held, worker posthaste.WorkerID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if uptime() <= h.withheld[entryKey{d.q.stream, d.seq}] {
		return false
	}
	h.last = (h.last + 1) % handedOutBit
	d.id, d.worker = posthaste.DeliveryID(h.process<<32|h.last), worker
	if d.q.Options.Mode == posthaste.AtMostOnce {
		d.id |= handedOutBit
		return true
	}
	h.byID[d.id] = d
	if h.byWork[worker] == nil {
		h.byWork[worker] = map[posthaste.DeliveryID]*held{}
	}
	h.byWork[worker][d.id] = d
	return true
}

// remove forgets a delivery that ended.
func (h *holding) remove(d *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byID, d.id)
	delete(h.byWork[d.worker], d.id)
}

// get returns a delivery that is held, even if its lease has ended, or nil.
func (h *holding) get(id posthaste.DeliveryID) *held {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byID[id]
}

// ofWorker returns the deliveries of a worker in the order of their ids.
func (h *holding) ofWorker(worker posthaste.WorkerID) []*held {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*held, 0, len(h.byWork[worker]))
	for _, d := range h.byWork[worker] {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *held) int { return int(a.id - b.id) })
	return all
}

// ofMessage returns the deliveries of a message.
func (h *holding) ofMessage(id posthaste.MessageID) (all []*held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.byID {
		if d.meta.ID == id {
			all = append(all, d)
		}
	}
	return all
}

// beginSettling begins a settlement that was requested at now. It reports whether the caller may settle:
// the lease had not ended by then, and no other settlement is under way. Each sign to the server checks
// the lease again.
func (h *holding) beginSettling(d *held, now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[d.id] != d || d.settling || now > d.lease || d.until != 0 && now > d.until {
		return false
	}
	d.settling = true
	return true
}

// beginSettlingLost is beginSettling for a delivery whose holder is gone, as long as this process has its lease.
func (h *holding) beginSettlingLost(d *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[d.id] != d || d.settling || uptime() > d.lease {
		return false
	}
	d.settling = true
	return true
}

// isCancelled reports whether the message was cancelled while it was handed out.
func (h *holding) isCancelled(d *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.cancelled
}

// attempt returns the attempt that runs, with its note.
func (h *holding) attempt(d *held, worker string) posthaste.Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := d.note
	a.Attempt, a.Worker, a.ClaimedAt = d.meta.attempt(), worker, d.claimedAt
	return a
}

// processNumber returns the number of this process.
func (h *holding) processNumber() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}

// setProcess sets the number of this process, 0 if it has none yet.
func (h *holding) setProcess(no int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.process = no
}

// holderOf returns the number of the process that holds a delivery.
func holderOf(id posthaste.DeliveryID) int64 { return int64(id) >> 32 }

// abandonSettling ends a settlement that failed or whose outcome is unknown. The caller may settle again.
func (h *holding) abandonSettling(d *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.settling = false
}

// leaseOf returns the end of the lease, by uptime: until then the delivery may be settled.
func (h *holding) leaseOf(d *held) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.lease
}
