package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// browser keeps cookies, asks for pages and follows no redirect.
type browser struct {
	t      *testing.T
	client *http.Client
	url    string
	// headers are sent with each request.
	headers map[string]string
}

func (a *api) browser() *browser {
	jar, _ := cookiejar.New(nil)
	client := *a.client
	client.Jar = jar
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{t: a.t, client: &client, url: a.url, headers: map[string]string{"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Site": "same-origin"}}
}

func (b *browser) do(method, path string, form url.Values, headers ...string) reply {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, body}
}

func (b *browser) get(path string, headers ...string) reply {
	return b.do("GET", path, nil, headers...)
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]*)"`)

func (r reply) csrf(t *testing.T) string {
	t.Helper()
	found := csrfField.FindSubmatch(r.body)
	if found == nil {
		t.Fatalf("no CSRF token in: %s", r.body)
	}
	return html.UnescapeString(string(found[1]))
}

// signIn signs in at a mount, and returns the answer to the form.
func (b *browser) signIn(mount, secret, next string) reply {
	b.t.Helper()
	form := b.get(mount+"/sign-in?next="+url.QueryEscape(next)).want(b.t, 200)
	return b.do("POST", mount+"/sign-in", url.Values{"csrf": {form.csrf(b.t)}, "next": {next}, "token": {secret}})
}

