package memory

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

type worker struct {
	posthaste.WorkerStatus
	lease  time.Duration
	claims map[int64][]*delivery // by number, with unsettled deliveries
	open   map[int64]int         // number of unsettled deliveries of each claim
	kinds  map[posthaste.QueueRef][]string
	// cancelled has deliveries that were cancelled while they ran, until a heartbeat finds that
	// they ended.
	cancelled []posthaste.DeliveryID
	beatAt    time.Time // of the last heartbeat, by the process's clock
}

// Register implements [posthaste.Engine].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	if info.Lease <= 0 {
		return 0, posthaste.Invalidf("lease", "lease must be above zero, got %s", info.Lease)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	id := posthaste.WorkerID(len(e.workers) + 1)
	e.workers[id] = &worker{beatAt: time.Now(), lease: info.Lease, claims: map[int64][]*delivery{}, open: map[int64]int{}, kinds: normal(info.Kinds), WorkerStatus: posthaste.WorkerStatus{
		ID: id, Name: info.Name, Version: info.Version, StartedAt: now, HeartbeatAt: now, Sinks: slices.Clone(info.Sinks)}}
	return id, ctx.Err()
}

func (e *Engine) worker(id posthaste.WorkerID) (*worker, error) {
	if w := e.workers[id]; w != nil && w.LostAt.IsZero() {
		return w, nil
	}
	return nil, &posthaste.Error{Code: posthaste.CodeWorkerLost, Message: "the worker was declared lost"}
}

// left returns how much is left of the worker's lease, negative if it has ended.
func (w *worker) left() time.Duration { return w.lease - time.Since(w.beatAt) }

// Heartbeat implements [posthaste.Engine].
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	reply := posthaste.HeartbeatReply{Maintain: e.flowed, TickIn: e.tickIn(now)}
	w, err := e.worker(beat.Worker)
	if err != nil {
		return reply, err
	}
	w.HeartbeatAt, w.beatAt, w.State = now, time.Now(), beat.State
	w.cancelled = slices.DeleteFunc(w.cancelled, func(id posthaste.DeliveryID) bool { return e.delivery(id).settled })
	reply.Cancelled = slices.Clone(w.cancelled)
	for _, ref := range beat.Queues {
		look := posthaste.LookReply{NextDue: -1}
		if q := e.queues[ref.Queue]; q != nil {
			look.Found = q.waiting() > 0 || q.nextDue(now) == 0 || q.hasApart(w.handles(ref))
			look.NextDue = q.nextDue(now)
			if !q.pausedAt.IsZero() {
				look = posthaste.LookReply{NextDue: -1}
			}
		}
		reply.Looks = append(reply.Looks, look)
	}
	for id, other := range e.workers {
		ends := other.left()
		if id != beat.Worker && other.LostAt.IsZero() && ends > 0 && (reply.RescueIn == 0 || ends < reply.RescueIn) {
			reply.RescueIn = ends
		}
		reply.Rescue = reply.Rescue || ends < 0 && len(other.claims) > 0
	}
	for _, d := range e.timed {
		reply.Rescue = reply.Rescue || d.until.Before(now)
	}
	return reply, ctx.Err()
}

func (q *queue) nextDue(now time.Time) time.Duration {
	if len(q.due) == 0 {
		return -1
	}
	return max(0, q.due[0].dueAt.Sub(now))
}

// Unregister implements [posthaste.Engine].
func (e *Engine) Unregister(ctx context.Context, id posthaste.WorkerID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.workers[id]; w != nil {
		e.declareLost(w)
	}
	return ctx.Err()
}

// declareLost removes the deliveries of w.
func (e *Engine) declareLost(w *worker) (lost int) {
	if w.LostAt.IsZero() {
		w.LostAt = e.now()
	}
	for _, held := range w.claims {
		for _, d := range held {
			lost += e.lose(d)
		}
	}
	clear(w.claims)
	return lost
}

func (e *Engine) lose(d *delivery) int {
	if d.settled {
		return 0
	}
	e.end(d, posthaste.Settlement{Outcome: posthaste.OutcomeLost, Error: "its holder is gone"})
	return 1
}

// rescue makes deliveries of lost workers and expired leases available again. e.mu is held.
func (e *Engine) rescue() (lost int) {
	for _, w := range e.workers {
		if w.left() < 0 {
			lost += e.declareLost(w)
		}
	}
	return lost + e.rescueTimed(nil, e.now())
}

func (e *Engine) rescueTimed(q *queue, now time.Time) (lost int) {
	e.timed = slices.DeleteFunc(e.timed, func(d *delivery) bool {
		if d.until.Before(now) && (q == nil || q == d.q) {
			lost += e.lose(d)
		}
		return d.settled
	})
	return lost
}

