package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// errNoHandler is the result of a message of a kind without a handler.
var errNoHandler = errors.New("the worker has no handler for this kind")

// kinds chooses the handler of a message of one subscription by its kind.
type kinds struct {
	byKind map[string]*route
	rest   *route // handles all other kinds; nil: they are set aside
}

// handler returns the route of a kind, or nil.
func (k *kinds) handler(kind string) *route {
	if r, ok := k.byKind[kind]; ok {
		return r
	}
	return k.rest
}

// handle is the handler of a subscription with kinds.
func (k *kinds) handle(ctx context.Context, d posthaste.RawDelivery) error {
	r := k.handler(d.Kind)
	if r == nil {
		return errNoHandler
	}
	return r.handler(ctx, d)
}

// deliver is the handler of a subscription with kinds whose handlers get several messages.
func (k *kinds) deliver(ctx context.Context, note func(int, error), items []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(items))
	groups := map[*route][]int{}
	var order []*route
	for i := range items {
		r := k.handler(items[i].Kind)
		if r == nil {
			results[i].Err = errNoHandler
			note(i, errNoHandler) // whatever the calls below do
			continue
		}
		if groups[r] == nil {
			order = append(order, r)
		}
		groups[r] = append(groups[r], i)
	}
	for n, r := range order {
		k.deliverGroup(ctx, r, groups[r], n == len(order)-1, note, items, results)
	}
	return results
}

// deliverGroup calls the handler of one kind. A panic fails the messages of this kind only.
func (k *kinds) deliverGroup(ctx context.Context, r *route, places []int, last bool, note func(int, error), items []posthaste.RawDelivery, results []posthaste.SinkResult) {
	own := make([]posthaste.RawDelivery, len(places))
	for n, i := range places {
		own[n] = items[i]
	}
	answers := deliver(ctx, r.many, func(n int, err error) { note(places[n], err) }, own, func(err error) {
		for _, i := range places {
			note(i, err)
		}
	})
	for n, i := range places {
		results[i] = answers[n]
		if !last && answers[n].Receipt == nil && answers[n].Terms == nil {
			note(i, answers[n].Err) // a later kind may end this goroutine
		}
	}
}

// joinKinds returns the routes with those of one subscription joined, and all conflicts between
// their options.
func joinKinds(routes []*route) (joined []*route, faults []error) {
	of := map[posthaste.QueueRef][]*route{}
	for _, r := range routes {
		of[r.ref] = append(of[r.ref], r)
	}
	for _, ref := range refsOf(routes) {
		switch members := of[ref]; {
		case len(members) == 0: // joined before
		case len(members) == 1 && members[0].kind == nil:
			joined = append(joined, members[0])
		default:
			r, err := joinRoutes(members)
			joined, faults = append(joined, r), append(faults, err...)
		}
		delete(of, ref)
	}
	return joined, faults
}

// joinRoutes joins the routes of one subscription, whose handlers have their middleware.
func joinRoutes(members []*route) (*route, []error) {
	first := members[0]
	k := &kinds{byKind: map[string]*route{}}
	joined := &route{ref: first.ref, concurrency: first.concurrency, batch: first.batch, single: first.single, wanted: first.wanted, kinds: k}
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, posthaste.Invalidf(field, format, args...))
	}
	queue := first.ref.Queue
	bounded, sized := false, false
	for _, r := range members {
		if r.kind == nil {
			k.rest = r
		} else {
			k.byKind[*r.kind] = r
		}
		if (r.many == nil) != (first.many == nil) {
			fault("handler", "the handlers of queue %q must either all get single messages or all get batches", queue)
		}
		if r.single != first.single {
			fault("WithOwnTransaction", "either all handlers of queue %q or none of them must settle in a transaction of its own", queue)
		}
		if r.bounded {
			if bounded && r.concurrency != joined.concurrency {
				fault("Concurrency", "the handlers of queue %q have the concurrencies %d and %d, which apply to the queue: give one of them", queue, joined.concurrency, r.concurrency)
			}
			joined.concurrency, bounded = r.concurrency, true
		}
		if r.sized {
			if sized && r.batch != joined.batch {
				fault("BatchSize", "the handlers of queue %q have the batch sizes %d and %d, which apply to the queue: give one of them", queue, joined.batch, r.batch)
			}
			joined.batch, sized = r.batch, true
		}
	}
	if first.many != nil {
		joined.many = k
	} else {
		joined.handler = k.handle
	}
	return joined, faults
}

// handledKinds returns the kinds that the worker handles, of the subscriptions in which it does
// not handle all.
func handledKinds(routes []*route) map[posthaste.QueueRef][]string {
	var all map[posthaste.QueueRef][]string
	for _, r := range routes {
		if r.kinds == nil || r.kinds.rest != nil {
			continue
		}
		if all == nil {
			all = map[posthaste.QueueRef][]string{}
		}
		all[r.ref] = slices.Sorted(maps.Keys(r.kinds.byKind))
	}
	return all
}

// retryDelay returns the wait that the route's policy sets, or 0. A policy that panics, or ends its
// goroutine, sets none.
func (r *route) retryDelay(d *posthaste.RawDelivery, err error) (wait time.Duration) {
	policy := r.retry
	if r.kinds != nil {
		if own := r.kinds.handler(d.Kind); own != nil {
			policy = own.retry
		}
	}
	if policy == nil {
		return 0
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = protect(func() error {
			wait = policy.NextRetry(*d, err)
			return nil
		}, func(error) {})
	}()
	<-answered
	return max(wait, 0)
}
