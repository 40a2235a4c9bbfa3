package catcher

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

//go:embed pages
var pages embed.FS

// templates are read when they are first used, as most commands of the program never do.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"join": func(s []string) string { return strings.Join(s, ", ") },
		"size": size,
		"time": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	}).ParseFS(pages, "pages/*.html"))
})

// Content Security Policies. The pages load only their own style and script. The HTML of a
// mail is sandboxed, without scripts and requests.
const (
	policyPage = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	policyMail = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

// Place is where the pages are, as their browser sees them.
type Place struct {
	// Base is the path before that of each link, without a slash at its end.
	Base string
	// CSRF is the value of the field csrf of each form; the caller of the handler checks it.
	CSRF string
}

// Handler serves the caught mails: at / a list, newest first, a page for each mail, its raw
// bytes, and its attachments as downloads. With "Accept: application/json" the list and the
// mails are JSON. The parameter q of the list selects mails that contain a text. DELETE deletes
// all mails or one. The caller must reject requests from pages of other sites. placeOf returns
// the place of the page of a request.
func (c *Catcher) Handler(placeOf func(*http.Request) Place) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.serveList)
	mux.HandleFunc("GET /style.css", serveFile("style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /refresh.js", serveFile("refresh.js", "text/javascript; charset=utf-8"))
	// HTML forms cannot send DELETE.
	mux.HandleFunc("DELETE /{$}", c.serveDelete)
	mux.HandleFunc("POST /delete", c.serveDelete)
	mux.HandleFunc("DELETE /{id}", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("POST /{id}/delete", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("GET /{id}", c.withMail(serveMail))
	mux.HandleFunc("GET /{id}/html", c.withMail(serveHTML))
	mux.HandleFunc("GET /{id}/raw", c.withMail(serveRaw))
	mux.HandleFunc("GET /{id}/attachments/{n}", c.withMail(serveAttachment))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), placeKey{}, placeOf(r))))
	})
}

type placeKey struct{}

func placeOf(r *http.Request) Place { return r.Context().Value(placeKey{}).(Place) }

// mailJSON is the JSON form of a caught mail.
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
	// Raw is the mail as received. If it is not valid UTF-8, which JSON strings must be,
	// RawBase64 is set instead.
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

// readable converts the domain of an address from its ASCII form: xn--mnchen-3ya.de becomes
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
			Place
			Mails  []summary
			Kept   int
			Search string
		}{placeOf(r), summaries(mails), len(kept), q})
		return
	}
	setHeaders(w, "application/json")
	// Write one mail at a time, because all of them together may be large.
	_, _ = w.Write([]byte("["))
	for i, m := range mails {
		if i > 0 {
			_, _ = w.Write([]byte(","))
		}
		if json.NewEncoder(w).Encode(m.json()) != nil {
			return // the client disconnected
		}
	}
	_, _ = w.Write([]byte("]\n"))
}

// holds reports whether the mail's addresses, subject, bodies or Message-ID contain a text,
// which is in lower case.
func (m *Mail) holds(text []rune) bool {
	for _, s := range append([]string{m.From, readable(m.From), m.Subject, m.Text, m.HTML, m.MessageID}, append(m.To, readableAll(m.To)...)...) {
		if contains(s, text) {
			return true
		}
	}
	return false
}

// contains reports whether s contains a lower-case text, ignoring case. It copies nothing,
// because the page polls, and mails may be large.
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
		http.Error(w, "all caught mails are deleted at once: leave out "+strconv.Quote(r.URL.RawQuery)+", or delete single ones by "+placeOf(r).Base+"/ID", http.StatusBadRequest)
		return
	}
	c.Delete()
	deleted(w, r)
}

func (c *Catcher) serveDeleteOne(w http.ResponseWriter, r *http.Request, m Mail) {
	c.Delete(m.ID)
	deleted(w, r)
}

// deleted answers a deletion. A form is redirected to the list.
func deleted(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		http.Redirect(w, r, placeOf(r).Base+"/", http.StatusSeeOther)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// summary is a mail of the list.
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
		if len(to) == 0 { // only an edited file has none
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
		Place
		Mail
		Readable mailJSON
		Fields   []field
		RawText  string
	}{placeOf(r), m, m.json(), fields(m.Raw), strings.ToValidUTF8(string(m.Raw), "\uFFFD")})
}

// field is a decoded header of a mail.
type field struct{ Name, Value string }

// fields returns the headers of a mail that are shown.
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
	w.Header().Set("X-Frame-Options", "SAMEORIGIN") // the page of the mail shows it
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
	// Ignore the mail's content type: a browser must not run the file from this origin.
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

// withMail finds the mail of the path.
func (c *Catcher) withMail(serve func(http.ResponseWriter, *http.Request, Mail)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, ok := c.Mail(r.PathValue("id"))
		if !ok {
			http.Error(w, "mail not found, or no longer kept", http.StatusNotFound)
			return
		}
		serve(w, r, m)
	}
}

// render writes a page. The page is rendered completely first, so that an error does not leave
// half a page.
func render(w http.ResponseWriter, page string, data any) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, page, data); err != nil {
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
	h.Set("Referrer-Policy", "same-origin") // without it, a browser sends forms without an origin, and they are rejected
	h.Set("Cache-Control", "no-store")
}

// wantsJSON reports whether the request prefers JSON to HTML.
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
