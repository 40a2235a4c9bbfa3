package email

import "github.com/posthaste-mq/posthaste"

// Status is the state of a mail, in the terms of mail delivery.
type Status string

// The statuses of a mail.
const (
	StatusScheduled Status = "scheduled" // not handed out yet, or waiting for a retry
	StatusClaimed   Status = "claimed"   // handed to a worker, being delivered
	StatusSent      Status = "sent"      // every recipient was accepted
	StatusError     Status = "error"     // failed permanently: a dead letter, even after it was discarded
	StatusCancelled Status = "cancelled" // cancelled before it was handed out
	StatusExpired   Status = "expired"   // older than its queue's max_age before it was sent
)

// statusOf maps states of messages to statuses of mails.
var statusOf = map[posthaste.State]Status{
	posthaste.StateScheduled: StatusScheduled,
	posthaste.StateReady:     StatusScheduled,
	posthaste.StateRetrying:  StatusScheduled,
	posthaste.StateRunning:   StatusClaimed,
	posthaste.StateDone:      StatusSent,
	posthaste.StateDead:      StatusError,
	posthaste.StateDiscarded: StatusError,
	posthaste.StateCancelled: StatusCancelled,
	posthaste.StateExpired:   StatusExpired,
}

// StatusOf returns the status of a mail whose message is in state s, or "" if the state is
// unknown.
func StatusOf(s posthaste.State) Status { return statusOf[s] }

// ParseStatus validates a requested status. The error names the field "status".
func ParseStatus(s string) (Status, error) {
	for _, status := range statusOf {
		if string(status) == s {
			return status, nil
		}
	}
	return "", invalid("status", "must be scheduled, claimed, sent, error, cancelled or expired")
}

// States returns the message states that correspond to the status.
func (s Status) States() []posthaste.State {
	var states []posthaste.State
	for _, state := range posthaste.States() {
		if statusOf[state] == s {
			states = append(states, state)
		}
	}
	return states
}
