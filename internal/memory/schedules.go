package memory

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

type schedule struct {
	posthaste.ScheduleInfo
	line   cron.Spec
	zone   *time.Location
	nextAt time.Time // set even while it is paused
}

func (s *schedule) info() posthaste.ScheduleInfo {
	info := s.ScheduleInfo
	info.Message.Headers = maps.Clone(info.Message.Headers)
	if info.PausedAt.IsZero() {
		info.NextAt, info.Upcoming = s.nextAt, s.line.Upcoming(s.zone, s.nextAt, 5)
	}
	return info
}

// PutSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) PutSchedule(ctx context.Context, s posthaste.Schedule) (time.Time, error) {
	is, err := cron.Define(&s)
	if err != nil {
		return time.Time{}, err
	}
	line, zone, err := is.Parsed()
	if err != nil {
		return time.Time{}, err
	}
	s.TimeZone, s.CatchUp = is.Zone, is.CatchUp
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if _, err := e.check(s.Message, now); err != nil {
		return time.Time{}, err
	}
	next, err := is.First(now)
	if err != nil {
		return time.Time{}, err
	}
	put := &schedule{ScheduleInfo: posthaste.ScheduleInfo{Schedule: s, CreatedAt: now, ChangedAt: now}, line: line, zone: zone, nextAt: next}
	if old := e.schedules[s.Name]; old != nil {
		put.ScheduleInfo = old.ScheduleInfo
		put.Schedule, put.ChangedAt = s, now
		if old.line == line && old.TimeZone == s.TimeZone {
			put.nextAt = old.nextAt
		}
	}
	if old := e.schedules[s.Name]; old == nil || !reflect.DeepEqual(old.Schedule, s) {
		e.recordSchedule(ctx, "schedule_put", s.Name)
	}
	e.schedules[s.Name] = put
	return put.nextAt, ctx.Err()
}

// scheduled returns a schedule; e.mu is held.
func (e *Engine) scheduled(name string) (*schedule, error) {
	if s := e.schedules[name]; s != nil {
		return s, nil
	}
	return nil, notFound("name", "schedule %s does not exist", quote.Name(name))
}

// DropSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) DropSchedule(ctx context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.scheduled(name); err != nil {
		return err
	}
	delete(e.schedules, name)
	e.forgetPauses()
	e.recordSchedule(ctx, "schedule_drop", name)
	return ctx.Err()
}

// recordSchedule records a change of a schedule. e.mu is held.
func (e *Engine) recordSchedule(ctx context.Context, action, name string) {
	details, _ := json.Marshal(map[string]string{"schedule": name}) // strings always encode
	e.record(ctx, posthaste.Action{Action: action, Details: details})
}

// RunSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) RunSchedule(ctx context.Context, name string) (posthaste.MessageID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.scheduled(name)
	if err != nil {
		return 0, err
	}
	m, err := e.check(cron.Run(name, s.Message), e.now())
	if err != nil {
		return 0, err
	}
	id := e.store(m)
	details, _ := json.Marshal(map[string]string{"schedule": name}) // strings always encode
	e.record(ctx, posthaste.Action{Action: "schedule_run", Queue: m.Queue, MessageID: id, Details: details})
	return id, ctx.Err()
}

// Schedules implements [posthaste.ScheduleAdmin].
func (e *Engine) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var infos []posthaste.ScheduleInfo
	for _, name := range slices.Sorted(maps.Keys(e.schedules)) {
		if len(names) == 0 || slices.Contains(names, name) {
			infos = append(infos, e.schedules[name].info())
		}
	}
	return infos, ctx.Err()
}

// tick sends the messages of due ticks. e.mu is held.
func (e *Engine) tick(reply *posthaste.MaintainReply) {
	now := e.now()
	for _, s := range e.schedules {
		if !s.PausedAt.IsZero() || s.nextAt.After(now) {
			continue
		}
		due := s.line.Due(s.zone, s.nextAt, now, s.CatchUp)
		s.nextAt = due.Next
		for _, tick := range due.Ticks {
			if e.sendTick(s, tick, now) {
				s.Sent++
				reply.TicksSent++
			} else {
				due.Missed++
			}
		}
		s.Missed += due.Missed
		reply.TicksMissed += int(due.Missed)
	}
	reply.TickIn = e.tickIn(now)
}

// sendTick sends the message of a tick, and reports whether its queue accepted it.
func (e *Engine) sendTick(s *schedule, tick, now time.Time) bool {
	sent := cron.Tick(s.Name, s.Message, tick)
	m, err := e.check(sent, now)
	s.Error = ""
	if err != nil {
		s.Error = err.Error()
		return false
	}
	s.LastTick, s.LastSentAt = tick, now
	s.LastMessage = e.store(m)
	return true
}

// tickIn returns the time until the next tick or the next end of a pause. e.mu is held.
func (e *Engine) tickIn(now time.Time) (in time.Duration) {
	for _, s := range e.schedules {
		if d := max(1, s.nextAt.Sub(now)); s.PausedAt.IsZero() && (in == 0 || d < in) {
			in = d
		}
	}
	for _, p := range e.pauses {
		if d := max(1, p.Until.Sub(now)); !p.Until.IsZero() && (in == 0 || d < in) {
			in = d
		}
	}
	return in
}
