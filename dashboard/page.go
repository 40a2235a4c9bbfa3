package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// route is one page or action.
type route struct {
	method, path string
	// scope is the scope that the caller needs.
	scope server.Scope
	// own reports that the page checks by itself which queues the caller may see. Any other page
	// without {queue} in its path is closed to tokens that are limited to queues.
	own   bool
	serve func(*page) error
}

// pageSize is how many entries a list shows.
const pageSize = 50

// deadFields are the parameters that select dead letters.
var deadFields = []string{"queue", "subscription", "kind", "key", "reference", "term", "error", "died_from", "died_before"}

// messageFields are the parameters that select messages.
var messageFields = []string{"queue", "state", "kind", "key", "reference", "term", "from"}

// page is one request of a page.
type page struct {
	*server.Visit
	d     *source
	w     http.ResponseWriter
	r     *http.Request
	query url.Values
	// keep keeps the fragment of a live page for other viewers; nil if it is shown as a whole.
	keep func(fragment []byte)
}

// open checks the scope and the queue of a route, and serves it.
func (d *dashboard) open(w http.ResponseWriter, r *http.Request, route route) {
	visit := server.VisitOf(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), d.timeout)
	defer cancel()
	r = r.WithContext(ctx)
	p := &page{Visit: visit, d: &d.source, w: w, r: r}
	err := p.check(route)
	switch {
	case err != nil:
	case p.follows(route):
		err = d.serveShared(p, route)
	default:
		err = route.serve(p)
	}
	if err != nil {
		visit.Fail(w, r, err)
	}
}

func (p *page) ctx() context.Context { return p.r.Context() }

func (p *page) check(route route) (err error) {
	if p.r.Method == http.MethodPost {
		p.query = p.r.PostForm // the server has read it for the CSRF token
	} else if p.query, err = url.ParseQuery(p.r.URL.RawQuery); err != nil {
		return posthaste.Invalidf("", "the query is not valid URL encoding")
	}
	for name, values := range p.query {
		if len(values) > 1 && name != "id" {
			return posthaste.Invalidf(name, "parameter %q is given twice", name)
		}
		if slices.ContainsFunc(values, func(s string) bool { return !utf8.ValidString(s) || strings.Contains(s, "\x00") }) {
			return posthaste.Invalidf(name, "parameter %q must be valid UTF-8 without NUL characters", name)
		}
	}
	if err := p.needs(route.scope); err != nil {
		return err
	}
	if queue := p.r.PathValue("queue"); queue != "" {
		return p.allowQueue(queue)
	}
	if !route.own && p.Limited() {
		return denied("The token is limited to some queues, and this page is about all of them.")
	}
	return nil
}

// needs returns an error if the caller lacks a scope.
func (p *page) needs(scope server.Scope) error {
	if p.Allows(scope) {
		return nil
	}
	return denied(fmt.Sprintf("The token lacks scope %q.", scope))
}

func (p *page) allowQueue(queue string) error {
	if p.AllowsQueue(queue) {
		return nil
	}
	return denied("The token does not allow this queue.")
}

func denied(message string) error {
	return &posthaste.Error{Code: posthaste.CodeDenied, Message: message, Hint: "Sign in with a token that allows it."}
}

