package nats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// A pause is stored in the entry of its queue or schedule, so that it changes in one step. Claims obey
// the entry that their process knows. The consumers of a queue are paused, too, because other processes
// learn of the pause some milliseconds later.

// pauseNote is a pause as it is stored.
type pauseNote struct {
	ID     int64     `json:"id"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// public returns the pause of what.
func (p *pauseNote) public(what posthaste.Pausable) posthaste.Pause {
	return posthaste.Pause{ID: p.ID, What: what, Since: p.Since, By: p.By, PauseOptions: posthaste.PauseOptions{Reason: p.Reason, Until: p.Until}}
}

const (
	// wakeAfter is how long consumers stay paused after a resume: the server serves pulls that wait when a
	// pause reaches its end, but not when the pause is removed.
	wakeAfter = 100 * time.Millisecond
	// haltedMost is how old Halted is before another process resumes the consumers: the first was killed.
	haltedMost = 10 * time.Second
	// consumerPause is how long consumers are paused, unless they are resumed.
	consumerPause = posthaste.MaxPause
)

// switching is a pause, a resume, or the end of a pause.
type switching struct {
	is    *pauseNote // nil to resume
	ended int64      // the id of the pause whose end is reached, or 0
}

// of returns the pause that replaces was, nil after a resume, or errSame.
func (c switching) of(was *pauseNote, now time.Time) (*pauseNote, error) {
	switch {
	case c.is == nil && was == nil, c.ended != 0 && was.ID != c.ended:
		return nil, errSame
	case c.is == nil:
		return nil, nil
	case was != nil && was.Reason == c.is.Reason && was.Until.Equal(c.is.Until):
		return nil, errSame
	}
	next := *c.is
	next.Since = now
	if was != nil {
		next.Since = was.Since
	}
	return &next, nil
}

// Pause implements [posthaste.QueueAdmin]. Keys and kinds cannot be paused.
func (e *Engine) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	if err := o.Complete(e.clock.now()); err != nil {
		return err
	}
	if err := e.canPause(ctx, "pause", what); err != nil {
		return err
	}
	id, err := e.sequence(ctx)
	if err != nil {
		return err
	}
	_, err = e.switchPause(ctx, what, switching{is: &pauseNote{ID: id, Until: o.Until, By: cmp.Or(posthaste.ActorOf(ctx), "nats"), Reason: o.Reason}}, o)
	return err
}

// Resume implements [posthaste.QueueAdmin].
func (e *Engine) Resume(ctx context.Context, what posthaste.Pausable) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	if err := e.canPause(ctx, "resume", what); err != nil {
		return err
	}
	_, err := e.switchPause(ctx, what, switching{}, posthaste.PauseOptions{})
	return err
}

// canPause returns an error if what does not exist or cannot be paused.
func (e *Engine) canPause(ctx context.Context, verb string, what posthaste.Pausable) error {
	of, queue, name := posthaste.PausableNames(what)
	switch of {
	case "":
		return posthaste.Invalidf("what", "cannot %s %T: it must be OfQueue, OfKey, OfKind or OfSchedule", verb, what)
	case "schedule":
		_, err := e.scheduleNamed(ctx, name)
		return err
	}
	if _, err := e.queue(ctx, queue); err != nil {
		return err
	}
	switch of {
	case "key":
		return unsupported("key", "pausing a key is not supported")
	case "kind":
		return unsupported("kind", "pausing a kind is not supported")
	}
	return nil
}

// switchPause pauses or resumes a queue or a schedule, and records that.
func (e *Engine) switchPause(ctx context.Context, what posthaste.Pausable, c switching, o posthaste.PauseOptions) (changed bool, err error) {
	switch x := what.(type) {
	case posthaste.OfQueue:
		changed, err = e.switchQueue(ctx, string(x), c)
	case posthaste.OfSchedule:
		changed, err = e.switchSchedule(ctx, string(x), c)
	}
	if changed {
		action := posthaste.PauseAction(what, c.is != nil, o)
		var details any
		if action.Details != nil {
			details = action.Details
		}
		err = errors.Join(err, e.record(ctx, action.Action, action.Queue, 0, details))
	}
	return changed, err
}

func (e *Engine) switchSchedule(ctx context.Context, name string, c switching) (changed bool, err error) {
	_, err = e.schedules.change(ctx, subjectToken(name), func(was *schedule) (*schedule, error) {
		changed = false
		if was == nil || !e.hasQueue(ctx, was) {
			return nil, noSchedule(name)
		}
		now := e.clock.now()
		pause, err := c.of(was.Pause, now)
		if err != nil {
			return nil, err
		}
		next := *was
		if next.Pause = pause; pause == nil {
			line, zone, err := was.Parsed()
			if err != nil {
				return nil, err
			}
			next.Next = line.Resumed(zone, was.Next, now)
		}
		changed = true
		return &next, nil
	})
	return changed && err == nil, err
}

func (e *Engine) switchQueue(ctx context.Context, name string, c switching) (changed bool, err error) {
	q, err := e.changeQueue(ctx, name, func(q *queue) (bool, error) {
		changed = false
		now := e.clock.now()
		pause, err := c.of(q.Pause, now)
		if errors.Is(err, errSame) {
			return false, nil
		}
		q.Pause, q.PausedAt, q.Halted = pause, time.Time{}, now
		if pause != nil {
			q.PausedAt = pause.Since
		}
		changed = true
		return true, nil
	})
	if err != nil {
		return false, err
	}
	if c.ended != 0 && !changed || q.Halted.IsZero() {
		return false, nil
	}
	return changed, e.applyPause(ctx, name)
}

// applyPause pauses or resumes the consumers of a queue as its entry says. Other processes may pause and
// resume it meanwhile: each reads the entry again after its last step.
func (e *Engine) applyPause(ctx context.Context, name string) error {
	for {
		q, err := e.freshQueue(ctx, name)
		if err != nil {
			return ignoreNotFound(err)
		}
		if done, err := e.applyTo(ctx, q); err != nil || done {
			return ignoreNotFound(err)
		}
	}
}

// applyTo pauses or resumes the consumers of a queue as q says. done is false if the entry of the queue
// says something else by then.
func (e *Engine) applyTo(ctx context.Context, q *queue) (done bool, err error) {
	until := e.clock.now().Add(consumerPause)
	if q.Pause == nil {
		until = e.clock.now().Add(wakeAfter)
	}
	for _, consumer := range q.deliverers() {
		if _, err := e.js.PauseConsumer(ctx, q.stream, consumer, until); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return false, e.readError(err)
		}
	}
	if q.Pause == nil && !sleepFor(ctx, until.Sub(e.clock.now())) {
		return false, ctx.Err() // endPauses completes it
	}
	_, err = e.changeQueue(ctx, q.Name, func(now *queue) (bool, error) {
		done = (now.Pause == nil) == (q.Pause == nil) && slices.Equal(now.deliverers(), q.deliverers())
		if !done || now.Pause != nil || now.Halted.IsZero() {
			return false, nil
		}
		now.Halted = time.Time{}
		return true, nil
	})
	return done, err
}

// ignoreNotFound ignores that a queue was dropped meanwhile.
func ignoreNotFound(err error) error {
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		return nil
	}
	return err
}

// endPauses ends the pauses whose ends are reached, and returns how many. It also resumes the consumers of
// queues whose entry was resumed by a process that was killed before it had resumed them.
func (e *Engine) endPauses(ctx context.Context, began time.Duration) (ended int, failed error) {
	ctx = posthaste.WithActor(ctx, posthaste.EndOfPause)
	end := func(what posthaste.Pausable, p *pauseNote, queue string) {
		if p == nil || p.Until.IsZero() || p.Until.After(e.clock.now()) || uptime()-began > tickTime || e.schedules.resting.rests(queue) > 0 {
			return
		}
		soon, cancel := context.WithTimeout(ctx, tickTry)
		defer cancel()
		changed, err := e.switchPause(soon, what, switching{ended: p.ID}, posthaste.PauseOptions{})
		if changed {
			ended++
		}
		err = ignoreNotFound(err)
		e.schedules.resting.tried(queue, err)
		failed = errors.Join(failed, err)
	}
	for _, q := range e.queues.listed() {
		end(posthaste.OfQueue(q.Name), q.Pause, q.Name)
		if q.Pause == nil && !q.Halted.IsZero() && e.clock.now().Sub(q.Halted) > haltedMost && uptime()-began < tickTime {
			failed = errors.Join(failed, e.applyPause(ctx, q.Name))
		}
	}
	for _, s := range e.schedules.knownAll() {
		end(posthaste.OfSchedule(s.Name), s.Pause, s.Queue)
	}
	return ended, failed
}

// Pauses implements [posthaste.QueueAdmin].
func (e *Engine) Pauses(ctx context.Context, f posthaste.PauseFilter) (pauses []posthaste.Pause, err error) {
	limit, err := listLimit(f.Limit, "pauses")
	if err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	add := func(what posthaste.Pausable, p *pauseNote) {
		if p != nil && (f.Before <= 0 || p.ID < f.Before) {
			pauses = append(pauses, p.public(what))
		}
	}
	if f.Queue != "" {
		q, err := e.freshQueue(ctx, f.Queue)
		if err != nil {
			return nil, err
		}
		add(posthaste.OfQueue(q.Name), q.Pause)
		return pauses, nil
	}
	for _, q := range e.queues.listed() {
		add(posthaste.OfQueue(q.Name), q.Pause)
	}
	all, err := e.freshSchedules(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		add(posthaste.OfSchedule(s.Name), s.Pause)
	}
	slices.SortFunc(pauses, func(a, b posthaste.Pause) int { return cmp.Compare(b.ID, a.ID) })
	return pauses[:min(len(pauses), limit)], nil
}
