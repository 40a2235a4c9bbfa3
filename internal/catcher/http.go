package catcher

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

//go:embed pages
var pages embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"join": func(s []string) string { return strings.Join(s, ", ") },
	"size": size,
	"time": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
}).ParseFS(pages, "pages/*.html"))

// Content Security Policies: the pages load their own style and script and nothing
// else, and a mail's HTML is shown as in a sandbox, without scripts and requests.
const (
	policyPage = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	policyMail = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

// Handler shows the caught mails under /caught: a page, newest first, a page
// for each, its raw bytes and its attachments to download. With
// "Accept: application/json" the first two are JSON. The parameter q of the list
// selects the mails that contain a text, and DELETE deletes all mails or one. The
// caller must refuse requests from pages of other sites.
func (c *Catcher) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /caught", c.serveList)
	mux.HandleFunc("GET /caught/style.css", serveFile("style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /caught/refresh.js", serveFile("refresh.js", "text/javascript; charset=utf-8"))
	// HTML forms cannot send DELETE.
	mux.HandleFunc("DELETE /caught", c.serveDelete)
	mux.HandleFunc("POST /caught/delete", c.serveDelete)
	mux.HandleFunc("DELETE /caught/{id}", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("POST /caught/{id}/delete", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("GET /caught/{id}", c.withMail(serveMail))
	mux.HandleFunc("GET /caught/{id}/html", c.withMail(serveHTML))
	mux.HandleFunc("GET /caught/{id}/raw", c.withMail(serveRaw))
	mux.HandleFunc("GET /caught/{id}/attachments/{n}", c.withMail(serveAttachment))
	return mux
}

// mailJSON is a caught mail as programs see it.
type mailJSON struct {
	ID          string           `json:"id"`
	ReceivedAt  time.Time        `json:"received_at"`
	From        string           `json:"from"`
	To          []string         `json:"to"`
	Subject     string           `json:"subject"`
	Text        string           `json:"text"`
	HTML        string           `json:"html"`
	Attachments []attachmentJSON `json:"attachments"`
	MessageID   string           `json:"message_id"`
	// Raw is the mail as it was received; RawBase64 stands instead where it is
	// not UTF-8, which JSON strings have to be.
	Raw       string `json:"raw,omitempty"`
	RawBase64 []byte `json:"raw_base64,omitempty"`
}

type attachmentJSON struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Content     []byte `json:"content"`
}

func (m Mail) json() mailJSON {
	j := mailJSON{
		ID: m.ID, ReceivedAt: m.ReceivedAt, From: readable(m.From), To: readableAll(m.To),
		Subject: m.Subject, Text: m.Text, HTML: m.HTML, MessageID: m.MessageID,
		Attachments: []attachmentJSON{},
	}
	for _, a := range m.Attachments {
		j.Attachments = append(j.Attachments, attachmentJSON(a))
	}
	if utf8.Valid(m.Raw) {
		j.Raw = string(m.Raw)
	} else {
		j.RawBase64 = m.Raw
	}
	return j
}

// readable spells an address's domain for people: xn--mnchen-3ya.de as
// münchen.de.
func readable(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	domain, err := idna.Display.ToUnicode(address[at+1:])
	if err != nil {
		return address
	}
	return address[:at+1] + domain
}

func readableAll(addresses []string) []string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = readable(a)
	}
	return list
}

func (c *Catcher) serveList(w http.ResponseWriter, r *http.Request) {
	kept, _ := c.kept()
	limit, q := len(kept), r.URL.Query().Get("q")
	if s := r.URL.Query().Get("limit"); s != "" {
		var err error
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 {
			http.Error(w, "limit must be a number above 0", http.StatusBadRequest)
			return
		}
	}
	var mails []*Mail
	text := []rune(strings.ToLower(q))
	for i := len(kept) - 1; i >= 0 && len(mails) < limit; i-- {
		if kept[i].holds(text) {
			mails = append(mails, kept[i])
		}
	}
	if !wantsJSON(r) {
		render(w, "list.html", struct {
			Mails  []summary
			Kept   int
			Search string
		}{summaries(mails), len(kept), q})
		return
	}
	setHeaders(w, "application/json")
	// One mail at a time: all of them together may be large.
	_, _ = w.Write([]byte("["))
	for i, m := range mails {
		if i > 0 {
			_, _ = w.Write([]byte(","))
		}
		if json.NewEncoder(w).Encode(m.json()) != nil {
			return // the client is gone
		}
	}
	_, _ = w.Write([]byte("]\n"))
}

