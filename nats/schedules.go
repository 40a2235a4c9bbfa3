package nats

import (
	"context"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // every process knows every zone: any of them may have to tick

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
)

// PutSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) PutSchedule(ctx context.Context, p posthaste.Schedule) (next time.Time, err error) {
	for range changeTries {
		q, s, err := e.newSchedule(ctx, &p)
		if err != nil {
			return next, err
		}
		was, revision, err := e.schedules.read(ctx, subjectToken(p.Name))
		if err != nil {
			return next, err
		}
		if was != nil && e.hasQueue(ctx, was) {
			if s.sameAs(was) {
				return was.Next, nil
			}
			ticked, err := e.tickBeforePut(ctx, was)
			if err != nil {
				return next, err
			}
			if ticked {
				continue
			}
			s.Continue(&was.Record)
			s.Pause = was.Pause
		}
		_, err = e.schedules.put(ctx, subjectToken(p.Name), s, revision)
		if conflicts(err) {
			continue
		}
		if err != nil {
			return next, e.writeError(err)
		}
		if err := e.stillThere(ctx, q, s); err != nil {
			return next, err
		}
		return s.Next, e.recordSchedule(ctx, "schedule_put", p.Name)
	}
	return next, unavailable("other processes change schedule "+quoted(p.Name)+" at this moment", nil)
}

// hasQueue reports whether the queue of a schedule exists, or may exist because it cannot be read.
func (e *Engine) hasQueue(ctx context.Context, s *schedule) bool {
	q, err := e.queueOfSchedule(ctx, s)
	return q != nil || err != nil
}

// tickBeforePut sends the due ticks of a schedule before it is changed, because another process may be
// sending them.
func (e *Engine) tickBeforePut(ctx context.Context, was *schedule) (ticked bool, err error) {
	if !was.ticks() || was.Next.After(e.clock.now()) {
		return false, nil
	}
	if _, _, err := was.Parsed(); err != nil {
		return false, nil // without the zone, the tick is unknown
	}
	_, _, err = e.tick(ctx, subjectToken(was.Name))
	return true, err
}

// stillThere removes a schedule that was put while its queue was dropped.
func (e *Engine) stillThere(ctx context.Context, q *queue, s *schedule) error {
	now, err := e.freshQueue(ctx, q.Name)
	if err == nil && now.CreatedAt.Equal(q.CreatedAt) {
		return nil
	}
	if err == nil {
		err = noQueue(q.Name)
	}
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		if fault := e.dropOrphan(ctx, subjectToken(s.Name)); fault != nil {
			return fault
		}
	}
	return err
}

// newSchedule checks a schedule that is put, and returns its queue and its entry.
func (e *Engine) newSchedule(ctx context.Context, p *posthaste.Schedule) (*queue, *schedule, error) {
	is, err := cron.Define(p)
	if err != nil {
		return nil, nil, err
	}
	q, err := e.queue(ctx, p.Message.Queue)
	if err != nil {
		return nil, nil, err
	}
	now := e.clock.now()
	s := &schedule{Name: p.Name, Queue: q.Name, Of: q.CreatedAt}
	if s.Record, err = cron.NewRecord(is, now); err != nil {
		return nil, nil, err
	}
	first := s.at(s.Next)
	if err := first.Check(); err != nil {
		return nil, nil, err
	}
	if _, err := e.newOutgoing(q, &first, now); err != nil {
		return nil, nil, err
	}
	q, err = e.ensurePriority(ctx, q, first.Priority)
	return q, s, err
}

// sameAs reports whether two schedules have the same definition.
func (s *schedule) sameAs(was *schedule) bool {
	return s.Queue == was.Queue && s.Of.Equal(was.Of) && s.Same(&was.Definition)
}

// DropSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) DropSchedule(ctx context.Context, name string) error {
	if posthaste.CheckName("name", name) != nil {
		return noSchedule(name)
	}
	if err := e.ready(ctx); err != nil {
		return err
	}
	dropped := false
	_, err := e.schedules.change(ctx, subjectToken(name), func(was *schedule) (*schedule, error) {
		dropped = was != nil && e.hasQueue(ctx, was)
		return nil, nil
	})
	if err != nil {
		return err
	}
	if !dropped {
		return noSchedule(name)
	}
	return e.recordSchedule(ctx, "schedule_drop", name)
}

// RunSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) RunSchedule(ctx context.Context, name string) (posthaste.MessageID, error) {
	s, err := e.scheduleNamed(ctx, name)
	if err != nil {
		return 0, err
	}
	m := cron.Run(name, s.message())
	sent, err := e.Send(ctx, m)
	if err != nil {
		return 0, err
	}
	return sent[0].ID, e.record(ctx, "schedule_run", s.Queue, sent[0].ID, map[string]string{"schedule": name})
}

// scheduleNamed reads a schedule from the store.
func (e *Engine) scheduleNamed(ctx context.Context, name string) (*schedule, error) {
	if err := posthaste.CheckName("name", name); err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	s, _, err := e.schedules.read(ctx, subjectToken(name))
	if err != nil {
		return nil, err
	}
	if s == nil || !e.hasQueue(ctx, s) {
		return nil, noSchedule(name)
	}
	return s, nil
}

// recordSchedule records a change of a schedule.
func (e *Engine) recordSchedule(ctx context.Context, action, name string) error {
	return e.record(ctx, action, "", 0, map[string]string{"schedule": name})
}

// Schedules implements [posthaste.ScheduleAdmin]. It leaves out names without a schedule.
func (e *Engine) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	all, err := e.freshSchedules(ctx)
	if err != nil {
		return nil, err
	}
	infos := []posthaste.ScheduleInfo{}
	for _, s := range all {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			infos = append(infos, s.info())
		}
	}
	slices.SortFunc(infos, func(a, b posthaste.ScheduleInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}