// Claim implements [posthaste.Engine].
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	reply := posthaste.ClaimReply{NextDue: -1}
	if err := ctx.Err(); err != nil {
		return reply, err
	}
	if req.Max < 1 || req.Max > posthaste.MaxPlaces {
		return reply, posthaste.Invalidf("max", "max must be 1 to %d, got %d", posthaste.MaxPlaces, req.Max)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w, err := e.worker(req.Worker)
	if err != nil {
		return reply, err
	}
	q, err := e.subscribed(req.QueueRef)
	if err != nil {
		return reply, err
	}
	for _, d := range w.claims[req.Number] { // repeated after a lost response
		if !d.settled {
			reply.Deliveries = append(reply.Deliveries, e.describe(d))
		}
	}
	if len(reply.Deliveries) > 0 {
		return reply, nil
	}
	if !q.pausedAt.IsZero() {
		return reply, nil
	}
	now := e.now()
	taken, wants := e.take(q, req.Max, req.AllowAlone, w.handles(req.QueueRef), now)
	made := make([]delivery, len(taken))
	reply.Deliveries = make([]posthaste.RawDelivery, len(taken))
	for i, n := range taken {
		d := &made[i]
		*d = delivery{entry: n, q: q, worker: req.Worker, number: req.Number, alone: n.losses >= 2, claimedAt: now}
		e.hand(d)
		reply.Deliveries[i] = e.describe(d)
		if d.close() {
			continue
		}
		w.claims[req.Number] = append(w.claims[req.Number], d)
		w.open[req.Number]++
	}
	reply.AloneWaiting = wants
	reply.NextDue = q.nextDue(now)
	return reply, nil
}

// waiting counts the new entries.
func (q *queue) waiting() (n int) {
	for _, fresh := range q.fresh {
		n += len(fresh)
	}
	return n
}

// order returns the order of the priorities in a claim: ascending, except that one claim of
// eight starts with another than the first.
func order() []int {
	all := []int{0, 1, 2, 3}
	if rand.N(8) == 0 {
		first := 1 + rand.N(3)
		all = slices.Insert(slices.Delete(all, first, first+1), 0, first)
	}
	return all
}

// expired ends a waiting entry if it is too old, and reports whether it is.
func (q *queue) expired(n *entry, now time.Time) bool {
	if q.options.MaxAge == 0 || now.Sub(n.since) < q.options.MaxAge {
		return false
	}
	q.info.Depth--
	q.info.Expired++
	n.m.state, n.m.dueAt = posthaste.StateExpired, time.Time{}
	n.m.attempts = append(n.m.attempts, posthaste.Attempt{Attempt: n.attempt, Outcome: posthaste.OutcomeExpired, ClaimedAt: now, EndedAt: now})
	return true
}

// take removes up to limit entries that may start now, one priority after the other. In each
// priority, due and new ones get half each while both wait, and of all so do those that were set
// aside, if handles accepts their kind. Those of paused kinds are set aside. An entry that must run alone is taken alone. Those that
// are too old end.
func (e *Engine) take(q *queue, limit int, idle bool, handles func(kind string) bool, now time.Time) (taken []*entry, aloneWaiting bool) {
	var due [posthaste.MaxPriority + 1][]*entry
	apart, lone := q.splitApart(handles, now)
	for len(q.due) > 0 && !q.due[0].dueAt.After(now) {
		switch n := heap.Pop(&q.due).(*entry); {
		case q.pausedApart(n, now):
		case q.expired(n, now):
		case n.losses >= 2:
			lone = append(lone, n)
		default:
			due[n.m.Priority] = append(due[n.m.Priority], n)
		}
	}
	for p := range q.fresh { // each is in the order of age
		q.fresh[p] = slices.DeleteFunc(q.fresh[p], func(n *entry) bool { return q.pausedApart(n, now) })
		for len(q.fresh[p]) > 0 && q.expired(q.fresh[p][0], now) {
			q.fresh[p] = q.fresh[p][1:]
		}
	}
	if idle && len(lone) > 0 {
		taken, lone, limit = lone[:1:1], lone[1:], 1
	} else {
		aloneWaiting = len(lone) > 0
	}
	if len(taken) == 0 {
		n := min(len(apart), (limit+rand.N(2))/2)
		taken, apart = append(taken, apart[:n]...), apart[n:]
	}
	for _, p := range order() {
		left := limit - len(taken)
		half := max((left+rand.N(2))/2, left-len(q.fresh[p]))
		for _, from := range []struct {
			all  *[]*entry
			most int
		}{{&due[p], half}, {&q.fresh[p], left}} {
			n := min(from.most, limit-len(taken), len(*from.all))
			taken = append(taken, (*from.all)[:n]...)
			*from.all = (*from.all)[n:]
		}
	}
	n := min(len(apart), limit-len(taken))
	taken, apart = append(taken, apart[:n]...), apart[n:]
	for _, n := range slices.Concat(append(due[:], lone, apart)...) {
		q.put(n)
	}
	return taken, aloneWaiting
}

func (e *Engine) hand(d *delivery) {
	e.deliveries = append(e.deliveries, d)
	d.m.state, d.m.dueAt = posthaste.StateRunning, time.Time{}
	d.q.info.Depth--
	d.q.info.InFlight++
	by := ""
	if d.worker != 0 {
		by = e.workers[d.worker].Name
	}
	d.m.attempts = append(d.m.attempts, posthaste.Attempt{Attempt: d.attempt, Worker: by, ClaimedAt: d.claimedAt})
}