// holds reports whether the mail's addresses, subject, bodies or Message-ID contain a
// text, which is in lower case.
func (m *Mail) holds(text []rune) bool {
	for _, s := range append([]string{m.From, readable(m.From), m.Subject, m.Text, m.HTML, m.MessageID}, append(m.To, readableAll(m.To)...)...) {
		if contains(s, text) {
			return true
		}
	}
	return false
}

// contains reports whether s contains a text, which is in lower case, in any case. It
// copies nothing, because the page asks again and again, and mails may be large.
func contains(s string, text []rune) bool {
	if len(text) == 0 {
		return true
	}
	for i, first := range s {
		if unicode.ToLower(first) != text[0] {
			continue
		}
		n := 0
		for _, r := range s[i:] {
			if n == len(text) || unicode.ToLower(r) != text[n] {
				break
			}
			n++
		}
		if n == len(text) {
			return true
		}
	}
	return false
}

func (c *Catcher) serveDelete(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		http.Error(w, "all caught mails are deleted at once: leave out "+strconv.Quote(r.URL.RawQuery)+", or delete single ones by /caught/ID", http.StatusBadRequest)
		return
	}
	c.Delete()
	deleted(w, r)
}

func (c *Catcher) serveDeleteOne(w http.ResponseWriter, r *http.Request, m Mail) {
	c.Delete(m.ID)
	deleted(w, r)
}

// deleted answers a deletion; a form leads back to the list.
func deleted(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		http.Redirect(w, r, "/caught", http.StatusSeeOther)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// summary is a mail in the list.
type summary struct {
	ID          string
	ReceivedAt  time.Time
	From        string
	To          []string
	Subject     string
	Attachments int
}

func summaries(mails []*Mail) []summary {
	list := make([]summary, len(mails))
	for i, m := range mails {
		to := readableAll(m.To)
		if len(to) == 0 { // only a file that somebody edited has none
			to = []string{""}
		}
		list[i] = summary{m.ID, m.ReceivedAt, readable(m.From), to, m.Subject, len(m.Attachments)}
	}
	return list
}

func serveMail(w http.ResponseWriter, r *http.Request, m Mail) {
	if wantsJSON(r) {
		setHeaders(w, "application/json")
		_ = json.NewEncoder(w).Encode(m.json())
		return
	}
	render(w, "mail.html", struct {
		Mail
		Readable mailJSON
		Fields   []field
		RawText  string
	}{m, m.json(), fields(m.Raw), strings.ToValidUTF8(string(m.Raw), "\uFFFD")})
}

// field is a header of a mail, decoded.
type field struct{ Name, Value string }

// fields returns those headers of a mail that people look at.
func fields(raw []byte) []field {
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	var list []field
	for _, name := range []string{"From", "To", "Cc", "Reply-To", "Date", "Message-Id"} {
		if v := msg.Header.Get(name); v != "" {
			list = append(list, field{name, decodeHeader(v)})
		}
	}
	return list
}

func serveHTML(w http.ResponseWriter, _ *http.Request, m Mail) {
	setHeaders(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policyMail)
	_, _ = w.Write([]byte(m.HTML))
}

func serveRaw(w http.ResponseWriter, _ *http.Request, m Mail) {
	download(w, "message/rfc822", m.ID+".eml", m.Raw)
}

func serveAttachment(w http.ResponseWriter, r *http.Request, m Mail) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 || n >= len(m.Attachments) {
		http.NotFound(w, r)
		return
	}
	a := m.Attachments[n]
	// Whatever the mail says it is: no browser shall run it from this address.
	download(w, "application/octet-stream", a.Filename, a.Content)
}

func download(w http.ResponseWriter, kind, filename string, content []byte) {
	setHeaders(w, kind)
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": filename})
	if disposition == "" {
		disposition = "attachment"
	}
	w.Header().Set("Content-Disposition", disposition)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}

func serveFile(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		content, err := pages.ReadFile("pages/" + name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		setHeaders(w, kind)
		_, _ = w.Write(content)
	}
}

// withMail finds the mail that the path names.
func (c *Catcher) withMail(serve func(http.ResponseWriter, *http.Request, Mail)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, ok := c.Mail(r.PathValue("id"))
		if !ok {
			http.Error(w, "no such mail, or no longer kept", http.StatusNotFound)
			return
		}
		serve(w, r, m)
	}
}

// render shows a page. It is made whole first, so that an error is not half a
// page.
func render(w http.ResponseWriter, page string, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, page, data); err != nil {
		http.Error(w, "the page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w, "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func setHeaders(w http.ResponseWriter, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policyPage)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // without, a browser's form has no origin, and is refused
	h.Set("Cache-Control", "no-store")
}

// wantsJSON reports whether the request asks for JSON rather than a page.
func wantsJSON(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case "application/json":
			return true
		case "text/html":
			return false
		}
	}
	return false
}

// size writes a number of bytes for people.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
