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

// Unsubscribe implements [posthaste.QueueAdmin]. The subscription hands out no message
// from the first step on, and lets go of its messages in further steps. If the call is
// interrupted, upkeep continues it.
func (e *Engine) Unsubscribe(ctx context.Context, name, subscription string, o posthaste.DropOptions) error {
	all, err := e.registry.read(ctx)
	if err != nil {
		return err
	}
	if all[name] == nil {
		_, err := e.registry.queue(ctx, name)
		return err
	}
	s, err := e.registry.find(ctx, posthaste.QueueRef{Queue: name, Subscription: subscription})
	if err != nil {
		return err
	}
	if o.IfEmpty {
		if err := e.refuseContents(ctx, name, s.subscription); err != nil {
			return err
		}
	}
	more, err := e.leave(ctx, s, 1)
	if err != nil {
		return writeError(err)
	}
	details, err := json.Marshal(map[string]string{"subscription": s.subscription})
	if err != nil {
		return err
	}
	if err := e.record(ctx, record{Action: "unsubscribe", Queue: name, Details: details}); err != nil {
		return writeError(err)
	}
	if _, err := e.registry.read(ctx); err != nil {
		return err
	}
	if more {
		_, err = e.leave(ctx, s, math.MaxInt)
	}
	return writeError(err)
}

// leaveMost is the maximum of steps per subscription in a round of upkeep, so that rescues of
// other queues do not wait long.
const leaveMost = 20

// leave ends a subscription, or continues its end, in up to most steps. It returns whether more
// steps are needed.
func (e *Engine) leave(ctx context.Context, s *queue, most int) (more bool, err error) {
	queue, number := s.numberArg, "@"
	if s.born != nil {
		queue, number = s.born.numberArg, s.numberArg
	}
	for tries := 0; most > 0; {
		reply, err := leaveScript.run(ctx, e.client, s.keys, arguments{{"queue", queue}, {"rules", s.rules}, {"number", number}})
		if err != nil {
			return true, err
		}
		switch reply {
		case "more":
			most--
		case "gone":
			tries++
			if s, err = e.again(ctx, s); s == nil || tries > 5 { // its queue was dropped, or changes all the time
				return s != nil, err
			}
		case "only":
			return false, &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "this is the only subscription of queue " + quote.Name(s.name), Hint: "subscribe another one first, or drop the queue"}
		case "none", "":
			if s.born == nil {
				return false, nil
			}
			return false, e.removeEnrollment(ctx, enrolled(s.name, s.subscription), fmt.Sprintf("%s %d {}", s.numberArg, s.enrolled))
		default:
			return false, unexpected("leave", reply)
		}
	}
	return true, nil
}

// again returns a subscription as the registry has it now, also one that is leaving; nil if it has
// none any more.
func (e *Engine) again(ctx context.Context, s *queue) (*queue, error) {
	if err := e.remake(ctx, s); err != nil {
		return nil, err
	}
	q, err := e.registry.queue(ctx, s.name)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, now := range append([]*queue{q}, append(q.subs, q.leaving...)...) {
		if now.number == s.number && now.created == s.created {
			return now, nil
		}
	}
	return nil, nil
}

// leaveAll continues the interrupted ends of subscriptions, in up to most steps each.
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

// strayFor is how long an enrolled subscription may take to be made.
const strayFor = time.Minute

// removeStrayEnrollments removes subscriptions from the registry that do not exist, because their
// making or the last step of their ends was interrupted. Otherwise their numbers would stay in use.
func (e *Engine) removeStrayEnrollments(ctx context.Context, q *queue, age time.Duration) error {
	for _, f := range q.stray {
		number, at, ok := f.parts()
		if !ok {
			continue
		}
		reply, err := expireEnrollmentScript.run(ctx, e.client, q.keys, arguments{{"queue", q.numberArg}, {"number", number}, {"enrolled", at}, {"age", age.Microseconds()}})
		if err == nil && reply == "ok" {
			err = e.removeEnrollment(ctx, f.name, f.is)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeEnrollment removes a field of the registry, unless its value has changed.
func (e *Engine) removeEnrollment(ctx context.Context, field, is string) error {
	_, err := removeEnrollmentScript.run(ctx, e.client, []string{e.keys.queues()}, arguments{{"field", field}, {"value", is}})
	return err
}