// withPages mounts pages that show their visit, and change something by POST.
func withPages(changed *int) func(*Config, *hooked) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := VisitOf(r.Context())
		if r.Method != http.MethodGet {
			*changed++
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<p>%s %s %s %t %s</p><input name="csrf" value="%s">`, r.Method, r.URL.Path, v.Base, v.Allows(ScopeOperate), posthaste.ActorOf(r.Context()), v.CSRF)
	})
	return func(c *Config, _ *hooked) {
		c.Mount = map[string]Mount{"/pages": {Handler: page, Scope: ScopeRead}, "/caught": {Handler: page}}
		c.Pages.Home = "/pages"
	}
}

func (r reply) wantBody(t *testing.T, part string) {
	t.Helper()
	if !bytes.Contains(r.body, []byte(part)) {
		t.Fatalf("%q is not in: %s", part, r.body)
	}
}

func (r reply) wantRedirect(t *testing.T, to string) {
	t.Helper()
	if got := r.want(t, 303).header.Get("Location"); got != to {
		t.Fatalf("redirects to %q, want %q", got, to)
	}
}

func cookieOf(t *testing.T, r reply) *http.Cookie {
	t.Helper()
	all := (&http.Response{Header: r.header}).Cookies()
	if len(all) != 1 {
		t.Fatalf("cookies %v", all)
	}
	return all[0]
}

func TestDB4SignInAndOut(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	b := a.browser()
	b.get("/pages/queues?sort=name").wantRedirect(t, "/pages/sign-in?next=%2Fqueues%3Fsort%3Dname")
	for _, secret := range []string{"wrong-secret", "", "two words", "ümlaut"} {
		b.signIn("/pages", secret, "/queues").want(t, 401).wantBody(t, `role="alert"`)
	}
	b.signIn("/pages", "send-secret", "/").want(t, 403).wantBody(t, "lacks scope")
	b.get("/pages/").want(t, 303)
	entered := b.signIn("/pages", " read-secret\n", "/queues?sort=name")
	entered.wantRedirect(t, "/pages/queues?sort=name")
	cookie := cookieOf(t, entered)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure || cookie.Path != "/" || cookie.MaxAge != 12*60*60 || strings.Contains(cookie.Value, "read") {
		t.Errorf("cookie %+v", cookie)
	}
	page := b.get("/pages/queues")
	page.want(t, 200).wantBody(t, "GET /queues /pages false http:reader")
	b.get("/caught/").want(t, 403).wantBody(t, "Sign in with another token")

	b.do("POST", "/pages/sign-out", url.Values{}).want(t, 403)
	b.get("/pages/sign-out").want(t, 303)
	b.get("/pages/queues").want(t, 200)
	b.do("POST", "/pages/sign-out", url.Values{"csrf": {page.csrf(t)}}).wantRedirect(t, "/pages/sign-in")
	b.get("/pages/queues").want(t, 303)
	if strings.Contains(a.log.String(), "-secret") {
		t.Error("a secret is in the log")
	}
}

// A form changes something only with the CSRF token of its own session.
func TestDB4FormsNeedTheirToken(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	b, other := a.browser(), a.browser()
	b.signIn("/pages", "admin-secret", "/").want(t, 303)
	other.signIn("/pages", "admin-secret", "/").want(t, 303)
	right, foreign := b.get("/pages/").csrf(t), other.get("/pages/").csrf(t)
	if right == foreign {
		t.Fatal("two sessions have one CSRF token")
	}
	for _, form := range []url.Values{{}, {"csrf": {""}}, {"csrf": {"x"}}, {"csrf": {foreign}}, {"csrf": {right + "A"}}, {"csrf": {foreign, right}}} {
		b.do("POST", "/pages/x", form).want(t, 403).wantBody(t, "nothing was changed")
	}
	b.do("POST", "/pages/x?csrf="+right, url.Values{}).want(t, 403)
	for _, kind := range []string{"application/json", "text/plain", "multipart/form-data; boundary=x", ""} {
		b.do("POST", "/pages/x", url.Values{"csrf": {right}}, "Content-Type", kind).want(t, 403)
	}
	b.do("DELETE", "/pages/x", nil).want(t, 403)
	b.do("POST", "/pages/x", url.Values{"csrf": {right}}, "Sec-Fetch-Site", "cross-site").want(t, 403)
	b.do("POST", "/pages/x", url.Values{"csrf": {right}, "x": {strings.Repeat("a", maxForm)}}).want(t, 413)
	if changed != 0 {
		t.Fatalf("%d requests without their token were served", changed)
	}
	b.do("POST", "/pages/x", url.Values{"csrf": {right}}).want(t, 200)
	b.do("POST", "/pages/x", nil, "X-CSRF-Token", right).want(t, 200)
	a.token = "admin-secret"
	if got, err := a.client.Do(a.request(t.Context(), "DELETE", "/caught/1", "")); err != nil || got.StatusCode != 200 {
		t.Error("a program with a bearer token needs no form", got, err)
	}
	if changed != 3 {
		t.Errorf("%d changes, want 3", changed)
	}
}

// A server without tokens admits every caller, and other sites still cannot send forms.
func TestDB4OpenServer(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withPages(&changed))
	b := a.browser()
	page := b.get("/pages/")
	page.want(t, 200).wantBody(t, "GET / /pages true http")
	b.do("POST", "/pages/x", url.Values{}).want(t, 403)
	b.do("POST", "/pages/x", url.Values{"csrf": {page.csrf(t)}}).want(t, 200)
	a.browser().do("POST", "/pages/x", url.Values{"csrf": {page.csrf(t)}}).want(t, 403)
	b.get("/pages/sign-in?next=/queues").wantRedirect(t, "/pages/queues")
	b.signInOpen("/pages")
	if got, err := a.client.Do(a.request(t.Context(), "DELETE", "/caught", "")); err != nil || got.StatusCode != 200 {
		t.Error("programs delete without a form", got, err)
	}
	b.get("/").want(t, 302)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+"/pages/", nil)
	r.Host = "evil.example"
	if got, err := a.client.Do(r); err != nil || got.StatusCode != 403 {
		t.Error("a name that was made to point here", got, err)
	}
}

// signInOpen posts the form for signing in to a server that requires no token.
func (b *browser) signInOpen(mount string) {
	b.t.Helper()
	csrf := b.get(mount + "/").csrf(b.t)
	got := b.do("POST", mount+"/sign-in", url.Values{"csrf": {csrf}, "token": {"anything"}})
	got.wantRedirect(b.t, mount+"/")
	if cookies := got.header.Values("Set-Cookie"); len(cookies) != 0 {
		b.t.Errorf("a session without a token: %s", cookies)
	}
}

// An attacker who plants a session in a browser gets nothing of the one that follows.
func TestDB4SessionFixation(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	b := a.browser()
	planted := b.get("/pages/sign-in").csrf(t)
	before := cookieOf(t, a.browser().get("/pages/sign-in"))
	entered := cookieOf(t, b.signIn("/pages", "admin-secret", "/"))
	if entered.Value == before.Value {
		t.Error("signing in keeps the cookie")
	}
	if b.get("/pages/").csrf(t) == planted {
		t.Error("signing in keeps the CSRF token")
	}
	b.do("POST", "/pages/x", url.Values{"csrf": {planted}}).want(t, 403)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+"/pages/", nil)
	r.AddCookie(before)
	if got, err := a.client.Do(r); err != nil || got.StatusCode != 401 {
		t.Error("a session from before signing in is signed in", got, err)
	}
}

// A session ends with its token, its time, its key, and when one bit of it is changed.
func TestDB4SessionsEnd(t *testing.T) {
	t.Parallel()
	changed := 0
	key := bytes.Repeat([]byte("k"), 32)
	withKey := func(c *Config, _ *hooked) { c.Pages.Key = key }
	a := newAPI(t, withPages(&changed), withKey)
	secret, err := a.engine.CreateToken(t.Context(), posthaste.Token{Name: "ops", Scopes: []Scope{ScopeRead}})
	if err != nil {
		t.Fatal(err)
	}
	b := a.browser()
	cookie := cookieOf(t, b.signIn("/pages", secret, "/"))
	status := func(s *Server, value string) int {
		w := newDiscard()
		r, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+"/pages/", nil)
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value})
		s.ServeHTTP(w, r)
		return w.status
	}
	if got := status(a.server, cookie.Value); got != 200 {
		t.Fatalf("status %d", got)
	}
	replica, err := New(Config{Engine: a.engine, Mount: map[string]Mount{"/pages": {Handler: http.NotFoundHandler()}}, Pages: Pages{Key: key}})
	if err != nil {
		t.Fatal(err)
	}
	if got := status(replica, cookie.Value); got != 403 { // it knows the token, which lacks the scope admin
		t.Errorf("a replica with the same key: %d", got)
	}
	for i := 0; i < len(cookie.Value); i += 7 {
		bent := []byte(cookie.Value)
		bent[i] ^= 1
		if got := status(a.server, string(bent)); got != 401 {
			t.Errorf("bit of byte %d changed: %d", i, got)
		}
	}
	stranger := newAPI(t, withPages(&changed), func(c *Config, _ *hooked) { c.RequireToken = true; c.Engine = a.engine })
	if got := status(stranger.server, cookie.Value); got != 401 {
		t.Errorf("another key: %d", got)
	}
	now := time.Now()
	a.server.sealer.now = func() time.Time { return now.Add(sessionTime + time.Second) }
	if got := status(a.server, cookie.Value); got != 401 {
		t.Errorf("after its time: %d", got)
	}
	a.server.sealer.now = time.Now
	if err := a.engine.RevokeToken(t.Context(), "ops"); err != nil {
		t.Fatal(err)
	}
	a.server.tokens.mu.Lock()
	a.server.tokens.list = nil
	a.server.tokens.mu.Unlock()
	if got := status(a.server, cookie.Value); got != 401 {
		t.Errorf("with its token revoked: %d", got)
	}
}

// discard is a response of which only the status counts.
type discard struct {
	header http.Header
	status int
}

func newDiscard() *discard                { return &discard{header: http.Header{}} }
func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }
func (d *discard) Write(text []byte) (int, error) {
	if d.status == 0 {
		d.status = 200
	}
	return len(text), nil
}

func TestDB4PagesAreNotCachedOrFramed(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	b := a.browser()
	nonces := map[string]bool{}
	for _, path := range []string{"/pages/", "/pages/sign-in", "/caught/"} {
		for range 2 {
			h := b.get(path).header
			policy := h.Get("Content-Security-Policy")
			if h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: %v", path, h)
			}
			nonces[policy] = true
		}
	}
	if len(nonces) != 6 {
		t.Errorf("%d policies for 6 pages: a nonce comes twice", len(nonces))
	}
	shown := b.get("/pages/sign-in")
	if nonce := regexp.MustCompile(`style-src 'nonce-(\w+)'`).FindStringSubmatch(shown.header.Get("Content-Security-Policy")); nonce == nil || !strings.Contains(string(shown.body), `<style nonce="`+nonce[1]+`">`) {
		t.Errorf("the style does not have the nonce: %v", nonce)
	}
}

// A browser that comes by a link of another site is signed in all the same, and stays so.
func TestDB4LinksFromOtherSites(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	got := a.browser().get("/pages/messages/1?x=%22%3E%3Cb%3E", "Sec-Fetch-Site", "cross-site").want(t, 200)
	got.wantBody(t, `<meta http-equiv="refresh" content="0; url=/pages/messages/1?x=%22%3E%3Cb%3E">`)
	if cookies := got.header.Values("Set-Cookie"); len(cookies) != 0 {
		t.Errorf("it replaces the session: %s", cookies)
	}
	// Decoded, these paths begin with another host.
	root := newAPI(t, withTokens(t), func(c *Config, _ *hooked) { c.Mount = map[string]Mount{"/": {Handler: http.NotFoundHandler()}} })
	for _, path := range []string{"/%2Fevil.example/x", "/%5Cevil.example"} {
		root.browser().get(path, "Sec-Fetch-Site", "cross-site").want(t, 200).wantBody(t, "url="+path+`"`)
		root.browser().get(path).wantRedirect(t, "/sign-in?next="+url.QueryEscape(path))
	}
}

