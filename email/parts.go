package email

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// contentTypes maps file extensions to content types. The list is fixed, because a mail must
// not change between two attempts on different machines.
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

// part is a body or a part of one.
type part struct {
	header textproto.MIMEHeader
	write  func(w io.Writer) error
}

func newPart(contentType string, write func(w io.Writer) error) part {
	return part{textproto.MIMEHeader{"Content-Type": {contentType}}, write}
}

// body returns the body of the mail. boundary returns a new boundary on each call.
func (e *Email) body(boundary func() string) part {
	var bodies []part
	if e.Text != "" || e.HTML == "" {
		bodies = append(bodies, textPart("text/plain", e.Text))
	}
	if e.HTML != "" {
		bodies = append(bodies, textPart("text/html", e.HTML))
	}
	body := bodies[0]
	if len(bodies) > 1 {
		body = multipartOf("alternative", boundary(), bodies)
	}
	if len(e.Attachments) > 0 {
		parts := []part{body}
		for i := range e.Attachments {
			parts = append(parts, e.Attachments[i].part())
		}
		body = multipartOf("mixed", boundary(), parts)
	}
	return body
}

// lineBreaks converts all line breaks to CRLF. The quoted-printable writer also does that, but
// drops an LF that follows a CR and non-ASCII characters.
var lineBreaks = strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n")

func textPart(mediaType, text string) part {
	p := newPart(mediaType+"; charset=UTF-8", func(w io.Writer) error {
		q := quotedprintable.NewWriter(w)
		if _, err := lineBreaks.WriteString(q, text); err != nil {
			return err
		}
		return q.Close()
	})
	p.header.Set("Content-Transfer-Encoding", "quoted-printable")
	return p
}

func multipartOf(kind, boundary string, parts []part) part {
	return newPart("multipart/"+kind+";\r\n boundary="+boundary, func(w io.Writer) error {
		m := multipart.NewWriter(w)
		if err := m.SetBoundary(boundary); err != nil {
			return err
		}
		for _, p := range parts {
			in, err := m.CreatePart(p.header)
			if err == nil {
				err = p.write(in)
			}
			if err != nil {
				return err
			}
		}
		return m.Close()
	})
}

// part returns the attachment as a part.
func (a *Attachment) part() part {
	kind := a.ContentType
	if kind == "" {
		kind = contentTypes[strings.ToLower(path.Ext(a.Filename))]
	}
	media, params, err := mime.ParseMediaType(kind)
	if kind = mime.FormatMediaType(media, params); err != nil || kind == "" {
		kind = posthaste.ContentTypeBytes
	}
	p := newPart(kind, func(w io.Writer) error {
		const line = 57 // bytes that encode to 76 characters
		for rest := a.Content; len(rest) > 0; {
			n := min(line, len(rest))
			if _, err := io.WriteString(w, base64.StdEncoding.EncodeToString(rest[:n])+"\r\n"); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
	p.header.Set("Content-Transfer-Encoding", "base64")
	p.header.Set("Content-Disposition", "attachment;\r\n "+filenameParameter(a.Filename))
	return p
}

// filenameParameter formats a file name: as a quoted string if all readers understand that,
// and otherwise by RFC 2231. If both were written, some readers would show the plain form with
// its replacement characters.
func filenameParameter(name string) string {
	if isASCII(name) && !strings.ContainsAny(name, `"\`) && !strings.Contains(name, "=?") {
		return "filename=" + quoted(name)
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || c == '.' || c == '-' || c == '_') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return "filename*=utf-8''" + b.String()
}

// boundaries returns the boundaries between the parts. They are a hash of the whole mail, so
// every attempt sends the same bytes. A sender cannot write a text that contains a hash of
// itself, so the boundaries are as safe from forgery as random ones.
func boundaries(headers []byte, e *Email) (next func() string) {
	sum := sha256.New()
	write := func(b []byte) { fmt.Fprintf(sum, "%d\n%s", len(b), b) }
	write(headers)
	write([]byte(e.Text))
	write([]byte(e.HTML))
	for _, a := range e.Attachments {
		write([]byte(a.Filename))
		write([]byte(a.ContentType))
		write(a.Content)
	}
	seed := sum.Sum(nil)
	return func() string {
		own := sha256.Sum256(seed)
		seed = own[:]
		return hex.EncodeToString(own[:])[:60]
	}
}
