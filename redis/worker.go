package redis

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// registered is what the registry has of a worker.
type registered struct {
	Name    string `codec:"n"`
	Version string `codec:"v"`
	Lease   int64  `codec:"l"`
	Started int64  `codec:"s"`
}

func workerLost() error {
	return &posthaste.Error{Code: posthaste.WorkerLost, Message: "the worker was declared lost, or ended", Hint: "register anew"}
}

func (e *Engine) registry() []string {
	return []string{e.keys.beats(), e.keys.workers(), e.keys.ticks()}
}

// Register implements [posthaste.Claims].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	if info.Lease <= 0 {
		return 0, posthaste.Invalidf("lease", "lease must be above zero, got %s", info.Lease)
	}
	reply, err := workerScript.run(ctx, e.client, e.registry(), "register", max(1, info.Lease.Microseconds()),
		packed(map[string]string{"n": info.Name, "v": info.Version}))
	if err != nil {
		return 0, writeError(err)
	}
	n, ok := parseMicros(str(reply))
	if !ok {
		return 0, unexpected("register", reply)
	}
	worker := posthaste.WorkerID(n)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.joined[worker] = map[posthaste.QueueRef]bool{}
	return worker, nil
}

// standing is what the registry says of a worker that is not lost.
type standing struct {
	registered
	left    int64 // µs until its lease ends
	overdue bool  // somebody's lease has ended
	tickIn  time.Duration
	firstIn time.Duration // until the first lease of another ends
}

func (e *Engine) beatRegistry(ctx context.Context, what string, worker posthaste.WorkerID, further ...any) (s standing, err error) {
	reply, err := workerScript.run(ctx, e.client, e.registry(), append([]any{what, worker.String()}, further...)...)
	if err != nil {
		return s, readError(err)
	}
	if reply == "lost" {
		return s, workerLost()
	}
	all, err := list("a worker", reply, 5)
	if err != nil {
		return s, err
	}
	s.left, _ = parseMicros(str(all[1]))
	s.overdue = str(all[2]) == "1"
	s.tickIn = tickIn(str(all[3]))
	if first, ok := parseMicros(str(all[4])); ok {
		s.firstIn = max(1, fromMicros(first))
	}
	e.mu.Lock()
	e.stood[worker] = str(all[0])
	e.mu.Unlock()
	return s, unpack(str(all[0]), &s.registered)
}

func (e *Engine) forget(worker posthaste.WorkerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.joined, worker)
	delete(e.stood, worker)
}

// join begins a worker's lease of a subscription, which ends no later than its own. Each
// knows the leases of those who hold something of it, for scripts of a subscription
// see its keys only.
func (e *Engine) join(ctx context.Context, worker posthaste.WorkerID, ref posthaste.QueueRef) error {
	s, err := e.stands(ctx, "look", worker)
	if err != nil {
		return err
	}
	e.mu.Lock()
	if e.joined[worker] == nil {
		e.joined[worker] = map[posthaste.QueueRef]bool{}
	}
	e.joined[worker][ref] = true // before it begins, so that heartbeats keep it
	e.mu.Unlock()
	_, _, err = e.on(ctx, beatScript, ref, func(q *queue) []any {
		return []any{q.numberArg, worker.String(), s.left, s.Name, "1"}
	})
	return readError(err)
}

// Heartbeat implements [posthaste.Claims]. Where the registry cannot be reached, as with
// its master of a cluster away, it keeps the worker's leases of queues all the same before
// it says so: else others would hand out what the worker is about.
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (reply posthaste.HeartbeatReply, err error) {
	s, err := e.beatSoon(ctx, beat.Worker)
	if posthaste.CodeOf(err) == posthaste.Unavailable {
		_, _, missed := e.keepLeases(ctx, beat.Worker)
		return reply, errors.Join(err, missed)
	}
	if err != nil {
		return reply, err
	}
	reply.Rescue, reply.RescueIn, reply.TickIn = s.overdue, s.firstIn, s.tickIn
	looks, err := e.beatQueues(ctx, beat, s)
	if err != nil {
		return reply, err
	}
	for _, ref := range beat.Queues {
		look := looks[normal(ref)]
		reply.Looks = append(reply.Looks, look.LookReply)
	}
	for _, l := range looks {
		reply.Rescue = reply.Rescue || l.ended
	}
	return reply, nil
}

// stands asks the registry for a worker. One that it has expired, after it was away for a
// whole lease, and that has kept all its leases of queues meanwhile, has lost nothing, and
// returns.
func (e *Engine) stands(ctx context.Context, what string, worker posthaste.WorkerID) (standing, error) {
	s, err := e.beatRegistry(ctx, what, worker)
	if posthaste.CodeOf(err) != posthaste.WorkerLost {
		return s, err
	}
	was, kept, missed := e.keepLeases(ctx, worker)
	switch {
	case missed != nil:
		return s, missed // whether it has lost anything is not known yet
	case kept:
		return e.beatRegistry(ctx, "return", worker, was)
	}
	// What it still held, others need not wait for.
	_, queues, missed := e.holds(ctx, worker)
	if errors.Join(missed, e.endLeases(ctx, worker, queues)) == nil {
		e.forget(worker)
	}
	return s, err
}

