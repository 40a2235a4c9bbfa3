package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/server"
)

// All that an operator does works with links and forms alone.
func TestDB7WithoutJavaScript(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.spare(t)
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	confirm := func(p *shown, label, verb string) *shown {
		t.Helper()
		return v.send(v.follow(p, label).want(200, "Back").form("/" + verb)).want(200)
	}

	// Find a failed message by the customer's reference, read its story, replay it, see it wait.
	search := v.get("/").form("/search")
	search.Values.Set("q", "second")
	message := v.send(search).want(200, "Message "+stock.dead.String(), "dead", someError, "Attempt 1")
	replayed := confirm(message, "Replay", "replay").want(200, "Replayed 1 message.", "ready").lacks("Discard")
	v.follow(replayed, "orders").want(200, "Waiting 2")

	message = v.get("/messages/"+stock.ready.String()).want(200, "scheduled", "It is due later.", "secret-payload")
	ran := confirm(message, "Run now", "run").want(200, "Due now.", "ready")
	confirm(ran, "Cancel", "cancel").want(200, "Cancelled.", "cancelled").lacks("Run now")

	queue := v.get("/queues/orders")
	queue = confirm(queue, "Pause", "pause").want(200, "Paused.", "No message is handed out.")
	v.get("/messages/"+stock.dead.String()).want(200, "The queue is paused.")
	confirm(queue, "Resume", "resume").want(200)
	form := v.get("/queues/orders").form("/keys/pause")
	form.Values.Set("key", "customer 9/ü")
	v.send(v.send(form).want(200, "customer 9/ü").form("/keys/pause")).want(200, "Paused.", "customer 9/ü")

	send := v.follow(v.get("/queues/orders"), "Send a test message").form("/send")
	send.Values.Set("payload", "{\r\n\"big\": 9007199254740993}")
	send.Values.Set("kind", "test")
	sent := v.send(send).want(200, "Sent.", "9007199254740993", "posthaste-sender http:adminer")
	again := v.send(send).want(200)
	if again.at.Path != sent.at.Path {
		t.Errorf("a form that is sent twice makes two messages: %s and %s", sent.at, again.at)
	}
	send.Values.Set("payload", "{")
	v.send(send).want(400)

	purge := v.follow(v.get("/queues/orders"), "Purge").want(200, "Type orders to confirm").form("/purge")
	purge.Values.Set("typed", "order")
	v.send(purge).want(400, "Nothing was changed")
	purge.Values.Set("typed", "orders")
	v.send(purge).want(200, "Purged 2 waiting messages.")

	schedules := confirm(v.get("/schedules").want(200, "0 3 * * *", "Europe/Berlin"), "Pause", "pause").want(200, "Paused.")
	confirm(schedules, "Resume", "resume").want(200, "Resumed.")
	confirm(v.get("/schedules"), "Run now", "run").want(200, "Sent the message of the schedule.")
	v.get("/workers").want(200, "host-1/42", "1.2.3", "alive")
	v.get("/audit").want(200, "http:adminer purge orders", "http:adminer replay", "http:adminer schedule_run")

	revoke := v.follow(v.get("/tokens"), "Revoke").form("/revoke")
	revoke.Values.Set("typed", "spare")
	v.send(revoke).want(200, "Revoked.", "The store has no tokens.")
	v.send(v.get("/").form("/sign-out")).want(200, "Sign in")
	v.get("/queues").want(200, "Sign in")
}

// A selection is of dead letters: ids of other messages do not count, and those of more than one
// statement are confirmed as they were asked for.
func TestDB7SelectionOfIDs(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	ids := stock.makeDead(t, "emails", "no recipient %d", 30)
	chosen := url.Values{"id": {stock.ready.String()}}
	for _, id := range ids {
		chosen.Add("id", id.String())
	}
	ask := v.get("/dead-letters/replay?"+chosen.Encode()).want(200, "Exactly 30 dead letters")
	if slices.Contains(strings.Split(ask.form("/replay").Values.Get("ids"), ","), stock.ready.String()) {
		t.Error("a message that is no dead letter is among the ids")
	}
	v.send(ask.form("/replay")).want(200, "Replayed 30 messages.")
}

