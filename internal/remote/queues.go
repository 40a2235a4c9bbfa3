package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Queues implements [posthaste.Engine].
func (s *Store) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if names == nil {
		return list(ctx, s, "/v1/queues", wire.Queue.Stored)
	}
	return named(ctx, s, "/v1/queues/{}", names, wire.Queue.Stored)
}

// named reads the resources with the names, in order. It leaves out those that do not exist.
func named[Shown, T any](ctx context.Context, s *Store, pattern string, names []string, stored func(Shown) (T, error)) ([]T, error) {
	var all []T
	for _, name := range names {
		if posthaste.CheckName("name", name) != nil {
			continue // nothing can have it
		}
		var shown Shown
		err := s.get(ctx, path(pattern, name), nil, &shown)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		one, err := stored(shown)
		if err != nil {
			return nil, s.unreadable(err)
		}
		all = append(all, one)
	}
	return all, nil
}

// missing is the error for a name that nothing can have. It must not become a part of a path.
func missing(what, name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: what, Message: fmt.Sprintf("%s '%s' does not exist", what, printable(name))}
}

// onQueue makes a call on a queue.
func (s *Store) onQueue(ctx context.Context, method, pattern, queue string, body, value any) error {
	if posthaste.CheckName("queue", queue) != nil {
		return missing("queue", queue)
	}
	return s.send(ctx, method, path(pattern, queue), body, value)
}

// CreateQueue implements [posthaste.QueueAdmin].
func (s *Store) CreateQueue(ctx context.Context, name string, options posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	return s.onQueue(ctx, http.MethodPut, "/v1/queues/{}", name, options.Object(time.Duration.String), nil)
}

// UpdateQueue implements [posthaste.QueueAdmin].
func (s *Store) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	return s.onQueue(ctx, http.MethodPatch, "/v1/queues/{}", name, update.Object(time.Duration.String), nil)
}

// DropQueue implements [posthaste.QueueAdmin].
func (s *Store) DropQueue(ctx context.Context, name string, o posthaste.DropOptions) error {
	if o.IfEmpty {
		return unsupported("remove a queue or subscription only if it is empty")
	}
	return s.onQueue(ctx, http.MethodDelete, "/v1/queues/{}", name, nil, nil)
}

// PurgeQueue implements [posthaste.QueueAdmin].
func (s *Store) PurgeQueue(ctx context.Context, queue string) ([]posthaste.Purged, error) {
	var shown wire.PurgedAll
	err := s.onQueue(ctx, http.MethodPost, "/v1/queues/{}/purge", queue, nil, &shown)
	all := make([]posthaste.Purged, len(shown.Subscriptions))
	for i, one := range shown.Subscriptions {
		all[i] = posthaste.Purged(one)
	}
	return all, err
}

// Subscribe implements [posthaste.QueueAdmin].
func (s *Store) Subscribe(ctx context.Context, queue, subscription string, options posthaste.SubscriptionOptions) error {
	if err := posthaste.CheckName("subscription", subscription); err != nil {
		return err
	}
	return s.onSubscription(ctx, http.MethodPut, queue, subscription, wire.NewSubscriptionRequest(options))
}

// Unsubscribe implements [posthaste.QueueAdmin].
func (s *Store) Unsubscribe(ctx context.Context, queue, subscription string, o posthaste.DropOptions) error {
	if o.IfEmpty {
		return unsupported("remove a queue or subscription only if it is empty")
	}
	return s.onSubscription(ctx, http.MethodDelete, queue, subscription, nil)
}

func (s *Store) onSubscription(ctx context.Context, method, queue, subscription string, body any) error {
	if posthaste.CheckName("subscription", subscription) != nil {
		return missing("subscription", subscription)
	}
	return s.onQueue(ctx, method, "/v1/queues/{}/subscriptions/"+subscription, queue, body, nil)
}

// PutSchedule implements [posthaste.ScheduleAdmin].
func (s *Store) PutSchedule(ctx context.Context, schedule posthaste.Schedule) (next time.Time, err error) {
	if err := schedule.Check(); err != nil {
		return next, err
	}
	body, err := wire.EncodeSchedule(schedule)
	if err != nil {
		return next, err
	}
	r, err := s.do(ctx, call{method: http.MethodPut, path: path("/v1/schedules/{}", schedule.Name), body: body})
	var shown wire.Schedule
	err = s.decode(r, err, &shown)
	return shown.NextAt, err
}

// DropSchedule implements [posthaste.ScheduleAdmin].
func (s *Store) DropSchedule(ctx context.Context, name string) error {
	return s.onSchedule(ctx, http.MethodDelete, "/v1/schedules/{}", name, nil)
}

// RunSchedule implements [posthaste.ScheduleAdmin].
func (s *Store) RunSchedule(ctx context.Context, name string) (posthaste.MessageID, error) {
	if posthaste.CheckName("schedule", name) != nil {
		return 0, missing("schedule", name)
	}
	var shown wire.Sent
	err := s.send(ctx, http.MethodPost, path("/v1/schedules/{}/run", name), nil, &shown)
	return shown.ID, err
}

func (s *Store) onSchedule(ctx context.Context, method, pattern, name string, body any) error {
	if posthaste.CheckName("schedule", name) != nil {
		return missing("schedule", name)
	}
	return s.send(ctx, method, path(pattern, name), body, nil)
}

// Schedules implements [posthaste.ScheduleAdmin].
func (s *Store) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	if len(names) == 0 {
		return list(ctx, s, "/v1/schedules", wire.Schedule.Stored)
	}
	return named(ctx, s, "/v1/schedules/{}", names, wire.Schedule.Stored)
}
