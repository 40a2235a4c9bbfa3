package wire

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Delivery is a message delivered to a receiver.
type Delivery struct {
	ID           posthaste.DeliveryID `json:"id"`
	MessageID    posthaste.MessageID  `json:"message_id"`
	Queue        string               `json:"queue"`
	Subscription string               `json:"subscription"`
	// Attempt is 1 for the first attempt.
	Attempt int `json:"attempt"`
	// MaxAttempts and LeaseUntil are absent where they are not known.
	MaxAttempts int               `json:"max_attempts,omitempty"`
	LeaseUntil  time.Time         `json:"lease_until,omitzero"`
	Key         string            `json:"key,omitempty"`
	Kind        string            `json:"kind,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Reference   string            `json:"reference,omitempty"`
	ContentType string            `json:"content_type"`
	// Payload and PayloadEncoding are the results of [Payload].
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
	CreatedAt       time.Time       `json:"created_at"`
	DueAt           time.Time       `json:"due_at,omitzero"`
	// Story lists the earlier attempts, oldest first, without their checkpoint.
	Story []posthaste.Attempt `json:"story,omitempty"`
	// Checkpoint is the newest checkpoint of the earlier attempts.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// NewDelivery converts a delivery.
func NewDelivery(d posthaste.RawDelivery) Delivery {
	payload, encoding := Payload(d.ContentType, d.Payload)
	checkpoint, story := d.LastCheckpoint(), d.Story
	if checkpoint != nil {
		story = slices.Clone(story)
		story[len(story)-1].Checkpoint = nil
	}
	return Delivery{
		ID: d.ID, MessageID: d.MessageID, Queue: d.Queue, Subscription: d.Subscription, Attempt: d.Attempt,
		Key: d.Key, Kind: d.Kind, Headers: d.Headers, Reference: d.Reference, ContentType: contentType(d.ContentType),
		Payload: payload, PayloadEncoding: encoding, CreatedAt: d.CreatedAt, DueAt: d.DueAt, Story: story, Checkpoint: checkpoint,
	}
}

func contentType(s string) string {
	if s == "" {
		return posthaste.ContentTypeJSON
	}
	return s
}

// Sent is what became of a message that was sent.
type Sent struct {
	ID        posthaste.MessageID `json:"id"`
	Duplicate bool                `json:"duplicate,omitempty"`
	Replaced  bool                `json:"replaced,omitempty"`
	State     posthaste.State     `json:"state,omitempty"`
}

// NewSent converts a result of sending.
func NewSent(s posthaste.Sent) Sent { return Sent(s) }

// SentMany is what became of several messages: their ids, and if not all were stored, what
// became of each.
type SentMany struct {
	IDs  []posthaste.MessageID `json:"ids"`
	Sent []Sent                `json:"sent,omitempty"`
}

// NewSentMany converts results of sending.
func NewSentMany(all []posthaste.Sent) (m SentMany) {
	m.IDs, _ = posthaste.IDs(all, nil)
	if slices.ContainsFunc(all, func(s posthaste.Sent) bool { return s.Duplicate || s.Replaced }) {
		for _, s := range all {
			m.Sent = append(m.Sent, NewSent(s))
		}
	}
	return m
}

// Message is a message with its state and attempts per subscription. Lists have no payload.
type Message struct {
	ID              posthaste.MessageID `json:"id"`
	Queue           string              `json:"queue"`
	Key             string              `json:"key,omitempty"`
	Kind            string              `json:"kind,omitempty"`
	Headers         map[string]string   `json:"headers,omitempty"`
	Reference       string              `json:"reference,omitempty"`
	Terms           []string            `json:"terms,omitempty"`
	ContentType     string              `json:"content_type"`
	Payload         json.RawMessage     `json:"payload,omitempty"`
	PayloadEncoding string              `json:"payload_encoding,omitempty"`
	CreatedAt       time.Time           `json:"created_at"`
	// MaxAttempts, Timeout and Backoff are the message's own options. Lists have none.
	MaxAttempts int      `json:"max_attempts,omitempty"`
	Timeout     string   `json:"timeout,omitempty"`
	Backoff     *Backoff `json:"backoff,omitempty"`
	// Version identifies the content. Lists have none.
	Version string `json:"version,omitempty"`
	// ErasedAt is absent unless the content was erased.
	ErasedAt      time.Time      `json:"erased_at,omitzero"`
	Subscriptions []MessageState `json:"subscriptions"`
	// PayloadHidden reports that the caller may not see payload, headers, terms and receipts.
	PayloadHidden bool `json:"payload_hidden,omitempty"`
}

// HidePayload removes payload, headers, terms and receipts.
func (m *Message) HidePayload() {
	m.Payload, m.PayloadEncoding, m.Headers, m.Terms, m.PayloadHidden = nil, "", nil, nil, true
	for i := range m.Subscriptions {
		m.Subscriptions[i].Attempts = WithoutReceipts(m.Subscriptions[i].Attempts)
	}
}

// MessageState is the state of a message in one subscription.
type MessageState struct {
	Subscription string              `json:"subscription"`
	State        posthaste.State     `json:"state"`
	DueAt        time.Time           `json:"due_at,omitzero"`
	Attempts     []posthaste.Attempt `json:"attempts"`
	// ReplayedAt and ReplayedBy are of the last replay. They are absent in lists.
	ReplayedAt time.Time `json:"replayed_at,omitzero"`
	ReplayedBy string    `json:"replayed_by,omitempty"`
}

// WasReplayed reports whether the message was dead in the subscription, and is not any more.
func (s MessageState) WasReplayed() bool {
	return s.State != posthaste.StateDead && s.State != posthaste.StateDiscarded && slices.ContainsFunc(s.Attempts, died) ||
		len(s.Attempts) > 1 && slices.ContainsFunc(s.Attempts[:len(s.Attempts)-1], died)
}

func died(a posthaste.Attempt) bool { return a.Outcome == posthaste.OutcomeDead }

// WithoutReceipts returns a copy of attempts without what handlers and external systems said:
// receipts, checkpoints and logs.
func WithoutReceipts(attempts []posthaste.Attempt) []posthaste.Attempt {
	return each(attempts, func(a posthaste.Attempt) posthaste.Attempt {
		a.Receipt, a.Checkpoint, a.Log = nil, nil, ""
		return a
	})
}

// NewMessage converts a message, with or without its payload.
func NewMessage(m posthaste.MessageInfo, withPayload bool) Message {
	shown := Message{
		ID: m.ID, Queue: m.Queue, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms,
		ContentType: contentType(m.ContentType), CreatedAt: m.CreatedAt, Version: m.Version, ErasedAt: m.ErasedAt, Subscriptions: make([]MessageState, len(m.Subscriptions)),
		MaxAttempts: m.Options.MaxAttempts, Timeout: given(m.Options.Timeout),
	}
	if m.Options.Backoff != (posthaste.Backoff{}) {
		shown.Backoff = &Backoff{Base: given(m.Options.Backoff.Base), Max: given(m.Options.Backoff.Max)}
	}
	if withPayload && m.Payload != nil {
		shown.Payload, shown.PayloadEncoding = Payload(m.ContentType, m.Payload)
	}
	for i, s := range m.Subscriptions {
		shown.Subscriptions[i] = MessageState{Subscription: s.Subscription, State: s.State, DueAt: s.DueAt, Attempts: orEmpty(s.Attempts)}
	}
	if m.PayloadHidden {
		shown.HidePayload()
	}
	return shown
}

// DeadLetter is a message that failed permanently.
type DeadLetter struct {
	ID              posthaste.MessageID `json:"id"`
	Queue           string              `json:"queue"`
	Subscription    string              `json:"subscription"`
	Key             string              `json:"key,omitempty"`
	Kind            string              `json:"kind,omitempty"`
	Headers         map[string]string   `json:"headers,omitempty"`
	Reference       string              `json:"reference,omitempty"`
	Terms           []string            `json:"terms,omitempty"`
	ContentType     string              `json:"content_type"`
	Payload         json.RawMessage     `json:"payload,omitempty"`
	PayloadEncoding string              `json:"payload_encoding,omitempty"`
	CreatedAt       time.Time           `json:"created_at"`
	DiedAt          time.Time           `json:"died_at"`
	// Error is the last error.
	Error    string              `json:"error"`
	Attempts []posthaste.Attempt `json:"attempts"`
	// ErasedAt is absent unless the content was erased.
	ErasedAt time.Time `json:"erased_at,omitzero"`
	// PayloadHidden reports that the caller may not see payload, headers, terms and receipts.
	PayloadHidden bool `json:"payload_hidden,omitempty"`
}

// HidePayload removes payload, headers, terms and receipts.
func (d *DeadLetter) HidePayload() {
	d.Payload, d.PayloadEncoding, d.Headers, d.Terms, d.PayloadHidden = nil, "", nil, nil, true
	d.Attempts = WithoutReceipts(d.Attempts)
}

// NewDeadLetter converts a dead letter.
func NewDeadLetter(d posthaste.DeadLetter) DeadLetter {
	if !d.ErasedAt.IsZero() {
		d.ContentType, d.Payload = posthaste.ContentTypeJSON, []byte("null")
	}
	payload, encoding := Payload(d.ContentType, d.Payload)
	shown := DeadLetter{
		ID: d.ID, Queue: d.Queue, Subscription: d.Subscription, Key: d.Key, Kind: d.Kind, Headers: d.Headers,
		Reference: d.Reference, Terms: d.Terms, ContentType: contentType(d.ContentType), Payload: payload, PayloadEncoding: encoding,
		CreatedAt: d.CreatedAt, DiedAt: d.DiedAt, Error: d.Error, Attempts: orEmpty(d.Attempts), ErasedAt: d.ErasedAt,
	}
	if d.PayloadHidden {
		shown.HidePayload()
	}
	return shown
}

// Action is the record of an operator's action.
type Action struct {
	ID        string              `json:"id"`
	At        time.Time           `json:"at"`
	By        string              `json:"by"`
	Action    string              `json:"action"`
	Queue     string              `json:"queue,omitempty"`
	MessageID posthaste.MessageID `json:"message_id,omitzero"`
	Details   json.RawMessage     `json:"details,omitempty"`
}

// NewAction converts an action.
func NewAction(a posthaste.Action) Action {
	return Action{ID: strconv.FormatInt(a.ID, 10), At: a.At, By: a.By, Action: a.Action, Queue: a.Queue, MessageID: a.MessageID, Details: a.Details}
}

// Queue is a queue with its counters.
type Queue struct {
	Name string `json:"name"`
	// Options are those that are set, by the names of [posthaste.QueueOptionTable].
	Options   map[string]any `json:"options"`
	CreatedAt time.Time      `json:"created_at"`
	// PausedAt is the time of the pause; absent unless the queue is paused.
	PausedAt time.Time `json:"paused_at,omitzero"`
	// PausedKeys are the first 100 paused keys.
	PausedKeys []string `json:"paused_keys,omitempty"`
	// PausedKinds are the paused kinds.
	PausedKinds   []string            `json:"paused_kinds,omitempty"`
	Subscriptions []SubscriptionCount `json:"subscriptions"`
}

// Backoff is the shortest and the longest wait between attempts.
type Backoff struct {
	Base string `json:"base,omitempty"`
	Max  string `json:"max,omitempty"`
}

// SubscriptionCount has the counters of one subscription as of CountedAt.
type SubscriptionCount struct {
	Name          string  `json:"name"`
	Depth         int64   `json:"depth"`
	InFlight      int64   `json:"in_flight"`
	Dead          int64   `json:"dead"`
	Sent          int64   `json:"sent"`
	Done          int64   `json:"done"`
	Retried       int64   `json:"retried"`
	Lost          int64   `json:"lost"`
	Expired       int64   `json:"expired"`
	Withdrawn     int64   `json:"withdrawn"`
	SentPerSecond float64 `json:"sent_per_second"`
	DonePerSecond float64 `json:"done_per_second"`
	// OldestAge is a duration, "0s" if no message waits.
	OldestAge string    `json:"oldest_age"`
	CountedAt time.Time `json:"counted_at,omitzero"`
	// Filter and MaxLag are absent if they are not set.
	Filter *Filter `json:"filter,omitempty"`
	MaxLag string  `json:"max_lag,omitempty"`
	// SetAside lists kinds whose messages wait for a worker that handles them.
	SetAside []SetAside `json:"set_aside,omitempty"`
}

// SetAside has the messages of one kind that wait for a worker that handles it, or for the kind to
// be resumed.
type SetAside struct {
	Kind      string `json:"kind"`
	Waiting   int64  `json:"waiting"`
	OldestAge string `json:"oldest_age"`
	// Known says that a running worker handles the kind.
	Known bool `json:"known"`
	// Paused says that the kind is paused.
	Paused bool `json:"paused,omitempty"`
}

// Filter is the filter of a subscription.
type Filter struct {
	Kind    []string            `json:"kind,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
}

