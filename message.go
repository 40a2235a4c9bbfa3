// Package posthaste is a message queue. It defines messages, their deliveries, the [Client]
// that sends them, and the interfaces between the parts of the library.
//
// A program usually needs three packages: an engine, this package and package worker.
//
//   - An engine stores messages: package postgres, redis or nats. On PostgreSQL, a message can
//     be sent in the transaction that causes it (postgres.In).
//   - This package has the types of messages, queues and schedules. The interface [Engine] is
//     for clients and workers, and [Operator] for administration.
//   - Package worker calls handlers, retries failed messages and stores dead letters.
//
// A message is delivered at least once, unless its queue is at-most-once. It is redelivered
// until it succeeds or is dead-lettered, even if processes crash.
//
// Errors that a caller can act on are of type [Error] with a code, the field at fault and a
// hint. The package imports only the standard library.
package posthaste

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Content types of the built-in codecs. An empty content type means [ContentTypeJSON].
const (
	ContentTypeJSON  = "application/json"
	ContentTypeBytes = "application/octet-stream"
)

// HeaderMessageID is the header for a message's id in another system, for example a broker.
// An inbox deduplicates by it.
const HeaderMessageID = "message-id"

// HeaderSender is the header in which the HTTP server records the token that sent a message, for
// example "http:shop", if the token cannot read the messages of others. It lets the token read
// this one.
const HeaderSender = "posthaste-sender"

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
	// Kind is the message's type, by which workers choose a handler and subscriptions filter
	// (255 bytes at most). Empty means the kind of a Payload that is [Kinded].
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
	// is starved (docs/guides/priorities.md).
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
	// MaxAttempts is how often this message is tried, at most 1,000. Zero means that the
	// options of its kind decide (see [QueueOptions.Kinds]), and then those of its queue. So
	// do zero values of Timeout and Backoff. At-most-once queues accept only Timeout.
	MaxAttempts int
	// Timeout is the maximum duration of one run of a handler, at most 365 days.
	Timeout time.Duration
	// Backoff bounds the waits before further attempts.
	Backoff Backoff
	// NoWake sends without waking workers, which find the message at their next look. It is
	// needed in transactions that will be prepared (two-phase commit).
	NoWake bool
}

// Kinded is a payload that names its kind. Kind must return the same for every value of the
// type, also for its zero value.
type Kinded interface{ Kind() string }

// Defaulter is a payload whose type has defaults for sending. SendDefaults must return the
// same for every value of the type, and its Payload, Codec and ContentType are ignored.
type Defaulter interface{ SendDefaults() Message }

// Completed returns the messages after [Message.Complete], and never changes those that it gets.
// If the type of no payload has a kind or defaults, it returns the messages themselves. Clients
// and engines call it before they encode payloads.
func Completed(messages []Message) []Message {
	for i := range messages {
		switch described(messages[i].Payload).(type) {
		case Kinded, Defaulter:
			messages = slices.Clone(messages)
			for j := range messages[i:] {
				messages[i+j].Complete()
			}
			return messages
		}
	}
	return messages
}

// Complete sets the fields that the message does not set, except for those of the payload, to
// the defaults of its payload's type (see [Defaulter]), and the kind to that of the payload
// (see [Kinded]). Methods of the pointer to the type count, too.
func (m *Message) Complete() {
	payload := described(m.Payload)
	if d, ok := payload.(Defaulter); ok {
		m.take(d.SendDefaults())
	}
	if m.Kind == "" {
		if k, ok := payload.(Kinded); ok {
			m.Kind = k.Kind()
		}
	}
}

// byPointer says for types of payloads, as [reflect.Type], whether only their pointer has one of
// the methods Kind and SendDefaults.
var byPointer sync.Map

