// Package posthaste defines the domain of Posthaste: messages that are sent in the database
// transaction that causes them, their deliveries, and the interfaces between engines, runtime
// and sinks ([Engine], [Sink], [Doorbell]).
//
// The package imports only the standard library. Package postgres implements the engine, and
// package worker the runtime that calls handlers.
package posthaste

import (
	"encoding/json"
	"strconv"
	"time"
)

// MessageID identifies a message for the lifetime of the ledger. It is the position of the
// message's first entry and is never reused. In JSON it is a string, because it may exceed
// the integers that a double represents exactly.
type MessageID int64

// String returns the id in decimal.
func (id MessageID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id MessageID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *MessageID) UnmarshalText(text []byte) error {
	n, err := parseID("message id", text)
	*id = MessageID(n)
	return err
}

// DeliveryID identifies one delivery of one entry to one subscription. It fences that
// attempt: a settled delivery cannot be settled again.
type DeliveryID int64

// String returns the id in decimal.
func (id DeliveryID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id DeliveryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *DeliveryID) UnmarshalText(text []byte) error {
	n, err := parseID("delivery id", text)
	*id = DeliveryID(n)
	return err
}

// WorkerID identifies the registration of one process as a worker.
type WorkerID int64

// String returns the id in decimal.
func (id WorkerID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id WorkerID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *WorkerID) UnmarshalText(text []byte) error {
	n, err := parseID("worker id", text)
	*id = WorkerID(n)
	return err
}

func parseID(what string, text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n <= 0 {
		return 0, &Error{Code: CodeInvalid, Field: "id", Message: what + " must be a positive decimal number"}
	}
	return n, nil
}

// Content types of the built-in codecs. An empty content type means [ContentTypeJSON].
const (
	ContentTypeJSON  = "application/json"
	ContentTypeBytes = "application/octet-stream"
)

// DefaultSubscription is the subscription that every queue is created with.
const DefaultSubscription = "default"

// Limits of every engine.
const (
	// MaxWordBytes bounds key, kind, reference, dedupe key and each term.
	MaxWordBytes = 255
	// MaxPriority is the last priority; 0 is the first.
	MaxPriority = 3
	// MaxDedupeWindow is the longest window of a dedupe key.
	MaxDedupeWindow = 365 * 24 * time.Hour
	// MaxHeaderBytes bounds all headers of a message together, names and values.
	MaxHeaderBytes = 16 << 10
	// MaxPayloadBytes is the most a queue's max_payload can be set to.
	MaxPayloadBytes = 32 << 20
	// MaxPlaces is the most deliveries one claim can hold.
	MaxPlaces = 4096
)

// HeaderMessageID is the header for a message's id in another system, for example a broker.
// An inbox deduplicates by it.
const HeaderMessageID = "message-id"

// HeaderReplayOf is the header with the id of the dead letter of which a message is an edited
// copy.
const HeaderReplayOf = "replay-of"

// Message is a message to send. Only Queue is required.
type Message struct {
	// Queue names the queue: 1–63 of a-z, 0-9, "_", "-" and ".".
	Queue string
	// Payload is the content. []byte, and json.RawMessage without a Codec, are sent
	// unchanged. Any other value is encoded when it is sent, by Codec or as JSON. Nil is
	// JSON null.
	Payload any
	// Codec encodes Payload unless it is a []byte. Nil means JSON.
	Codec Codec
	// ContentType is the type of Payload. Empty means Codec's type if there is a Codec,
	// application/octet-stream if Payload is a []byte, and else JSON. With a type that is
	// not JSON, strings are sent unchanged.
	ContentType string
	// Key groups messages that belong together (255 bytes at most).
	Key string
	// Kind is the message's type, for routing and filters (255 bytes at most).
	Kind string
	// Headers are delivered with the message (16 KiB together).
	Headers map[string]string
	// Reference is the sender's business id, by which the message can be found (255 bytes
	// at most).
	Reference string
	// Terms are further words by which the message can be found (255 bytes each).
	Terms []string
	// Delay is the time from sending until the message may be delivered, by the store's
	// clock.
	Delay time.Duration
	// SendAt is the time from which the message may be delivered. The zero value means now.
	// It excludes Delay.
	SendAt time.Time
	// Priority is 0 (default) to [MaxPriority]. Lower numbers are delivered first, and none
	// is starved (docs/priorities.md).
	Priority int
	// DedupeKey, if not empty, deduplicates sends within DedupeWindow: a second send with
	// the same key to the same queue stores nothing and returns the first message's id
	// (255 bytes at most).
	DedupeKey string
	// DedupeWindow is how long DedupeKey is kept from sending on, by the store's clock.
	// Zero means one day; at most [MaxDedupeWindow].
	DedupeWindow time.Duration
	// Unique, if not nil, sends the message only if no earlier one has the same key and is
	// unfinished. It excludes DedupeKey.
	Unique *Unique
	// NoWake sends without waking workers, which find the message at their next look. It is
	// needed in transactions that will be prepared (two-phase commit).
	NoWake bool
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Attempt is one attempt to deliver a message, as recorded in its history.
type Attempt struct {
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// Outcome is how the attempt ended; empty while it runs.
	Outcome Outcome `json:"outcome,omitempty"`
	// Worker is the name of the process; empty if the message was received by SQL or HTTP.
	Worker string `json:"worker,omitempty"`
	// ClaimedAt is when the attempt was handed out, by the store's clock.
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	// EndedAt is when its outcome was recorded.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// DurationMS is how long the handler ran, in milliseconds, if known.
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Error is the error text, never empty for a failed attempt.
	Error string `json:"error,omitempty"`
	// Receipt is the external system's response, as JSON.
	Receipt json.RawMessage `json:"receipt,omitempty"`
}

// RawDelivery is a delivered message with its encoded payload.
type RawDelivery struct {
	ID           DeliveryID
	MessageID    MessageID
	Queue        string
	Subscription string
	// Attempt counts from 1. A released delivery does not count.
	Attempt     int
	Key         string
	Kind        string
	Headers     map[string]string
	Reference   string
	ContentType string
	Payload     []byte
	CreatedAt   time.Time
	// DueAt is the time until which the entry was scheduled; zero if it was not.
	DueAt time.Time
	// Timeout is the queue's maximum duration of one run of a handler.
	Timeout time.Duration
	// Story has the earlier attempts, oldest first; nil on the first attempt.
	Story []Attempt
	// Alone requests that nothing else runs in the process beside this delivery, because
	// earlier attempts were lost with their process.
	Alone bool
	// AtMostOnce says that the delivery was settled when it was handed out: it cannot be
	// settled, and is never redelivered. Claim sets it; Receive does not.
	AtMostOnce bool
}

// Delivery is a delivered message with its payload decoded into T. The encoded payload is
// RawDelivery.Payload.
type Delivery[T any] struct {
	RawDelivery
	Payload T
}
