package posthaste

import (
	"slices"
	"time"
)

// MessageInfo is a stored message with its state.
type MessageInfo struct {
	ID          MessageID
	Queue       string
	Key         string
	Kind        string
	Headers     map[string]string
	Reference   string
	Terms       []string
	ContentType string
	// Payload is absent in lists, and if it was erased or not retained.
	Payload   []byte
	CreatedAt time.Time
	// Options are the message's own options: its zero values mean those of its kind, and then
	// those of its queue. Lists have none. They can be absent once the message is settled.
	Options KindOptions
	// Version identifies the content, for [MessageUpdate]; empty where Payload is absent.
	Version string
	// ErasedAt is when the content was erased; zero if it was not.
	ErasedAt time.Time
	// PayloadHidden says that a server does not show the caller payload, headers, terms and
	// receipts. Engines show all.
	PayloadHidden bool
	// Subscriptions has the state for each subscription.
	Subscriptions []MessageState
}

// MessageState is the state of a message for one subscription.
type MessageState struct {
	Subscription string
	State        State
	// DueAt is the next time it may be handed out, if that is in the future.
	DueAt time.Time
	// Attempts are all attempts, oldest first.
	Attempts []Attempt
}

// MessageUpdate is a change of a waiting message. Nil fields do not change.
type MessageUpdate struct {
	// Version is the version that the change is meant for, from [MessageInfo]: if the message
	// has another one, the error is [CodeStale]. Empty means any.
	Version string
	// Payload is as in [Message].
	Payload any
	Codec   Codec
	// ContentType is the new content type. With a Payload, nil means that of the payload.
	ContentType *string
	// Key, Kind and Reference are removed if they are empty.
	Key, Kind, Reference *string
	// Headers and Terms replace all; empty ones remove all.
	Headers map[string]string
	Terms   []string
	// Priority is as in [Message].
	Priority *int
}

// Updated is the result of an update.
type Updated struct {
	// ID is the message's id, or that of the new message that replaces a dead letter.
	ID MessageID
	// Version is the version of the new content.
	Version string
}

// MaxSearched limits a search by kind, time or state on PostgreSQL. One search examines this many
// deliveries of the newest messages that match the rest of the filter. Other engines examine more.
const MaxSearched = 3000

// MessageFilter selects messages. Empty fields select all.
type MessageFilter struct {
	Queue     string
	Reference string
	Key       string
	Kind      string
	Term      string
	State     State
	// CreatedFrom selects messages that were sent at this time or later.
	CreatedFrom time.Time
	// Before selects messages with lower ids, for paging.
	Before MessageID
	// Limit is at most 1,000; 0 means 100.
	Limit int
}

// Erasure is the result of erasing one message.
type Erasure struct {
	MessageID MessageID
	Queue     string
	// Pending says that the message is still to be delivered and was not erased.
	Pending bool
}

// Brief returns the message as lists show it: without payload, options, checkpoints and logs.
func (m MessageInfo) Brief() MessageInfo {
	m.Payload, m.Options, m.Subscriptions = nil, KindOptions{}, slices.Clone(m.Subscriptions)
	for i := range m.Subscriptions {
		attempts := slices.Clone(m.Subscriptions[i].Attempts)
		for j := range attempts {
			attempts[j].Checkpoint, attempts[j].Log = nil, ""
		}
		m.Subscriptions[i].Attempts = attempts
	}
	return m
}
