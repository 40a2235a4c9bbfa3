package wire

import "github.com/posthaste-mq/posthaste"

// Received is the response to receiving.
type Received struct {
	Deliveries []Delivery `json:"deliveries"`
}

// SettledAll has the result of each delivery of a request.
type SettledAll struct {
	Deliveries []Settled `json:"deliveries"`
}

// Withdrawn has the result of cancelling or rescheduling a message in each subscription.
type Withdrawn struct {
	Subscriptions []Withdrawal `json:"subscriptions"`
}

// Ran has the result of running a message now in each subscription.
type Ran struct {
	Subscriptions []RunResult `json:"subscriptions"`
}

// PurgedAll has the number of purged messages of each subscription.
type PurgedAll struct {
	Subscriptions []Purged `json:"subscriptions"`
}

// Updated is the result of an update. ReplayOf is the dead letter that the message replaces.
type Updated struct {
	ID       posthaste.MessageID `json:"id"`
	Version  string              `json:"version,omitempty"`
	ReplayOf posthaste.MessageID `json:"replay_of,omitzero"`
}

// Decided lists the dead letters that were replayed or discarded, and the requested ids
// that were not dead letters.
type Decided struct {
	IDs      []posthaste.MessageID `json:"ids"`
	NotFound []posthaste.MessageID `json:"not_found"`
	// UniqueConflict are dead letters that stay, because other messages hold their unique keys.
	UniqueConflict []posthaste.MessageID `json:"unique_conflict,omitempty"`
	// Next is the cursor to continue with; absent if nothing is left.
	Next    string `json:"next,omitempty"`
	HasMore bool   `json:"has_more"`
}

// Erased lists the erased messages, and the messages with the term that were not erased
// because they are still to be delivered.
type Erased struct {
	Erased  []posthaste.MessageID `json:"erased"`
	Pending []posthaste.MessageID `json:"pending"`
	// Next is the cursor to continue with; absent if nothing is left.
	Next    string `json:"next,omitempty"`
	HasMore bool   `json:"has_more"`
}
