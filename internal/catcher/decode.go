package catcher

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"time"

	"golang.org/x/text/encoding/htmlindex"
)

// Mail is a caught mail.
type Mail struct {
	// ID is unique during the lifetime of the catcher's directory.
	ID string
	// ReceivedAt is the time of receipt.
	ReceivedAt time.Time
	// From and To are the envelope that the client gave. To has all recipients of the
	// transaction, including bcc.
	From string
	To   []string
	// Subject, Text and HTML are decoded. CRLF line breaks become "\n".
	Subject string
	Text    string
	HTML    string
	// Attachments are decoded, byte for byte.
	Attachments []Attachment
	// MessageID is the Message-ID header.
	MessageID string
	// SMTPUTF8 says that the client requested it, TLS that the connection was encrypted. User
	// is the authenticated user.
	SMTPUTF8 bool
	TLS      bool
	User     string
	// Raw is the mail as it was received.
	Raw []byte
}

// Attachment is a file of a mail.
type Attachment struct {
	Filename    string
	ContentType string
	Content     []byte
}

// maxDepth and maxParts limit the nesting that is decoded. Anything beyond is only in Raw.
const (
	maxDepth = 20
	maxParts = 1000
)

// decode parses a mail. It never fails: undecodable parts are shown unchanged, or are only in
// Raw.
func decode(raw []byte) Mail {
	m := Mail{Raw: raw}
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		m.Text = string(raw)
		return m
	}
	m.Subject = decodeHeader(msg.Header.Get("Subject"))
	m.MessageID = msg.Header.Get("Message-Id")
	d := &decoder{mail: &m}
	d.part(msg.Header.Get, msg.Body, 0)
	return m
}

// decoder collects a mail's parts.
type decoder struct {
	mail  *Mail
	parts int
}

func (d *decoder) part(header func(string) string, body io.Reader, depth int) {
	media, params, err := mime.ParseMediaType(header("Content-Type"))
	if err != nil {
		media = "text/plain"
	}
	if strings.HasPrefix(media, "multipart/") && depth < maxDepth {
		r := multipart.NewReader(body, params["boundary"])
		for d.parts < maxParts {
			p, err := r.NextRawPart()
			if err != nil {
				return // the end, or a part that cannot be read
			}
			d.parts++
			d.part(p.Header.Get, p, depth+1)
		}
		return
	}
	switch strings.ToLower(header("Content-Transfer-Encoding")) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	content, _ := io.ReadAll(body) // as much as can be decoded
	disposition, named, _ := mime.ParseMediaType(header("Content-Disposition"))
	attached := disposition == "attachment"
	switch {
	case media == "text/plain" && !attached && d.mail.Text == "":
		d.mail.Text = text(content, params["charset"])
	case media == "text/html" && !attached && d.mail.HTML == "":
		d.mail.HTML = text(content, params["charset"])
	default:
		name := named["filename"]
		if name == "" {
			name = params["name"]
		}
		d.mail.Attachments = append(d.mail.Attachments, Attachment{decodeHeader(name), media, content})
	}
}

// text converts a body to UTF-8 with plain line breaks.
func text(content []byte, charset string) string {
	if charset != "" {
		if r, err := charsetReader(charset, bytes.NewReader(content)); err == nil {
			if decoded, err := io.ReadAll(r); err == nil {
				content = decoded
			}
		}
	}
	return strings.ReplaceAll(string(content), "\r\n", "\n")
}

func charsetReader(charset string, r io.Reader) (io.Reader, error) {
	e, err := htmlindex.Get(charset)
	if err != nil {
		return nil, err
	}
	return e.NewDecoder().Reader(r), nil
}

// decodeHeader decodes encoded words and keeps those that cannot be decoded.
func decodeHeader(s string) string {
	decoded, err := (&mime.WordDecoder{CharsetReader: charsetReader}).DecodeHeader(s)
	if err != nil {
		return s
	}
	return decoded
}
