package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// QueueUnsubscribe implements [posthaste.Subscriptions]. It hands out nothing from its
// beginning on; what it held is let go of bit by bit. Should that end before it is done,
// upkeep goes on with it.
func (e *Engine) QueueUnsubscribe(ctx context.Context, by, name, subscription string) error {
	all, err := e.queues(ctx)
	if err != nil {
		return err
	}
	if all[name] == nil {
		_, err := e.queue(ctx, name)
		return err
	}
	s, err := e.find(ctx, posthaste.QueueRef{Queue: name, Subscription: subscription})
	if err != nil {
		return err
	}
	more, err := e.leave(ctx, s, 1)
	if err != nil {
		return writeError(err)
	}
	if _, err := e.queues(ctx); err != nil {
		return err
	}
	details, err := json.Marshal(map[string]string{"subscription": s.subscription})
	if err != nil {
		return err
	}
	if err := e.record(ctx, record{By: by, Action: "unsubscribe", Queue: name, Details: details}); err != nil {
		return writeError(err)
	}
	if more {
		_, err = e.leave(ctx, s, math.MaxInt)
	}
	return writeError(err)
}

// leaveMost is how many steps of an end a round of upkeep does for a subscription: what is
// lost elsewhere is to be rescued soon.
const leaveMost = 20

// leave ends a subscription, or goes on with that, by most steps at most. It returns
// whether more are to do.
func (e *Engine) leave(ctx context.Context, s *queue, most int) (more bool, err error) {
	queue, number := s.numberArg, "@"
	if s.born != nil {
		queue, number = s.born.numberArg, s.numberArg
	}
	for range most {
		reply, err := leaveScript.run(ctx, e.client, s.keys, queue, s.rules, number)
		if err != nil {
			return true, err
		}
		switch reply {
		case "more":
		case "gone": // its queue was dropped
			return false, nil
		case "only":
			return false, &posthaste.Error{Code: posthaste.Conflict, Field: "subscription", Message: "this is the only subscription of queue " + quote.Name(s.name), Hint: "subscribe another one first, or drop the queue"}
		case "none", "":
			if s.born == nil {
				return false, nil
			}
			return false, e.strike(ctx, enrolled(s.name, s.subscription), fmt.Sprintf("%s %d {}", s.numberArg, s.enrolled))
		default:
			return false, unexpected("leave", reply)
		}
	}
	return true, nil
}

// leaveAll goes on with what others began to end and did not come to the end of, by most
// steps each.
func (e *Engine) leaveAll(ctx context.Context, q *queue, most int) (more bool, err error) {
	ending := q.leaving
	if q.first == "leaving" {
		ending = append([]*queue{q}, ending...)
	}
	for _, s := range ending {
		further, fault := e.leave(ctx, s, most)
		more, err = more || further, errors.Join(err, fault)
	}
	return more, err
}

// strayFor is how long a subscription that was enrolled may be on its way.
const strayFor = time.Minute

// strikeStray strikes subscriptions off the registry that are not there: their making or the
// last step of their ends was cut short, and their numbers would be used up.
func (e *Engine) strikeStray(ctx context.Context, q *queue, age time.Duration) error {
	for _, f := range q.stray {
		number, at, ok := f.parts()
		if !ok {
			continue
		}
		reply, err := forsakeScript.run(ctx, e.client, q.keys, q.numberArg, number, at, age.Microseconds())
		if err == nil && reply == "ok" {
			err = e.strike(ctx, f.name, f.is)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// strike strikes what a field of the registry is, unless it is something else by now.
func (e *Engine) strike(ctx context.Context, field, is string) error {
	_, err := strikeScript.run(ctx, e.client, []string{e.keys.queues()}, field, is)
	return err
}