// NewQueue converts a queue.
func NewQueue(q posthaste.QueueInfo) Queue {
	shown := Queue{
		Name: q.Name, CreatedAt: q.CreatedAt, PausedAt: q.PausedAt, PausedKeys: q.PausedKeys, PausedKinds: q.PausedKinds, Subscriptions: make([]SubscriptionCount, len(q.Subscriptions)),
		Options: q.Options.Object(time.Duration.String),
	}
	for i, s := range q.Subscriptions {
		shown.Subscriptions[i] = NewSubscription(s)
	}
	return shown
}

// NewSubscription converts a subscription with its counters.
func NewSubscription(s posthaste.SubscriptionInfo) SubscriptionCount {
	shown := SubscriptionCount{
		Name: s.Name, Depth: s.Depth, InFlight: s.InFlight, Dead: s.Dead, Sent: s.Sent, Done: s.Done, Retried: s.Retried, Lost: s.Lost, Expired: s.Expired, Withdrawn: s.Withdrawn,
		SentPerSecond: s.SentPerSecond, DonePerSecond: s.DonePerSecond, OldestAge: s.OldestAge.String(), CountedAt: s.CountedAt,
	}
	if len(s.Filter.Kinds)+len(s.Filter.Headers) > 0 {
		shown.Filter = &Filter{Kind: s.Filter.Kinds, Headers: s.Filter.Headers}
	}
	for _, a := range s.SetAside {
		shown.SetAside = append(shown.SetAside, SetAside{Kind: a.Kind, Waiting: a.Waiting, OldestAge: a.OldestAge.String(), Known: a.Known, Paused: a.Paused})
	}
	if s.MaxLag > 0 {
		shown.MaxLag = s.MaxLag.String()
	}
	return shown
}

