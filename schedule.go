package posthaste

import (
	"context"
	"time"
)

// Headers of the message that a schedule sends.
const (
	// HeaderSchedule is the schedule's name.
	HeaderSchedule = "posthaste-schedule"
	// HeaderTick is the time of the tick in UTC, as RFC 3339 has it.
	HeaderTick = "posthaste-tick"
)

// CatchUp says what becomes of ticks that were missed.
type CatchUp string

// What becomes of missed ticks.
const (
	CatchUpOnce CatchUp = "once" // one message, for the last of them
	CatchUpEach CatchUp = "each" // one message for each
	CatchUpSkip CatchUp = "skip" // none if the last is over a minute late
)

// Schedule sends one message at each of its ticks.
type Schedule struct {
	// Name is its name: 1–63 of a-z, 0-9, "_", "-" and ".".
	Name string
	// Spec says when it ticks: a cron line of five fields, @hourly, @daily,
	// @weekly, @monthly, @yearly, or "every" and a duration of whole seconds
	// ("every 90 seconds").
	Spec string
	// TimeZone is the one by whose clocks a cron line goes, such as
	// "Europe/Berlin" (default "UTC").
	TimeZone string
	// CatchUp says what becomes of missed ticks (default [CatchUpOnce]).
	CatchUp CatchUp
	// Message is what it sends, with its queue. The payload is JSON; Codec,
	// Delay, SendAt, DedupeKey and NoWake must be zero.
	Message Message
}

// Check reports what is wrong with the schedule as far as no store is needed
// for that.
func (s *Schedule) Check() error {
	if err := CheckName("name", s.Name); err != nil {
		return err
	}
	m := &s.Message
	switch {
	case m.Delay != 0:
		return notScheduled("delay")
	case !m.SendAt.IsZero():
		return notScheduled("send_at")
	case m.DedupeKey != "":
		return notScheduled("dedupe_key")
	case m.DedupeWindow != 0:
		return notScheduled("dedupe_window")
	case m.NoWake:
		return notScheduled("wake")
	}
	if !isJSON(mediaType(m.ContentType)) {
		return Invalidf("content_type", "a schedule's payload is JSON, and not %s", m.ContentType)
	}
	if _, raw := m.Payload.([]byte); raw || m.Codec != nil {
		return Invalidf("payload", "a schedule's payload is JSON, and neither bytes nor a codec's")
	}
	return m.Check()
}

func notScheduled(field string) error {
	return Invalidf(field, "%s is not for schedules: their messages are sent at the tick, one for each", field)
}

// ScheduleInfo is a schedule as it stands.
type ScheduleInfo struct {
	Schedule
	// NextAt is the next tick; zero while it is paused.
	NextAt time.Time
	// Upcoming are the next ticks, from NextAt on.
	Upcoming []time.Time
	// LastTick is the last tick that got a message, LastMessage that message,
	// and LastSentAt when it was sent.
	LastTick    time.Time
	LastMessage MessageID
	LastSentAt  time.Time
	// Sent and Missed count ticks that got a message of their own, and that
	// did not.
	Sent, Missed int64
	// Error says why the queue refused the message of the last tick.
	Error string
	// PausedAt is zero unless it is paused.
	PausedAt  time.Time
	CreatedAt time.Time
	ChangedAt time.Time
}

// Scheduling is how messages are sent at times of their own. All times, and the
// rules of the zones, are the store's.
type Scheduling interface {
	// SchedulePut makes a schedule or changes the one of that name, and returns
	// the next tick. One that is paused stays so, and with the same times and
	// zone its next tick stays where it is.
	SchedulePut(ctx context.Context, s Schedule) (next time.Time, err error)
	// ScheduleDrop ends a schedule. What it has sent stays.
	ScheduleDrop(ctx context.Context, name string) error
	// SchedulePause stops a schedule until it is resumed; it misses nothing.
	SchedulePause(ctx context.Context, name string) error
	// ScheduleResume lets a schedule go on with its first tick from now on.
	ScheduleResume(ctx context.Context, name string) (next time.Time, err error)
	// Schedules lists schedules by name; names limits it to those.
	Schedules(ctx context.Context, names ...string) ([]ScheduleInfo, error)
	// Tick sends the messages of ticks that are due, each exactly once, in
	// bounded steps. Any number of processes may call it at any time.
	Tick(ctx context.Context) (TickReply, error)
}

// TickReply is what one call of [Scheduling.Tick] did.
type TickReply struct {
	// Sent counts messages, Missed ticks that got none.
	Sent, Missed int
	// TickIn is how long it is until the next tick, above zero also if one is
	// due already; zero if there is none.
	TickIn time.Duration
}
