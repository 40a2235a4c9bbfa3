package nats

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// worker is an entry worker.<id> of the store.
type worker struct {
	ID      posthaste.WorkerID     `json:"id"`
	Name    string                 `json:"name"`
	Version string                 `json:"version,omitempty"`
	Lease   time.Duration          `json:"lease"`
	Kinds   []handledKinds         `json:"kinds,omitempty"`
	Sinks   []posthaste.WorkerSink `json:"sinks,omitempty"`
	Started time.Time              `json:"started"`
	Beat    time.Time              `json:"beat"`
	// Lost is set once a process has found that the lease ended.
	Lost  time.Time             `json:"lost,omitzero"`
	State posthaste.WorkerState `json:"state,omitzero"`
}

// handledKinds are the kinds that a worker handles in a subscription in which it does not handle all.
type handledKinds struct {
	Queue        string   `json:"queue"`
	Subscription string   `json:"subscription"`
	Kinds        []string `json:"kinds"`
}

// lostKept is how long a lost worker is listed.
const lostKept = 10 * time.Minute

// workers are the workers of all processes. For those whose last heartbeat came through this process, it
// also has the time of that heartbeat by uptime, a clock that is never set.
type workers struct {
	entryCache[worker]
	beating sync.Mutex
	beats   map[posthaste.WorkerID]lastBeat
}

// lastBeat is a heartbeat of this process.
type lastBeat struct {
	at       time.Duration // by uptime, before it was sent
	revision uint64        // of the entry that it stored
}

func (w *workers) noteBeat(id posthaste.WorkerID, b lastBeat) {
	w.beating.Lock()
	defer w.beating.Unlock()
	if w.beats == nil {
		w.beats = map[posthaste.WorkerID]lastBeat{}
	}
	w.beats[id] = b
}

func (w *workers) forget(id posthaste.WorkerID) {
	w.beating.Lock()
	defer w.beating.Unlock()
	delete(w.beats, id)
}

// frozen reports whether this process stored the worker's last heartbeat, longer ago than the worker's
// lease by uptime: the process or its machine was suspended.
func (w *workers) frozen(is *worker, revision uint64) bool {
	w.beating.Lock()
	defer w.beating.Unlock()
	b, ours := w.beats[is.ID]
	return ours && b.revision == revision && uptime()-b.at > is.Lease
}

// lostAt returns when the worker was lost, or zero if it is alive.
func (w *worker) lostAt(now time.Time) time.Time {
	if end := w.Beat.Add(w.Lease); w.Lost.IsZero() && end.Before(now) {
		return end
	}
	return w.Lost
}

func workerKey(id posthaste.WorkerID) string { return strconv.FormatInt(int64(id), 10) }

func workerLost() error {
	return &posthaste.Error{Code: posthaste.CodeWorkerLost, Message: "the worker was declared lost, or ended", Hint: "register it again"}
}

// alive returns an error if a worker is lost. Each claim calls it, so it reads the store only if this
// process does not know the worker.
func (e *Engine) alive(ctx context.Context, id posthaste.WorkerID) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	w, revision := e.workers.known(workerKey(id))
	if w == nil {
		var err error
		if w, revision, err = e.workers.read(ctx, workerKey(id)); err != nil {
			return err
		}
	}
	if e.gone(w, revision) {
		return workerLost()
	}
	return nil
}

// gone reports whether a worker is unknown (nil), has ended or is lost.
func (e *Engine) gone(w *worker, revision uint64) bool {
	return w == nil || !w.lostAt(e.clock.now()).IsZero() || e.workers.frozen(w, revision)
}

// lost reports whether a worker that holds deliveries has ended or is lost, as far as this process
// knows.
func (e *Engine) lost(id posthaste.WorkerID) bool {
	w, revision := e.workers.known(workerKey(id))
	return e.gone(w, revision)
}

// workerName returns the name of the worker that holds a delivery, "" if a receiver holds it.
func (e *Engine) workerName(d *held) string {
	if w, _ := e.workers.known(workerKey(d.worker)); w != nil {
		return w.Name
	}
	return ""
}

// Register implements [posthaste.Engine].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	if info.Lease <= 0 {
		return 0, posthaste.Invalidf("lease", "lease must be above zero, got %s", info.Lease)
	}
	if err := e.ready(ctx); err != nil {
		return 0, err
	}
	id, err := e.ids.take(ctx, 1)
	if err != nil {
		return 0, err
	}
	at, now := uptime(), e.clock.now()
	w := &worker{ID: posthaste.WorkerID(id), Name: info.Name, Version: info.Version, Lease: info.Lease, Sinks: info.Sinks, Started: now, Beat: now}
	for ref, kinds := range info.Kinds {
		ref = ref.Normal()
		w.Kinds = append(w.Kinds, handledKinds{Queue: ref.Queue, Subscription: ref.Subscription, Kinds: append([]string{}, kinds...)})
	}
	tried := false
	err = untilAnswered(ctx, func(ctx context.Context) error {
		err := e.putBeat(ctx, w, at, 0)
		if conflicts(err) && tried { // the id is unique, so an entry is its own
			if found, revision, failed := e.workers.read(ctx, workerKey(w.ID)); failed == nil && found != nil {
				e.workers.noteBeat(w.ID, lastBeat{at: at, revision: revision})
				err = nil
			}
		}
		tried = true
		return err
	})
	if err != nil {
		return 0, e.writeError(err)
	}
	return w.ID, nil
}

