package dashboard_test

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
)

// Each route lets in the scopes that include its own, and no other. A caller without the scope
// changes nothing.
func TestDB4EveryRouteWithEveryScope(t *testing.T) {
	t.Parallel()
	scopes := append([]posthaste.Scope{""}, posthaste.Scopes()...)
	for _, route := range dashboard.Routes(newStock(t)) {
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			t.Parallel()
			for _, scope := range scopes {
				checkRoute(t, route, scope)
			}
		})
	}
}

func checkRoute(t *testing.T, route dashboard.Route, scope posthaste.Scope) {
	t.Helper()
	stock := newStock(t)
	stock.spare(t)
	s := newSite(t, stock)
	reads := scope != "" && scope.Includes(posthaste.ScopeRead)
	v := s.viewer("")
	if reads {
		v = s.viewer(scope)
	}
	if strings.Contains(route.Path, "{bulk}") {
		stock.bulk = s.endedBulk(stock)
	}
	path, before := stock.path(route.Path), stock.state(t)
	if route.Path == "/events" {
		return // TestEventsNeedTheScope
	}
	var got *shown
	if route.Method == "GET" {
		got = v.get(path)
	} else {
		got = v.send(s.forged(v, route, path))
	}
	allowed := reads && scope.Includes(route.Scope)
	switch {
	case allowed && got.status != 200:
		t.Errorf("%q: status %d, want 200:\n%s", scope, got.status, text(got.body))
	case !reads && !strings.Contains(got.body, `name="token"`):
		t.Errorf("%q: it is not asked to sign in: %d", scope, got.status)
	case reads && !allowed && got.status != 403:
		t.Errorf("%q: status %d, want 403", scope, got.status)
	}
	if changed := stock.state(t) != before; changed != (allowed && route.Method == "POST" && route.Path != "/bulk/{bulk}/stop") {
		t.Errorf("%q: changed %t", scope, changed)
	}
}

// forged returns the form of an action. For a viewer who is not shown the form, it has the
// viewer's own CSRF token and the fields that an administrator is shown.
func (s *site) forged(v *viewer, route dashboard.Route, path string) form {
	s.t.Helper()
	admin := s.viewer(posthaste.ScopeAdmin)
	csrf := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(v.get("/queues").body)
	if route.Path == "/bulk/{bulk}/stop" { // the page of one that has ended offers none
		f := form{Method: "POST", Action: s.url + path, Values: url.Values{}}
		if csrf != nil {
			f.Values.Set("csrf", csrf[1])
		}
		return f
	}
	f := admin.get(path).want(200).form(strings.SplitN(path, "?", 2)[0])
	if csrf != nil {
		f.Values.Set("csrf", csrf[1])
	}
	switch route.Path {
	case "/messages/{id}/edit":
		f.Values.Set("kind", "changed")
	case "/queues/{queue}/purge":
		f.Values.Set("typed", "orders")
	case "/tokens/{token}/revoke":
		f.Values.Set("typed", "spare")
	}
	return f
}

// Without read:payload no page has anything of the content of a message.
func TestDB4ContentNeedsItsScope(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	for _, scope := range []posthaste.Scope{posthaste.ScopeRead, posthaste.ScopeOperate, posthaste.ScopeReadPayload, posthaste.ScopeAdmin} {
		v := s.viewer(scope)
		sees := scope.Includes(posthaste.ScopeReadPayload)
		var all strings.Builder
		for _, id := range []posthaste.MessageID{stock.ready, stock.done, stock.dead} {
			all.WriteString(v.get("/messages/" + id.String()).want(200).body)
		}
		for _, path := range []string{"/messages", "/dead-letters", "/queues/orders", "/schedules", "/audit", "/search?q=third"} {
			all.WriteString(v.get(path).want(200).body)
		}
		for _, secret := range []string{"secret-payload", "secret-header", "secret-term", "secret-receipt"} {
			if got := strings.Contains(all.String(), secret); got != sees {
				t.Errorf("%s: %s is shown: %t", scope, secret, got)
			}
		}
		found := v.get("/search?q=secret-term").body
		if strings.Contains(found, "/messages/"+stock.ready.String()) != sees && !strings.Contains(found, "Message "+stock.ready.String()) == sees {
			t.Errorf("%s: a search by a term tells: %s", scope, text(found))
		}
		for _, path := range []string{"/messages?term=secret-term", "/dead-letters?term=secret-term", "/messages/" + stock.ready.String() + "/payload"} {
			if got := v.get(path); got.status == 403 == sees {
				t.Errorf("%s: %s: %d", scope, path, got.status)
			}
		}
	}
}