// A form that a browser sends twice acts once.
func TestDB7SecondClick(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	form := v.follow(v.get("/schedules"), "Run now").form("/run")
	for range 2 {
		v.send(form).want(200, "Sent the message of the schedule.")
	}
	v.send(v.follow(v.get("/schedules"), "Run now").form("/run")).want(200)
	records, err := stock.Actions(t.Context(), posthaste.ActionFilter{Limit: 100})
	runs := slices.DeleteFunc(records, func(a posthaste.Action) bool { return a.Action != "schedule_run" })
	if err != nil || len(runs) != 2 {
		t.Errorf("%d runs of two forms are on record: %v", len(runs), err)
	}
}

// makeDead makes n dead letters in a queue, and returns their ids.
func (s *stocked) makeDead(t *testing.T, queue, text string, n int) []posthaste.MessageID {
	t.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: queue, Payload: i, Kind: "made"}
	}
	ids := s.send(t, messages...)
	s.bury(t, queue, text, n)
	return ids
}

func (s *stocked) send(t *testing.T, messages ...posthaste.Message) []posthaste.MessageID {
	t.Helper()
	ids, err := posthaste.IDs(s.Send(t.Context(), messages...))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// bury makes n waiting messages of a queue dead letters.
func (s *stocked) bury(t *testing.T, queue, text string, n int) {
	t.Helper()
	for left := n; left > 0; {
		got, err := s.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 1000, Lease: time.Minute})
		if err != nil || len(got.Deliveries) == 0 {
			t.Fatal(got, err)
		}
		var settle []posthaste.Settlement
		for i, d := range got.Deliveries {
			settle = append(settle, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: fmt.Sprintf(text, i)})
		}
		if _, err := s.Settle(t.Context(), settle); err != nil {
			t.Fatal(err)
		}
		left -= len(settle)
	}
}

// newestDead returns the id of the newest dead letter of a queue.
func (s *stocked) newestDead(t *testing.T, queue string) posthaste.MessageID {
	t.Helper()
	found, err := s.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: queue, Limit: 1})
	if err != nil || len(found.Items) != 1 {
		t.Fatal(found, err)
	}
	return found.Items[0].ID
}

