package email

import (
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Receipt records the state of a mail's recipients after an attempt. It is cumulative: it
// starts from the receipt of the previous attempt. It is stored as JSON with the outcome of
// each attempt.
type Receipt struct {
	// MessageID is the Message-ID header, the same on every attempt.
	MessageID string `json:"message_id"`
	// Date is the Date header, the same on every attempt, in whole seconds.
	Date time.Time `json:"date,omitzero"`
	// Server is the last server that was contacted, "host:port".
	Server string `json:"server,omitempty"`
	// Recipients has the answer for each envelope address. An address that is missing was not
	// tried yet.
	Recipients map[string]Answer `json:"recipients"`
}

// AnswerStatus says what an answer means for the recipient.
type AnswerStatus string

// The meanings of an answer.
const (
	// Accepted: the server accepted the mail for this recipient. It is never sent to that
	// recipient again.
	Accepted AnswerStatus = "accepted"
	// Refused: the server permanently rejected it. An operator may retry it.
	Refused AnswerStatus = "refused"
	// Deferred: the server temporarily rejected it, and it is retried.
	Deferred AnswerStatus = "deferred"
)

// Answer is the last answer to one recipient.
type Answer struct {
	Status AnswerStatus `json:"status"`
	// Code is the server's reply code, or 0 without a reply.
	Code int `json:"code,omitempty"`
	// Enhanced is the enhanced status code of RFC 3463, if there is one.
	Enhanced string `json:"enhanced,omitempty"`
	// Text is the server's reply, or what happened instead of a reply.
	Text string `json:"text,omitempty"`
	// Unsure says that the mail was transferred and the reply was lost: it may have been
	// delivered, and may be delivered again.
	Unsure bool `json:"unsure,omitempty"`
	// Attempt is the number of the attempt that got the answer, from 1.
	Attempt int `json:"attempt"`
	// At is the time of the answer, by the clock of the delivering process.
	At time.Time `json:"at"`
}

// NewestReceipt returns the receipt of the last attempt that has one, or nil.
func NewestReceipt(story []posthaste.Attempt) *Receipt {
	for i := len(story) - 1; i >= 0; i-- {
		if len(story[i].Receipt) == 0 {
			continue
		}
		var r Receipt
		// Ignore receipts of other programs.
		if err := json.Unmarshal(story[i].Receipt, &r); err == nil && r.Recipients != nil {
			return &r
		}
	}
	return nil
}
