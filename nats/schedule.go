package nats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
)

// schedule is an entry schedule.<name> of the store.
type schedule struct {
	Name  string `json:"name"`
	Queue string `json:"queue"`
	// Of is when the queue was created: a schedule ends with its queue.
	Of time.Time `json:"of"`
	cron.Record
	Pause *pauseNote `json:"pause,omitempty"`
}

// schedules are the schedules of the store.
type schedules struct {
	entryCache[schedule]
	resting resting
}

// tickAgain is how long the schedules of a queue rest after one of them failed, because the stream of the
// queue may have no leader.
const tickAgain = 5 * time.Second

// resting has the queues whose schedules failed, so that these do not delay those of other queues.
type resting struct {
	mu     sync.Mutex
	failed map[string]time.Duration // when the last try failed, by uptime
}

// rests returns how long the schedules of a queue still rest.
func (r *resting) rests(queue string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, failed := r.failed[queue]
	if !failed {
		return 0
	}
	return max(0, at+tickAgain-uptime())
}

// tried records how a try of a schedule of a queue ended.
func (r *resting) tried(queue string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = map[string]time.Duration{}
	}
	if err == nil {
		delete(r.failed, queue)
	} else {
		r.failed[queue] = uptime()
	}
}

// message returns the message of the schedule, without the headers of a tick.
func (s *schedule) message() posthaste.Message { return s.Message(s.Queue) }

// at returns the message of a tick.
func (s *schedule) at(tick time.Time) posthaste.Message { return cron.Tick(s.Name, s.message(), tick) }

// ticks reports whether the schedule will tick.
func (s *schedule) ticks() bool { return s.Pause == nil && !s.Next.IsZero() }

func (s *schedule) info() posthaste.ScheduleInfo {
	var pausedAt time.Time
	if s.Pause != nil {
		pausedAt = s.Pause.Since
	}
	info := s.Info(s.Name, s.Queue, pausedAt)
	info.Message.Headers, info.Message.Terms = maps.Clone(s.Headers), slices.Clone(s.Terms)
	return info
}

// queueOfSchedule returns the queue of a schedule, or nil if it was dropped, even if another queue now has its
// name.
func (e *Engine) queueOfSchedule(ctx context.Context, s *schedule) (*queue, error) {
	if q := e.queues.known(s.Queue); q != nil && q.Ready && q.CreatedAt.Equal(s.Of) {
		return q, nil
	}
	q, err := e.freshQueue(ctx, s.Queue)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		return nil, nil
	}
	if err != nil || !q.CreatedAt.Equal(s.Of) {
		return nil, err
	}
	return q, nil
}

// freshSchedules returns the schedules that the store has now, without those whose queues were
// dropped.
func (e *Engine) freshSchedules(ctx context.Context) (map[string]*schedule, error) {
	all, err := e.schedules.freshAll(ctx)
	if err != nil {
		return nil, err
	}
	for name, s := range all {
		q, err := e.queueOfSchedule(ctx, s)
		if err != nil {
			return nil, err
		}
		if q == nil {
			delete(all, name)
		}
	}
	return all, nil
}

// dropSchedulesOf removes the schedules of a queue that was dropped. Those that are left if it fails do not
// send, and tick removes them.
func (e *Engine) dropSchedulesOf(ctx context.Context, queue string) error {
	all, err := e.schedules.freshAll(ctx)
	if err != nil {
		return err
	}
	for name, s := range all {
		if s.Queue != queue {
			continue
		}
		if err := e.dropOrphan(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// dropOrphan removes a schedule if its queue was dropped.
func (e *Engine) dropOrphan(ctx context.Context, name string) error {
	_, err := e.schedules.change(ctx, name, func(was *schedule) (*schedule, error) {
		if was == nil {
			return nil, errSame
		}
		if q, err := e.queueOfSchedule(ctx, was); err != nil || q != nil {
			return nil, cmp.Or(err, errSame)
		}
		return nil, nil
	})
	return err
}

func noSchedule(name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "schedule " + quoted(name) + " does not exist", Hint: "check its name; list the schedules"}
}
