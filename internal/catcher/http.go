package catcher

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/posthaste-mq/posthaste"
)

//go:embed pages
var pages embed.FS

// templates are read when they are first used, as most commands of the program never do.
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("").Funcs(template.FuncMap{
		"join": func(s []string) string { return strings.Join(s, ", ") },
		"size": size,
		"time": timestamp,
	}).ParseFS(pages, "pages/layout.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"list", "mail", "delete"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(pages, "pages/"+name+".html"))
	}
	return all
})

// policyMail is the Content-Security-Policy of the HTML of a mail, which is sandboxed, without
// scripts and requests. policyFile is that of downloads.
const (
	policyMail = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
	policyFile = "sandbox; default-src 'none'; frame-ancestors 'none'"
)

// policyPage is the Content-Security-Policy of a page: it loads only its own icon, style and scripts,
// which have the nonce, and shows mails in a frame.
func policyPage(nonce string) string {
	return "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce + "'; img-src 'self'; connect-src 'self'; frame-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// Place tells a page where it is, as its browser sees it, and what its viewer may do.
type Place struct {
	// Base is the path before that of each link, without a slash at its end.
	Base string
	// Home is the address of the dashboard; "" for none.
	Home string
	// CSRF is the value of the field csrf of each form; the caller of the handler checks it.
	CSRF string
	// Nonce marks the style and the scripts of the page.
	Nonce string
	// Viewer is the name of the viewer; "" if the server requires no token. SignedIn reports that
	// a form that posts to Base + "/sign-out" ends a session.
	Viewer   string
	SignedIn bool
	// Deletes reports that the viewer may delete mails.
	Deletes bool
	// Stopping is closed when the server stops.
	Stopping <-chan struct{}
	// Fail answers with an error; the default is a line of text.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Handler serves the caught mails: at / a list, newest first, a page for each mail, its raw
// bytes, and its attachments as downloads. With "Accept: application/json" the list and the
// mails are JSON. The parameter q of the list selects mails that contain a text. DELETE deletes
// all mails or one. The caller must reject requests from pages of other sites, and callers who
// may not read mails. placeOf returns the place of the page of a request. assets serves the style
// and the scripts of the dashboard by name; without it, pages are plain.
func (c *Catcher) Handler(placeOf func(*http.Request) Place, assets http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.serveList)
	mux.HandleFunc("GET /events", c.serveEvents)
	// HTML forms cannot send DELETE.
	mux.HandleFunc("DELETE /{$}", c.serveDelete)
	mux.HandleFunc("GET /delete", c.confirmAll)
	mux.HandleFunc("POST /delete", c.serveDelete)
	mux.HandleFunc("DELETE /{id}", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("GET /{id}/delete", c.withMail(c.confirmOne))
	mux.HandleFunc("POST /{id}/delete", c.withMail(c.serveDeleteOne))
	mux.HandleFunc("GET /{id}", c.withMail(serveMail))
	mux.HandleFunc("GET /{id}/html", c.withMail(serveHTML))
	mux.HandleFunc("GET /{id}/raw", c.withMail(serveRaw))
	mux.HandleFunc("GET /{id}/attachments/{n}", c.withMail(serveAttachment))
	files := http.StripPrefix("/assets", assets)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As a pattern of mux, this path would conflict with those of mails.
		if strings.HasPrefix(r.URL.Path, "/assets/") && assets != nil {
			files.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), placeKey{}, placeOf(r))))
	})
}

type placeKey struct{}

func placeOf(r *http.Request) Place { return r.Context().Value(placeKey{}).(Place) }

// fail answers with an error.
func fail(w http.ResponseWriter, r *http.Request, code posthaste.Code, field, message string) {
	err := &posthaste.Error{Code: code, Field: field, Message: message}
	if place := placeOf(r); place.Fail != nil {
		place.Fail(w, r, err)
		return
	}
	status := map[posthaste.Code]int{posthaste.CodeNotFound: http.StatusNotFound, posthaste.CodeDenied: http.StatusForbidden}[code]
	http.Error(w, message, cmp.Or(status, http.StatusBadRequest))
}

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
			fail(w, r, posthaste.CodeInvalid, "limit", fmt.Sprintf("limit must be a number above 0, got %q", s))
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
		render(w, r, "list", view{Title: "Caught mail", Live: true, Search: q, Data: listed{summaries(mails), len(kept)}})
		return
	}
	setHeaders(w, "application/json", policyFile)
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
		setHeaders(w, "application/json", policyFile)
		_ = json.NewEncoder(w).Encode(m.json())
		return
	}
	render(w, r, "mail", view{Title: titleOf(m), Data: shownMail{m, m.json(), headersOf(m.Raw), strings.ToValidUTF8(string(m.Raw), "\uFFFD")}})
}

func serveHTML(w http.ResponseWriter, _ *http.Request, m Mail) {
	setHeaders(w, "text/html; charset=utf-8", policyMail)
	w.Header().Set("X-Frame-Options", "SAMEORIGIN") // the page of the mail shows it
	_, _ = w.Write([]byte(m.HTML))
}

func serveRaw(w http.ResponseWriter, _ *http.Request, m Mail) {
	download(w, "message/rfc822", m.ID+".eml", m.Raw)
}

func serveAttachment(w http.ResponseWriter, r *http.Request, m Mail) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 || n >= len(m.Attachments) {
		fail(w, r, posthaste.CodeNotFound, "", "The mail has no such attachment.")
		return
	}
	a := m.Attachments[n]
	// Ignore the mail's content type: a browser must not run the file from this origin.
	download(w, "application/octet-stream", a.Filename, a.Content)
}

func download(w http.ResponseWriter, kind, filename string, content []byte) {
	setHeaders(w, kind, policyFile)
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": filename})
	if disposition == "" {
		disposition = "attachment"
	}
	w.Header().Set("Content-Disposition", disposition)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}

// withMail finds the mail of the path.
func (c *Catcher) withMail(serve func(http.ResponseWriter, *http.Request, Mail)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, ok := c.Mail(r.PathValue("id"))
		if !ok {
			fail(w, r, posthaste.CodeNotFound, "id", "The mail was not found, or is no longer kept.")
			return
		}
		serve(w, r, m)
	}
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
