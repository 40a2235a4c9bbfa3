package wire

import (
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// Email is an e-mail and its status. From, To, Cc, Bcc and Subject are absent in lists,
// and if the payload is not an e-mail.
type Email struct {
	ID        posthaste.MessageID `json:"id"`
	Status    email.Status        `json:"status"`
	Reference string              `json:"reference,omitempty"`
	From      string              `json:"from,omitempty"`
	To        []string            `json:"to,omitempty"`
	Cc        []string            `json:"cc,omitempty"`
	Bcc       []string            `json:"bcc,omitempty"`
	Subject   string              `json:"subject,omitempty"`
	// Recipients are the addresses by which the e-mail can be found.
	Recipients []string  `json:"recipients,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	// DueAt is the earliest time of the next attempt; absent if it has passed.
	DueAt    time.Time           `json:"due_at,omitzero"`
	Attempts []posthaste.Attempt `json:"attempts"`
	// MessageID is the header Message-ID, which is known after the first attempt.
	MessageID string `json:"message_id,omitempty"`
	// Answers has the last reply of the mail server for each recipient.
	Answers map[string]email.Answer `json:"answers,omitempty"`
	// PayloadHidden reports that the caller may not see the addresses and the subject.
	PayloadHidden bool `json:"payload_hidden,omitempty"`
}

// HidePayload removes what the e-mail says, and to whom.
func (e *Email) HidePayload() {
	e.From, e.To, e.Cc, e.Bcc, e.Subject, e.Recipients, e.Answers = "", nil, nil, nil, "", nil, nil
	e.Attempts, e.PayloadHidden = WithoutReceipts(e.Attempts), true
}

// NewEmail converts the message of an e-mail, without what its payload says.
func NewEmail(m posthaste.MessageInfo) Email {
	shown := Email{
		ID: m.ID, Reference: m.Reference, CreatedAt: m.CreatedAt, Recipients: m.Terms,
		Attempts: []posthaste.Attempt{},
	}
	if state, ok := defaultState(m); ok {
		shown.Status = email.StatusOf(state.State)
		shown.DueAt = state.DueAt
		if state.Attempts != nil {
			shown.Attempts = state.Attempts
		}
		if receipt := email.NewestReceipt(state.Attempts); receipt != nil {
			shown.Answers, shown.MessageID = receipt.Recipients, receipt.MessageID
		}
	}
	if m.PayloadHidden {
		shown.HidePayload()
	}
	return shown
}

// defaultState is the state of the e-mail in the subscription that delivers it.
func defaultState(m posthaste.MessageInfo) (posthaste.MessageState, bool) {
	for _, state := range m.Subscriptions {
		if state.Subscription == posthaste.DefaultSubscription {
			return state, true
		}
	}
	return posthaste.MessageState{}, false
}
