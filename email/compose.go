package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	mail "github.com/wneessen/go-mail"
)

// contentTypes says what a file is by the ending of its name. The list is
// fixed, for what a machine knows must not change a mail between two attempts.
var contentTypes = map[string]string{
	".csv":  "text/csv",
	".gif":  "image/gif",
	".html": "text/html",
	".ics":  "text/calendar",
	".jpeg": "image/jpeg",
	".jpg":  "image/jpeg",
	".json": "application/json",
	".pdf":  "application/pdf",
	".png":  "image/png",
	".svg":  "image/svg+xml",
	".txt":  "text/plain",
	".xml":  "application/xml",
	".zip":  "application/zip",
}

// Identity is what a mail has from the message that carries it.
type Identity struct {
	ID posthaste.MessageID
	// CreatedAt is when the message was sent. It is part of the Message-ID.
	CreatedAt time.Time
	// Date becomes the Date header; zero means CreatedAt. A mail that was held
	// back has the time at which it first fell due.
	Date time.Time
}

// MessageIDHeader returns the mail's Message-ID, angle brackets included. It
// is the same on every attempt, and differs between ledgers that gave two
// mails the same id.
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

// Compose returns the mail as MIME, lines ending in CRLF: text and HTML as
// multipart/alternative, attachments around them as multipart/mixed. It holds
// only ASCII unless [Email.NeedsSMTPUTF8]. The same arguments give the same
// bytes. Bcc is in none of its headers.
func (e *Email) Compose(i Identity) ([]byte, error) {
	m := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithEncoding(mail.EncodingQP), mail.WithCharset(mail.CharsetUTF8))
	if err := e.setHeaders(m, i); err != nil {
		return nil, err
	}
	switch {
	case e.HTML == "":
		m.SetBodyString(mail.TypeTextPlain, e.Text)
	case e.Text == "":
		m.SetBodyString(mail.TypeTextHTML, e.HTML)
	default:
		m.SetBodyString(mail.TypeTextPlain, e.Text)
		m.AddAlternativeString(mail.TypeTextHTML, e.HTML)
	}
	for i := range e.Attachments {
		e.Attachments[i].attach(m)
	}
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("compose mail: %w", err)
	}
	levels := 0
	if e.HTML != "" && e.Text != "" {
		levels++
	}
	if len(e.Attachments) > 0 {
		levels++
	}
	out := settleBoundaries(b.Bytes(), levels)
	if !bytes.HasSuffix(out, []byte("\r\n")) {
		// A body of one part ends without a line break of its own. SMTP would
		// add one; a soft one keeps the text as it was given.
		out = append(out, "=\r\n"...)
	}
	return out, nil
}

func (e *Email) setHeaders(m *mail.Msg, i Identity) error {
	for _, h := range []struct {
		header mail.AddrHeader
		list   []string
	}{
		{mail.HeaderFrom, []string{e.From}},
		{mail.HeaderTo, e.To},
		{mail.HeaderCc, e.Cc},
		{mail.HeaderReplyTo, nonEmpty(e.ReplyTo)},
	} {
		for _, s := range h.list {
			a, err := ParseAddress(s)
			if err != nil {
				return fmt.Errorf("compose mail: an address of header %s %w", h.header, err)
			}
			list := append(m.GetAddrHeader(h.header), a.header())
			m.SetAddrHeaderFromMailAddress(h.header, list...)
		}
	}
	if len(e.To)+len(e.Cc) == 0 {
		// Without any recipient to show, this says so; some filters refuse
		// mails that have no To at all.
		m.SetGenHeader("To", "undisclosed-recipients:;")
	}
	if e.Subject != "" {
		m.SetGenHeader(mail.HeaderSubject, encodeHeader("Subject", e.Subject))
	}
	date := i.Date
	if date.IsZero() {
		date = i.CreatedAt
	}
	m.SetDateWithValue(date.UTC())
	m.SetMessageIDWithValue(strings.Trim(e.MessageIDHeader(i), "<>"))
	for _, name := range e.headerNames() {
		m.SetGenHeader(mail.Header(name), encodeHeader(name, e.Headers[name]))
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// attach adds the file. The headers are set here because go-mail would
// replace characters of the name.
func (a *Attachment) attach(m *mail.Msg) {
	kind := a.ContentType
	if kind == "" {
		kind = contentTypes[strings.ToLower(path.Ext(a.Filename))]
	}
	media, params, err := mime.ParseMediaType(kind)
	if kind = mime.FormatMediaType(media, params); err != nil || kind == "" {
		kind = posthaste.ContentTypeBytes
	}
	m.AttachReadSeeker(a.Filename, bytes.NewReader(a.Content), func(f *mail.File) {
		f.Header.Set("Content-Type", kind)
		f.Header.Set("Content-Disposition", disposition(a.Filename))
	})
}

// disposition names the file in the way of RFC 2231 where it is not ASCII,
// after a plain spelling for readers that do not know that.
func disposition(filename string) string {
	plain := strings.Map(func(r rune) rune {
		if r > '~' || strings.ContainsRune(`"\%`, r) {
			return '_'
		}
		return r
	}, filename)
	if plain == filename {
		return mime.FormatMediaType("attachment", map[string]string{"filename": filename})
	}
	full := strings.TrimPrefix(mime.FormatMediaType("attachment", map[string]string{"filename": filename}), "attachment; ")
	if !strings.HasPrefix(full, "filename*=") {
		return "attachment; " + full // ASCII that quoting can carry
	}
	return `attachment; filename="` + plain + "\";\r\n " + full
}

// boundaries finds what go-mail separates parts with. Nothing of the sender's
// can look like it: quoted-printable writes "=" as "=3D", base64 has no
// colons, and headers of this name are reserved.
var boundaries = regexp.MustCompile(`(?m)^Content-Type: multipart/(?:mixed|alternative);\r\n boundary=([0-9a-f]{60})\r\n`)

// settleBoundaries replaces the random boundaries of the mail, of which there
// are n, by ones that follow from all of its content, so that every attempt
// sends the same bytes. Nobody can write a text that contains a hash of
// itself, so the new ones are as safe from forgery as random ones.
func settleBoundaries(m []byte, n int) []byte {
	if n == 0 {
		return m
	}
	var random [][]byte
	neutral := m
	for _, match := range boundaries.FindAllSubmatch(m, n) {
		random = append(random, bytes.Clone(match[1]))
		neutral = bytes.ReplaceAll(neutral, match[1], nil)
	}
	sum := sha256.Sum256(neutral)
	for i, b := range random {
		own := sha256.Sum256(append(sum[:], byte(i)))
		m = bytes.ReplaceAll(m, b, []byte(hex.EncodeToString(own[:])[:len(b)]))
	}
	return m
}
