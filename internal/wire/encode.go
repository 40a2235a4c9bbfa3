package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// messageOptions are the fields of a message other than its payload, as [ParseMessage] reads
// them.
type messageOptions struct {
	ContentType  string            `json:"content_type,omitempty"`
	Key          string            `json:"key,omitempty"`
	Kind         string            `json:"kind,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	Reference    string            `json:"reference,omitempty"`
	Terms        []string          `json:"terms,omitempty"`
	Delay        string            `json:"delay,omitempty"`
	SendAt       time.Time         `json:"send_at,omitzero"`
	Priority     int               `json:"priority,omitempty"`
	DedupeKey    string            `json:"dedupe_key,omitempty"`
	DedupeWindow string            `json:"dedupe_window,omitempty"`
	Unique       *uniqueOptions    `json:"unique,omitempty"`
	MaxAttempts  int               `json:"max_attempts,omitempty"`
	Timeout      string            `json:"timeout,omitempty"`
	Backoff      *Backoff          `json:"backoff,omitempty"`
	Wake         *bool             `json:"wake,omitempty"`
}

type uniqueOptions struct {
	Key      string           `json:"key,omitempty"`
	Until    posthaste.Until  `json:"until,omitempty"`
	Exists   posthaste.Exists `json:"exists,omitempty"`
	MaxDelay string           `json:"max_delay,omitempty"`
}

func optionsOf(m *posthaste.Message, contentType string) messageOptions {
	o := messageOptions{
		ContentType: contentType, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms,
		Delay: given(m.Delay), SendAt: m.SendAt, Priority: m.Priority, DedupeKey: m.DedupeKey, DedupeWindow: given(m.DedupeWindow),
		MaxAttempts: m.MaxAttempts, Timeout: given(m.Timeout),
	}
	if m.Backoff != (posthaste.Backoff{}) {
		o.Backoff = &Backoff{Base: given(m.Backoff.Base), Max: given(m.Backoff.Max)}
	}
	if u := m.Unique; u != nil {
		o.Unique = &uniqueOptions{Key: u.Key, Until: u.Until, Exists: u.Exists, MaxDelay: given(u.MaxDelay)}
	}
	if m.NoWake {
		o.Wake = new(bool)
	}
	return o
}

// EncodeMessage returns the message object that [ParseMessage] reads. The bytes of a JSON payload
// do not change.
func EncodeMessage(m posthaste.Message) ([]byte, error) {
	body, contentType, err := m.Body()
	if err != nil {
		return nil, err
	}
	return withPayload(optionsOf(&m, contentType), contentType, body)
}

// EncodeBatch returns the object that [ParseBatch] reads.
func EncodeBatch(messages []posthaste.Message) ([]byte, error) {
	out := []byte(`{"messages":[`)
	for i, m := range messages {
		one, err := EncodeMessage(m)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, ']', '}'), nil
}

// EncodeSchedule returns the object that [ParseSchedule] reads.
func EncodeSchedule(s posthaste.Schedule) ([]byte, error) {
	body, contentType, err := s.Message.Body()
	if err != nil {
		return nil, err
	}
	return withPayload(struct {
		Queue    string            `json:"queue"`
		Spec     string            `json:"spec"`
		TimeZone string            `json:"time_zone,omitempty"`
		CatchUp  posthaste.CatchUp `json:"catch_up,omitempty"`
		messageOptions
	}{s.Message.Queue, s.Spec, s.TimeZone, s.CatchUp, optionsOf(&s.Message, contentType)}, contentType, body)
}

// EncodeUpdate returns the object that [ParseUpdate] reads.
func EncodeUpdate(u posthaste.MessageUpdate) ([]byte, error) {
	body, contentType, err := u.Body()
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	for name, text := range map[string]*string{"content_type": contentType, "key": u.Key, "kind": u.Kind, "reference": u.Reference} {
		if text != nil {
			changes[name] = *text
		}
	}
	if u.Headers != nil {
		changes["headers"] = u.Headers
	}
	if u.Terms != nil {
		changes["terms"] = u.Terms
	}
	if u.Priority != nil {
		changes["priority"] = *u.Priority
	}
	if body == nil {
		return Encode(changes)
	}
	return withPayload(changes, *contentType, body)
}

// withPayload returns the object of fields with a payload in front. The bytes of a JSON payload do
// not change, which encoding it with the fields would compact.
func withPayload(fields any, contentType string, body []byte) ([]byte, error) {
	rest, err := Encode(fields)
	if err != nil {
		return nil, err
	}
	payload := body
	if posthaste.IsJSON(contentType) {
		if err := Check(body); err != nil { // it could end the object
			return nil, posthaste.Invalidf("payload", "the payload is not valid: %s", err)
		}
	} else {
		payload = append(base64.StdEncoding.AppendEncode([]byte{'"'}, body), '"')
	}
	out := append([]byte(`{"payload":`), payload...)
	if len(rest) > len("{}") {
		out = append(out, ',')
	}
	return append(out, rest[1:]...), nil
}

// Encode returns a value as JSON, without escaping HTML.
func Encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// SubscriptionRequest is the object that [ParseSubscriptionOptions] reads.
type SubscriptionRequest struct {
	From      string  `json:"from,omitempty"`
	Scheduled bool    `json:"scheduled,omitempty"`
	Filter    *Filter `json:"filter,omitempty"`
	MaxLag    string  `json:"max_lag,omitempty"`
}

// NewSubscriptionRequest converts the options of a subscription.
func NewSubscriptionRequest(s posthaste.SubscriptionOptions) SubscriptionRequest {
	r := SubscriptionRequest{From: s.From, Scheduled: s.Scheduled, MaxLag: given(s.MaxLag)}
	if len(s.Filter.Kinds)+len(s.Filter.Headers) > 0 {
		r.Filter = &Filter{Kind: s.Filter.Kinds, Headers: s.Filter.Headers}
	}
	return r
}
