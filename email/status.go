package email

import posthaste "github.com/posthaste-mq/posthaste"

// Status is where a mail stands, in the words of mail.
type Status string

// The statuses of a mail.
const (
	StatusScheduled Status = "scheduled" // not handed out yet, also between attempts
	StatusClaimed   Status = "claimed"   // handed to a worker, being delivered
	StatusSent      Status = "sent"      // every recipient was accepted
	StatusError     Status = "error"     // failed for good: a dead letter, also after it was discarded
	StatusCancelled Status = "cancelled" // withdrawn before it was handed out
)

// statusOf names each state's status.
var statusOf = map[posthaste.State]Status{
	posthaste.StateScheduled: StatusScheduled,
	posthaste.StateReady:     StatusScheduled,
	posthaste.StateRetrying:  StatusScheduled,
	posthaste.StateRunning:   StatusClaimed,
	posthaste.StateDone:      StatusSent,
	posthaste.StateDead:      StatusError,
	posthaste.StateDiscarded: StatusError,
	posthaste.StateCancelled: StatusCancelled,
}

// StatusOf returns the status of a mail whose message is in state s; empty for
// a state it does not know.
func StatusOf(s posthaste.State) Status { return statusOf[s] }

// ParseStatus checks a status that somebody asks for. The error names the
// field "status".
func ParseStatus(s string) (Status, error) {
	for _, status := range statusOf {
		if string(status) == s {
			return status, nil
		}
	}
	return "", invalid("status", "must be scheduled, claimed, sent, error or cancelled")
}

// States returns the states of messages whose mails have this status.
func (s Status) States() []posthaste.State {
	var states []posthaste.State
	for _, state := range posthaste.States() {
		if statusOf[state] == s {
			states = append(states, state)
		}
	}
	return states
}
