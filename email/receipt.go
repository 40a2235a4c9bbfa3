package email

import (
	"encoding/json"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Receipt is what is known of a mail's recipients after an attempt, of all
// attempts together: it starts from the receipt of the attempt before. It is
// kept as JSON with the outcome of each attempt.
type Receipt struct {
	// MessageID is the Message-ID header, the same on every attempt.
	MessageID string `json:"message_id"`
	// Date is the Date header, the same on every attempt. It has no fractions
	// of a second.
	Date time.Time `json:"date,omitzero"`
	// Server is the last server spoken to, "host:port".
	Server string `json:"server,omitempty"`
	// Recipients tells of each envelope address. One that is missing was not
	// tried yet.
	Recipients map[string]Answer `json:"recipients"`
}

// AnswerStatus is what an answer means for the recipient.
type AnswerStatus string

// What an answer means.
const (
	// Accepted: the server took the mail for this recipient. It is never sent
	// to that recipient again.
	Accepted AnswerStatus = "accepted"
	// Refused: the server will not take it; trying again is up to a person.
	Refused AnswerStatus = "refused"
	// Deferred: it is tried again.
	Deferred AnswerStatus = "deferred"
)

// Answer is the last answer to one recipient.
type Answer struct {
	Status AnswerStatus `json:"status"`
	// Code is the server's reply code, 0 where it gave none.
	Code int `json:"code,omitempty"`
	// Enhanced is the enhanced status code of RFC 3463, where there was one.
	Enhanced string `json:"enhanced,omitempty"`
	// Text is what the server said, or what happened instead of an answer.
	Text string `json:"text,omitempty"`
	// Unsure says that the mail was handed over and the answer got lost: it
	// may have been delivered, and may be a second time.
	Unsure bool `json:"unsure,omitempty"`
	// Attempt is the attempt that got the answer, from 1.
	Attempt int `json:"attempt"`
	// At is when, by the clock of the process that delivered.
	At time.Time `json:"at"`
}

// NewestReceipt returns the receipt of the last attempt that left one; nil if
// none did.
func NewestReceipt(story []posthaste.Attempt) *Receipt {
	for i := len(story) - 1; i >= 0; i-- {
		if len(story[i].Receipt) == 0 {
			continue
		}
		var r Receipt
		// What another program left there is not ours to judge.
		if err := json.Unmarshal(story[i].Receipt, &r); err == nil && r.Recipients != nil {
			return &r
		}
	}
	return nil
}
