package catcher

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// view is a page.
type view struct {
	Place
	Title string
	// Live reports that the page follows the catcher.
	Live bool
	// Search is the text in the search box.
	Search string
	Data   any

	self string
}

// Self is the address of the page with its parameters.
func (v view) Self() string { return v.Base + v.self }

// listed is the data of the list.
type listed struct {
	Mails []summary
	// Kept is how many mails are kept, whatever the search finds.
	Kept int
}

// shownMail is the data of the page of a mail.
type shownMail struct {
	Mail
	Readable mailJSON
	Headers  []field
	RawText  string
}

// field is a decoded header of a mail.
type field struct{ Name, Value string }

// Main returns the headers that readers look for first, with the envelope being shown beside them.
func (m shownMail) Main() (list []field) {
	for _, name := range []string{"From", "To", "Cc", "Reply-To", "Date", "Message-Id"} {
		for _, h := range m.Headers {
			if strings.EqualFold(h.Name, name) {
				list = append(list, h)
			}
		}
	}
	return list
}

// headersOf returns the headers of a mail in their order.
func headersOf(raw []byte) (list []field) {
	for line := range bytes.Lines(raw) {
		text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "\uFFFD")
		if text == "" {
			break
		}
		name, value, ok := strings.Cut(text, ":")
		switch {
		case text[0] == ' ' || text[0] == '\t':
			if len(list) > 0 {
				list[len(list)-1].Value += " " + strings.TrimSpace(text)
			}
		case !ok || strings.ContainsAny(name, " \t"):
			return nil // this is the text of a mail without headers
		default:
			list = append(list, field{name, strings.TrimSpace(value)})
		}
	}
	for i := range list {
		list[i].Value = decodeHeader(list[i].Value)
	}
	return list
}

func titleOf(m Mail) string {
	if m.Subject == "" {
		return "(no subject)"
	}
	return m.Subject
}

// render writes a page. The page is rendered completely first, so that an error does not leave
// half a page.
func render(w http.ResponseWriter, r *http.Request, page string, v view) {
	v.Place, v.self = placeOf(r), r.URL.RequestURI()
	var b bytes.Buffer
	if err := templates()[page].ExecuteTemplate(&b, "layout", v); err != nil {
		http.Error(w, "the page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w, "text/html; charset=utf-8", policyPage(v.Nonce))
	_, _ = w.Write(b.Bytes())
}

func setHeaders(w http.ResponseWriter, kind, policy string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // without it, a browser sends forms without an origin, and they are rejected
	h.Set("Cache-Control", "no-store")
}

// timestamp shows a time in UTC. A script shows it in the viewer's time zone.
func timestamp(t time.Time) template.HTML {
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `">` + t.Format("2006-01-02 15:04:05") + ` UTC</time>`) // digits and letters of the format only
}

// size formats a number of bytes.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