func TestDB4SigningInStaysOnTheSite(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"": "/", "/queues?a=b": "/queues?a=b", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "evil": "/", "/" + strings.Repeat("a", 3000): "/", "/%zz": "/", "javascript:alert(1)": "/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

// What proxies say counts only if they are trusted.
func TestDB10Proxies(t *testing.T) {
	t.Parallel()
	changed := 0
	trust := func(c *Config, _ *hooked) {
		c.Pages.Proxies, c.Pages.UserHeader, c.Pages.UserScopes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "X-Forwarded-User", []Scope{ScopeOperate}
	}
	proxied := []string{"X-Forwarded-Prefix", "/ops/queues/", "X-Forwarded-Proto", "https", "X-Forwarded-User", "ada"}
	a := newAPI(t, withPages(&changed), trust)
	page := a.browser().get("/pages/x", proxied...)
	page.want(t, 200).wantBody(t, "GET /x /ops/queues/pages true user:ada")
	if cookie := cookieOf(t, page); !cookie.Secure || cookie.Path != "/ops/queues/" {
		t.Errorf("cookie %+v", cookie)
	}
	if home := a.browser().get("/", proxied...); home.header.Get("Location") != "/ops/queues/pages/" {
		t.Error(home.header)
	}
	a.browser().get("/pages/").want(t, 303) // without a user
	a.browser().get("/caught/", proxied...).want(t, 403)
	a.browser().get("/caught/", append(proxied, "Authorization", "Basic YTpi")...).want(t, 403)
	a.browser().get("/pages/", "Authorization", "Basic YTpi").want(t, 303)
	for _, user := range []string{strings.Repeat("a", 256), "\xff"} {
		a.browser().get("/pages/", "X-Forwarded-User", user).want(t, 400)
	}
	b := a.browser()
	csrf := b.get("/pages/", "X-Forwarded-User", "ada").csrf(t) // over http, so that the jar sends the cookie
	b.do("POST", "/pages/", url.Values{"csrf": {csrf}}, "X-Forwarded-User", "ada").want(t, 200)
	b.do("POST", "/pages/", url.Values{"csrf": {csrf}}, "X-Forwarded-User", "bob").want(t, 403)
	b.do("DELETE", "/pages/", nil, "X-Forwarded-User", "ada").want(t, 403)
	for _, prefix := range []string{"//evil.example", "/a//b", "/../x", "x", "/a b", `/"`, "/a/../../b"} {
		a.browser().get("/pages/x", "X-Forwarded-User", "ada", "X-Forwarded-Prefix", prefix).want(t, 200).wantBody(t, " /pages true")
	}
	stranger := newAPI(t, withTokens(t), withPages(&changed))
	stranger.browser().get("/pages/", proxied...).wantRedirect(t, "/pages/sign-in?next=%2F")
	fixed := newAPI(t, withPages(&changed), func(c *Config, _ *hooked) { c.Pages.Prefix = "/fixed" })
	fixed.browser().get("/pages/x", proxied...).want(t, 200).wantBody(t, "GET /x /fixed/pages true http<")
	if secure := cookieOf(t, fixed.browser().get("/pages/", "Origin", "https://"+loopback.String())); !secure.Secure {
		t.Error("a browser that says it uses TLS gets a cookie without Secure")
	}
}

func TestPagesAreChecked(t *testing.T) {
	t.Parallel()
	engine := newEngine(t)
	for i, pages := range []Pages{
		{Key: []byte("short")}, {Prefix: "ops"}, {Prefix: "/ops/"}, {UserHeader: "X-User", UserScopes: []Scope{ScopeRead}},
		{UserHeader: "X-User", Proxies: []netip.Prefix{{}}}, {UserHeader: "X-User", Proxies: []netip.Prefix{{}}, UserScopes: []Scope{"root"}},
	} {
		if _, err := New(Config{Engine: engine, Pages: pages}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("pages %d: %v", i, err)
		}
	}
}

// A server of pages alone has no API, and a token limited to queues needs a mount that checks it.
func TestPagesAlone(t *testing.T) {
	t.Parallel()
	engine := newEngine(t)
	secret, err := engine.CreateToken(t.Context(), posthaste.Token{Name: "some", Scopes: []Scope{ScopeRead}, Queues: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	var visited *Visit
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { visited = VisitOf(r.Context()) })
	pages, err := NewPages(Config{Engine: engine, Mount: map[string]Mount{"/": {Handler: page, Scope: ScopeRead, Queues: true}, "/all": {Handler: page, Scope: ScopeRead}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) int {
		w := newDiscard()
		r, _ := http.NewRequestWithContext(context.Background(), "GET", "http://localhost"+path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		pages.ServeHTTP(w, r)
		return w.status
	}
	ask("/v1/queues")
	if visited == nil || visited.Base != "" || !visited.Limited() || !visited.AllowsQueue("orders") || visited.AllowsQueue("other") || visited.Allows(ScopeOperate) {
		t.Errorf("%+v", visited)
	}
	if status := ask("/all/x"); status != 403 {
		t.Errorf("a mount that does not check queues: %d", status)
	}
	if text, _ := json.Marshal(VisitOf(t.Context()).Allows(ScopeRead)); string(text) != "false" {
		t.Error("a request without a visit is allowed something")
	}
}
