package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// schedule is one that knows intervals alone: cron lines are the ledger's.
type schedule struct {
	posthaste.ScheduleInfo
	every  time.Duration
	nextAt time.Time // also while it is paused
}

func (s *schedule) info() posthaste.ScheduleInfo {
	info := s.ScheduleInfo
	info.Message.Headers = maps.Clone(info.Message.Headers)
	if info.PausedAt.IsZero() {
		info.NextAt = s.nextAt
		for i := range 5 {
			info.Upcoming = append(info.Upcoming, s.nextAt.Add(time.Duration(i)*s.every))
		}
	}
	return info
}

func interval(spec string) (time.Duration, error) {
	text, ok := strings.CutPrefix(spec, "every ")
	if !ok {
		return 0, &posthaste.Error{Code: posthaste.Unsupported, Field: "spec", Message: "the engine in memory knows no cron lines"}
	}
	text = strings.NewReplacer(" ", "", "seconds", "s", "second", "s", "minutes", "m", "minute", "m", "hours", "h", "hour", "h").Replace(text)
	every, err := time.ParseDuration(text)
	if err != nil || every < time.Second || every%time.Second != 0 {
		return 0, posthaste.Invalidf("spec", "%q is no interval of whole seconds", spec)
	}
	return every, nil
}

// SchedulePut implements [posthaste.Scheduling], for intervals.
func (e *Engine) SchedulePut(ctx context.Context, s posthaste.Schedule) (time.Time, error) {
	every, err := interval(s.Spec)
	s.TimeZone, s.CatchUp = cmp.Or(s.TimeZone, "UTC"), cmp.Or(s.CatchUp, posthaste.CatchUpOnce)
	_, zoneErr := time.LoadLocation(s.TimeZone)
	switch {
	case err != nil:
	case zoneErr != nil:
		err = posthaste.Invalidf("time_zone", "there is no time zone %q", s.TimeZone)
	case s.CatchUp != posthaste.CatchUpOnce && s.CatchUp != posthaste.CatchUpEach && s.CatchUp != posthaste.CatchUpSkip:
		err = posthaste.Invalidf("catch_up", "catch_up is each, once or skip")
	case s.Message.Headers[posthaste.HeaderSchedule]+s.Message.Headers[posthaste.HeaderTick] != "":
		err = posthaste.Invalidf("headers", "these headers are set by each tick")
	default:
		err = s.Check()
	}
	if err != nil {
		return time.Time{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if _, err := e.check(&s.Message, now); err != nil {
		return time.Time{}, err
	}
	put := &schedule{ScheduleInfo: posthaste.ScheduleInfo{Schedule: s, CreatedAt: now, ChangedAt: now}, every: every, nextAt: now.Truncate(time.Second).Add(every)}
	if old := e.schedules[s.Name]; old != nil {
		put.ScheduleInfo = old.ScheduleInfo
		put.Schedule, put.ChangedAt = s, now
		if old.every == every && old.TimeZone == s.TimeZone {
			put.nextAt = old.nextAt
		}
	}
	e.schedules[s.Name] = put
	return put.nextAt, ctx.Err()
}

// scheduled returns a schedule; e.mu is held.
func (e *Engine) scheduled(name string) (*schedule, error) {
	if s := e.schedules[name]; s != nil {
		return s, nil
	}
	return nil, notFound("name", "there is no schedule %q", name)
}

// ScheduleDrop implements [posthaste.Scheduling].
func (e *Engine) ScheduleDrop(ctx context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.scheduled(name)
	delete(e.schedules, name)
	return firstError(err, ctx.Err())
}

// SchedulePause implements [posthaste.Scheduling].
func (e *Engine) SchedulePause(ctx context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.scheduled(name)
	if err == nil && s.PausedAt.IsZero() {
		s.PausedAt = time.Now()
	}
	return firstError(err, ctx.Err())
}

// ScheduleResume implements [posthaste.Scheduling].
func (e *Engine) ScheduleResume(ctx context.Context, name string) (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.scheduled(name)
	if err != nil {
		return time.Time{}, err
	}
	if late := time.Since(s.nextAt); late >= 0 && !s.PausedAt.IsZero() {
		s.nextAt = s.nextAt.Add((late/s.every + 1) * s.every)
	}
	s.PausedAt = time.Time{}
	return s.nextAt, ctx.Err()
}

// Schedules implements [posthaste.Scheduling].
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

// Tick implements [posthaste.Scheduling].
func (e *Engine) Tick(ctx context.Context) (reply posthaste.TickReply, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, s := range e.schedules {
		for s.PausedAt.IsZero() && !s.nextAt.After(now) {
			tick := s.nextAt
			s.nextAt = tick.Add(s.every)
			if s.CatchUp != posthaste.CatchUpEach && (!s.nextAt.After(now) || s.CatchUp == posthaste.CatchUpSkip && now.Sub(tick) > time.Minute) || !e.sendTick(s, tick, now) {
				s.Missed++
				reply.Missed++
				continue
			}
			s.Sent++
			reply.Sent++
		}
	}
	reply.TickIn = e.tickIn(now)
	return reply, ctx.Err()
}

// sendTick sends one tick's message, and says whether its queue took it.
func (e *Engine) sendTick(s *schedule, tick, now time.Time) bool {
	sent := s.Message
	sent.Headers = maps.Clone(sent.Headers)
	if sent.Headers == nil {
		sent.Headers = map[string]string{}
	}
	sent.Headers[posthaste.HeaderSchedule], sent.Headers[posthaste.HeaderTick] = s.Name, tick.UTC().Format(time.RFC3339)
	m, err := e.check(&sent, now)
	s.Error = ""
	if err != nil {
		s.Error = err.Error()
		return false
	}
	s.LastTick, s.LastSentAt = tick, now
	s.LastMessage = e.store(m)
	return true
}

// tickIn is how long it is until the next tick; e.mu is held.
func (e *Engine) tickIn(now time.Time) (in time.Duration) {
	for _, s := range e.schedules {
		if d := max(1, s.nextAt.Sub(now)); s.PausedAt.IsZero() && (in == 0 || d < in) {
			in = d
		}
	}
	return in
}