func (s *stocked) deadLetters(t *testing.T, queue string) int {
	t.Helper()
	queues, err := s.Queues(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	return int(queues[0].Subscriptions[0].Dead)
}

// Dead letters are grouped by alike errors, and a group is replayed or discarded as it was
// confirmed.
func TestDB7ReplayByFilter(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	timeouts := stock.makeDead(t, "emails", "timeout after %d ms of smtp.example.com", 2300)
	stock.makeDead(t, "emails", `no recipient "user-%d"`, 3)
	v.get("/dead-letters").want(200, "timeout after … ms of smtp.example.com", "no recipient …", "Of the newest 500 dead letters that match.")
	group := v.follow(v.get("/dead-letters?queue=emails&error=timeout"), "timeout after … ms of smtp.example.com").want(200).lacks("no recipient …")
	ask := v.follow(group, "Replay all that match").want(200, "Exactly 2,300 dead letters will change. The highest message id is "+timeouts[2299].String(), "ms of smtp.example.com", "posthaste dead replay --queue=emails")
	first, second := ask.form("/replay"), ask.form("/replay")

	// Messages that die after the confirmation are left alone, and a choice of none is told.
	stock.makeDead(t, "emails", "timeout after %d ms of smtp.example.com", 2)
	done := v.send(first).want(200, "Replayed 2,300 messages.")
	if n := stock.deadLetters(t, "emails"); n != 5 {
		t.Errorf("%d dead letters are left, want 5", n)
	}
	if again := v.send(second).want(200, "Replayed 2,300 messages."); again.at.Path != done.at.Path { // the same form
		t.Errorf("a form that is sent twice leads to %s and %s", done.at, again.at)
	}
	if n := stock.deadLetters(t, "emails"); n != 5 {
		t.Errorf("%d dead letters are left, want 5", n)
	}

	// One of five is gone: the confirmation is for five.
	stale := v.get("/dead-letters/discard?queue=emails").want(200, "Exactly 5 dead letters").form("/discard")
	some, err := stock.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "emails", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	one := some.Items[0].ID.String()
	pick := v.get("/dead-letters?queue=emails").form("/dead-letters/replay")
	pick.Values.Set("id", one)
	v.send(v.send(pick).want(200, "Exactly 1 dead letter").form("/replay")).want(200, "Replayed 1 message.")
	v.send(stale).want(409, "Nothing was changed", `count was confirmed as "5", and is now "4"`)
	for name, value := range map[string]string{"count": "1", "highest": "1", "queue": "orders", "as_of": "", "error": "x"} {
		forged := v.get("/dead-letters/discard?queue=emails").form("/discard")
		forged.Values.Set(name, value)
		if got := v.send(forged); got.status < 400 {
			t.Errorf("a confirmation with another %s is carried out", name)
		}
	}
	if n := stock.deadLetters(t, "emails"); n != 4 {
		t.Errorf("%d dead letters are left, want 4", n)
	}
	v.send(v.get("/dead-letters/discard?queue=emails").form("/discard")).want(200, "Discarded 4 messages.")
	v.get("/dead-letters?queue=emails").want(200, "No dead letter matches.")
	v.send(v.get("/dead-letters/replay?all=1").want(200, "Exactly 1 dead letter").form("/replay")).want(200, "Replayed 1 message.")
}

// The filter of the list is its address, and pages go on by ids.
func TestDB7ListOfMessages(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeReadPayload)
	messages := make([]posthaste.Message, 120)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: "emails", Payload: i, Key: fmt.Sprint("k", i%2), Delay: time.Hour}
	}
	if _, err := stock.Send(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	form := v.get("/messages").form("/messages")
	form.Values.Set("queue", "emails")
	form.Values.Set("key", "k1")
	form.Values.Set("state", "scheduled")
	rows := regexp.MustCompile(`<td><a href="/messages/\d+">`)
	page := v.send(form).want(200, "posthaste message ls --queue emails --state scheduled --key k1")
	if n := len(rows.FindAllString(page.body, -1)); n != 50 {
		t.Fatalf("%d rows", n)
	}
	page = v.follow(page, "Older")
	if n := len(rows.FindAllString(page.body, -1)); n != 10 || page.at.Query().Get("key") != "k1" {
		t.Errorf("%d rows at %s", n, page.at)
	}
	v.follow(page, "Newest").want(200, "Older")
	for _, wrong := range []string{"state=none", "from=yesterday", "before=x", "queue=emails&queue=orders", "key=%ff"} {
		v.get("/messages?" + wrong).want(400)
	}
	v.get("/messages?queue=nowhere").want(404)
	v.get("/messages?from=2026-01-01T00:00&queue=orders&kind=paid&reference=second").want(200, stock.dead.String()).lacks("customer-7")
	v.get("/search?q=k1").want(200, "By key", "Show all")
	v.get("/search?q="+url.QueryEscape("secret-term")).want(200, "Message "+stock.ready.String())
	v = newSite(t, stock).viewer(posthaste.ScopeRead) // which has read nothing before
	v.get("/queues?sort=-waiting").want(200, "Waiting ↓ ", "emails 120")
}

// Behind a proxy that removes a prefix, and at a path of another program, all links stay below
// it. A crawl finds every page.
func TestDB10PathPrefix(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.spare(t)
	at := newSite(t, stock, func(c *dashboard.Config) { c.Path = "/admin/posthaste/" })
	crawl(t, at.viewer(posthaste.ScopeAdmin), "/admin/posthaste")

	behind := newSite(t, stock, func(c *dashboard.Config) {
		c.Path, c.Pages.Proxies = "/dash", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	target, _ := url.Parse(behind.url[:strings.LastIndex(behind.url, "/")])
	proxy := httptest.NewServer(http.StripPrefix("/ops", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("X-Forwarded-Prefix", "/ops")
		r.Out.Host = r.In.Host
	}}))
	t.Cleanup(proxy.Close)
	behind.url = proxy.URL + "/ops/dash"
	crawl(t, behind.viewer(posthaste.ScopeAdmin), "/ops/dash")
}

var addresses = regexp.MustCompile(`(?:href|src|action|formaction|hx-get|data-events)="([^"]*)"`)

