package sidekiq

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// buryLease is how long a run that is killed keeps dead jobs that it was burying.
	buryLease = 10 * time.Second
	// buryPause is between two looks at the queue of the dead jobs.
	buryPause = 100 * time.Millisecond
	// settledCounts is how many different counts are seen until one has begun after
	// the first look: the first may be old, and the second may have been under way.
	settledCounts = 3
)

// look reads the state of the queue of the dead jobs. A store may count in its upkeep
// alone, which perhaps nobody else asks for.
func (i *importer) look(ctx context.Context) (posthaste.QueueInfo, error) {
	for range 10 { // with More it may have come to no counting
		if reply, err := i.to.Maintain(ctx); err != nil {
			return posthaste.QueueInfo{}, err
		} else if !reply.More {
			break
		}
	}
	found, err := i.to.Queues(ctx, i.Dead)
	if err != nil {
		return posthaste.QueueInfo{}, err
	}
	if len(found) == 0 {
		return posthaste.QueueInfo{}, &posthaste.Error{Code: posthaste.NotFound, Field: "dead", Message: fmt.Sprintf("there is no queue %q for the dead jobs", i.Dead),
			Hint: "create it, for these alone: posthaste queue create " + i.Dead}
	}
	return found[0], nil
}

// mayBury refuses a queue in which bury could not make dead letters of the dead jobs,
// and of them alone, before any job is taken.
func (i *importer) mayBury(ctx context.Context) error {
	q, err := i.look(ctx)
	if err != nil {
		return err
	}
	const another = "give --dead a queue that nothing else is sent to or received from"
	refused := func(hint, why string) error {
		return &posthaste.Error{Code: posthaste.Refused, Field: "dead", Message: "queue " + i.Dead + " cannot take the dead jobs: " + why, Hint: hint}
	}
	switch subs := q.Subscriptions; {
	case q.Options.Mode == posthaste.AtMostOnce:
		return refused("give --dead a queue of mode at_least_once", "it hands out at most once, and so has no dead letters")
	case !q.PausedAt.IsZero():
		return refused("resume it: posthaste queue resume "+i.Dead, "it is paused")
	case q.Options.Limits != posthaste.QueueLimits{}:
		return refused("give --dead a queue without limits", "it has limits")
	case len(subs) != 1 || subs[0].Name != posthaste.DefaultSubscription || len(subs[0].Filter.Kinds)+len(subs[0].Filter.Headers) > 0 || subs[0].MaxLag > 0:
		return refused("give --dead a queue with no subscription but its own", "it has subscriptions, or a filter")
	case subs[0].Depth+subs[0].InFlight == 0:
		return nil
	}
	// What an import that was cut short has sent may wait there, and nothing else.
	for _, state := range []posthaste.State{posthaste.StateReady, posthaste.StateRunning, posthaste.StateRetrying, posthaste.StateScheduled} {
		for f := (posthaste.MessageFilter{Queue: i.Dead, State: state, Limit: 1000}); ; {
			some, cut, err := i.to.Messages(ctx, f)
			if err != nil {
				return err
			}
			for _, m := range some {
				if m.Headers[headerSet] != "dead" {
					return refused(another, fmt.Sprintf("message %d waits in it, which was no dead job", m.ID))
				}
			}
			if f.Before = cut; cut == 0 {
				if len(some) < f.Limit {
					break
				}
				f.Before = some[len(some)-1].ID
			}
		}
	}
	return nil
}

// bury makes dead letters of the dead jobs that were sent, in this run or one that was
// cut short: for what that holds still, it waits. It ends when a count that began after
// all were sent says that nothing is left.
func (i *importer) bury(ctx context.Context) error {
	var counted time.Time
	counts := 0
	for end := time.Now().Add(i.patience); ; {
		reply, err := i.to.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: i.Dead}, Max: i.Batch, Lease: buryLease})
		if err != nil {
			return err
		}
		buried, err := i.settle(ctx, reply.Deliveries)
		i.report.Dead += buried
		if err != nil {
			return err
		}
		if buried > 0 {
			end, counts = time.Now().Add(i.patience), 0
			continue
		}
		q, err := i.look(ctx)
		if err != nil {
			return err
		}
		var left int64
		for _, s := range q.Subscriptions {
			left += s.Depth + s.InFlight
			if !s.CountedAt.Equal(counted) {
				counted = s.CountedAt
				counts++
			}
		}
		if left == 0 && counts >= settledCounts {
			return nil
		}
		if time.Now().After(end) {
			if left == 0 {
				return &posthaste.Error{Code: posthaste.Unavailable, Message: "whether all dead jobs became dead letters of queue " + i.Dead + " is not known: it was not counted meanwhile", Hint: "run it again"}
			}
			return &posthaste.Error{Code: posthaste.Refused, Field: "dead", Message: fmt.Sprintf("%d of the dead jobs sent to queue %s are no dead letters, and wait there to be handed out", left, i.Dead),
				Hint: "see that nobody else receives from it and that it is not paused or limited, and run it again before anybody does"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(buryPause):
		}
	}
}

// settle makes dead letters of deliveries, and says of how many.
func (i *importer) settle(ctx context.Context, deliveries []posthaste.RawDelivery) (buried int, err error) {
	if len(deliveries) == 0 {
		return 0, nil
	}
	var all []posthaste.Settlement
	foreign := false
	for _, d := range deliveries {
		s := posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Dead, Error: cmp.Or(d.Headers[headerError], "it was dead when it was imported")}
		if d.Headers[headerSet] != "dead" {
			foreign, s = true, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Released}
		}
		all = append(all, s)
	}
	results, err := i.to.Settle(ctx, all)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		if r.Settled && r.Outcome == posthaste.Dead {
			buried++
		}
	}
	if foreign {
		err = &posthaste.Error{Code: posthaste.Refused, Field: "dead", Message: "queue " + i.Dead + " has messages that were no dead jobs",
			Hint: "give --dead a queue that nothing else is sent to, and run it again"}
	}
	return buried, err
}