// close settles an at-most-once delivery, and reports whether d is one.
func (d *delivery) close() bool {
	if d.q.options.Mode != posthaste.AtMostOnce {
		return false
	}
	d.settled = true
	d.q.info.InFlight--
	d.m.state = posthaste.StateHandedOut
	if a := d.attemptRow(); a != nil {
		a.Outcome, a.EndedAt = posthaste.OutcomeHandedOut, d.claimedAt
	}
	return true
}

// describe requires that d is the newest delivery, or is in e.deliveries.
func (e *Engine) describe(d *delivery) posthaste.RawDelivery {
	id := len(e.deliveries)
	if e.deliveries[id-1] != d {
		id = slices.Index(e.deliveries, d) + 1
	}
	return posthaste.RawDelivery{
		ID: posthaste.DeliveryID(id), MessageID: d.m.id, Queue: d.q.name, Subscription: posthaste.DefaultSubscription,
		Attempt: d.attempt, Key: d.m.Key, Kind: d.m.Kind, Headers: d.m.Headers, Reference: d.m.Reference,
		ContentType: d.m.contentType, Payload: d.m.body, CreatedAt: d.m.createdAt, DueAt: d.dueAt,
		Timeout: d.attempts().Timeout, Story: d.story, Alone: d.alone && d.worker != 0,
		AtMostOnce: d.q.options.Mode == posthaste.AtMostOnce && d.worker != 0,
	}
}

// Unsettled implements [posthaste.Engine].
func (e *Engine) Unsettled(ctx context.Context, id posthaste.WorkerID, upTo int64) ([]posthaste.DeliveryID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, err := e.worker(id)
	if err != nil {
		return nil, err
	}
	var ids []posthaste.DeliveryID
	for number, held := range w.claims {
		for _, d := range held {
			if number <= upTo && !d.settled {
				ids = append(ids, e.describe(d).ID)
			}
		}
	}
	return ids, ctx.Err()
}

// Receive implements [posthaste.Engine].
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	if req.Max < 1 || req.Max > 1000 {
		return posthaste.ReceiveReply{}, posthaste.Invalidf("max", "max must be 1 to 1000, got %d", req.Max)
	}
	if req.Lease <= 0 || req.Lease > 12*time.Hour {
		return posthaste.ReceiveReply{}, posthaste.Invalidf("lease", "lease must be above zero and at most 12h, got %s", req.Lease)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.subscribed(req.QueueRef)
	if err != nil || ctx.Err() != nil {
		return posthaste.ReceiveReply{}, firstError(err, ctx.Err())
	}
	now := e.now()
	e.rescueTimed(q, now)
	if !q.pausedAt.IsZero() {
		return posthaste.ReceiveReply{NextDue: -1}, nil
	}
	taken, _ := e.take(q, req.Max, true, allKinds, now)
	out := make([]posthaste.RawDelivery, len(taken))
	for i, n := range taken {
		d := &delivery{entry: n, q: q, until: now.Add(req.Lease), alone: n.losses >= 2, claimedAt: now}
		e.hand(d)
		out[i] = e.describe(d)
		if !d.close() {
			e.timed = append(e.timed, d)
		}
	}
	return posthaste.ReceiveReply{Deliveries: out, NextDue: q.nextDue(now)}, nil
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Extend implements [posthaste.Engine].
func (e *Engine) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	results := make([]posthaste.SettleResult, len(req.Deliveries))
	for i, id := range req.Deliveries {
		results[i].Delivery = id
		d := e.delivery(id)
		switch held := d != nil && !d.settled; {
		case req.Notes != nil:
			if results[i].Err = checkNote(&req.Notes[i]); results[i].Err == nil && held {
				d.note(&req.Notes[i])
				results[i].Settled = true
			}
		case held && d.worker == 0:
			results[i].Settled = true
		}
		results[i].Cancelled = results[i].Settled && d.cancelled
		if results[i].Settled && req.Lease > 0 && d.worker == 0 {
			d.until = e.now().Add(req.Lease)
		}
	}
	return results, ctx.Err()
}

func checkNote(n *posthaste.Note) error {
	if err := n.Check(); err != nil || n.Checkpoint == nil {
		return err
	}
	return jsoncheck.Check("checkpoint", n.Checkpoint)
}

// note records a note in the row of the attempt that runs.
func (d *delivery) note(n *posthaste.Note) {
	a := d.attemptRow()
	if a == nil {
		return
	}
	if n.Checkpoint != nil {
		a.Checkpoint = n.Checkpoint
	}
	if n.Progress != nil {
		a.Progress, a.ProgressText = *n.Progress, n.ProgressText
	}
	a.Log = posthaste.LogTail(a.Log+n.Log, posthaste.MaxLogBytes)
}

func (e *Engine) delivery(id posthaste.DeliveryID) *delivery {
	if id < 1 || int(id) > len(e.deliveries) {
		return nil
	}
	return e.deliveries[id-1]
}
