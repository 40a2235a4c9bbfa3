package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// This file turns the JSON of the API back into what the engine returned, for clients of the API.

// Bytes returns the stored payload that [Payload] has converted.
func Bytes(payload json.RawMessage, encoding string) ([]byte, error) {
	if encoding != "base64" {
		return payload, nil
	}
	var text string
	if err := json.Unmarshal(payload, &text); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(text)
}

// Stored returns the delivery as an engine returns it.
func (d Delivery) Stored() (posthaste.RawDelivery, error) {
	payload, err := Bytes(d.Payload, d.PayloadEncoding)
	story := d.Story
	if n := len(story); n > 0 {
		story[n-1].Checkpoint = d.Checkpoint
	}
	return posthaste.RawDelivery{
		ID: d.ID, MessageID: d.MessageID, Queue: d.Queue, Subscription: d.Subscription, Attempt: d.Attempt, Key: d.Key, Kind: d.Kind, Headers: d.Headers,
		Reference: d.Reference, ContentType: d.ContentType, Payload: payload, CreatedAt: d.CreatedAt, DueAt: d.DueAt, Story: story,
	}, err
}

// Stored returns the message as an engine returns it.
func (m Message) Stored() (posthaste.MessageInfo, error) {
	payload, err := Bytes(m.Payload, m.PayloadEncoding)
	d := durations{err: err}
	info := posthaste.MessageInfo{
		Options: posthaste.KindOptions{MaxAttempts: m.MaxAttempts, Timeout: d.read(m.Timeout)},
		ID:      m.ID, Queue: m.Queue, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, ContentType: m.ContentType, Payload: payload,
		CreatedAt: m.CreatedAt, Version: m.Version, ErasedAt: m.ErasedAt, PayloadHidden: m.PayloadHidden,
	}
	for _, s := range m.Subscriptions {
		info.Subscriptions = append(info.Subscriptions, posthaste.MessageState{Subscription: s.Subscription, State: s.State, DueAt: s.DueAt, Attempts: s.Attempts})
	}
	if m.Backoff != nil {
		info.Options.Backoff = posthaste.Backoff{Base: d.read(m.Backoff.Base), Max: d.read(m.Backoff.Max)}
	}
	return info, d.err
}

// Stored returns the dead letter as an engine returns it.
func (d DeadLetter) Stored() (posthaste.DeadLetter, error) {
	payload, err := Bytes(d.Payload, d.PayloadEncoding)
	if !d.ErasedAt.IsZero() {
		payload = nil
	}
	return posthaste.DeadLetter{
		ID: d.ID, Queue: d.Queue, Subscription: d.Subscription, Key: d.Key, Kind: d.Kind, Headers: d.Headers, Reference: d.Reference, Terms: d.Terms,
		ContentType: d.ContentType, Payload: payload, CreatedAt: d.CreatedAt, DiedAt: d.DiedAt, Error: d.Error, Attempts: d.Attempts, ErasedAt: d.ErasedAt,
		PayloadHidden: d.PayloadHidden,
	}, err
}

// Stored returns the queue as an engine returns it, without options that this version does not
// know.
func (q Queue) Stored() (posthaste.QueueInfo, error) {
	info := posthaste.QueueInfo{Name: q.Name, CreatedAt: q.CreatedAt, PausedAt: q.PausedAt, PausedKeys: q.PausedKeys}
	known := map[string]any{}
	for _, option := range posthaste.QueueOptionTable() {
		name, _, _ := strings.Cut(option.Name, ".")
		if value, is := q.Options[name]; is {
			known[name] = value
		}
	}
	options, err := json.Marshal(known)
	if err != nil {
		return info, err
	}
	if info.Options, err = ParseQueueOptions(options); err != nil {
		return info, err
	}
	// The API leaves out defaults that have no effect.
	if err := info.Options.Complete(); err != nil {
		return info, err
	}
	for _, s := range q.Subscriptions {
		one, err := s.stored()
		if err != nil {
			return info, err
		}
		info.Subscriptions = append(info.Subscriptions, one)
	}
	return info, nil
}

func (s SubscriptionCount) stored() (posthaste.SubscriptionInfo, error) {
	d := durations{}
	info := posthaste.SubscriptionInfo{
		Name: s.Name, Depth: s.Depth, InFlight: s.InFlight, Dead: s.Dead, Sent: s.Sent, Done: s.Done, Retried: s.Retried, Lost: s.Lost, Withdrawn: s.Withdrawn, Expired: s.Expired,
		SentPerSecond: s.SentPerSecond, DonePerSecond: s.DonePerSecond, OldestAge: d.read(s.OldestAge), CountedAt: s.CountedAt, MaxLag: d.read(s.MaxLag),
	}
	if s.Filter != nil {
		info.Filter = posthaste.Filter{Kinds: s.Filter.Kind, Headers: s.Filter.Headers}
	}
	for _, a := range s.SetAside {
		info.SetAside = append(info.SetAside, posthaste.SetAside{Kind: a.Kind, Waiting: a.Waiting, OldestAge: d.read(a.OldestAge), Known: a.Known, Paused: a.Paused})
	}
	return info, d.err
}

// durations reads durations of which each may be absent, and keeps the first error.
type durations struct{ err error }

func (d *durations) read(text string) time.Duration {
	if text == "" {
		return 0
	}
	value, err := ParseDuration(text)
	if d.err == nil {
		d.err = err
	}
	return value
}

// Stored returns the schedule as an engine returns it.
func (s Schedule) Stored() (posthaste.ScheduleInfo, error) {
	d := durations{}
	info := posthaste.ScheduleInfo{
		Schedule: posthaste.Schedule{Name: s.Name, Spec: s.Spec, TimeZone: s.TimeZone, CatchUp: s.CatchUp, Message: posthaste.Message{
			Queue: s.Queue, ContentType: s.ContentType, Key: s.Key, Kind: s.Kind, Headers: s.Headers, Reference: s.Reference, Terms: s.Terms,
			Priority: s.Priority, MaxAttempts: s.MaxAttempts, Timeout: d.read(s.Timeout),
		}},
		NextAt: s.NextAt, Upcoming: s.Upcoming, LastTick: s.LastTick, LastMessage: s.LastMessage, LastSentAt: s.LastSentAt, Sent: s.Sent, Missed: s.Missed,
		Error: s.Error, PausedAt: s.PausedAt, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt, PayloadHidden: s.PayloadHidden,
	}
	if !s.PayloadHidden {
		info.Message.Payload = json.RawMessage(bytes.Clone(s.Payload))
	}
	if s.Backoff != nil {
		info.Message.Backoff = posthaste.Backoff{Base: d.read(s.Backoff.Base), Max: d.read(s.Backoff.Max)}
	}
	return info, d.err
}

// Stored returns the action as an engine returns it.
func (a Action) Stored() (posthaste.Action, error) {
	id, err := strconv.ParseInt(a.ID, 10, 64)
	return posthaste.Action{ID: id, At: a.At, By: a.By, Action: a.Action, Queue: a.Queue, MessageID: a.MessageID, Details: a.Details}, err
}

// Stored returns the token as an engine returns it, without its hash.
func (t Token) Stored() posthaste.Token {
	return posthaste.Token{Name: t.Name, Scopes: t.Scopes, Queues: t.Queues, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy, ExpiresAt: t.ExpiresAt, Expired: t.Expired, LastUsedAt: t.LastUsedAt}
}
