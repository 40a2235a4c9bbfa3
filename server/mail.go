package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// MailQueue is the queue of e-mails, unless [Config.EmailsQueue] names another one.
const MailQueue = email.Queue

// Mail is the message of an e-mail as pages show it. See docs/guides/mail.md.
type Mail struct {
	posthaste.MessageInfo
	// Status is the state in terms of the delivery of mail; "" for an unknown one.
	Status email.Status
	// DueAt is the earliest time of the next attempt; zero if it has passed.
	DueAt time.Time
	// Content is what the sender wrote; nil if the payload is absent, as in lists, or not an
	// e-mail. It is not validated.
	Content *email.Email
	// Header is the header Message-ID, which is known after the first attempt.
	Header string
	// Answers has the last reply of the mail server for each recipient.
	Answers map[string]email.Answer
	// Error is the error of the last attempt, if that failed.
	Error string
}

// NewMail returns the e-mail of a message.
func NewMail(m posthaste.MessageInfo) Mail {
	shown := wire.NewEmail(m)
	mail := Mail{MessageInfo: m, Status: shown.Status, DueAt: shown.DueAt, Header: shown.MessageID, Answers: shown.Answers}
	if n := len(shown.Attempts); n > 0 {
		mail.Error = shown.Attempts[n-1].Error
	}
	var content email.Email
	if json.Unmarshal(m.Payload, &content) == nil && (content.From != "" || len(content.Recipients()) > 0) {
		mail.Content = &content
	}
	return mail
}

// MailStatuses returns the statuses of e-mails.
func MailStatuses() []email.Status {
	return []email.Status{email.StatusScheduled, email.StatusClaimed, email.StatusSent, email.StatusError, email.StatusCancelled, email.StatusExpired}
}

// MailFilter selects e-mails. Empty fields select all.
type MailFilter struct {
	// Recipient is an address in any form, and Status one of [MailStatuses].
	Recipient, Reference, Status string
	// Before and Limit are as in [posthaste.MessageFilter].
	Before posthaste.MessageID
	Limit  int
}

// Mails lists the messages of e-mails in [MailQueue], newest first, without their payloads.
func Mails(ctx context.Context, store posthaste.MessageAdmin, f MailFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	filter := posthaste.MessageFilter{Queue: MailQueue, Reference: f.Reference, Before: f.Before, Limit: f.Limit}
	if f.Recipient != "" {
		filter.Term = email.Term(f.Recipient)
	}
	states := []posthaste.State{""}
	if f.Status != "" {
		status, err := email.ParseStatus(f.Status)
		if err != nil {
			return posthaste.Page[posthaste.MessageInfo]{}, err
		}
		states = status.States()
	}
	return wire.MessagesIn(ctx, store, filter, states)
}
