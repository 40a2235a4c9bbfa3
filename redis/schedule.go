package redis

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // every process knows every zone: any of them may have to tick

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
)

// changeSchedule changes a schedule unless is reports that it needs no change.
func (e *Engine) changeSchedule(ctx context.Context, name string, is func(*scheduled) bool, change func(s *scheduled, now time.Time) error) (*scheduled, error) {
	for range scheduleTries {
		found, now, _, err := e.readSchedules(ctx, named(name))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, noSchedule(name)
		}
		changed := *found[0]
		if is(&changed) {
			return &changed, nil
		}
		if err := change(&changed, now); err != nil {
			return nil, err
		}
		if said, err := e.setSchedule(ctx, found[0], &changed, false); err != nil || said == "ok" {
			return &changed, err
		}
	}
	return nil, scheduleBusy(name)
}

// PutSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) PutSchedule(ctx context.Context, p posthaste.Schedule) (next time.Time, err error) {
	for range scheduleTries {
		q, s, err := e.newScheduled(ctx, &p)
		if err != nil {
			return next, err
		}
		found, now, _, err := e.readSchedules(ctx, named(p.Name))
		if err != nil {
			return next, err
		}
		if s.Record, err = cron.NewRecord(s.Definition, now); err != nil {
			return next, err
		}
		if err := e.sendable(s, q); err != nil {
			return next, err
		}
		var was *scheduled
		if len(found) > 0 {
			was = found[0]
			if s.sameAs(was) {
				return was.Next, nil
			}
			s.Continue(&was.Record)
			s.Paused, s.Pause = was.Paused, was.Pause
		}
		said, err := e.setSchedule(ctx, was, s, true)
		switch {
		case err != nil:
			return next, err
		case said == "ok":
			return s.Next, writeError(e.recordSchedule(ctx, "schedule_put", p.Name))
		case said == "gone":
			if _, err := e.registry.read(ctx); err != nil { // the queue was dropped, or created again
				return next, err
			}
		case said == "due":
			// Another process may be sending the tick of the previous schedule.
			if was.fault == nil {
				_, _, err = e.tick(ctx, was, now)
			} else { // without the zone, the tick is unknown
				_, err = e.dropSchedule(ctx, p.Name)
			}
			if err != nil {
				return next, err
			}
		}
	}
	return next, scheduleBusy(p.Name)
}

// newScheduled checks a schedule that is put, except for the times of its ticks.
func (e *Engine) newScheduled(ctx context.Context, p *posthaste.Schedule) (*queue, *scheduled, error) {
	is, err := cron.Define(p)
	if err != nil {
		return nil, nil, err
	}
	s := &scheduled{name: p.Name, queue: p.Message.Queue, Record: cron.Record{Definition: is}}
	if s.line, s.zone, err = is.Parsed(); err != nil {
		return nil, nil, err
	}
	q, err := e.registry.queue(ctx, s.queue)
	if err != nil {
		return nil, nil, err
	}
	s.Of = q.of()
	return q, s, nil
}

// sendable rejects a schedule whose messages the queue would reject.
func (e *Engine) sendable(s *scheduled, q *queue) error {
	m := s.at(s.Next)
	if err := m.Check(); err != nil {
		return err
	}
	if _, err := contentOf(&m, q); err != nil {
		return err
	}
	if q.looks > 0 {
		return checkKeyed(&m, q)
	}
	return nil
}

// sameAs reports whether two schedules have the same definition.
func (s *scheduled) sameAs(was *scheduled) bool {
	return s.queue == was.queue && s.Of == was.Of && s.Same(&was.Definition)
}

// DropSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) DropSchedule(ctx context.Context, name string) error {
	dropped, err := e.dropSchedule(ctx, name)
	if err != nil {
		return writeError(err)
	}
	if !dropped {
		return noSchedule(name)
	}
	return writeError(e.recordSchedule(ctx, "schedule_drop", name))
}

// dropSchedule reports whether there was such a schedule.
func (e *Engine) dropSchedule(ctx context.Context, name string) (bool, error) {
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), scheduleArgs("drop", name))
	return reply != int64(0), err
}

// RunSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) RunSchedule(ctx context.Context, name string) (posthaste.MessageID, error) {
	found, _, _, err := e.readSchedules(ctx, named(name))
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, noSchedule(name)
	}
	m := cron.Run(name, found[0].message())
	sent, err := e.Send(ctx, m)
	if err != nil {
		return 0, err
	}
	details, err := scheduleDetails(name)
	if err != nil {
		return 0, err
	}
	return sent[0].ID, writeError(e.record(ctx, record{Action: "schedule_run", Queue: m.Queue, Message: sent[0].ID, Details: details}))
}

// recordSchedule records a change of a schedule.
func (e *Engine) recordSchedule(ctx context.Context, action, name string) error {
	details, err := scheduleDetails(name)
	if err != nil {
		return err
	}
	return e.record(ctx, record{Action: action, Details: details})
}

func scheduleDetails(name string) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"schedule": name})
}

// Schedules implements [posthaste.ScheduleAdmin]. It leaves out names without a schedule.
func (e *Engine) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	args := scheduleArgs("read", "")
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		args = append(args, arg{is: name})
	}
	found, _, _, err := e.readSchedules(ctx, args)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *scheduled) int { return strings.Compare(a.name, b.name) })
	infos := make([]posthaste.ScheduleInfo, len(found))
	for i, s := range found {
		infos[i] = s.info()
	}
	return infos, nil
}
