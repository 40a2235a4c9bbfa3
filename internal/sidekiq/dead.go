package sidekiq

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// buryLease is how long a killed run holds dead jobs that it was burying.
	buryLease = 10 * time.Second
	// buryPause is the interval between two checks of the dead jobs' queue.
	buryPause = 100 * time.Millisecond
	// settledCounts is the number of different counts to see until one has certainly started
	// after the first check: the first may be old, and the second may have been running.
	settledCounts = 3
)

// look reads the state of the dead jobs' queue. A store may count only during upkeep, which
// perhaps no other process runs.
func (i *importer) look(ctx context.Context) (posthaste.QueueInfo, error) {
	for range 10 { // with More the round may not have reached the counting
		if reply, err := i.to.Maintain(ctx, posthaste.UpkeepSpace); err != nil {
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
		return posthaste.QueueInfo{}, &posthaste.Error{Code: posthaste.CodeNotFound, Field: "dead", Message: fmt.Sprintf("queue %q for the dead jobs does not exist", i.Dead),
			Hint: "create it, only for these: posthaste queue create " + i.Dead}
	}
	return found[0], nil
}

// mayBury rejects a queue in which bury could not make dead letters of exactly the dead jobs,
// before any job is imported.
func (i *importer) mayBury(ctx context.Context) error {
	q, err := i.look(ctx)
	if err != nil {
		return err
	}
	const another = "give --dead a queue that nothing else is sent to or received from"
	refused := func(hint, why string) error {
		return &posthaste.Error{Code: posthaste.CodeRefused, Field: "dead", Message: "queue " + i.Dead + " cannot take the dead jobs: " + why, Hint: hint}
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
	// Jobs of an interrupted import may wait there, but no other messages.
	for _, state := range []posthaste.State{posthaste.StateReady, posthaste.StateRunning, posthaste.StateRetrying, posthaste.StateScheduled} {
		for f := (posthaste.MessageFilter{Queue: i.Dead, State: state, Limit: 1000}); ; {
			some, err := i.to.Messages(ctx, f)
			if err != nil {
				return err
			}
			for _, m := range some.Items {
				if m.Headers[headerSet] != "dead" {
					return refused(another, fmt.Sprintf("message %d waits in it, which was not a dead job", m.ID))
				}
			}
			if f.Before = some.Next; some.Next == 0 {
				break
			}
		}
	}
	return nil
}

// bury turns the sent dead jobs into dead letters, including those of an interrupted run, and
// waits for deliveries that such a run still holds. It ends when a count that began after the
// last send finds nothing left.
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
				return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "whether all dead jobs became dead letters of queue " + i.Dead + " is not known: it was not counted meanwhile", Hint: "run it again"}
			}
			return &posthaste.Error{Code: posthaste.CodeRefused, Field: "dead", Message: fmt.Sprintf("%d of the dead jobs sent to queue %s are not dead letters, and wait there to be handed out", left, i.Dead),
				Hint: "make sure that no other consumer receives from it and that it is not paused or limited, and run the import again"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(buryPause):
		}
	}
}

// settle turns deliveries into dead letters, and returns how many.
func (i *importer) settle(ctx context.Context, deliveries []posthaste.RawDelivery) (buried int, err error) {
	if len(deliveries) == 0 {
		return 0, nil
	}
	var all []posthaste.Settlement
	foreign := false
	for _, d := range deliveries {
		s := posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: cmp.Or(d.Headers[headerError], "it was dead when it was imported")}
		if d.Headers[headerSet] != "dead" {
			foreign, s = true, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeReleased}
		}
		all = append(all, s)
	}
	results, err := i.to.Settle(ctx, all)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		if r.Settled && r.Outcome == posthaste.OutcomeDead {
			buried++
		}
	}
	if foreign {
		err = &posthaste.Error{Code: posthaste.CodeRefused, Field: "dead", Message: "queue " + i.Dead + " has messages that were not dead jobs",
			Hint: "give --dead a queue that nothing else is sent to, and run it again"}
	}
	return buried, err
}
