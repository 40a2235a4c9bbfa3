package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/server"
)

// site is a dashboard under test, with a token for each scope: its secret is the scope and
// "-secret".
type site struct {
	t      *testing.T
	engine posthaste.Store
	url    string
	// routes are the methods and patterns of all pages.
	routes []dashboard.Route
}

func newSite(t *testing.T, engine posthaste.Store, change ...func(*dashboard.Config)) *site {
	t.Helper()
	config := dashboard.Config{}
	for _, scope := range posthaste.Scopes() {
		token, err := server.NewToken(strings.ReplaceAll(string(scope), ":", "-")+"er", string(scope)+"-secret", scope)
		if err != nil {
			t.Fatal(err)
		}
		config.Tokens = append(config.Tokens, token)
	}
	for _, c := range change {
		c(&config)
	}
	handler, err := dashboard.Handler(engine, config)
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	return &site{t: t, engine: engine, url: listening.URL + strings.TrimSuffix(config.Path, "/"), routes: dashboard.Routes(engine)}
}

func open(config *dashboard.Config) { config.Tokens, config.Open = nil, true }

// viewer is a browser without JavaScript. It follows links and sends forms.
type viewer struct {
	t      *testing.T
	client *http.Client
	base   string
}

func (s *site) viewer(scope posthaste.Scope) *viewer {
	s.t.Helper()
	jar, _ := cookiejar.New(nil)
	v := &viewer{t: s.t, base: s.url, client: &http.Client{Jar: jar}}
	if scope != "" {
		form := v.get("/sign-in").form("/sign-in")
		form.Values.Set("token", string(scope)+"-secret")
		if entered := v.send(form); entered.status != 200 {
			s.t.Fatalf("signing in with %s: %d %s", scope, entered.status, entered.body)
		}
	}
	return v
}

// shown is a page in a browser.
type shown struct {
	t      *testing.T
	at     *url.URL
	status int
	header http.Header
	body   string
}

func (v *viewer) do(r *http.Request) *shown {
	v.t.Helper()
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	got, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return &shown{v.t, got.Request.URL, got.StatusCode, got.Header, string(body)}
}