// A viewer is offered only the actions that are possible now.
func TestDB4OnlyValidActionsAreOffered(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	offered := func(scope posthaste.Scope, path string) (all []string) {
		page := s.viewer(scope).get(path).want(200)
		for _, verb := range []string{"pause", "resume", "purge", "send", "options", "edit", "reschedule", "cancel", "run", "replay", "discard"} {
			if regexp.MustCompile(`(?:href|formaction|action)="[^"]*/` + verb + `["?]`).MatchString(page.body) {
				all = append(all, verb)
			}
		}
		return all
	}
	for _, c := range []struct {
		scope posthaste.Scope
		path  string
		want  []string
	}{
		{posthaste.ScopeRead, "/queues/orders", nil},
		{posthaste.ScopeOperate, "/queues/orders", []string{"pause", "resume", "purge"}},
		{posthaste.ScopeAdmin, "/queues/orders", []string{"pause", "resume", "purge", "send", "options"}}, // resume: of the paused key,
		{posthaste.ScopeReadPayload, "/messages/" + stock.ready.String(), nil},
		{posthaste.ScopeOperate, "/messages/" + stock.ready.String(), []string{"edit", "reschedule", "cancel", "run"}},
		{posthaste.ScopeOperate, "/messages/" + stock.done.String(), nil},
		{posthaste.ScopeOperate, "/messages/" + stock.dead.String(), []string{"edit", "replay", "discard"}},
		{posthaste.ScopeRead, "/messages?queue=orders", nil},
		{posthaste.ScopeOperate, "/messages?queue=orders", []string{"reschedule", "cancel", "run"}},
		{posthaste.ScopeOperate, "/messages?queue=orders&state=done", nil},
		{posthaste.ScopeOperate, "/messages?reference=second", nil},
		{posthaste.ScopeRead, "/dead-letters", nil},
		{posthaste.ScopeOperate, "/dead-letters", []string{"replay", "discard"}},
		{posthaste.ScopeRead, "/schedules", nil},
		{posthaste.ScopeOperate, "/schedules", []string{"pause", "run"}},
	} {
		// The form around the table of dead letters is there for every reader, without buttons.
		got := offered(c.scope, c.path)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s at %s: %q is offered, want %q", c.scope, c.path, got, c.want)
		}
	}
	v := s.viewer(posthaste.ScopeOperate)
	v.get("/messages/"+stock.done.String()+"/cancel").want(409, "cannot be changed")
	v.get("/messages/" + stock.ready.String() + "/replay").want(409)
	v.get("/schedules/nightly/resume").want(409)
	if page := v.get("/"); strings.Contains(page.body, "/tokens") {
		t.Error("a link to the tokens for an operator")
	}
}

// A token that is limited to queues sees and changes these only.
func TestDB4TokensOfSomeQueues(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	ids, err := posthaste.IDs(stock.Send(t.Context(), posthaste.Message{Queue: "emails", Reference: "third", Payload: "foreign", Delay: 3600e9}))
	if err != nil {
		t.Fatal(err)
	}
	token, err := stock.CreateToken(t.Context(), posthaste.Token{Name: "some", Scopes: []posthaste.Scope{posthaste.ScopeOperate, posthaste.ScopeReadPayload}, Queues: []string{"emails"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, stock)
	v := s.viewer("")
	f := v.get("/sign-in").form("/sign-in")
	f.Values.Set("token", token)
	v.send(f).want(200, "Queues", "emails").lacks("orders")
	for _, path := range []string{"/queues/orders", "/queues/orders/pause", "/messages?queue=orders", "/messages/" + stock.ready.String(), "/messages/" + stock.ready.String() + "/payload", "/messages/" + stock.ready.String() + "/cancel",
		"/dead-letters?queue=orders", "/dead-letters/replay?all=1", "/dead-letters/replay?queue=orders", "/dead-letters/replay?id=" + stock.dead.String(), "/schedules", "/workers", "/audit", "/schedules/nightly/run"} {
		v.get(path).want(403)
	}
	v.get("/messages").want(200, ids[0].String()).lacks("customer-7")
	v.get("/search?q=third").want(200, "Message "+ids[0].String()).lacks("customer-7")
	v.get("/search?q=customer-7").want(200, "No message has")
	v.get("/search?q="+stock.ready.String()).want(200, "No message has")
	v.get("/messages/" + ids[0].String() + "/cancel").want(200)
}

// endedBulk runs a bulk action and returns its id.
func (s *site) endedBulk(stock *stocked) string {
	s.t.Helper()
	id := stock.makeDead(s.t, "emails", "declined", 1)[0]
	v := s.viewer(posthaste.ScopeAdmin)
	done := v.send(v.get("/dead-letters/replay?id="+id.String()).want(200).form("/replay")).want(200, "Replayed 1 message.")
	return path.Base(done.at.Path)
}

// A missing filter never means everything.
func TestDB4NothingSelectsNothing(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	before := stock.state(t)
	for _, query := range []string{"", "?queue=", "?queue=%20&kind=", "?all=", "?all=0", "?ids=", "?all=1&queue=orders", "?id=2&queue=orders", "?id=x", "?subscription=default", "?queue=a&queue=b"} {
		for _, verb := range []string{"replay", "discard"} {
			v.get("/dead-letters/" + verb + query).want(400)
			f := v.get("/dead-letters/" + verb + "?all=1").want(200).form("/" + verb)
			csrf := f.Values.Get("csrf")
			f.Values, _ = url.ParseQuery(strings.TrimPrefix(query, "?"))
			f.Values.Set("csrf", csrf)
			v.send(f).want(400)
		}
	}
	if stock.state(t) != before {
		t.Error("something was changed")
	}
}

// The actions name the operator in the records.
func TestDB4ActionsAreRecorded(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	v.send(v.get("/queues/orders/pause").form("/pause")).want(200, "Paused.")
	v.send(v.get("/messages/"+stock.ready.String()+"/cancel").form("/cancel")).want(200, "Cancelled.")
	v.get("/audit").want(200, "http:operateer pause orders", "http:operateer cancel orders")
	v.get("/audit?queue=orders&message="+stock.ready.String()).want(200, "cancel").lacks("pause")
}
