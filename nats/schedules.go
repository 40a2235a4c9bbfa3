package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // every process knows every zone: any of them may have to tick

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
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
		if was != nil && e.ofLivingQueue(ctx, was) {
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
			s.goesOn(was)
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

// ofLivingQueue reports whether the queue of a schedule exists, or may exist.
func (e *Engine) ofLivingQueue(ctx context.Context, s *schedule) bool {
	q, err := e.queueOf(ctx, s)
	return q != nil || err != nil
}

// tickBeforePut sends the ticks of a schedule that are due before it is changed: another
// process may be sending them.
func (e *Engine) tickBeforePut(ctx context.Context, was *schedule) (ticked bool, err error) {
	if !was.ticks() || was.Next.After(e.clock.now()) {
		return false, nil
	}
	if _, _, err := was.line(); err != nil {
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

// newSchedule checks a schedule that is put.
func (e *Engine) newSchedule(ctx context.Context, p *posthaste.Schedule) (*queue, *schedule, error) {
	p.Message.Complete()
	if err := p.Check(); err != nil {
		return nil, nil, err
	}
	m := &p.Message
	s := &schedule{Name: p.Name, definition: definition{Queue: m.Queue, Spec: strings.Trim(p.Spec, " \t"), CatchUp: cmp.Or(p.CatchUp, posthaste.CatchUpOnce), Key: m.Key, Kind: m.Kind,
		Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, Priority: m.Priority, ContentType: m.ContentType,
		MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: m.Backoff}}
	if err := s.checkDefinition(p); err != nil {
		return nil, nil, err
	}
	q, err := e.queue(ctx, m.Queue)
	if err != nil {
		return nil, nil, err
	}
	s.Of = q.CreatedAt
	line, zone, err := s.line()
	if err != nil {
		return nil, nil, err
	}
	now := e.clock.now()
	s.Created, s.Changed = now, now
	var ok bool
	if s.Next, ok = line.Next(zone, now.Truncate(time.Second)); !ok {
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "spec", Message: "the cron line " + quoted(s.Spec) + " never fires", Hint: "none of its months has such a day"}
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

// checkDefinition checks what does not depend on the queue, and completes the definition.
func (s *schedule) checkDefinition(p *posthaste.Schedule) error {
	zone, err := cron.Zone(p.TimeZone)
	if _, fault := cron.Parse(p.Spec); fault != nil {
		err = fault
	}
	if err != nil {
		return err
	}
	s.Zone = zone.String()
	switch s.CatchUp {
	case posthaste.CatchUpOnce, posthaste.CatchUpEach, posthaste.CatchUpSkip:
	default:
		return posthaste.Invalidf("catch_up", "catch_up must be each, once or skip, got %q", p.CatchUp)
	}
	for _, name := range []string{posthaste.HeaderSchedule, posthaste.HeaderTick} {
		if _, set := p.Message.Headers[name]; set {
			return posthaste.Invalidf("headers", "headers %s and %s are set by each tick", posthaste.HeaderSchedule, posthaste.HeaderTick)
		}
	}
	body, _, err := p.Message.Body()
	if err != nil {
		return err
	}
	if err := jsoncheck.Check("payload", body); err != nil {
		return err
	}
	s.Payload = body
	return nil
}

// sameAs reports whether two schedules have the same definition.
func (s *schedule) sameAs(was *schedule) bool {
	x, xErr := json.Marshal(s.definition)
	y, yErr := json.Marshal(was.definition)
	return xErr == nil && yErr == nil && string(x) == string(y)
}

// goesOn copies the history of a schedule that is put again.
func (s *schedule) goesOn(was *schedule) {
	if was.Spec == s.Spec && was.Zone == s.Zone && !was.Next.IsZero() {
		s.Next = was.Next
	}
	s.LastTick, s.LastMessage, s.LastSent = was.LastTick, was.LastMessage, was.LastSent
	s.Sent, s.Missed, s.Error, s.Pause, s.Created = was.Sent, was.Missed, was.Error, was.Pause, was.Created
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
		dropped = was != nil && e.ofLivingQueue(ctx, was)
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
	if s == nil || !e.ofLivingQueue(ctx, s) {
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
