package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Pause implements [posthaste.QueueAdmin].
func (e *Engine) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := o.Complete(e.now()); err != nil {
		return err
	}
	changed, err := e.switchPause(what, true)
	if err != nil {
		return err
	}
	was := e.pauses[what]
	if !changed && was != nil && was.PauseOptions == o {
		return ctx.Err()
	}
	e.lastPause++
	is := &posthaste.Pause{ID: e.lastPause, What: what, Since: e.now(), By: actor(ctx), PauseOptions: o}
	if was != nil {
		is.Since = was.Since
	}
	e.pauses[what] = is
	e.record(ctx, posthaste.PauseAction(what, true, o))
	return ctx.Err()
}

// Resume implements [posthaste.QueueAdmin].
func (e *Engine) Resume(ctx context.Context, what posthaste.Pausable) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.resume(ctx, what); err != nil {
		return err
	}
	return ctx.Err()
}

// resume is Resume; e.mu is held.
func (e *Engine) resume(ctx context.Context, what posthaste.Pausable) error {
	changed, err := e.switchPause(what, false)
	if err != nil {
		return err
	}
	delete(e.pauses, what)
	if changed {
		e.record(ctx, posthaste.PauseAction(what, false, posthaste.PauseOptions{}))
	}
	if _, queue, _ := posthaste.PausableNames(what); queue != "" {
		for b := range e.bells {
			b.Wake(queue)
		}
	}
	return nil
}

// switchPause sets whether claims or ticks leave something out, and reports whether that changed.
// e.mu is held.
func (e *Engine) switchPause(what posthaste.Pausable, pause bool) (changed bool, err error) {
	var pausedAt *time.Time
	switch x := what.(type) {
	case posthaste.OfQueue:
		q, err := e.queue(string(x))
		if err != nil {
			return false, err
		}
		pausedAt = &q.pausedAt
	case posthaste.OfKind:
		return e.switchKind(x, pause)
	case posthaste.OfSchedule:
		s, err := e.scheduled(string(x))
		if err != nil {
			return false, err
		}
		if !pause && !s.PausedAt.IsZero() {
			s.nextAt = s.line.Resumed(s.zone, s.nextAt, e.now())
		}
		pausedAt = &s.PausedAt
	default:
		return false, unlimited("key")
	}
	if pausedAt.IsZero() != pause {
		return false, nil
	}
	*pausedAt = time.Time{}
	if pause {
		*pausedAt = e.now()
	}
	return true, nil
}

// endPauses resumes all things whose pause lasts until now or earlier, and returns how many. e.mu is held.
func (e *Engine) endPauses(ctx context.Context) (ended int) {
	now := e.now()
	for what, p := range maps.Clone(e.pauses) {
		if p.Until.IsZero() || p.Until.After(now) {
			continue
		}
		if e.resume(posthaste.WithActor(ctx, posthaste.EndOfPause), what) == nil {
			ended++
		}
	}
	return ended
}

// forgetPauses forgets the pauses of things that were dropped. e.mu is held.
func (e *Engine) forgetPauses() {
	maps.DeleteFunc(e.pauses, func(what posthaste.Pausable, _ *posthaste.Pause) bool {
		of, queue, name := posthaste.PausableNames(what)
		if of == "schedule" {
			return e.schedules[name] == nil
		}
		return e.queues[queue] == nil
	})
}

// Pauses implements [posthaste.QueueAdmin].
func (e *Engine) Pauses(ctx context.Context, f posthaste.PauseFilter) (all []posthaste.Pause, err error) {
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, posthaste.Invalidf("limit", "a call lists 1 to 1000 pauses, not %d", f.Limit)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Queue != "" {
		if _, err := e.queue(f.Queue); err != nil {
			return nil, err
		}
	}
	for _, p := range e.pauses {
		if _, queue, _ := posthaste.PausableNames(p.What); (f.Queue == "" || f.Queue == queue) && (f.Before == 0 || p.ID < f.Before) {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b posthaste.Pause) int { return cmp.Compare(b.ID, a.ID) })
	return all[:min(len(all), cmp.Or(f.Limit, 100))], ctx.Err()
}

func cmpTime(t, or time.Time) time.Time {
	if t.IsZero() {
		return or
	}
	return t
}
