// Package email says what a mail is: its fields, what is checked of them, how
// it becomes MIME, and what was answered for each of its recipients. It knows
// no network; package sink/smtp delivers.
//
// A mail is the JSON payload of a message of queue [Queue]. It is checked
// where it is accepted (the HTTP API calls [Parse] and [Email.Validate]) and
// once more where it is delivered, because anybody can send one by SQL.
package email

import (
	"encoding/json"
	"strings"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Queue is the queue that mails are messages of.
const Queue = "emails"

// Limits of a mail. What exceeds one is refused with the field's name.
const (
	// MaxSize bounds the composed MIME message, in bytes.
	MaxSize = 25 << 20
	// MaxRecipients bounds to, cc and bcc together. What a server answered is
	// kept for each recipient and attempt, so this bounds that as well.
	MaxRecipients = 200
	// MaxAddressBytes bounds an address without its display name (RFC 5321).
	MaxAddressBytes = 254
	// MaxLocalBytes bounds the part of an address before the "@" (RFC 5321).
	MaxLocalBytes = 64
	// MaxDomainBytes bounds the part after the "@", as DNS counts it.
	MaxDomainBytes = 253
	// MaxNameBytes bounds a display name.
	MaxNameBytes = 255
	// MaxSubjectBytes bounds the subject.
	MaxSubjectBytes = 998
	// MaxHeaders bounds how many headers of its own a mail can have.
	MaxHeaders = 100
	// MaxHeaderNameBytes bounds the name of such a header.
	MaxHeaderNameBytes = 76
	// MaxHeaderValueBytes bounds the value of such a header.
	MaxHeaderValueBytes = 998
	// MaxAttachments bounds how many attachments a mail can have.
	MaxAttachments = 100
	// MaxFilenameBytes bounds an attachment's file name.
	MaxFilenameBytes = 255
	// MaxContentTypeBytes bounds an attachment's content type.
	MaxContentTypeBytes = 255
)

// Email is a mail as its sender describes it. The zero value is an empty mail,
// which [Email.Validate] refuses.
type Email struct {
	// From is the author, "ada@example.com" or "Ada <ada@example.com>". It is
	// also where the server sends its complaints to (the envelope's sender).
	From string `json:"from"`
	// To, Cc and Bcc are the recipients, [MaxRecipients] together. Bcc is
	// never seen in the mail.
	To  []string `json:"to,omitempty"`
	Cc  []string `json:"cc,omitempty"`
	Bcc []string `json:"bcc,omitempty"`
	// ReplyTo is one address that answers go to instead of From.
	ReplyTo string `json:"reply_to,omitempty"`
	// Subject is at most [MaxSubjectBytes] long.
	Subject string `json:"subject,omitempty"`
	// Text and HTML are the body; one is required, with both the reader's
	// program chooses. Line breaks of any kind travel as CRLF, as MIME wants.
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`
	// Headers are further headers, such as List-Unsubscribe. Those that the
	// mail gets by itself (From, Date, Content-Type, …) are refused.
	Headers map[string]string `json:"headers,omitempty"`
	// Attachments are files that travel with the mail.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Reference is the sender's own business id, by which the mail can be
	// found ([posthaste.MaxWordBytes] at most).
	Reference string `json:"reference,omitempty"`
	// SendAt holds the mail back until then; zero means now.
	SendAt time.Time `json:"send_at,omitzero"`
	// IdempotencyKey belongs to the request that sends the mail over HTTP, which
	// takes it out; anywhere else it is refused.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Attachment is a file that travels with a mail.
type Attachment struct {
	// Filename is shown to the reader (255 bytes at most).
	Filename string `json:"filename"`
	// ContentType is a media type such as "application/pdf". Empty means what
	// the file name's ending says, or else application/octet-stream.
	ContentType string `json:"content_type,omitempty"`
	// Content is the file itself, base64 in JSON.
	Content []byte `json:"content"`
}

// Message makes the message that carries the mail, with its reference, its
// recipients as terms and its time. The mail should be valid.
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

// Recipients returns the envelope addresses of to, cc and bcc in that order,
// each once, as they are given to the server (see [Address.Envelope]). What
// is no address is left out: [Email.Validate] tells of it.
func (e *Email) Recipients() []string {
	list := make([]string, 0, len(e.To)+len(e.Cc)+len(e.Bcc))
	seen := make(map[string]bool, cap(list))
	for _, group := range [][]string{e.To, e.Cc, e.Bcc} {
		for _, s := range group {
			a, err := ParseAddress(s)
			if err != nil {
				continue
			}
			// Domains are equal without regard to case; what stands before
			// the "@" belongs to the receiving host, which may tell a from A.
			key := quoteLocal(a.Local) + "@" + strings.ToLower(a.hostname())
			if !seen[key] {
				seen[key] = true
				list = append(list, a.Envelope())
			}
		}
	}
	return list
}

// Terms returns the words to find the mail by: the addresses of all
// recipients as [Term] writes them, each once.
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

// Term returns the word by which the mails to an address are found: the
// address without display name, in lower case, its domain as DNS spells it.
// What is no address is only lowered.
func Term(address string) string {
	a, err := ParseAddress(address)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(address))
	}
	return strings.ToLower(quoteLocal(a.Local) + "@" + a.hostname())
}

// NeedsSMTPUTF8 reports whether the mail can only travel between servers that
// speak SMTPUTF8 (RFC 6531), because an address in its headers has characters
// beyond ASCII before the "@". Those behind the "@" do not matter: DNS has an
// ASCII spelling for them. A recipient in bcc does not matter either, for it
// is not in the headers; its own transaction needs it, see [AddressNeedsSMTPUTF8].
func (e *Email) NeedsSMTPUTF8() bool { return e.smtputf8Field() != "" }

// SMTPUTF8Address returns the first address because of which
// [Email.NeedsSMTPUTF8] is true, and its field; empty if none.
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

// eachAddress calls do for every address field that is there.
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