func (v *viewer) get(path string) *shown {
	v.t.Helper()
	to := path
	if !strings.HasPrefix(path, "http") {
		to = v.base + path
	}
	r, err := http.NewRequestWithContext(v.t.Context(), "GET", to, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.do(r)
}

// want fails unless the page has the status and the parts.
func (p *shown) want(status int, parts ...string) *shown {
	p.t.Helper()
	if p.status != status {
		p.t.Fatalf("%s: status %d, want %d:\n%s", p.at, p.status, status, text(p.body))
	}
	for _, part := range parts {
		if !strings.Contains(text(p.body), part) {
			p.t.Fatalf("%s: %q is not in:\n%s", p.at, part, text(p.body))
		}
	}
	return p
}

func (p *shown) lacks(parts ...string) *shown {
	p.t.Helper()
	for _, part := range parts {
		if strings.Contains(text(p.body), part) {
			p.t.Fatalf("%s: %q is in:\n%s", p.at, part, text(p.body))
		}
	}
	return p
}

var (
	noText   = regexp.MustCompile(`(?s)<style.*?</style>|<script.*?</script>|<[^>]*>`)
	tags     = regexp.MustCompile(`(?s)<(\w+)((?:\s+[\w-]+(?:="[^"]*")?)*)\s*>([^<]*)`)
	formTags = regexp.MustCompile(`(?s)<form([^>]*)>(.*?)</form>`)
	attrs    = regexp.MustCompile(`([\w-]+)(?:="([^"]*)")?`)
)

// text returns what a person reads on a page.
func text(body string) string {
	lines := strings.Fields(html.UnescapeString(noText.ReplaceAllString(body, " ")))
	return strings.Join(lines, " ")
}

func attributes(tag string) map[string]string {
	all := map[string]string{}
	for _, m := range attrs.FindAllStringSubmatch(tag, -1) {
		all[m[1]] = html.UnescapeString(m[2])
	}
	return all
}

// form is a form of a page as a browser would send it.
type form struct {
	Method, Action string
	Values         url.Values
}

// form returns the form of a page whose address ends with action.
func (p *shown) form(action string) form {
	p.t.Helper()
	for _, m := range formTags.FindAllStringSubmatch(p.body, -1) {
		is := attributes(m[1])
		to, err := p.at.Parse(is["action"])
		if err != nil {
			p.t.Fatal(err)
		}
		if is["action"] == "" {
			to = p.at
		}
		if !strings.HasSuffix(to.Path, action) {
			continue
		}
		f := form{Method: strings.ToUpper(is["method"]), Action: to.String(), Values: url.Values{}}
		if f.Method == "" {
			f.Method = "GET"
		}
		for _, tag := range tags.FindAllStringSubmatch(m[2], -1) {
			a := attributes(tag[2])
			_, checked := a["checked"]
			switch {
			case a["name"] == "" || a["type"] == "checkbox" && !checked:
			case tag[1] == "input":
				f.Values.Add(a["name"], a["value"])
			case tag[1] == "textarea":
				f.Values.Add(a["name"], html.UnescapeString(tag[3]))
			}
		}
		return f
	}
	p.t.Fatalf("%s has no form %s:\n%s", p.at, action, p.body)
	return form{}
}

func (v *viewer) send(f form) *shown {
	v.t.Helper()
	to, body := f.Action, io.Reader(nil)
	if f.Method == "GET" {
		u, _ := url.Parse(f.Action)
		u.RawQuery = f.Values.Encode()
		to = u.String()
	} else {
		body = strings.NewReader(f.Values.Encode())
	}
	r, err := http.NewRequestWithContext(v.t.Context(), f.Method, to, body)
	if err != nil {
		v.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return v.do(r)
}

// follow opens the link with a text.
func (v *viewer) follow(p *shown, label string) *shown {
	v.t.Helper()
	for _, m := range regexp.MustCompile(`(?s)<a ([^>]*)>(.*?)</a>`).FindAllStringSubmatch(p.body, -1) {
		if text(m[2]) == label {
			to, err := p.at.Parse(attributes(m[1])["href"])
			if err != nil {
				v.t.Fatal(err)
			}
			return v.get(to.String())
		}
	}
	v.t.Fatalf("%s has no link %q:\n%s", p.at, label, text(p.body))
	return nil
}

// stocked is a store with something on each page. Its queue orders looks at keys, as far as pausing
// them goes, which the engine in memory does not.
type stocked struct {
	posthaste.Store
	ready, done, dead posthaste.MessageID
	// mail is an e-mail that spare has sent.
	mail posthaste.MessageID

	// bulk is a bulk action that has ended.
	bulk string

	mu   sync.Mutex
	keys []string
}

func (s *stocked) Capabilities() posthaste.Capabilities {
	can := s.Store.Capabilities()
	can.Limits = true
	return can
}

func (s *stocked) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	queues, err := s.Store.Queues(ctx, names...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range queues {
		if queues[i].Name == "orders" {
			queues[i].Options.Fair, queues[i].PausedKeys = true, slices.Clone(s.keys)
		}
	}
	return queues, err
}

func (s *stocked) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	if key, ok := what.(posthaste.OfKey); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = append(s.keys, key.Key)
		return nil
	}
	return s.Store.Pause(ctx, what, o)
}

func (s *stocked) Resume(ctx context.Context, what posthaste.Pausable) error {
	if key, ok := what.(posthaste.OfKey); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = slices.DeleteFunc(s.keys, func(is string) bool { return is == key.Key })
		return nil
	}
	return s.Store.Resume(ctx, what)
}

const someError = "dial tcp 10.0.0.7:5432: connection refused"

func newStock(t *testing.T) *stocked {
	t.Helper()
	s := &stocked{Store: memory.Open(), keys: []string{"held"}}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"orders", "emails", "halted"} {
		must(s.CreateQueue(ctx, name, posthaste.QueueOptions{}))
	}
	ids, err := posthaste.IDs(s.Send(ctx,
		posthaste.Message{Queue: "orders", Payload: map[string]any{"order": 1}, Kind: "created", Reference: "first"},
		posthaste.Message{Queue: "orders", Payload: map[string]any{"order": 2}, Kind: "paid", Reference: "second"}))
	must(err)
	s.done, s.dead = ids[0], ids[1]
	got, err := s.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 2, Lease: time.Minute})
	must(err)
	for _, d := range got.Deliveries {
		settle := posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`{"provider":"secret-receipt"}`)}
		if d.MessageID == s.dead {
			settle = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: someError}
		}
		_, err := s.Settle(ctx, []posthaste.Settlement{settle})
		must(err)
	}
	ids, err = posthaste.IDs(s.Send(ctx, posthaste.Message{Queue: "orders", Payload: map[string]any{"card": "secret-payload"}, Kind: "created", Key: "customer-7",
		Reference: "third", Terms: []string{"secret-term"}, Headers: map[string]string{"trace": "secret-header"}, Delay: time.Hour}))
	must(err)
	s.ready = ids[0]
	_, err = s.PutSchedule(ctx, posthaste.Schedule{Name: "nightly", Spec: "0 3 * * *", TimeZone: "Europe/Berlin", Message: posthaste.Message{Queue: "orders", Kind: "report"}})
	must(err)
	must(s.Pause(ctx, posthaste.OfQueue("halted"), posthaste.PauseOptions{}))
	_, err = s.Register(ctx, posthaste.WorkerInfo{Name: "host-1/42", Version: "1.2.3", Lease: time.Minute})
	must(err)
	return s
}

