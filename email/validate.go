package email

import (
	"fmt"
	"mime"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// Validate checks the mail and reports all faults at once. The error is a *posthaste.Error
// with the first fault's field (such as "to[3]", "headers.X-Foo", "attachments[0].content")
// and the text of all. [Faults] returns each fault. A valid mail can be composed.
func (e *Email) Validate() error {
	var f faultList
	e.checkAddresses(&f)
	e.checkRecipients(&f)
	checkLine(&f, "subject", e.Subject, MaxSubjectBytes)
	e.checkBody(&f)
	e.checkHeaders(&f)
	e.checkAttachments(&f)
	checkLine(&f, "reference", e.Reference, posthaste.MaxWordBytes)
	if !e.SendAt.IsZero() && (e.SendAt.Year() < 1970 || posthaste.CheckTime("send_at", e.SendAt) != nil) {
		f.add("send_at", "must lie between the year 1970 and the last day of the year 9999")
	}
	if e.IdempotencyKey != "" {
		f = append(f, fault(posthaste.CodeUnsupported, "idempotency_key", "is only supported over HTTP: give the message a dedupe_key"))
	}
	if len(f) == 0 {
		// Only a mail without faults can be composed and measured.
		e.checkSize(&f)
	}
	return f.err()
}

func (e *Email) checkAddresses(f *faultList) {
	e.eachAddress(func(field, s string) {
		if field == "from" && s == "" {
			f.add(field, "is required")
			return
		}
		if _, err := ParseAddress(s); err != nil {
			f.add(field, "%s", err.Error())
		}
	})
}

func (e *Email) checkRecipients(f *faultList) {
	switch n := len(e.To) + len(e.Cc) + len(e.Bcc); {
	case n == 0:
		f.add("to", "is empty: at least one recipient in to, cc or bcc is required")
	case n > MaxRecipients:
		f.add("to", "has, together with cc and bcc, %d recipients, at most %d are allowed", n, MaxRecipients)
	}
}

// checkLine checks a text that must be a single line.
func checkLine(f *faultList, field, s string, limit int) {
	switch {
	case !utf8.ValidString(s):
		f.add(field, "is not valid UTF-8")
	case hasControl(s):
		f.add(field, "has a line break or another control character")
	case len(s) > limit:
		f.add(field, "has %d bytes, at most %d are allowed", len(s), limit)
	}
}

func (e *Email) checkBody(f *faultList) {
	if e.Text == "" && e.HTML == "" {
		f.add("text", "is empty: text or html is required")
	}
	for _, b := range []struct{ field, s string }{{"text", e.Text}, {"html", e.HTML}} {
		switch {
		case !utf8.ValidString(b.s):
			f.add(b.field, "is not valid UTF-8")
		case strings.ContainsRune(b.s, 0):
			f.add(b.field, "has a character U+0000, which a mail cannot carry")
		}
	}
}

func (e *Email) checkHeaders(f *faultList) {
	if n := len(e.Headers); n > MaxHeaders {
		f.add("headers", "has %d headers, at most %d are allowed", n, MaxHeaders)
		return
	}
	seen := map[string]bool{}
	for _, name := range e.headerNames() {
		field := headerField(name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		hint, reserved := reservedHint(name)
		switch {
		case !isHeaderName(name):
			f.add(field, "is not a valid header name: use printable ASCII without spaces and colons")
		case len(name) > MaxHeaderNameBytes:
			f.add(field, "has a name of %d bytes, at most %d are allowed", len(name), MaxHeaderNameBytes)
		case reserved:
			fault := invalid(field, "is a reserved header")
			fault.Hint = hint
			*f = append(*f, fault)
		case seen[canonical]:
			f.add(field, "is given twice (case does not matter)")
		}
		seen[canonical] = true
		before := len(*f)
		checkLine(f, field, e.Headers[name], MaxHeaderValueBytes)
		if leftOut(name, e.Headers[name]) {
			continue
		}
		if _, err := writeHeader(name, e.Headers[name]); err != nil && len(*f) == before {
			f.add(field, "%s", err.Error())
		}
	}
}

// headerNames returns the names of the mail's custom headers, sorted.
func (e *Email) headerNames() []string {
	names := make([]string, 0, len(e.Headers))
	for name := range e.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (e *Email) checkAttachments(f *faultList) {
	if n := len(e.Attachments); n > MaxAttachments {
		f.add("attachments", "has %d attachments, at most %d are allowed", n, MaxAttachments)
		return
	}
	for i, a := range e.Attachments {
		field := index("attachments", i)
		checkFilename(f, field+".filename", a.Filename)
		if a.Content == nil {
			f.add(field+".content", "is required (it may be empty)")
		}
		if a.ContentType != "" {
			checkContentType(f, field+".content_type", a.ContentType)
		}
	}
}

// checkFilename rejects names under which a reader could not save the file, or would save it
// in another folder.
func checkFilename(f *faultList, field, name string) {
	before := len(*f)
	checkLine(f, field, name, MaxFilenameBytes)
	switch {
	case len(*f) > before:
	case name == "":
		f.add(field, "is required")
	case strings.ContainsAny(name, `/\`) || name == "." || name == "..":
		fault := invalid(field, "%q must be a file's name without a path", name)
		if base := path.Base(strings.ReplaceAll(name, `\`, "/")); strings.Trim(base, "./ ") != "" {
			fault.Hint = fmt.Sprintf("use %q", base)
		}
		*f = append(*f, fault)
	case name != strings.TrimSpace(name):
		f.add(field, "%q begins or ends with white space", name)
	}
}

func checkContentType(f *faultList, field, s string) {
	before := len(*f)
	if checkLine(f, field, s, MaxContentTypeBytes); len(*f) > before {
		return
	}
	media, params, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(media, "/") || mime.FormatMediaType(media, params) == "" {
		f.add(field, `is not a media type such as "application/pdf"`)
		return
	}
	// MIME forbids base64 for these two types (RFC 2045, 6.4), and files of unknown content
	// need base64.
	if strings.HasPrefix(media, "multipart/") || strings.HasPrefix(media, "message/") {
		fault := invalid(field, "must not be of type multipart or message")
		fault.Hint = "use application/octet-stream"
		*f = append(*f, fault)
	}
}

// checkSize bounds the size of the composed mail. It first estimates the size, because most
// mails are far below the limit or far above it and need not be composed.
func (e *Email) checkSize(f *faultList) {
	low, high := 0, 64<<10
	for _, a := range e.Attachments {
		encoded := len(a.Content) / 3 * 4
		low += encoded
		high += encoded + encoded/38 + 8<<10 // line breaks, the part's headers
	}
	for _, s := range []string{e.Text, e.HTML} {
		low += len(s)
		high += 4 * len(s) // "=XX" for each byte, and soft line breaks
	}
	for name, value := range e.Headers {
		high += 4*len(name) + 4*len(value)
	}
	high += 8 * MaxAddressBytes * MaxRecipients
	size := low
	if low <= MaxSize && high > MaxSize {
		mime, err := e.Compose(Identity{ID: 1, CreatedAt: time.Unix(0, 0)})
		if err != nil {
			f.add("", "the mail cannot be composed: %v", err)
			return
		}
		size = len(mime)
	}
	if size > MaxSize {
		field := "attachments"
		if len(e.Attachments) == 0 {
			field = "text"
			if len(e.HTML) > len(e.Text) {
				field = "html"
			}
		}
		*f = append(*f, fault(posthaste.CodeTooLarge, field,
			"makes the composed mail too large: it has at least %d bytes, at most %d (25 MiB) are allowed", size, MaxSize))
	}
}
