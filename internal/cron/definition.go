package cron

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// Definition is the part of a schedule that a user sets, except for its name and its queue. Stores
// keep it as JSON, and compare it to tell whether a schedule that is put again has changed.
type Definition struct {
	Spec        string            `json:"spec"`
	Zone        string            `json:"zone"`
	CatchUp     posthaste.CatchUp `json:"catch_up"`
	Payload     json.RawMessage   `json:"payload"`
	ContentType string            `json:"content_type,omitzero"`
	Key         string            `json:"key,omitzero"`
	Kind        string            `json:"kind,omitzero"`
	Headers     map[string]string `json:"headers,omitempty"`
	Reference   string            `json:"reference,omitzero"`
	Terms       []string          `json:"terms,omitempty"`
	Priority    int               `json:"priority,omitzero"`
	MaxAttempts int               `json:"max_attempts,omitzero"`
	Timeout     time.Duration     `json:"timeout,omitzero"`
	Backoff     posthaste.Backoff `json:"backoff,omitzero"`
}

// Define completes the message of a schedule, checks all that does not depend on its queue, and
// returns its definition.
func Define(p *posthaste.Schedule) (d Definition, err error) {
	p.Message.Complete()
	if err := p.Check(); err != nil {
		return d, err
	}
	if _, err := Parse(p.Spec); err != nil {
		return d, err
	}
	zone, err := Zone(p.TimeZone)
	if err != nil {
		return d, err
	}
	switch p.CatchUp {
	case "", posthaste.CatchUpOnce, posthaste.CatchUpEach, posthaste.CatchUpSkip:
	default:
		return d, posthaste.Invalidf("catch_up", "catch_up must be each, once or skip, got %q", p.CatchUp)
	}
	m := &p.Message
	for _, name := range []string{posthaste.HeaderSchedule, posthaste.HeaderTick} {
		if _, set := m.Headers[name]; set {
			return d, posthaste.Invalidf("headers", "headers %s and %s are set by each tick", posthaste.HeaderSchedule, posthaste.HeaderTick)
		}
	}
	body, _, err := m.Body()
	if err != nil {
		return d, err
	}
	if err := jsoncheck.Check("payload", body); err != nil {
		return d, err
	}
	return Definition{Spec: strings.Trim(p.Spec, " \t"), Zone: zone.String(), CatchUp: cmp.Or(p.CatchUp, posthaste.CatchUpOnce), Payload: body,
		ContentType: m.ContentType, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, Priority: m.Priority,
		MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: m.Backoff}, nil
}

// Parsed returns the parsed spec and the zone. There is an error if this machine does not know the
// zone.
func (d *Definition) Parsed() (s Spec, zone *time.Location, err error) {
	if s, err = Parse(d.Spec); err == nil {
		zone, err = Zone(d.Zone)
	}
	return s, zone, err
}

// First returns the first tick after now, or an error if the spec never ticks.
func (d *Definition) First(now time.Time) (time.Time, error) {
	s, zone, err := d.Parsed()
	if err != nil {
		return time.Time{}, err
	}
	first, ok := s.Next(zone, now.Truncate(time.Second))
	if !ok {
		return first, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "spec", Message: "the cron line " + quote.Name(d.Spec) + " never fires",
			Hint: "none of its months has such a day"}
	}
	return first, nil
}

// Message returns the message of the schedule for a queue, without the headers of a tick.
func (d *Definition) Message(queue string) posthaste.Message {
	return posthaste.Message{Queue: queue, Payload: d.Payload, ContentType: d.ContentType, Key: d.Key, Kind: d.Kind,
		Headers: d.Headers, Reference: d.Reference, Terms: d.Terms, Priority: d.Priority,
		MaxAttempts: d.MaxAttempts, Timeout: d.Timeout, Backoff: d.Backoff}
}