// putBeat stores the entry of a worker whose heartbeat began at a time. While the servers' storage is
// full, only this process learns of the heartbeat, so that its worker goes on and makes room: an
// acknowledgment needs none. Other processes see a lost worker meanwhile, and can take nothing from it.
func (e *Engine) putBeat(ctx context.Context, w *worker, at time.Duration, revision uint64) error {
	stored, err := e.workers.put(ctx, workerKey(w.ID), w, revision)
	if isFull(err) && w.Lost.IsZero() {
		e.workers.setLocally(workerKey(w.ID), w, revision)
		stored, err = revision, nil
	}
	if err == nil {
		e.workers.noteBeat(w.ID, lastBeat{at: at, revision: stored})
	}
	return err
}

// Heartbeat implements [posthaste.Engine]. The leases of the worker's deliveries are extended by the engine
// as long as the worker lives.
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (reply posthaste.HeartbeatReply, err error) {
	if err := e.ready(ctx); err != nil {
		return reply, err
	}
	if err := e.storeHeartbeat(ctx, beat); err != nil {
		return reply, err
	}
	reply.Cancelled = e.holding.cancelledOf(beat.Worker)
	reply.TickIn = e.tickIn()
	reply.Rescue, reply.RescueIn = e.overdue(beat.Worker)
	for _, ref := range beat.Queues {
		look, err := e.look(ctx, ref)
		if code := posthaste.CodeOf(err); code == posthaste.CodeNotFound { // it was dropped, or is not made yet
			look = posthaste.LookReply{NextDue: -1}
		} else if err != nil {
			reply.QueuesUnknown, reply.Looks = true, nil
			return reply, nil
		}
		reply.Looks = append(reply.Looks, look)
	}
	return reply, nil
}

// storeHeartbeat stores a heartbeat within half of the time until the deadline of ctx: the rest is for the
// looks.
func (e *Engine) storeHeartbeat(ctx context.Context, beat posthaste.Heartbeat) error {
	most := callTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	name := workerKey(beat.Worker)
	w, revision := e.workers.known(name)
	for range changeTries {
		if w == nil {
			var err error
			if w, revision, err = e.workers.read(ctx, name); err != nil {
				return err
			}
			if w == nil {
				return workerLost()
			}
		}
		next, at := *w, uptime()
		next.Beat, next.State = e.clock.now(), beat.State
		lost := !w.lostAt(next.Beat).IsZero() || e.workers.frozen(w, revision)
		if lost {
			next = *w
			next.Lost = w.Beat.Add(w.Lease)
			if !w.Lost.IsZero() {
				return workerLost()
			}
		}
		err := e.putBeat(ctx, &next, at, revision)
		switch {
		case conflicts(err):
			w = nil // another process has changed the entry: read it
		case lost && isFull(err):
			return workerLost()
		case err != nil:
			return e.readError(err)
		case lost:
			return workerLost()
		default:
			return nil
		}
	}
	return unavailable("other processes change the worker at this moment", nil)
}

// cancelledOf returns the deliveries of a worker whose messages were cancelled.
func (h *holding) cancelledOf(worker posthaste.WorkerID) (all []posthaste.DeliveryID) {
	held := h.ofWorker(worker)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range held {
		if d.cancelled && h.byID[d.id] == d {
			all = append(all, d.id)
		}
	}
	return all
}

// overdue reports whether the lease of another worker has ended, and otherwise the time until the
// first one ends, or 0.
func (e *Engine) overdue(but posthaste.WorkerID) (overdue bool, in time.Duration) {
	now := e.clock.now()
	for _, w := range e.workers.knownAll() {
		if w.ID == but || !w.Lost.IsZero() {
			continue
		}
		left := w.Beat.Add(w.Lease).Sub(now)
		if left < 0 {
			return true, 0
		}
		if in == 0 || left < in {
			in = max(1, left)
		}
	}
	return false, in
}

// loseWorkers declares the workers lost whose leases have ended, and forgets those that were lost long
// ago. The server redelivers their messages when AckWait has passed.
func (e *Engine) loseWorkers(ctx context.Context) error {
	for name, w := range e.workers.knownAll() {
		now := e.clock.now()
		lost := w.lostAt(now)
		if lost.IsZero() || !w.Lost.IsZero() && now.Sub(lost) < lostKept {
			continue
		}
		_, err := e.workers.change(ctx, name, func(was *worker) (*worker, error) {
			switch {
			case was == nil || was.lostAt(now).IsZero():
				return nil, errSame
			case now.Sub(was.lostAt(now)) >= lostKept:
				return nil, nil
			case !was.Lost.IsZero():
				return nil, errSame
			}
			next := *was
			next.Lost = was.lostAt(now)
			return &next, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Unregister implements [posthaste.Engine].
func (e *Engine) Unregister(ctx context.Context, id posthaste.WorkerID) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	_, err := e.workers.change(ctx, workerKey(id), func(*worker) (*worker, error) { return nil, nil })
	e.giveBackAll(ctx, id)
	if err == nil {
		e.workers.forget(id)
	}
	return err
}

// Workers implements [posthaste.Observer]. Lost workers are listed for a while.
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	known, err := e.workers.freshAll(ctx)
	if err != nil {
		return nil, err
	}
	now := e.clock.now()
	all := make([]posthaste.WorkerStatus, 0, len(known))
	for _, w := range sortedBy(known, func(w *worker) int64 { return int64(w.ID) }) {
		all = append(all, posthaste.WorkerStatus{ID: w.ID, Name: w.Name, Version: w.Version, StartedAt: w.Started, HeartbeatAt: w.Beat, LostAt: w.lostAt(now), State: w.State, Sinks: w.Sinks})
	}
	return all, nil
}
