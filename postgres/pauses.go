package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// pausing are the functions that pause and resume, and whose results are whether they changed
// anything. Their last arguments are the actor and, of those that pause, the reason and the end.
var pausing = map[string][2]string{
	"queue":    {"pause_queue", "resume_queue"},
	"key":      {"pause_key", "resume_key"},
	"kind":     {"pause_kind", "resume_kind"},
	"schedule": {"schedule_pause", "schedule_resume"},
}

// Pause implements [posthaste.QueueAdmin].
func (e *Engine) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	// The function checks the end by the database's time.
	until := o.Until
	o.Until = time.Time{}
	if err := o.Complete(time.Time{}); err != nil {
		return err
	}
	return e.pause(ctx, "pause", what, 0, ", nullif($3::text, ''), nullif($4::text, ''), $5::timestamptz)", o.Reason, nullTime(until.Truncate(time.Microsecond)))
}

// Resume implements [posthaste.QueueAdmin].
func (e *Engine) Resume(ctx context.Context, what posthaste.Pausable) error {
	return e.pause(ctx, "resume", what, 1, ", nullif($3::text, ''))")
}

// pause calls the function that pauses or resumes what. rest are its last arguments, of which the
// first is the actor.
func (e *Engine) pause(ctx context.Context, verb string, what posthaste.Pausable, which int, rest string, more ...any) error {
	of, queue, name := posthaste.PausableNames(what)
	function, ok := pausing[of]
	if !ok {
		return posthaste.Invalidf("what", "cannot %s %T: it must be OfQueue, OfKey, OfKind or OfSchedule", verb, what)
	}
	// All statements have the same parameters, of which some use the first or second one alone.
	first := "$1::text, $2::text"
	switch of {
	case "queue":
		first = "$1::text || left($2::text, 0)"
	case "schedule":
		first = "left($1::text, 0) || $2::text"
	}
	return e.repeatable(ctx, "select posthaste."+function[which]+"("+first+rest, append([]any{queue, name, posthaste.ActorOf(ctx)}, more...)...)
}

// Pauses implements [posthaste.QueueAdmin].
func (e *Engine) Pauses(ctx context.Context, f posthaste.PauseFilter) ([]posthaste.Pause, error) {
	var all []posthaste.Pause
	err := e.query(ctx, func(rows pgx.Rows) error {
		var p posthaste.Pause
		var of string
		var queue, name, reason *string
		var until *time.Time
		if err := rows.Scan(&p.ID, &of, &queue, &name, &p.Since, &p.By, &reason, &until); err != nil {
			return err
		}
		p.What, p.Since, p.Reason, p.Until = posthaste.NewPausable(of, textOf(queue), textOf(name)), p.Since.UTC(), textOf(reason), timeOf(until)
		all = append(all, p)
		return nil
	}, "select id, what, queue, name, since, by, reason, until from posthaste.list_pauses(nullif($1::text, ''), nullif($2::bigint, 0), $3::int)",
		f.Queue, f.Before, orDefault(f.Limit))
	return all, err
}