// Worker is a registered worker.
type Worker struct {
	ID          posthaste.WorkerID `json:"id"`
	Name        string             `json:"name"`
	Version     string             `json:"version,omitempty"`
	StartedAt   time.Time          `json:"started_at"`
	HeartbeatAt time.Time          `json:"heartbeat_at"`
	// LostAt is absent unless the worker was declared lost.
	LostAt time.Time `json:"lost_at,omitzero"`
	// Sinks are the subscriptions that the worker delivers to external systems.
	Sinks []posthaste.WorkerSink `json:"sinks,omitempty"`
	// Concurrency, Subscriptions and Running are as of HeartbeatAt.
	Concurrency   int                    `json:"concurrency,omitempty"`
	Subscriptions []posthaste.WorkerLoad `json:"subscriptions,omitempty"`
	Running       []RunningMessage       `json:"running,omitempty"`
}

// RunningMessage is a message whose handler runs.
type RunningMessage struct {
	ID           posthaste.MessageID `json:"message_id"`
	Queue        string              `json:"queue"`
	Subscription string              `json:"subscription"`
	Kind         string              `json:"kind,omitempty"`
	Attempt      int                 `json:"attempt"`
	StartedAt    time.Time           `json:"started_at"`
}

// NewWorker converts a worker.
func NewWorker(w posthaste.WorkerStatus) Worker {
	shown := Worker{ID: w.ID, Name: w.Name, Version: w.Version, StartedAt: w.StartedAt, HeartbeatAt: w.HeartbeatAt, LostAt: w.LostAt, Sinks: w.Sinks, Concurrency: w.State.Concurrency, Subscriptions: w.State.Loads}
	for _, r := range w.State.Running {
		shown.Running = append(shown.Running, RunningMessage{r.Message, r.Queue, r.Subscription, r.Kind, r.Attempt, w.HeartbeatAt.Add(-r.Ran)})
	}
	return shown
}

// Stored is the inverse of [NewWorker].
func (w Worker) Stored() (posthaste.WorkerStatus, error) {
	status := posthaste.WorkerStatus{ID: w.ID, Name: w.Name, Version: w.Version, StartedAt: w.StartedAt, HeartbeatAt: w.HeartbeatAt, LostAt: w.LostAt, Sinks: w.Sinks}
	status.State.Concurrency, status.State.Loads = w.Concurrency, w.Subscriptions
	for _, r := range w.Running {
		status.State.Running = append(status.State.Running, posthaste.RunningMessage{Message: r.ID, Queue: r.Queue, Subscription: r.Subscription,
			Kind: r.Kind, Attempt: r.Attempt, Ran: w.HeartbeatAt.Sub(r.StartedAt)})
	}
	return status, nil
}

func orEmpty(attempts []posthaste.Attempt) []posthaste.Attempt {
	if attempts == nil {
		return []posthaste.Attempt{}
	}
	return attempts
}
