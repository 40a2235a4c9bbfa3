package redis

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// on runs a script for a subscription.
func (e *Engine) on(ctx context.Context, s script, ref posthaste.QueueRef, args func(*queue) arguments) (any, *queue, error) {
	return e.try(ctx, ref, func(q *queue) (any, error) { return s.run(ctx, e.client, q.keys, args(q)) })
}

// try calls do for a subscription, as retry.
func (e *Engine) try(ctx context.Context, ref posthaste.QueueRef, do func(*queue) (any, error)) (any, *queue, error) {
	return e.retry(ctx, func() (*queue, error) { return e.registry.find(ctx, ref) }, do)
}

// tryQueue calls do for a queue, as retry, also if its default subscription has ended.
func (e *Engine) tryQueue(ctx context.Context, name string, do func(*queue) (any, error)) (any, *queue, error) {
	return e.retry(ctx, func() (*queue, error) { return e.registry.queue(ctx, name) }, do)
}

// retry calls do. If do replies "gone", the keys in Redis are those of another queue or lack
// subscriptions: retry reads the queue again, makes missing keys, and repeats the call.
func (e *Engine) retry(ctx context.Context, find func() (*queue, error), do func(*queue) (any, error)) (any, *queue, error) {
	for range 5 {
		q, err := find()
		if err != nil {
			return nil, nil, err
		}
		reply, err := do(q)
		if err != nil || reply != "gone" {
			return reply, q, err
		}
		if err := e.remake(ctx, q); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, busy()
}

func busy() error {
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the queue is being changed by other processes", Hint: "try again"}
}

// each runs a script for each subscription of a queue and passes the replies to then. The
// default subscription is the first, also if it has ended: it has no messages then.
func (e *Engine) each(ctx context.Context, s script, name string, args func(*queue) arguments, then func(*queue, any) error) error {
	return e.eachWith(ctx, s, name, nil, args, then)
}

// eachWith is each for a script with further keys.
func (e *Engine) eachWith(ctx context.Context, s script, name string, keys []string, args func(*queue) arguments, then func(*queue, any) error) error {
	run := func(q *queue) (any, error) { return s.run(ctx, e.client, slices.Concat(q.keys, keys), args(q)) }
	reply, q, err := e.tryQueue(ctx, name, run)
	if err == nil {
		err = then(q, reply)
	}
	if err != nil {
		return err
	}
	for _, sub := range q.subs {
		reply, now, err := e.try(ctx, sub.ref(), run)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue // it has ended since
		}
		if err == nil {
			err = then(now, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// together runs a script once for all subscriptions of a queue, in one atomic step.
func (e *Engine) together(ctx context.Context, s script, name string, args ...arg) (any, *queue, error) {
	return e.togetherWith(ctx, s, name, nil, func(*queue) arguments { return args })
}

// togetherWith is together for a script with further keys, and arguments that depend on the queue.
func (e *Engine) togetherWith(ctx context.Context, s script, name string, keys []string, args func(*queue) arguments) (any, *queue, error) {
	return e.tryQueue(ctx, name, func(q *queue) (any, error) {
		return s.run(ctx, e.client, append(q.allKeys(), keys...), append(arguments{{"number", q.all()[0].numberArg}, {"rules", q.rules}}, args(q)...))
	})
}

// allKeys returns the keys of all subscriptions of the queue.
func (q *queue) allKeys() (names []string) {
	for _, one := range q.all() {
		names = append(names, one.keys...)
	}
	return names
}

// severalMost bounds the queues of one script, during which Redis serves no other client.
const severalMost = 50

// runEach runs a script for each of queues. It returns the replies in their order, nil for
// those that failed, and the errors of these. One call serves 50 queues, so that an idle
// process sends hardly more commands for many queues than for one. In a cluster each queue
// needs its own call, because queues are in different slots.
func (e *Engine) runEach(ctx context.Context, s script, queues []*queue, args func(*queue) arguments) (replies []any, err error) {
	return e.runEachWith(ctx, s, queues, func(q *queue) []string { return q.keys }, args)
}

// runEachWith is runEach for a script with other keys than those of the subscription.
func (e *Engine) runEachWith(ctx context.Context, s script, queues []*queue, keys func(*queue) []string, args func(*queue) arguments) (replies []any, err error) {
	replies = make([]any, len(queues))
	if e.cluster || len(queues) == 1 {
		errs := make([]error, len(queues))
		// In parallel, so that an unreachable server does not cost other queues their leases.
		for from := 0; from < len(queues); from += severalMost {
			var some sync.WaitGroup
			for i := from; i < min(from+severalMost, len(queues)); i++ {
				q := queues[i]
				some.Go(func() { replies[i], errs[i] = s.run(ctx, e.client, keys(q), args(q)) })
			}
			some.Wait()
		}
		return replies, errors.Join(errs...)
	}
	both := s.several()
	for from := 0; from < len(queues); from += severalMost {
		some := queues[from:min(from+severalMost, len(queues))]
		var names []string
		var all arguments
		for _, q := range some {
			its, of := args(q), keys(q)
			s.read().check(its)
			names = append(names, of...)
			all = append(all, arg{is: len(of)}, arg{is: len(its)})
			for _, a := range its {
				all = append(all, arg{is: a.is})
			}
		}
		reply, err := both.run(ctx, e.client, names, all)
		if err != nil {
			return replies, err
		}
		each, err := list("several", reply, len(some))
		if err != nil {
			return replies, err
		}
		copy(replies[from:], each)
	}
	return replies, nil
}

// claimMost bounds one script, during which Redis serves no other client.
const claimMost = 1000