// holds are the subscriptions that a worker claimed from, and what it is, as the registry
// said last.
func (e *Engine) holds(ctx context.Context, worker posthaste.WorkerID) (was string, queues []*queue, missed error) {
	e.mu.RLock()
	was = e.stood[worker]
	refs := maps.Clone(e.joined[worker])
	e.mu.RUnlock()
	queues, missed = e.found(ctx, worker, maps.Keys(refs))
	return was, queues, missed
}

// endLeases ends a worker's leases of subscriptions, where it has any.
func (e *Engine) endLeases(ctx context.Context, worker posthaste.WorkerID, queues []*queue) error {
	_, err := e.runEach(ctx, beatScript, queues, func(q *queue) []any {
		return []any{q.numberArg, worker.String(), -1, "", ""}
	})
	return readError(err)
}

// beatSoon waits for the registry for half of the time that there is: the other half is
// for queues whose masters answer.
func (e *Engine) beatSoon(ctx context.Context, worker posthaste.WorkerID) (standing, error) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return e.stands(ctx, "beat", worker)
	}
	type answer struct {
		standing
		err error
	}
	answered := make(chan answer, 1)
	go func() { // whether or not the client looks at the context while it waits
		s, err := e.stands(ctx, "beat", worker)
		answered <- answer{s, err}
	}()
	timer := time.NewTimer(time.Until(deadline) / 2)
	defer timer.Stop()
	select {
	case a := <-answered:
		return a.standing, a.err
	case <-timer.C:
		return standing{}, readError(context.DeadlineExceeded)
	}
}

// keepLeases keeps those of a worker's leases of subscriptions that have not ended, and
// says whether these are all, and there is one: then nothing of the worker was handed out
// anew. was is what it is, as the registry said last.
func (e *Engine) keepLeases(ctx context.Context, worker posthaste.WorkerID) (was string, kept bool, err error) {
	was, queues, missed := e.holds(ctx, worker)
	var is registered
	if was == "" || unpack(was, &is) != nil {
		return was, false, nil
	}
	answers, err := e.runEach(ctx, beatScript, queues, func(q *queue) []any {
		return []any{q.numberArg, worker.String(), is.Lease, is.Name, "2"}
	})
	held, all := 0, true
	for _, answer := range answers {
		if l, ok := answer.([]any); ok && len(l) >= 5 { // else dropped: nothing is held there
			held, all = held+1, all && str(l[4]) == "1"
		}
	}
	return was, held > 0 && all, errors.Join(missed, readError(err))
}

type look struct {
	posthaste.LookReply
	ended bool
}

// normal is a reference that says of which subscription.
func normal(ref posthaste.QueueRef) posthaste.QueueRef {
	ref.Subscription = cmp.Or(ref.Subscription, posthaste.DefaultSubscription)
	return ref
}

// beatQueues keeps the worker's leases of subscriptions and looks at those, in one trip.
func (e *Engine) beatQueues(ctx context.Context, beat posthaste.Heartbeat, s standing) (map[posthaste.QueueRef]look, error) {
	looks := map[posthaste.QueueRef]look{}
	for _, ref := range beat.Queues {
		looks[normal(ref)] = look{LookReply: posthaste.LookReply{NextDue: -1}}
	}
	e.mu.RLock()
	for ref := range e.joined[beat.Worker] {
		looks[ref] = look{LookReply: posthaste.LookReply{NextDue: -1}}
	}
	e.mu.RUnlock()
	queues, missed := e.found(ctx, beat.Worker, maps.Keys(looks))
	answers, err := e.runEach(ctx, beatScript, queues, func(q *queue) []any {
		return []any{q.numberArg, beat.Worker.String(), s.Lease, s.Name, ""}
	})
	if missed = errors.Join(missed, readError(err)); missed != nil {
		return nil, missed
	}
	for i := range answers {
		all, ok := answers[i].([]any)
		if !ok || len(all) < 4 { // dropped, or not made yet
			continue
		}
		l := look{LookReply: posthaste.LookReply{Found: str(all[0]) == "1", NextDue: -1, AtLimit: str(all[3]) == "1"}, ended: str(all[2]) == "1"}
		if n, ok := parseMicros(str(all[1])); ok && n >= 0 {
			l.NextDue = fromMicros(n)
		}
		looks[queues[i].ref()] = l
	}
	return looks, nil
}

