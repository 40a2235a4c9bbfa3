package cron

import (
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Record is a schedule as stores keep it, as JSON: its definition and its progress. Stores add its
// name, its queue and its pause.
type Record struct {
	Definition
	Next        time.Time           `json:"next,omitzero"` // also while it is paused
	LastTick    time.Time           `json:"last_tick,omitzero"`
	LastMessage posthaste.MessageID `json:"last_message,omitzero"`
	LastSent    time.Time           `json:"last_sent,omitzero"`
	Sent        int64               `json:"sent,omitzero"`
	Missed      int64               `json:"missed,omitzero"`
	Error       string              `json:"error,omitzero"`
	Created     time.Time           `json:"created"`
	Changed     time.Time           `json:"changed"`
}

// NewRecord returns the record of a schedule that is put for the first time at now, or an error if it
// never ticks.
func NewRecord(d Definition, now time.Time) (r Record, err error) {
	r = Record{Definition: d, Created: now, Changed: now}
	r.Next, err = d.First(now)
	return r, err
}

// Same reports whether two schedules have the same definition.
func (d *Definition) Same(other *Definition) bool {
	x, xErr := json.Marshal(d)
	y, yErr := json.Marshal(other)
	return xErr == nil && yErr == nil && string(x) == string(y)
}

// Continue copies the progress of the record that r replaces. If the ticks are still the same, the
// next tick is copied, too.
func (r *Record) Continue(was *Record) {
	if r.sameTicks(&was.Definition) && !was.Next.IsZero() {
		r.Next = was.Next
	}
	r.LastTick, r.LastMessage, r.LastSent = was.LastTick, was.LastMessage, was.LastSent
	r.Sent, r.Missed, r.Error, r.Created = was.Sent, was.Missed, was.Error, was.Created
}

// sameTicks reports whether two schedules tick at the same times.
func (d *Definition) sameTicks(other *Definition) bool {
	x, xErr := Parse(d.Spec)
	y, yErr := Parse(other.Spec)
	return xErr == nil && yErr == nil && x == y && d.Zone == other.Zone
}

// Advance copies next tick, last tick and error of the record to, and adds to the counts of ticks.
func (r *Record) Advance(to *Record, sent, missed int64) {
	r.Next, r.Error = to.Next, to.Error
	r.LastTick, r.LastMessage, r.LastSent = to.LastTick, to.LastMessage, to.LastSent
	r.Sent, r.Missed = r.Sent+sent, r.Missed+missed
}

// Ticked records that the message of a tick was sent at now.
func (r *Record) Ticked(tick time.Time, id posthaste.MessageID, now time.Time) {
	r.LastTick, r.LastMessage, r.LastSent, r.Error = tick, id, now, ""
}

// Info returns what a store shows of the schedule. pausedAt is zero unless it is paused. The result
// shares headers and terms with r.
func (r *Record) Info(name, queue string, pausedAt time.Time) posthaste.ScheduleInfo {
	info := posthaste.ScheduleInfo{
		Schedule: posthaste.Schedule{Name: name, Spec: r.Spec, TimeZone: r.Zone, CatchUp: r.CatchUp, Message: r.Message(queue)},
		LastTick: r.LastTick, LastMessage: r.LastMessage, LastSentAt: r.LastSent, Sent: r.Sent, Missed: r.Missed, Error: r.Error,
		PausedAt: pausedAt, CreatedAt: r.Created, ChangedAt: r.Changed,
	}
	if pausedAt.IsZero() && !r.Next.IsZero() {
		info.NextAt = r.Next
		if line, zone, err := r.Parsed(); err == nil {
			info.Upcoming = line.Upcoming(zone, r.Next, 5)
		}
	}
	return info
}