func notFound(format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// link returns the address of a page of the dashboard. Parameters without a value are left out.
func (p *page) link(path string, params ...string) string { return link(p.Base, path, params...) }

// with returns the address of this page with other values of some parameters.
func (p *page) with(params ...string) string {
	query := url.Values{}
	for name, values := range p.query {
		if name != "done" && name != "n" {
			query[name] = values
		}
	}
	for i := 0; i+1 < len(params); i += 2 {
		query.Del(params[i])
		if params[i+1] != "" {
			query.Set(params[i], params[i+1])
		}
	}
	to := p.Base + p.r.URL.EscapedPath()
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	return to
}

// redirect leads the browser to another page after a form.
func (p *page) redirect(to string) error {
	http.Redirect(p.w, p.r, to, http.StatusSeeOther)
	return nil
}

// text returns a parameter without blanks at its ends.
func (p *page) text(name string) string { return strings.TrimSpace(p.query.Get(name)) }

// id returns a parameter that is a message id; 0 if it is absent.
func (p *page) id(name string) (id posthaste.MessageID, err error) {
	text := p.text(name)
	if text != "" && id.UnmarshalText([]byte(text)) != nil {
		err = posthaste.Invalidf(name, "%s must be a message id, which is a positive decimal number, got %q", name, text)
	}
	return id, err
}

// time returns a parameter that is a time: RFC 3339, or the form of an HTML field, in UTC.
func (p *page) time(name string) (time.Time, error) {
	text := p.text(name)
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, posthaste.Invalidf(name, "%s must be a time in UTC such as 2026-10-12T08:30, got %q", name, text)
}

// pathID returns {id} of the path.
func (p *page) pathID() (id posthaste.MessageID, err error) {
	if id.UnmarshalText([]byte(p.r.PathValue("id"))) != nil {
		return 0, notFound("%q is not a message id, which is a positive decimal number.", p.r.PathValue("id"))
	}
	return id, nil
}

// layout is what all pages show around their own content.
type layout struct {
	*page
	Title   string
	Section string
	Now     time.Time
	// Live reports that the page follows events.
	Live bool
	// Notice tells what an action did.
	Notice string
	Data   any
}

// Environment is the name in the banner.
func (l layout) Environment() string { return l.d.environment }

// CaughtMail is the address of the pages of caught mails.
func (l layout) CaughtMail() string { return l.caughtMail() }

// Mails reports whether the viewer may see the queue of e-mails.
func (l layout) Mails() bool { return l.d.can.Search && l.AllowsQueue(server.MailQueue) }

// Can are the features of the store.
func (l layout) Can() posthaste.Capabilities { return l.d.can }

// Here is the address of this page without parameters, and Self the one with them.
func (l layout) Here() string { return l.Base + l.r.URL.EscapedPath() }
func (l layout) Self() string { return l.with() }

// SearchText is the text in the search box.
func (l layout) SearchText() string {
	if l.Section == "search" {
		return l.text("q")
	}
	return ""
}

// show renders a page completely before it writes it, so that an error does not leave half of it.
func (p *page) show(name, title, section string, live bool, data any) error {
	view := layout{page: p, Title: title, Section: section, Now: time.Now().UTC(), Live: live, Notice: p.notice(), Data: data}
	part := "layout"
	if live && p.keep != nil {
		part = "fresh"
	}
	var body bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&body, part, view); err != nil {
		return err
	}
	if part == "fresh" {
		p.keep(body.Bytes())
	}
	p.write(body.Bytes())
	return nil
}

// notices are the texts of the parameter done, with which actions lead to a page. {n} is the
// number in the parameter n.
var notices = map[string]string{
	"paused": "Paused.", "resumed": "Resumed.", "purged": "Purged {n} waiting messages.", "sent": "Sent.", "cancelled": "Cancelled.", "running": "Due now.",
	"replayed": "Replayed {n} messages.", "discarded": "Discarded {n} messages.", "revoked": "Revoked. Servers reject the token within seconds.",
	"started": "Sent the message of the schedule.", "rescheduled": "Rescheduled.", "edited": "Saved.", "resent": "Sent again with the changes, as this message.", "updated": "Changed. The next deliveries follow the new options.",
}

func (p *page) notice() string {
	n := p.query.Get("n")
	if _, err := strconv.ParseUint(n, 10, 63); err != nil {
		n = "the"
	}
	text := notices[p.query.Get("done")]
	if n == "1" {
		text = strings.Replace(text, "messages", "message", 1)
	}
	return strings.ReplaceAll(text, "{n}", n)
}
