package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// prepare checks the queues, opens the doorbell and registers the worker. While the store is
// unavailable, it retries.
func (rt *runtime) prepare(ctx context.Context) error {
	retry := backoff{report: rt.report, task: "start"}
	for _, step := range []func(context.Context) error{rt.checkQueues, rt.openBell, rt.heart.register} {
		for {
			err := step(ctx)
			if err == nil {
				break
			}
			if hopeless(err) || !retry.failed(ctx, err) {
				if rt.bell != nil {
					rt.bell.Close()
				}
				return err
			}
		}
	}
	retry.worked()
	return nil
}

func (rt *runtime) checkQueues(ctx context.Context) error {
	names := make([]string, len(rt.routes))
	missing := map[posthaste.QueueRef]bool{}
	for i, r := range rt.routes {
		names[i] = r.ref.Queue
		missing[r.ref] = true
	}
	return bounded(ctx, callTimeout, func(ctx context.Context) error {
		infos, err := rt.engine.Queues(ctx, slices.Compact(slices.Sorted(slices.Values(names)))...)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, info := range infos {
			there[info.Name] = true
			if err := rt.learnOptions(info); err != nil {
				return err
			}
			for _, sub := range info.Subscriptions {
				delete(missing, posthaste.QueueRef{Queue: info.Name, Subscription: sub.Name})
			}
		}
		for ref := range missing {
			if there[ref.Queue] {
				return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "subscription",
					Message: fmt.Sprintf("queue %q has no subscription %q", ref.Queue, ref.Subscription), Hint: "create it before you start its worker"}
			}
			return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue",
				Message: fmt.Sprintf("queue %q not found", ref.Queue), Hint: "create it before you start its worker"}
		}
		return nil
	})
}

// learnOptions sets what the routes of a queue must know of its options.
func (rt *runtime) learnOptions(info posthaste.QueueInfo) error {
	for _, r := range rt.routes {
		if r.ref.Queue != info.Name {
			continue
		}
		once := info.Options.Mode == posthaste.AtMostOnce
		if once && r.single {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "mode",
				Message: fmt.Sprintf("queue %q is at-most-once and cannot have a handler with the option WithOwnTransaction", info.Name),
				Hint:    "register the handler without that option: a claim already settles messages of an at-most-once queue"}
		}
		if once && r.kinds != nil && r.kinds.rest == nil {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "mode",
				Message: fmt.Sprintf("queue %q is at-most-once, so that a message of a kind without a handler would be lost", info.Name),
				Hint:    "also register a handler for all other kinds with Handle"}
		}
		r.once.Store(once)
		r.lanes = max(1, info.Options.Lanes)
	}
	return nil
}

func (rt *runtime) openBell(ctx context.Context) error {
	// The doorbell is used until ctx ends, so that the call cannot be bounded.
	bell, err := rt.engine.Doorbell(ctx)
	if err == nil {
		rt.bell = bell
	}
	return err
}
