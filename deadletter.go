package posthaste

import "time"

// DeadLetter is a message that failed permanently.
type DeadLetter struct {
	ID           MessageID
	Queue        string
	Subscription string
	Key          string
	Kind         string
	Headers      map[string]string
	Reference    string
	Terms        []string
	ContentType  string
	Payload      []byte
	CreatedAt    time.Time
	DiedAt       time.Time
	// Error is the last error.
	Error string
	// Attempts are all attempts, oldest first.
	Attempts []Attempt
	// ErasedAt is when the content was erased; zero if it was not.
	ErasedAt time.Time
	// PayloadHidden is as in [MessageInfo].
	PayloadHidden bool
}

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	// All selects every dead letter. Replaying and discarding reject a filter that neither
	// sets All nor selects by a field.
	All   bool
	Queue string
	// Subscription needs Queue.
	Subscription string
	Kind         string
	Key          string
	Reference    string
	// Term is one of the message's terms.
	Term string
	// Error is a part of the last error's text, ignoring the case of A to Z.
	Error string
	// DiedFrom (inclusive) and DiedBefore (exclusive) bound the time of death.
	DiedFrom, DiedBefore time.Time
	// IDs selects only these messages.
	IDs []MessageID
	// Before selects messages with lower ids, for paging.
	Before MessageID
	// Limit is at most 1,000; 0 means 100.
	Limit int
}