// path returns an address of a route on stocked.
func (s *stocked) path(pattern string) string {
	id := s.ready
	if strings.HasSuffix(pattern, "/replay") || strings.HasSuffix(pattern, "/discard") {
		id = s.dead
	}
	if strings.HasSuffix(pattern, "/preview") {
		id = s.mail
	}
	path := strings.NewReplacer("{$}", "", "{queue}", "orders", "{id}", id.String(), "{schedule}", "nightly", "{token}", "spare", "{file}", "style.css", "{bulk}", s.bulk).Replace(pattern)
	switch pattern {
	case "/search":
		path += "?q=third"
	case "/dead-letters/replay", "/dead-letters/discard":
		path += "?queue=orders"
	case "/messages/cancel", "/messages/run":
		path += "?reference=third"
	case "/messages/reschedule":
		path += "?reference=third&at=2h"
	case "/messages/{id}/reschedule":
		path += "?at=2h"
	case "/queues/{queue}/update":
		path += "?max_attempts=7"
	case "/queues/{queue}/kinds/pause":
		path = "/queues/emails/kinds/pause?kind=paid"
	case "/queues/{queue}/kinds/resume":
		path = "/queues/emails/kinds/resume?kind=held"
	case "/queues/{queue}/keys/pause":
		path += "?key=customer-7"
	case "/queues/{queue}/keys/resume":
		path += "?key=held"
	case "/queues/{queue}/resume":
		path = "/queues/halted/resume"
	case "/schedules/{schedule}/resume":
		path = "/schedules/paused/resume"
	}
	return path
}

// spare adds what only some routes need: a token, a paused schedule, a paused kind and an e-mail.
func (s *stocked) spare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.CreateToken(ctx, posthaste.Token{Name: "spare", Scopes: []posthaste.Scope{posthaste.ScopeRead}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutSchedule(ctx, posthaste.Schedule{Name: "paused", Spec: "@daily", Message: posthaste.Message{Queue: "orders"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(ctx, posthaste.OfSchedule("paused"), posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(ctx, posthaste.OfKind{Queue: "emails", Kind: "held"}, posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	ids, err := posthaste.IDs(s.Send(ctx, posthaste.Message{Queue: "emails", Payload: map[string]any{"from": "shop@example.com", "to": []string{"ada@example.com"}, "html": "<p>secret-html"}, Delay: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	s.mail = ids[0]
}

// state is what a store holds, for a comparison.
func (s *stocked) state(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	queues, err1 := s.Queues(ctx)
	messages, err2 := s.Messages(ctx, posthaste.MessageFilter{})
	dead, err3 := s.DeadLetters(ctx, posthaste.DeadLetterFilter{})
	schedules, err4 := s.Schedules(ctx)
	tokens, err5 := s.Tokens(ctx)
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range queues {
		for j := range queues[i].Subscriptions {
			queues[i].Subscriptions[j].CountedAt, queues[i].Subscriptions[j].OldestAge = time.Time{}, 0
		}
	}
	for i := range tokens {
		tokens[i].LastUsedAt = time.Time{}
	}
	slices.SortFunc(queues, func(a, b posthaste.QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v", queues, messages, dead, schedules, tokens)
}

// On a narrow screen the rows of dead letters stack, so that an error has the whole width.
func TestDeadLettersStackOnNarrowScreens(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 2)
	page := newSite(t, stock).viewer(posthaste.ScopeOperate).get("/dead-letters").want(200)
	if n := strings.Count(page.body, `<table class="cards">`); n != 2 {
		t.Errorf("%d tables of 2 stack", n)
	}
}