// described returns the payload, or a pointer to a copy of it if only that has one of the methods
// Kind and SendDefaults.
func described(payload any) any {
	switch payload.(type) {
	case nil, []byte, string, json.RawMessage:
		return payload
	}
	t := reflect.TypeOf(payload)
	if t.PkgPath() == "" { // a pointer, or a type without methods
		return payload
	}
	is, known := byPointer.Load(t)
	if !known {
		pointer := reflect.PointerTo(t)
		for _, method := range []reflect.Type{reflect.TypeFor[Kinded](), reflect.TypeFor[Defaulter]()} {
			known = known || pointer.Implements(method) && !t.Implements(method)
		}
		is = known
		byPointer.Store(t, is)
	}
	if is == false {
		return payload
	}
	at := reflect.New(t)
	at.Elem().Set(reflect.ValueOf(payload))
	return at.Interface()
}

// take sets unset fields to those of d. Fields that exclude each other go together.
func (m *Message) take(d Message) {
	m.Queue, m.Key, m.Kind, m.Reference = cmp.Or(m.Queue, d.Queue), cmp.Or(m.Key, d.Key), cmp.Or(m.Kind, d.Kind), cmp.Or(m.Reference, d.Reference)
	if m.Headers == nil {
		m.Headers = d.Headers
	}
	if m.Terms == nil {
		m.Terms = d.Terms
	}
	if m.Delay == 0 && m.SendAt.IsZero() {
		m.Delay, m.SendAt = d.Delay, d.SendAt
	}
	m.Priority = cmp.Or(m.Priority, d.Priority)
	if m.DedupeKey == "" && m.Unique == nil {
		m.DedupeKey, m.Unique = d.DedupeKey, d.Unique
	}
	m.DedupeWindow = cmp.Or(m.DedupeWindow, d.DedupeWindow)
	m.MaxAttempts, m.Timeout = cmp.Or(m.MaxAttempts, d.MaxAttempts), cmp.Or(m.Timeout, d.Timeout)
	if m.Backoff == (Backoff{}) {
		m.Backoff = d.Backoff
	}
	m.NoWake = m.NoWake || d.NoWake
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
	// Receipt is the external system's response, or the handler's result, as JSON.
	Receipt json.RawMessage `json:"receipt,omitempty"`
	// Checkpoint is the newest checkpoint, as JSON. In a story only the newest attempt has it.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	// Progress is the part of the work that was done, 0 to 1; 0 if the handler did not say.
	Progress float64 `json:"progress,omitempty"`
	// ProgressText is the handler's description of Progress.
	ProgressText string `json:"progress_text,omitempty"`
	// Log has the lines that the handler logged with [RawDelivery.Logger]. Lists have none.
	Log string `json:"log,omitempty"`
	// CancelRequestedAt is when the message was cancelled while this attempt ran; else zero.
	CancelRequestedAt time.Time `json:"cancel_requested_at,omitzero"`
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
	// Timeout is the maximum duration of one run of a handler: the message's, its kind's or
	// the queue's.
	Timeout time.Duration
	// Story has the earlier attempts, oldest first; nil on the first attempt.
	Story []Attempt
	// Alone requests that nothing else runs in the process beside this delivery, because
	// earlier attempts were lost with their process.
	Alone bool
	// AtMostOnce says that the delivery was settled when it was handed out: it cannot be
	// settled, and is never redelivered. Claim sets it; Receive does not.
	AtMostOnce bool

	notebook Notebook // nil unless a worker handles it
}

// Notebook records the checkpoint, progress, result and log lines of a delivery. The runtime that calls handlers
// implements it; see [RawDelivery.SetNotebook].
type Notebook interface {
	// Note records a note. The error is [CodeConflict] if the delivery no longer belongs to
	// this process.
	Note(ctx context.Context, delivery DeliveryID, note Note) error
	// SetResult keeps the result until the delivery is settled.
	SetResult(delivery DeliveryID, result json.RawMessage) error
	// Log keeps a log line.
	Log(delivery DeliveryID, line []byte)
	// Cancelled reports whether the message was cancelled while it ran.
	Cancelled(delivery DeliveryID) bool
}

// ResultsKey is the context key for a func(DeliveryID) json.RawMessage that returns the result
// that was passed to SetResult. A runtime that calls handlers sets it in their contexts.
type ResultsKey struct{}

