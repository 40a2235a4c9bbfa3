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
	// ErasedAt is when the content was erased; zero if it was not.
	ErasedAt time.Time
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

// Brief returns the message as lists show it: without payload, checkpoints and logs.
func (m MessageInfo) Brief() MessageInfo {
	m.Payload, m.Subscriptions = nil, slices.Clone(m.Subscriptions)
	for i := range m.Subscriptions {
		attempts := slices.Clone(m.Subscriptions[i].Attempts)
		for j := range attempts {
			attempts[j].Checkpoint, attempts[j].Log = nil, ""
		}
		m.Subscriptions[i].Attempts = attempts
	}
	return m
}
