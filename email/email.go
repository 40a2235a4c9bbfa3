// Package email defines mails: their fields, validation, MIME form, and the server's response
// for each recipient. It uses no network; package sink/smtp delivers mails.
//
// A mail is the JSON payload of a message in the queue [Queue]. It is validated when it is
// accepted (the HTTP API calls [Parse] and [Email.Validate]) and again when it is delivered,
// because mails can also be sent by SQL.
package email

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Queue is the name of the queue of mails.
const Queue = "emails"

// Email is a mail as its sender describes it. The zero value is an empty mail, which
// [Email.Validate] rejects.
type Email struct {
	// From is the author, "ada@example.com" or "Ada <ada@example.com>". It is also the
	// envelope sender, to which servers send bounces.
	From string `json:"from"`
	// To, Cc and Bcc are the recipients, [MaxRecipients] together. The mail never shows Bcc.
	To  []string `json:"to,omitempty"`
	Cc  []string `json:"cc,omitempty"`
	Bcc []string `json:"bcc,omitempty"`
	// ReplyTo is an address to which replies go instead of From.
	ReplyTo string `json:"reply_to,omitempty"`
	// Subject has at most [MaxSubjectBytes] bytes.
	Subject string `json:"subject,omitempty"`
	// Text and HTML are the body; at least one is required. If both are set, the reader's mail
	// program chooses. Line breaks of any kind are sent as CRLF, as MIME requires.
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`
	// Headers are custom headers, such as List-Unsubscribe. Headers that the mail sets itself
	// (From, Date, Content-Type, …) are rejected.
	Headers map[string]string `json:"headers,omitempty"`
	// Attachments are the mail's files.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Reference is the sender's business id, by which the mail can be found
	// ([posthaste.MaxWordBytes] at most).
	Reference string `json:"reference,omitempty"`
	// SendAt delays the mail until that time; zero means now.
	SendAt time.Time `json:"send_at,omitzero"`
	// IdempotencyKey belongs to the HTTP request that sends the mail, which removes it.
	// Everywhere else it is rejected.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Attachment is a file of a mail.
type Attachment struct {
	// Filename is the name that the reader sees (255 bytes at most).
	Filename string `json:"filename"`
	// ContentType is a media type such as "application/pdf". If empty, it follows from the
	// extension of the file name, and is application/octet-stream if that is unknown.
	ContentType string `json:"content_type,omitempty"`
	// Content is the file's content, base64 in JSON.
	Content []byte `json:"content"`
}

// Message returns the message that carries the mail, with its reference, its recipients as
// terms and its time. The mail should be valid.
func (e *Email) Message() (posthaste.Message, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return posthaste.Message{}, posthaste.Invalidf("", "the mail cannot be encoded as JSON: %v", err)
	}
	return posthaste.Message{
		Queue:     Queue,
		Payload:   json.RawMessage(payload),
		Reference: e.Reference,
		Terms:     e.Terms(),
		SendAt:    e.SendAt,
	}, nil
}

// Recipients returns the distinct envelope addresses of to, cc and bcc in that order, as they
// are given to the server (see [Address.Envelope]). Invalid addresses are skipped:
// [Email.Validate] reports them.
func (e *Email) Recipients() []string {
	list := make([]string, 0, len(e.To)+len(e.Cc)+len(e.Bcc))
	seen := make(map[string]bool, cap(list))
	for _, group := range [][]string{e.To, e.Cc, e.Bcc} {
		for _, s := range group {
			a, err := ParseAddress(s)
			if err != nil {
				continue
			}
			// Domains are case-insensitive. The local part belongs to the receiving host,
			// which may distinguish a and A.
			key := quoteLocal(a.Local) + "@" + strings.ToLower(a.hostname())
			if !seen[key] {
				seen[key] = true
				list = append(list, a.Envelope())
			}
		}
	}
	return list
}

// Terms returns the terms by which the mail can be found: the distinct addresses of all
// recipients in the form of [Term].
func (e *Email) Terms() []string {
	var terms []string
	seen := map[string]bool{}
	for _, group := range [][]string{e.To, e.Cc, e.Bcc} {
		for _, s := range group {
			t := Term(s)
			if t != "" && len(t) <= posthaste.MaxWordBytes && !seen[t] {
				seen[t] = true
				terms = append(terms, t)
			}
		}
	}
	return terms
}

// Term returns the term by which the mails to an address can be found: the address without
// display name, in lower case, with the domain in its DNS form. Text that is not an address is
// converted to lower case.
func Term(address string) string {
	a, err := ParseAddress(address)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(address))
	}
	return strings.ToLower(quoteLocal(a.Local) + "@" + a.hostname())
}

// NeedsSMTPUTF8 reports whether only servers that support SMTPUTF8 (RFC 6531) can transfer the
// mail, because an address in its headers has characters beyond ASCII before the "@".
// Characters after the "@" do not matter: DNS has an ASCII form for them. A bcc recipient does
// not matter either, because it is not in the headers; its own transaction needs SMTPUTF8, see
// [AddressNeedsSMTPUTF8].
func (e *Email) NeedsSMTPUTF8() bool { return e.smtputf8Field() != "" }

// SMTPUTF8Address returns the first address because of which [Email.NeedsSMTPUTF8] is true,
// and its field, or empty strings.
func (e *Email) SMTPUTF8Address() (field, address string) {
	field = e.smtputf8Field()
	if field == "" {
		return "", ""
	}
	return field, e.addressAt(field)
}

func (e *Email) smtputf8Field() string {
	found := ""
	e.eachAddress(func(field, s string) {
		if found != "" || strings.HasPrefix(field, "bcc[") {
			return
		}
		if a, err := ParseAddress(s); err == nil && !isASCII(a.Local) {
			found = field
		}
	})
	return found
}

func (e *Email) addressAt(field string) (address string) {
	e.eachAddress(func(f, s string) {
		if f == field {
			address = s
		}
	})
	return address
}

// eachAddress calls do for every address field that is set.
func (e *Email) eachAddress(do func(field, value string)) {
	do("from", e.From)
	for _, g := range []struct {
		name string
		list []string
	}{{"to", e.To}, {"cc", e.Cc}, {"bcc", e.Bcc}} {
		for i, s := range g.list {
			do(index(g.name, i), s)
		}
	}
	if e.ReplyTo != "" {
		do("reply_to", e.ReplyTo)
	}
}