// ResultOf returns the result that was passed to SetResult for a delivery, or nil. ctx is the
// context of its handler, or derived from that. An engine stores it with an acknowledgment in the
// handler's own transaction.
func ResultOf(ctx context.Context, delivery DeliveryID) json.RawMessage {
	if results, ok := ctx.Value(ResultsKey{}).(func(DeliveryID) json.RawMessage); ok {
		return results(delivery)
	}
	return nil
}

// SetNotebook sets the notebook to which Checkpoint, Progress, SetResult and Logger write, and
// which Cancelled reads.
func (d *RawDelivery) SetNotebook(n Notebook) { d.notebook = n }

func (d RawDelivery) book() (Notebook, error) {
	if d.notebook == nil {
		return nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf("delivery %d was not handed to a handler by a worker", d.ID),
			Hint: "use Engine.Extend with Notes"}
	}
	return d.notebook, nil
}

// Checkpoint stores the handler's position in its work, as JSON of at most [MaxCheckpointBytes]. The
// next attempt gets it from [Resume], whatever ends this one: an error, the end of the
// process, or a dead letter that is replayed. A nil error means that it is stored. The error is
// [CodeConflict] if the delivery no longer belongs to this worker; the handler's context then
// ends with that error as its cause. After any other error the checkpoint may or may not be
// stored. It extends no lease: the worker's heartbeat does.
func (d RawDelivery) Checkpoint(ctx context.Context, cursor any) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	body, err := noteJSON("checkpoint", cursor)
	if err != nil {
		return err
	}
	return book.Note(ctx, d.ID, Note{Checkpoint: body})
}

// Progress records which part of the work is done, 0 to 1, with a text, for people who look at
// the message. Its errors are those of Checkpoint.
func (d RawDelivery) Progress(ctx context.Context, done float64, text string) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	return book.Note(ctx, d.ID, Note{Progress: &done, ProgressText: text})
}

// SetResult sets the result that is stored when the handler returns nil, as JSON of at most
// [MaxResultBytes]. It is the receipt of the attempt. The last call counts. A handler that
// acknowledges in its own transaction calls it before that: postgres.In(tx).Ack stores the result.
func (d RawDelivery) SetResult(result any) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	body, err := noteJSON("result", result)
	if err != nil {
		return err
	}
	if len(body) > MaxResultBytes {
		return &Error{Code: CodeTooLarge, Field: "result", Message: fmt.Sprintf("the result has %d bytes; at most %d are allowed", len(body), MaxResultBytes),
			Hint: "store large data elsewhere, and its key in the result"}
	}
	return book.SetResult(d.ID, body)
}

// Logger returns a logger whose lines are kept with the attempt, in the message's history, and
// nowhere else. Of all attempts together the newest [MaxLogBytes] are kept. Lines are stored
// every quarter of a second and when the handler returns, so a crash may lose the last ones.
func (d RawDelivery) Logger() *slog.Logger {
	book, err := d.book()
	if err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logWriter{book, d.ID}, nil))
}

type logWriter struct {
	book     Notebook
	delivery DeliveryID
}

// Write implements [io.Writer]. Each call is one line.
func (w logWriter) Write(line []byte) (int, error) {
	w.book.Log(w.delivery, line)
	return len(line), nil
}

// Cancelled reports whether the message was cancelled while it is handled, as far as the worker has
// been told. It is for handlers of several messages: their context ends with [ErrCancelled] only
// once all of their messages are cancelled. A cancelled message that the handler does not
// acknowledge is neither retried nor a dead letter.
func (d RawDelivery) Cancelled() bool { return d.notebook != nil && d.notebook.Cancelled(d.ID) }

// LastCheckpoint returns the newest checkpoint of earlier attempts, or nil.
func (d RawDelivery) LastCheckpoint() json.RawMessage {
	if len(d.Story) == 0 {
		return nil
	}
	return d.Story[len(d.Story)-1].Checkpoint
}

// Delivery is a delivered message with its payload decoded into T. The encoded payload is
// RawDelivery.Payload.
type Delivery[T any] struct {
	RawDelivery
	Payload T
}
