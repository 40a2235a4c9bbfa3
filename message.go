// Package posthaste is the domain of Posthaste: messages that leave with the
// database transaction that caused them, deliveries of those messages, and the
// seams ([Engine], [Sink], [Doorbell]) that engines, runtime and sinks meet at.
//
// The package imports only the standard library. Engines live beside it
// (package postgres), and so does the runtime that calls handlers (package
// worker).
package posthaste

import (
	"encoding/json"
	"strconv"
	"time"
)

// MessageID identifies a message for as long as the ledger lives. It is the
// position of the message's first entry and is never used again. JSON carries
// it as a string, because it may exceed what a double represents exactly.
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

// DeliveryID identifies one handing out of one entry to one subscription. It
// fences that attempt: once settled it cannot be settled again.
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
		return 0, &Error{Code: Invalid, Field: "id", Message: what + " must be a positive decimal number"}
	}
	return n, nil
}

// Content types that the built-in codecs know. An empty content type means
// [ContentTypeJSON].
const (
	ContentTypeJSON  = "application/json"
	ContentTypeBytes = "application/octet-stream"
)

// DefaultSubscription is the subscription every queue is born with.
const DefaultSubscription = "default"

// Limits that hold on every engine.
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

// HeaderMessageID is the header of a message under which it bears the id that it has
// elsewhere, such as at a broker. An inbox knows it again by that.
const HeaderMessageID = "message-id"

// Message is what a producer sends. Only Queue is required.
type Message struct {
	// Queue names the queue: 1–63 of a-z, 0-9, "_", "-" and ".".
	Queue string
	// Payload is the content. []byte is sent as it is, and so is
	// json.RawMessage without a Codec; any other value is encoded when it is
	// sent: by Codec, or as JSON. Nil is JSON null.
	Payload any
	// Codec encodes Payload where that is no []byte. Nil means JSON.
	Codec Codec
	// ContentType says what Payload is. Empty means JSON, Codec's own type where
	// there is one, or else application/octet-stream where Payload is a []byte.
	// Strings are sent as they are under any type that is not JSON.
	ContentType string
	// Key groups messages that belong together (255 bytes at most).
	Key string
	// Kind says what sort of message this is (255 bytes at most).
	Kind string
	// Headers travel with the message (16 KiB together).
	Headers map[string]string
	// Reference is the sender's own business id, by which the message can be
	// found (255 bytes at most).
	Reference string
	// Terms are further words to find the message by (255 bytes each).
	Terms []string
	// Delay holds the message back for this long from the moment of sending,
	// by the store's clock. Zero means no delay.
	Delay time.Duration
	// SendAt holds the message back until this time. The zero value means now.
	// It excludes Delay.
	SendAt time.Time
	// Priority is 0 to [MaxPriority]. 0, which is the default, is handed out
	// first; none is starved (docs/priorities.md).
	Priority int
	// DedupeKey, if not empty, lets the message be sent once within
	// DedupeWindow: sent again with the same key to the same queue, nothing is
	// stored, and the answer is the first message's id (255 bytes at most).
	DedupeKey string
	// DedupeWindow is how long DedupeKey is remembered, from the moment of
	// sending by the store's clock. Zero means a day; at most [MaxDedupeWindow].
	DedupeWindow time.Duration
	// NoWake sends without ringing the doorbell: the message is found by the
	// workers' next look. Needed in transactions that will be prepared
	// (two-phase commit).
	NoWake bool
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Attempt is one earlier try to deliver a message, as its story tells it.
type Attempt struct {
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// Outcome says how the attempt ended; empty while it runs.
	Outcome Outcome `json:"outcome,omitempty"`
	// Worker names the process, or is empty where a caller received by SQL or HTTP.
	Worker string `json:"worker,omitempty"`
	// ClaimedAt is when the attempt was handed out, by the store's clock.
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	// EndedAt is when its outcome was recorded.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// DurationMS is how long the handler ran, in milliseconds, where known.
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Error is the text of the failure, never empty for a failed attempt.
	Error string `json:"error,omitempty"`
	// Receipt is what the outside answered, as JSON.
	Receipt json.RawMessage `json:"receipt,omitempty"`
}

// RawDelivery is a message as it is handed out, its payload still encoded.
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
	// DueAt is the time before which the entry was held back; zero if never.
	DueAt time.Time
	// Timeout bounds one run of the handler, as the queue says.
	Timeout time.Duration
	// Story tells the earlier attempts, oldest first; nil on the first.
	Story []Attempt
	// Alone asks the runtime to run nothing else beside this delivery,
	// because earlier attempts were lost with the process that ran them.
	Alone bool
	// AtMostOnce says that handing this out has settled it: settling it is
	// refused, and whatever becomes of it, it is not handed out again. Claim
	// tells it; Receive does not.
	AtMostOnce bool
}

// Delivery is a message as it is handed out, with its payload decoded into T.
// The encoded payload stays reachable as RawDelivery.Payload.
type Delivery[T any] struct {
	RawDelivery
	Payload T
}