// found are the subscriptions of those names that there are, with the error that says why
// some are missing: the others' leases are kept none the less.
func (e *Engine) found(ctx context.Context, worker posthaste.WorkerID, refs iter.Seq[posthaste.QueueRef]) (queues []*queue, missed error) {
	for ref := range refs {
		q, err := e.find(ctx, ref)
		switch {
		case posthaste.CodeOf(err) == posthaste.NotFound: // it has ended: nothing is held there
			e.mu.Lock()
			delete(e.joined[worker], ref)
			e.mu.Unlock()
		case err != nil:
			missed = errors.Join(missed, err)
		default:
			queues = append(queues, q)
		}
	}
	return queues, missed
}

// Unregister implements [posthaste.Claims].
func (e *Engine) Unregister(ctx context.Context, worker posthaste.WorkerID) error {
	_, err := workerScript.run(ctx, e.client, e.registry(), "remove", worker.String())
	all, fault := e.reachable(ctx)
	if err = errors.Join(readError(err), fault, e.endLeases(ctx, worker, allOf(all))); err == nil {
		e.forget(worker)
	}
	return err
}

// reachable are the queues, or those that were known before where the registry cannot be
// read, with the error that says whether some may be missing.
func (e *Engine) reachable(ctx context.Context) (map[string]*queue, error) {
	all, err := e.queues(ctx)
	if err != nil {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return maps.Clone(e.byName), err
	}
	for _, q := range all {
		err = errors.Join(err, q.unread)
	}
	return all, err
}

// allOf are the subscriptions of queues.
func allOf(queues map[string]*queue) (all []*queue) {
	for _, q := range queues {
		all = append(all, q.all()...)
	}
	return all
}

// Rescue implements [posthaste.Engine].
func (e *Engine) Rescue(ctx context.Context) (lost int, err error) {
	_, lost, _, err = e.rescue(ctx, "")
	return lost, err
}

// rescue returns the queues that there were, too, and, where it is to look at Redis's clock
// ("1"), whether that was set back since somebody looked.
func (e *Engine) rescue(ctx context.Context, look string) (all map[string]*queue, lost int, back bool, err error) {
	reply, err := workerScript.run(ctx, e.client, e.registry(), "expire", look)
	if said, ok := reply.([]any); ok && len(said) > 1 {
		back = str(said[1]) == "1"
	}
	all, fault := e.reachable(ctx)
	err = errors.Join(readError(err), fault)
	// Most have nothing to rescue, which one look tells of many. What cannot be looked at is
	// rescued by itself, if there was an answer at all.
	queues := allOf(all)
	looks, fault := e.runEach(ctx, beatScript, queues, func(q *queue) []any { return []any{q.numberArg, "", "", "", ""} })
	if fault != nil && !answered(fault) {
		err = errors.Join(err, readError(fault))
	}
	for i, q := range queues {
		look, ok := looks[i].([]any)
		if ok && len(look) >= 3 && str(look[2]) == "" || looks[i] == nil && fault != nil && !answered(fault) {
			continue
		}
		n, fault := e.rescueQueue(ctx, q.ref())
		if fault != nil && posthaste.CodeOf(fault) != posthaste.NotFound {
			err = errors.Join(err, readError(fault)) // the others are rescued none the less
		}
		lost += n
	}
	return all, lost, back, err
}

// rescueMost bounds one script, as claimMost: a lost delivery costs more than others.
const rescueMost = 500

func (e *Engine) rescueQueue(ctx context.Context, ref posthaste.QueueRef) (lost int, err error) {
	reply, _, err := e.on(ctx, rescueScript, ref, func(q *queue) []any { return []any{q.numberArg, q.rules, rescueMost} })
	n, _ := reply.(int64)
	return int(n), err
}

// Workers implements [posthaste.Admin]. Those that are overdue are told as lost;
// once rescued they are forgotten.
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	workers, err := e.registered(ctx)
	var all []posthaste.WorkerStatus
	for _, w := range workers {
		all = append(all, w.WorkerStatus)
	}
	return all, err
}

// registeredWorker is one of the registry, with the lease that it keeps.
type registeredWorker struct {
	posthaste.WorkerStatus
	lease time.Duration
}

// registered are the workers of the registry, by their ids.
func (e *Engine) registered(ctx context.Context) (all []registeredWorker, err error) {
	values, err := e.client.HGetAll(ctx, e.keys.workers()).Result()
	if err != nil {
		return nil, readError(err)
	}
	ends, err := e.client.ZRangeWithScores(ctx, e.keys.beats(), 0, -1).Result()
	if err != nil {
		return nil, readError(err)
	}
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	for _, z := range ends {
		place, _ := z.Member.(string)
		var is registered
		n, ok := parseMicros(place)
		if values[place] == "" || !ok {
			continue
		}
		if err := unpack(values[place], &is); err != nil {
			return nil, err
		}
		w := registeredWorker{lease: fromMicros(is.Lease), WorkerStatus: posthaste.WorkerStatus{ID: posthaste.WorkerID(n), Name: is.Name, Version: is.Version,
			StartedAt: at(is.Started), HeartbeatAt: at(int64(z.Score) - is.Lease)}}
		if end := at(int64(z.Score)); end.Before(now) {
			w.LostAt = end
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b registeredWorker) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}
