package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Register implements [posthaste.Engine].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	if info.Lease <= 0 {
		return 0, posthaste.Invalidf("lease", "lease must be above zero, got %s", info.Lease)
	}
	kinds := kindsOf(info)
	reply, err := workerScript.run(ctx, e.client, e.workerKeys(), arguments{{"what", "register"}, {"worker", ""}, {"lease", max(1, info.Lease.Microseconds())},
		{"entry", packed(registered{Name: info.Name, Version: info.Version, Kinds: kinds, Sinks: info.Sinks})}, {"clock", ""}})
	if err != nil {
		return 0, writeError(err)
	}
	n, ok := parseMicros(str(reply))
	if !ok {
		return 0, unexpected("register", reply)
	}
	worker := posthaste.WorkerID(n)
	e.leases.begin(worker, kinds)
	return worker, nil
}

// kindsOf returns the kinds that a worker handles as the registry has them: by subscription
// (enrolled), and nil if it handles all everywhere, because a script would make a list of an
// empty map.
func kindsOf(info posthaste.WorkerInfo) (kinds map[string][]string) {
	for ref, some := range info.Kinds {
		if kinds == nil {
			kinds = map[string][]string{}
		}
		ref = ref.Normal()
		kinds[enrolled(ref.Queue, ref.Subscription)] = append([]string{}, some...) // not nil, which would mean all kinds
	}
	return kinds
}

// Heartbeat implements [posthaste.Engine]. If the registry of workers cannot be reached, for
// example because its master in a cluster is down, Heartbeat still extends the worker's leases
// of subscriptions before it returns the error. Otherwise the worker's deliveries would be
// rescued while it handles them.
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (reply posthaste.HeartbeatReply, err error) {
	state, err := json.Marshal(beat.State)
	if err != nil {
		return reply, err
	}
	s, err := e.beatSoon(ctx, beat.Worker, string(state))
	if posthaste.CodeOf(err) == posthaste.CodeUnavailable {
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
		look := looks[ref.Normal()]
		reply.Looks = append(reply.Looks, look.LookReply)
	}
	for _, l := range looks {
		reply.Rescue = reply.Rescue || l.ended
		reply.Cancelled = append(reply.Cancelled, l.cancelled...)
	}
	return reply, nil
}

// beatSoon waits for the registry until half of the time is over. The other half is left for
// queues whose masters answer.
func (e *Engine) beatSoon(ctx context.Context, worker posthaste.WorkerID, state string) (standing, error) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return e.stands(ctx, "beat", worker, state)
	}
	type answer struct {
		standing
		err error
	}
	answered := make(chan answer, 1)
	go func() { // the client may ignore the context while it waits
		s, err := e.stands(ctx, "beat", worker, state)
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

type look struct {
	posthaste.LookReply
	ended     bool
	cancelled []posthaste.DeliveryID
}

// beatQueues extends the worker's leases of subscriptions and looks at them, in one call.
func (e *Engine) beatQueues(ctx context.Context, beat posthaste.Heartbeat, s standing) (map[posthaste.QueueRef]look, error) {
	looks := map[posthaste.QueueRef]look{}
	for _, ref := range beat.Queues {
		looks[ref.Normal()] = look{LookReply: posthaste.LookReply{NextDue: -1}}
	}
	_, joined := e.leases.of(beat.Worker)
	for ref := range joined {
		looks[ref] = look{LookReply: posthaste.LookReply{NextDue: -1}}
	}
	queues, missed := e.found(ctx, beat.Worker, maps.Keys(looks))
	answers, err := e.runEach(ctx, beatScript, queues, func(q *queue) arguments {
		kinds, _ := e.leases.kindsOf(beat.Worker, q.ref())
		return beatArgs(q, beat.Worker, s.Lease, s.Name, "", kinds)
	})
	if missed = errors.Join(missed, readError(err)); missed != nil {
		return nil, missed
	}
	for i := range answers {
		all, ok := answers[i].([]any)
		if !ok || len(all) < 6 { // it was dropped, or is not made yet
			continue
		}
		l := look{LookReply: posthaste.LookReply{Found: str(all[0]) == "1", NextDue: -1, AtLimit: str(all[3]) == "1"}, ended: str(all[2]) == "1"}
		if n, ok := parseMicros(str(all[1])); ok && n >= 0 {
			l.NextDue = fromMicros(n)
		}
		cancelled, _ := all[5].([]any)
		for _, p := range cancelled {
			n, err := id(str(p), queues[i].number)
			if err != nil {
				return nil, err
			}
			l.cancelled = append(l.cancelled, posthaste.DeliveryID(n))
		}
		looks[queues[i].ref()] = l
	}
	return looks, nil
}

// Unregister implements [posthaste.Engine].
func (e *Engine) Unregister(ctx context.Context, worker posthaste.WorkerID) error {
	_, err := workerScript.run(ctx, e.client, e.workerKeys(), arguments{{"what", "remove"}, {"worker", worker.String()}, {"lease", ""}, {"entry", ""}, {"clock", ""}})
	all, fault := e.registry.reachable(ctx)
	if err = errors.Join(readError(err), fault, e.endLeases(ctx, worker, allOf(all))); err == nil {
		e.leases.forget(worker)
	}
	return err
}

// Workers implements [posthaste.Observer]. It reports overdue workers as lost, until their
// deliveries have been rescued.
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	workers, err := e.registered(ctx)
	var all []posthaste.WorkerStatus
	for _, w := range workers {
		all = append(all, w.WorkerStatus)
	}
	return all, err
}

// registeredWorker is a worker in the registry, with its lease.
type registeredWorker struct {
	posthaste.WorkerStatus
	lease time.Duration
	kinds map[string][]string
}

// registered returns the workers in the registry, by their ids.
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
		w := registeredWorker{lease: fromMicros(is.Lease), kinds: is.Kinds, WorkerStatus: posthaste.WorkerStatus{ID: posthaste.WorkerID(n), Name: is.Name, Version: is.Version,
			StartedAt: at(is.Started), HeartbeatAt: at(int64(z.Score) - is.Lease), Sinks: is.Sinks}}
		if state := values[place+"="]; state != "" {
			if err := json.Unmarshal([]byte(state), &w.State); err != nil {
				return nil, fmt.Errorf("reading the state of worker %s: %w", place, err)
			}
		}
		if end := at(int64(z.Score)); end.Before(now) {
			w.LostAt = end
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b registeredWorker) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Vitals implements [posthaste.Observer].
func (e *Engine) Vitals(ctx context.Context) (v posthaste.Vitals, err error) {
	workers, err := e.Workers(ctx)
	if err != nil {
		return v, err
	}
	theirs, err := e.client.Time(ctx).Result()
	if err != nil {
		return v, readError(err)
	}
	for _, w := range workers {
		if w.LostAt.IsZero() {
			v.Workers++
			v.HeartbeatAge = max(v.HeartbeatAge, theirs.Sub(w.HeartbeatAt))
		} else {
			v.OverdueWorkers++
		}
	}
	return v, nil
}
