package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// PutSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) PutSchedule(ctx context.Context, s posthaste.Schedule) (next time.Time, err error) {
	s.Message.Complete()
	if err := s.Check(); err != nil {
		return next, err
	}
	rows, err := encode([]posthaste.Message{s.Message})
	if err != nil {
		return next, err
	}
	if err := jsoncheck.Check("payload", rows[0].body); err != nil {
		return next, err
	}
	options, err := json.Marshal(scheduleOptions(s))
	if err != nil {
		return next, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = e.db.QueryRow(ctx, "select posthaste.schedule_put($1::text, $2::text, $3::text, $4::text::jsonb, $5::text::jsonb, nullif($6::text, ''))",
		s.Name, s.Message.Queue, s.Spec, string(rows[0].body), string(options), posthaste.ActorOf(ctx)).Scan(&next)
	return next.UTC(), readError(err) // idempotent, so not writeError
}

// scheduleOptions returns the options of posthaste.schedule_put. A test checks that each field
// of a message is either here or rejected by Schedule.Check.
func scheduleOptions(s posthaste.Schedule) map[string]any {
	options := map[string]any{}
	for name, text := range map[string]string{
		"time_zone": s.TimeZone, "catch_up": string(s.CatchUp),
		"key": s.Message.Key, "kind": s.Message.Kind, "reference": s.Message.Reference, "content_type": s.Message.ContentType,
	} {
		if text != "" {
			options[name] = text
		}
	}
	if len(s.Message.Headers) > 0 {
		options["headers"] = s.Message.Headers
	}
	if s.Message.Priority != 0 {
		options["priority"] = s.Message.Priority
	}
	if len(s.Message.Terms) > 0 {
		options["terms"] = s.Message.Terms
	}
	if s.Message.MaxAttempts != 0 {
		options["max_attempts"] = s.Message.MaxAttempts
	}
	if s.Message.Timeout != 0 {
		options["timeout"] = interval(s.Message.Timeout)
	}
	backoff := map[string]string{}
	for name, d := range map[string]time.Duration{"base": s.Message.Backoff.Base, "max": s.Message.Backoff.Max} {
		if d != 0 {
			backoff[name] = interval(d)
		}
	}
	if len(backoff) > 0 {
		options["backoff"] = backoff
	}
	return options
}

// DropSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) DropSchedule(ctx context.Context, name string) error {
	return e.exec(ctx, writeError, "select posthaste.schedule_drop($1::text, nullif($2::text, ''))", name, posthaste.ActorOf(ctx))
}

// RunSchedule implements [posthaste.ScheduleAdmin].
func (e *Engine) RunSchedule(ctx context.Context, name string) (id posthaste.MessageID, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = e.db.QueryRow(ctx, "select posthaste.schedule_run($1::text, nullif($2::text, ''))", name, posthaste.ActorOf(ctx)).Scan((*int64)(&id))
	return id, writeError(err)
}

// Schedules implements [posthaste.ScheduleAdmin] with the view posthaste.schedules. It ignores
// unknown names.
func (e *Engine) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	if len(names) == 0 {
		names = nil // null means all
	}
	var infos []posthaste.ScheduleInfo
	err := e.query(ctx, func(rows pgx.Rows) error {
		var s posthaste.ScheduleInfo
		var payload, options string
		var next, lastTick, lastSent, paused *time.Time
		var last *int64
		var refused *string
		var timeout, base, most float64
		if err := rows.Scan(&s.Name, &s.Message.Queue, &s.Spec, &s.TimeZone, (*string)(&s.CatchUp), &payload, &options, &next, &s.Upcoming,
			&lastTick, &last, &lastSent, &s.Sent, &s.Missed, &refused, &paused, &s.CreatedAt, &s.ChangedAt, &timeout, &base, &most); err != nil {
			return err
		}
		var o struct {
			Key, Kind, Reference string
			ContentType          string `json:"content_type"`
			Headers              map[string]string
			Terms                []string
			Priority             int
			MaxAttempts          int `json:"max_attempts"`
		}
		if err := decode(&options, &o); err != nil {
			return err
		}
		m := &s.Message
		m.Payload, m.Key, m.Kind, m.Reference, m.ContentType, m.Headers, m.Terms = json.RawMessage(payload), o.Key, o.Kind, o.Reference, o.ContentType, o.Headers, o.Terms
		m.Priority, m.MaxAttempts = o.Priority, o.MaxAttempts
		m.Timeout, m.Backoff = seconds(timeout), posthaste.Backoff{Base: seconds(base), Max: seconds(most)}
		s.NextAt, s.LastTick, s.LastSentAt, s.PausedAt = timeOf(next), timeOf(lastTick), timeOf(lastSent), timeOf(paused)
		s.CreatedAt, s.ChangedAt, s.Error = s.CreatedAt.UTC(), s.ChangedAt.UTC(), textOf(refused)
		for i := range s.Upcoming {
			s.Upcoming[i] = s.Upcoming[i].UTC()
		}
		if last != nil {
			s.LastMessage = posthaste.MessageID(*last)
		}
		infos = append(infos, s)
		return nil
	}, `select name, queue, spec, time_zone, catch_up, payload::text, options::text, next_at, upcoming, last_tick, last_message_id, last_sent_at,
		sent, missed, error, paused_at, created_at, changed_at, `+secondsOf("options ->> 'timeout'")+`, `+secondsOf("options -> 'backoff' ->> 'base'")+`,
		`+secondsOf("options -> 'backoff' ->> 'max'")+` from posthaste.schedules where $1::text[] is null or name = any ($1) order by name`, names)
	return infos, err
}

// secondsOf returns an expression for the seconds of an interval that an expression has as text.
func secondsOf(text string) string {
	return "coalesce(extract(epoch from (" + text + ")::interval), 0)::float8"
}

// tick sends the messages of ticks that are due, or ends a pause.
func (e *Engine) tick(ctx context.Context, reply *posthaste.MaintainReply) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var next *float64
	err := e.pool.QueryRow(ctx, "select sent, missed, next_tick, ended from posthaste.tick()").Scan(&reply.TicksSent, &reply.TicksMissed, &next, &reply.PausesEnded)
	if next != nil {
		reply.TickIn = tickIn(time.Duration(min(*next, 9e9) * float64(time.Second)))
	}
	return readError(err)
}

// tickIn converts a time until the next tick, negative without a next tick, to the form of
// [posthaste.MaintainReply], which has 0 in that case.
func tickIn(d time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	return max(d, 1)
}
