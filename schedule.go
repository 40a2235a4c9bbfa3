package posthaste

import "time"

// Headers of the message that a schedule sends.
const (
	// HeaderSchedule is the schedule's name.
	HeaderSchedule = "posthaste-schedule"
	// HeaderTick is the time of the tick in UTC, in RFC 3339 format.
	HeaderTick = "posthaste-tick"
)

// CatchUp is how a schedule handles missed ticks.
type CatchUp string

// The ways to handle missed ticks.
const (
	CatchUpOnce CatchUp = "once" // one message for all missed ticks, with the time of the last
	CatchUpEach CatchUp = "each" // one message for each
	CatchUpSkip CatchUp = "skip" // none if the last is over a minute late
)

// Schedule sends one message at each of its ticks.
type Schedule struct {
	// Name has 1–63 of a-z, 0-9, "_", "-" and ".".
	Name string
	// Spec sets the ticks: a cron expression of five fields, @hourly, @daily,
	// @weekly, @monthly, @yearly, or "every" and a duration of whole seconds
	// ("every 90 seconds").
	Spec string
	// TimeZone is the time zone of a cron expression, such as
	// "Europe/Berlin" (default "UTC").
	TimeZone string
	// CatchUp is how missed ticks are handled (default [CatchUpOnce]).
	CatchUp CatchUp
	// Message is the message to send, with its queue. The payload is JSON; Codec,
	// Delay, SendAt, DedupeKey, Unique and NoWake must be zero.
	Message Message
}

// Check returns an error if the schedule is invalid, as far as that can be checked without
// the store.
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
	case m.Unique != nil:
		return notScheduled("unique")
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
	return Invalidf(field, "%s is not allowed in schedules: each tick sends one message at once", field)
}

// ScheduleInfo is a stored schedule with its state.
type ScheduleInfo struct {
	Schedule
	// NextAt is the next tick; zero while it is paused.
	NextAt time.Time
	// Upcoming are the next ticks, from NextAt on.
	Upcoming []time.Time
	// LastTick is the last tick for which a message was sent, LastMessage that message,
	// and LastSentAt when it was sent.
	LastTick    time.Time
	LastMessage MessageID
	LastSentAt  time.Time
	// Sent and Missed count ticks for which a message was sent, and for which none was.
	Sent, Missed int64
	// Error is why sending the message of the last tick failed.
	Error string
	// PausedAt is zero unless it is paused.
	PausedAt  time.Time
	CreatedAt time.Time
	ChangedAt time.Time
	// PayloadHidden says that a server does not show the caller payload, headers and terms.
	// Engines show all.
	PayloadHidden bool
}
