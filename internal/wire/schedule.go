package wire

import (
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// ParseSchedule reads the schedule with the given name: queue, spec, time_zone, catch_up and
// the fields of its message as in [ParseMessage]. It rejects fields that the message of a
// schedule cannot have. The engine checks spec and time_zone.
func ParseSchedule(name string, data []byte) (posthaste.Schedule, error) {
	s := posthaste.Schedule{Name: name}
	o, err := ParseObject("", data)
	if err != nil {
		return s, err
	}
	s.Spec, s.TimeZone, s.CatchUp = o.Text("spec"), o.Text("time_zone"), posthaste.CatchUp(o.Text("catch_up"))
	m := &s.Message
	m.Queue, m.ContentType = o.Text("queue"), o.Text("content_type")
	m.Payload = json.RawMessage("{}")
	if given := payload(o, m.ContentType); given != nil {
		m.Payload = given
	}
	readOptions(o, m)
	if err := o.Finish(laterMessageOptions...); err != nil {
		return s, err
	}
	return s, s.Check()
}

// Schedule is a schedule and its state.
type Schedule struct {
	Name        string              `json:"name"`
	Queue       string              `json:"queue"`
	Spec        string              `json:"spec"`
	TimeZone    string              `json:"time_zone"`
	CatchUp     posthaste.CatchUp   `json:"catch_up"`
	Payload     json.RawMessage     `json:"payload,omitempty"`
	ContentType string              `json:"content_type"`
	Key         string              `json:"key,omitempty"`
	Kind        string              `json:"kind,omitempty"`
	Headers     map[string]string   `json:"headers,omitempty"`
	Reference   string              `json:"reference,omitempty"`
	Terms       []string            `json:"terms,omitempty"`
	Priority    int                 `json:"priority,omitempty"`
	MaxAttempts int                 `json:"max_attempts,omitempty"`
	Timeout     string              `json:"timeout,omitempty"`
	Backoff     *Backoff            `json:"backoff,omitempty"`
	NextAt      time.Time           `json:"next_at,omitzero"`
	Upcoming    []time.Time         `json:"upcoming,omitempty"`
	LastTick    time.Time           `json:"last_tick,omitzero"`
	LastMessage posthaste.MessageID `json:"last_message_id,omitzero"`
	LastSentAt  time.Time           `json:"last_sent_at,omitzero"`
	Sent        int64               `json:"sent"`
	Missed      int64               `json:"missed"`
	Error       string              `json:"error,omitempty"`
	PausedAt    time.Time           `json:"paused_at,omitzero"`
	CreatedAt   time.Time           `json:"created_at"`
	ChangedAt   time.Time           `json:"changed_at"`
	// PayloadHidden reports that the caller may not see payload, headers and terms.
	PayloadHidden bool `json:"payload_hidden,omitempty"`
}

// HidePayload removes payload, headers and terms.
func (s *Schedule) HidePayload() {
	s.Payload, s.Headers, s.Terms, s.PayloadHidden = nil, nil, nil, true
}

// NewSchedule converts a schedule.
func NewSchedule(s posthaste.ScheduleInfo) Schedule {
	m := s.Message
	body, _, _ := m.Body()
	shown, _ := Payload(m.ContentType, body)
	shownSchedule := Schedule{
		Name: s.Name, Queue: m.Queue, Spec: s.Spec, TimeZone: s.TimeZone, CatchUp: s.CatchUp, Payload: shown, ContentType: contentType(m.ContentType),
		Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, Priority: m.Priority, MaxAttempts: m.MaxAttempts,
		NextAt: s.NextAt, Upcoming: s.Upcoming, LastTick: s.LastTick, LastMessage: s.LastMessage, LastSentAt: s.LastSentAt,
		Sent: s.Sent, Missed: s.Missed, Error: s.Error, PausedAt: s.PausedAt, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt,
	}
	if m.Timeout != 0 {
		shownSchedule.Timeout = m.Timeout.String()
	}
	if m.Backoff != (posthaste.Backoff{}) {
		shownSchedule.Backoff = &Backoff{Base: given(m.Backoff.Base), Max: given(m.Backoff.Max)}
	}
	if s.PayloadHidden {
		shownSchedule.HidePayload()
	}
	return shownSchedule
}

// given returns a duration as text, or "" for one that is not set.
func given(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
