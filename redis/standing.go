package redis

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// registered is the entry of a worker in Redis.
type registered struct {
	Name    string `codec:"n"`
	Version string `codec:"v"`
	Lease   int64  `codec:"l"`
	Started int64  `codec:"s"`
	// Kinds has the kinds that the worker handles in each subscription (enrolled) in which it
	// does not handle all.
	Kinds map[string][]string    `codec:"k,omitempty"`
	Sinks []posthaste.WorkerSink `codec:"d,omitempty"`
}

func workerLost() error {
	return &posthaste.Error{Code: posthaste.CodeWorkerLost, Message: "the worker was declared lost, or ended", Hint: "register it again"}
}

func (e *Engine) workerKeys() []string {
	return []string{e.keys.beats(), e.keys.workers(), e.keys.ticks()}
}

// standing is the registration of a worker that is not lost.
type standing struct {
	registered
	left    int64 // µs until its lease ends
	overdue bool  // the lease of a worker has ended
	tickIn  time.Duration
	firstIn time.Duration // until the first lease of another ends
}

func (e *Engine) beatRegistry(ctx context.Context, what string, worker posthaste.WorkerID, entry string) (s standing, err error) {
	reply, err := workerScript.run(ctx, e.client, e.workerKeys(), arguments{{"what", what}, {"worker", worker.String()}, {"lease", ""}, {"entry", entry}, {"clock", ""}})
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
	if err := unpack(str(all[0]), &s.registered); err != nil {
		return s, err
	}
	e.leases.stand(worker, str(all[0]), s.Kinds)
	return s, nil
}

// beatArgs are the arguments of beat.lua for a worker.
func beatArgs(q *queue, worker posthaste.WorkerID, lease int64, name, begin, kinds string) arguments {
	return arguments{{"number", q.numberArg}, {"worker", worker.String()}, {"lease", lease}, {"name", name}, {"begin", begin}, {"kinds", kinds}, {"paused", q.paused}, {"revision", q.revision()}}
}

// looking are the arguments of beat.lua to look only.
func looking(q *queue, kinds string) arguments {
	return arguments{{"number", q.numberArg}, {"worker", ""}, {"lease", ""}, {"name", ""}, {"begin", ""}, {"kinds", kinds}, {"paused", q.paused}, {"revision", q.revision()}}
}

// join begins a worker's lease of a subscription, which ends no later than the worker's own.
// Each subscription has the leases of its workers among its keys, because its scripts access
// no others.
func (e *Engine) join(ctx context.Context, worker posthaste.WorkerID, ref posthaste.QueueRef) error {
	s, err := e.stands(ctx, "look", worker, "")
	if err != nil {
		return err
	}
	e.leases.join(worker, ref) // before the lease begins, so that heartbeats keep it
	_, _, err = e.on(ctx, beatScript, ref, func(q *queue) arguments {
		return beatArgs(q, worker, s.left, s.Name, "1", "")
	})
	return readError(err)
}

// stands reads or extends the registration of a worker. If it has expired, but the worker kept
// all its leases of subscriptions, no delivery was lost and the worker is registered again.
func (e *Engine) stands(ctx context.Context, what string, worker posthaste.WorkerID, state string) (standing, error) {
	s, err := e.beatRegistry(ctx, what, worker, state)
	if posthaste.CodeOf(err) != posthaste.CodeWorkerLost {
		return s, err
	}
	was, kept, missed := e.keepLeases(ctx, worker)
	switch {
	case missed != nil:
		return s, missed // it is unknown whether deliveries were lost
	case kept:
		return e.beatRegistry(ctx, "return", worker, was)
	}
	// End the other leases, so that their deliveries are rescued soon.
	_, queues, missed := e.holds(ctx, worker)
	if errors.Join(missed, e.endLeases(ctx, worker, queues)) == nil {
		e.leases.forget(worker)
	}
	return s, err
}

// holds returns a worker's entry as it was read last, and the subscriptions that the worker
// claimed from.
func (e *Engine) holds(ctx context.Context, worker posthaste.WorkerID) (was string, queues []*queue, missed error) {
	was, refs := e.leases.of(worker)
	queues, missed = e.found(ctx, worker, maps.Keys(refs))
	return was, queues, missed
}

// endLeases ends those leases of subscriptions that a worker has.
func (e *Engine) endLeases(ctx context.Context, worker posthaste.WorkerID, queues []*queue) error {
	_, err := e.runEach(ctx, beatScript, queues, func(q *queue) arguments {
		return beatArgs(q, worker, -1, "", "", "")
	})
	return readError(err)
}

// keepLeases extends a worker's leases of subscriptions that have not ended. kept reports that
// there are some and that none has ended, so that no delivery of the worker was rescued. was
// is the worker's entry as it was read last.
func (e *Engine) keepLeases(ctx context.Context, worker posthaste.WorkerID) (was string, kept bool, err error) {
	was, queues, missed := e.holds(ctx, worker)
	var is registered
	if was == "" || unpack(was, &is) != nil {
		return was, false, nil
	}
	answers, err := e.runEach(ctx, beatScript, queues, func(q *queue) arguments {
		return beatArgs(q, worker, is.Lease, is.Name, "2", "")
	})
	held, all := 0, true
	for _, answer := range answers {
		if l, ok := answer.([]any); ok && len(l) >= 5 { // else the queue was dropped with its deliveries
			held, all = held+1, all && str(l[4]) == "1"
		}
	}
	return was, held > 0 && all, errors.Join(missed, readError(err))
}

// found returns those of the subscriptions that exist. Of those that cannot be read it returns
// the errors, so that the leases of the others are kept nevertheless.
func (e *Engine) found(ctx context.Context, worker posthaste.WorkerID, refs iter.Seq[posthaste.QueueRef]) (queues []*queue, missed error) {
	for ref := range refs {
		q, err := e.registry.find(ctx, ref)
		switch {
		case posthaste.CodeOf(err) == posthaste.CodeNotFound: // it has ended and has no deliveries
			e.leases.leave(worker, ref)
		case err != nil:
			missed = errors.Join(missed, err)
		default:
			queues = append(queues, q)
		}
	}
	return queues, missed
}
