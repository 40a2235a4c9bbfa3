package server

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

func withTokens(t *testing.T) func(*Config, *hooked) {
	return func(c *Config, _ *hooked) {
		for _, scope := range posthaste.Scopes() {
			token, err := NewToken(strings.ReplaceAll(string(scope), ":", "-")+"er", string(scope)+"-secret", scope)
			if err != nil {
				t.Fatal(err)
			}
			c.Tokens = append(c.Tokens, token)
		}
		c.Mount = map[string]Mount{"/caught": {Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) })}}
	}
}

// Each route lets in the scopes that openapi.yaml names, those that include them, and no other.
// Of the routes that show an application its own, the handler decides.
func TestScopesOfEveryRoute(t *testing.T) {
	t.Parallel()
	a := newAPI(t, withTokens(t))
	described, err := describedScopes()
	if err != nil {
		t.Fatal(err)
	}
	described["GET /caught"], described["GET /caught/1"] = []string{"admin"}, []string{"admin"}
	routes := append(a.server.routes(), &route{method: "GET", path: "/caught"}, &route{method: "GET", path: "/caught/1"})
	for _, r := range routes {
		path := strings.NewReplacer("{queue}", "orders", "{id}", "1", "{subscription}", "default", "{schedule}", "beat").Replace(r.path)
		needs, open := described[r.method+" "+r.path]
		if open = open && needs == nil; !open && needs == nil {
			t.Errorf("%s %s is not described", r.method, r.path)
		}
		for _, token := range append([]string{"", "wrong"}, strings.Fields(words(posthaste.Scopes()))...) {
			token = strings.TrimSuffix(token, ",")
			a := *a
			if a.token = token; token != "" {
				a.token += "-secret"
			}
			got, err := a.client.Do(a.request(t.Context(), r.method, path, ""))
			if err != nil {
				t.Fatal(err)
			}
			got.Body.Close()
			known := token != "" && token != "wrong"
			allowed := open || known && (len(needs) == 0 || slices.ContainsFunc(needs, func(need string) bool { return Scope(token).Includes(Scope(need)) }))
			switch {
			case allowed && (got.StatusCode == 401 || got.StatusCode == 403),
				!allowed && known && got.StatusCode != 403,
				!allowed && !known && got.StatusCode != 401,
				!allowed && !strings.HasPrefix(got.Header.Get("WWW-Authenticate"), "Bearer"):
				t.Errorf("%s %s with %q: %d", r.method, r.path, token, got.StatusCode)
			}
		}
	}
	if strings.Contains(a.log.String(), "-secret") {
		t.Error("a secret is in the log")
	}
}

// describedScopes returns the scopes that openapi.yaml names for each operation: nil if it needs
// no token, and none if any token will do.
func describedScopes() (map[string][]string, error) {
	doc, err := spec()
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			var needs []string
			security := operation.Security
			if security != nil && len(*security) > 0 {
				needs = []string{}
				for _, alternative := range *security {
					needs = append(needs, alternative["token"]...)
				}
			}
			all[method+" "+path] = needs
		}
	}
	return all, nil
}

// The table in docs/production/security.md is what the router checks.
func TestScopesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/production/security.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.SplitSeq(string(page), "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.HasPrefix(cells[1], " `") {
			for operation := range strings.SplitSeq(cells[1], ",") {
				documented[strings.Trim(operation, " `")] = strings.TrimSpace(cells[2])
			}
		}
	}
	for _, r := range newAPI(t).server.routes() {
		want := "`" + string(r.scope) + "`"
		switch {
		case r.scope == "":
			want = "none"
		case r.scope == ScopeAny:
			want = "any"
		case r.own:
			want += ", or `send` for messages of this token"
		}
		operation := r.method + " " + r.path
		if is := documented[operation]; is != want {
			t.Errorf("docs/production/security.md says that %s needs %q, want %q", operation, is, want)
		}
		delete(documented, operation)
	}
	for operation := range documented {
		if strings.HasPrefix(operation, "GET /") || strings.HasPrefix(operation, "POST /") {
			t.Errorf("docs/production/security.md has %s, which is no operation", operation)
		}
	}
}

func TestUnauthorizedStoresNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t, withTokens(t))
	a.queue("orders")
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).wantProblem(t, 401, posthaste.CodeDenied, "Authorization")
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`, "Authorization", "Basic c2VuZC1zZWNyZXQ=").wantProblem(t, 401, posthaste.CodeDenied, "Authorization")
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`, "Authorization", "Bearer receive-secret").wantProblem(t, 403, posthaste.CodeDenied, "Authorization")
	queues, err := a.engine.Queues(t.Context())
	if err != nil || queues[0].Subscriptions[0].Sent != 0 {
		t.Fatalf("%+v %v", queues, err)
	}
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`, "Authorization", "bearer send-secret").want(t, 201)
}

func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "with space", "tab\t", "ümlaut"} {
		if _, err := NewToken("x", secret, ScopeSend); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if _, err := NewToken("x", "secret"); err == nil {
		t.Error("a token without scopes passes")
	}
	if _, err := NewToken("x", "secret", "root"); err == nil {
		t.Error("an unknown scope passes")
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a server without an engine passes")
	}
}

// Pages of other sites, and names made to point here, reach nothing.
func TestBrowsersOfOtherSites(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.sendSome(1)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		a.call("POST", "/v1/queues/orders/receive", "", headers...).wantProblem(t, 403, posthaste.CodeDenied, "Origin")
	}
	r := a.request(t.Context(), "GET", "/v1/queues", "")
	for host, want := range map[string]int{"evil.example": 403, "evil.example:8484": 403, "localhost:1": 200, "127.0.0.1": 200, "[::1]:8484": 200, "[::1]": 200} {
		r.Host = host
		got, err := a.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("Host %s: %d", host, got.StatusCode)
		}
	}
	b := newAPI(t, withTokens(t))
	r = b.request(t.Context(), "GET", "/healthz", "")
	r.Host = "posthaste.example"
	got, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != 200 {
		t.Errorf("with tokens any name will do: %d", got.StatusCode)
	}
}