// crawl follows all links of all pages.
func crawl(t *testing.T, v *viewer, prefix string) {
	t.Helper()
	seen, next := map[string]bool{}, []string{"/"}
	for len(next) > 0 && len(seen) < 200 {
		path := next[0]
		next = next[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		page := v.get(path)
		if page.status != 200 {
			t.Errorf("%s: status %d", path, page.status)
		}
		for _, m := range addresses.FindAllStringSubmatch(page.body, -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			below, ok := strings.CutPrefix(to, prefix+"/")
			if !ok && !strings.HasPrefix(to, "#") {
				t.Errorf("%s leads out to %q", path, to)
			}
			if ok && below != "events" && !strings.Contains(m[0], "action=") && !strings.Contains(below, "download") {
				next = append(next, "/"+below)
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d pages: %v", len(seen), seen)
	}
}

// counted counts statements.
type counted struct {
	posthaste.Store
	queues, others, lists atomic.Int64
}

func (c *counted) Messages(ctx context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	c.lists.Add(1)
	return c.Store.Messages(ctx, f)
}

func (c *counted) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	c.queues.Add(1)
	return c.Store.Queues(ctx, names...)
}

func (c *counted) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	c.others.Add(1)
	return c.Store.Doctor(ctx)
}

// However many people look, the store is read once a second.
func TestViewersShareOneReading(t *testing.T) {
	t.Parallel()
	c := &counted{Store: newStock(t)}
	s := newSite(t, c, open)
	begun := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			v := s.viewer("")
			for _, path := range []string{"/", "/queues", "/workers", "/"} {
				v.get(path).want(200)
			}
		})
	}
	all.Wait()
	if n, most := c.queues.Load(), int64(time.Since(begun)/time.Second)+1; n > most || c.others.Load() > most {
		t.Errorf("80 pages read the queues %d times and the doctor %d times, at most %d", n, c.others.Load(), most)
	}
	for _, path := range []string{"/", "/queues", "/queues/orders", "/workers"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.url+path, nil)
		r.Header.Set("HX-Request", "true")
		s.viewer("").do(r).want(200)
	}
	if n := c.lists.Load(); n != 0 {
		t.Errorf("pages that follow the store list messages %d times", n)
	}
	v := s.viewer("")
	v.send(v.get("/queues/orders/pause").form("/pause")).want(200, "Paused since")
}

// A handler asks for a token even before there is one, and programs need no form.
func TestDB4HandlerAsksForATokenByDefault(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	closed := newSite(t, stock, func(c *dashboard.Config) { c.Tokens = nil })
	closed.viewer("").get("/queues").want(200, "Sign in")

	s := newSite(t, stock)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", s.url+"/queues/orders/purge", strings.NewReader("typed=orders"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer operate-secret")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if got, err := client.Do(r); err != nil || got.StatusCode != 303 {
		t.Error(got, err)
	}
}

// A stream of events needs the scope, follows the shared clock, and ends with the server.
func TestEventsNeedTheScope(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", s.url+"/events", nil)
	if got, err := http.DefaultClient.Do(r); err != nil || got.StatusCode != 401 {
		t.Fatal(got, err)
	}
	r.Header.Set("Authorization", "Bearer receive-secret")
	if got, err := http.DefaultClient.Do(r); err != nil || got.StatusCode != 403 {
		t.Fatal(got, err)
	}
	api, err := server.NewPages(server.Config{Engine: stock, Mount: map[string]server.Mount{"/": dashboard.Mount(stock, dashboard.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(api)
	defer listening.Close()
	r, _ = http.NewRequestWithContext(t.Context(), "GET", listening.URL+"/events", nil)
	got, err := http.DefaultClient.Do(r)
	if err != nil || got.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(got, err)
	}
	defer got.Body.Close()
	part := make([]byte, 1000)
	n, err := got.Body.Read(part)
	if err != nil || string(part[:n]) != "retry: 2000\n\n" {
		t.Fatalf("%q %v", part[:n], err)
	}
	if n, err = got.Body.Read(part); err != nil || string(part[:n]) != "event: look\ndata: \n\n" {
		t.Fatalf("%q %v", part[:n], err)
	}
	api.Close()
	if _, err := got.Body.Read(part); err == nil {
		t.Error("the stream goes on after the server stopped")
	}
}
