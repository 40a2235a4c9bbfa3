package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Identity holds the parts of a mail's headers that come from its message.
type Identity struct {
	ID posthaste.MessageID
	// CreatedAt is when the message was sent. It is part of the Message-ID.
	CreatedAt time.Time
	// Date is the Date header; zero means CreatedAt. For a delayed mail it is the time at
	// which the mail first became due.
	Date time.Time
}

// MessageIDHeader returns the mail's Message-ID with angle brackets. It is the same on every
// attempt, and different in ledgers that gave two mails the same id.
func (e *Email) MessageIDHeader(i Identity) string {
	domain := "localhost.invalid"
	from := e.From
	if a, err := ParseAddress(e.From); err == nil {
		domain = a.hostname()
		from = a.Envelope()
	}
	sum := sha256.Sum256([]byte(i.ID.String() + "\n" + strconv.FormatInt(i.CreatedAt.UnixMicro(), 10) + "\n" + from))
	return fmt.Sprintf("<posthaste.%s.%s@%s>", i.ID, hex.EncodeToString(sum[:8]), domain)
}

// Compose returns the mail as MIME with CRLF line endings: text and HTML as
// multipart/alternative, with attachments inside multipart/mixed. It contains only ASCII
// unless [Email.NeedsSMTPUTF8]. The same arguments return the same bytes. No header contains
// Bcc.
func (e *Email) Compose(i Identity) ([]byte, error) {
	var b bytes.Buffer
	if err := e.writeHeaders(&b, i); err != nil {
		return nil, fmt.Errorf("compose mail: %w", err)
	}
	body := e.body(boundaries(b.Bytes(), e))
	for _, name := range slices.Sorted(maps.Keys(body.header)) {
		b.WriteString(name + ": " + body.header.Get(name) + "\r\n")
	}
	b.WriteString("\r\n")
	if err := body.write(&b); err != nil {
		return nil, fmt.Errorf("compose mail: %w", err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\r\n")) {
		// A single-part body may end without a line break. SMTP would add one; a soft line
		// break keeps the text unchanged.
		b.WriteString("=\r\n")
	}
	return b.Bytes(), nil
}

// writeHeaders writes all headers except those that describe the body.
func (e *Email) writeHeaders(b *bytes.Buffer, i Identity) error {
	date := i.Date
	if date.IsZero() {
		date = i.CreatedAt
	}
	writeField(b, "Date", date.UTC().Format(time.RFC1123Z))
	for _, h := range []struct {
		name string
		list []string
	}{{"From", []string{e.From}}, {"To", e.To}, {"Cc", e.Cc}, {"Reply-To", nonEmpty(e.ReplyTo)}} {
		list := make([]Address, len(h.list))
		for n, s := range h.list {
			var err error
			if list[n], err = ParseAddress(s); err != nil {
				return fmt.Errorf("an address of header %s %w", h.name, err)
			}
		}
		if len(list) > 0 {
			writeField(b, h.name, writeAddresses(h.name, list))
		}
	}
	if len(e.To)+len(e.Cc) == 0 {
		// Without visible recipients, To contains this text, because some filters reject mails
		// without a To header.
		writeField(b, "To", "undisclosed-recipients:;")
	}
	if e.Subject != "" {
		writeField(b, "Subject", encodeText("Subject", e.Subject))
	}
	writeField(b, "Message-ID", e.MessageIDHeader(i))
	for _, name := range e.headerNames() {
		if leftOut(name, e.Headers[name]) {
			continue
		}
		value, err := writeHeader(name, e.Headers[name])
		if err != nil {
			return fmt.Errorf("header %s %w", name, err)
		}
		writeField(b, name, value)
	}
	writeField(b, "MIME-Version", "1.0")
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
