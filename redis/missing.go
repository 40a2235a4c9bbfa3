package redis

import (
	"context"
	"reflect"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// What this engine does not do yet. Each is refused by its name.

const schedules = "schedules"

// SchedulePut implements [posthaste.Scheduling].
func (e *Engine) SchedulePut(context.Context, posthaste.Schedule) (time.Time, error) {
	return time.Time{}, unsupported("", schedules)
}

// ScheduleDrop implements [posthaste.Scheduling].
func (e *Engine) ScheduleDrop(context.Context, string) error { return unsupported("", schedules) }

// SchedulePause implements [posthaste.Scheduling].
func (e *Engine) SchedulePause(context.Context, string) error { return unsupported("", schedules) }

// ScheduleResume implements [posthaste.Scheduling].
func (e *Engine) ScheduleResume(context.Context, string) (time.Time, error) {
	return time.Time{}, unsupported("", schedules)
}

// Schedules implements [posthaste.Scheduling].
func (e *Engine) Schedules(context.Context, ...string) ([]posthaste.ScheduleInfo, error) {
	return nil, unsupported("", schedules)
}

// Tick implements [posthaste.Scheduling]: there is none that ticks.
func (e *Engine) Tick(context.Context) (posthaste.TickReply, error) {
	return posthaste.TickReply{}, nil
}

const subscriptions = "more than one subscription of a queue"

// QueueSubscribe implements [posthaste.Subscriptions].
func (e *Engine) QueueSubscribe(ctx context.Context, _, name, subscription string, o posthaste.SubscriptionOptions) error {
	if _, err := e.queue(ctx, name); err != nil {
		return err
	}
	if subscription == posthaste.DefaultSubscription && reflect.DeepEqual(o, posthaste.SubscriptionOptions{}) {
		return nil // it is there
	}
	return unsupported("subscription", subscriptions)
}

// QueueUnsubscribe implements [posthaste.Subscriptions].
func (e *Engine) QueueUnsubscribe(ctx context.Context, _, name, subscription string) error {
	if _, err := e.queue(ctx, name); err != nil {
		return err
	}
	if err := subscribed(posthaste.QueueRef{Queue: name, Subscription: subscription}); err != nil {
		return err
	}
	return &posthaste.Error{Code: posthaste.Conflict, Field: "subscription", Message: "this is the only subscription of queue " + name, Hint: "drop the queue, if that is meant"}
}
