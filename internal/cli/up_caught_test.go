//go:build unix

package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	netmail "net/smtp"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/server"
)

// visitor is a browser at the pages of up, without JavaScript.
type visitor struct {
	*testing.T
	client *http.Client
	base   string
}

// caughtSite serves the dashboard and the catcher as up does, with a token for each scope.
func caughtSite(t *testing.T) (*catcher.Catcher, func(scopes ...posthaste.Scope) *visitor) {
	t.Helper()
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mails.Close() })
	u := &upFlags{}
	u.listen = defaultListen
	engine, config := memory.Open(), server.Config{Mount: map[string]server.Mount{caughtPath: caughtMail(u, mails)}}
	config.Engine, config.Mount = engine, u.mount(engine, config.Mount)
	secrets := map[string]string{}
	for _, scopes := range [][]posthaste.Scope{{posthaste.ScopeRead}, {posthaste.ScopeOperate}, {posthaste.ScopeReadPayload}, {posthaste.ScopeReadPayload, posthaste.ScopeOperate}, {posthaste.ScopeAdmin}} {
		name := fmt.Sprintf("token-%d", len(secrets))
		token, err := server.NewToken(name, name, scopes...)
		if err != nil {
			t.Fatal(err)
		}
		secrets[fmt.Sprint(scopes)] = name
		config.Tokens = append(config.Tokens, token)
	}
	handler, err := server.NewPages(config)
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(handler)
	t.Cleanup(site.Close)
	return mails, func(scopes ...posthaste.Scope) *visitor {
		t.Helper()
		jar, _ := cookiejar.New(nil)
		v := &visitor{t, &http.Client{Jar: jar}, site.URL}
		_, page := v.get("/dashboard/sign-in")
		if status, page := v.post("/dashboard/sign-in", url.Values{"csrf": {csrfOf(page)}, "token": {secrets[fmt.Sprint(scopes)]}}); status != 200 {
			t.Fatalf("signing in as %v: %d %s", scopes, status, page)
		}
		return v
	}
}

func (v *visitor) do(method, path string, form url.Values) (status int, page string) {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), method, v.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	got, err := v.client.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		v.Fatal(err)
	}
	return got.StatusCode, string(body)
}

func (v *visitor) get(path string) (status int, page string) { return v.do("GET", path, nil) }

func (v *visitor) post(path string, form url.Values) (status int, page string) {
	return v.do("POST", path, form)
}

func csrfOf(page string) string {
	if found := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(page); found != nil {
		return found[1]
	}
	return ""
}

// A session of the dashboard reads caught mails with the scope read:payload, and deletes them with
// operate as well.
func TestCaughtMailBySessionsOfTheDashboard(t *testing.T) {
	t.Parallel()
	mails, signIn := caughtSite(t)
	for range 2 {
		if err := netmail.SendMail(mails.Addr(), nil, "shop@example.com", []string{"ada@example.com"}, []byte("Subject: Your order\r\n\r\nIt is on its way.\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	_, open := signIn(posthaste.ScopeReadPayload, posthaste.ScopeOperate).get("/caught/delete")
	for _, scope := range []posthaste.Scope{posthaste.ScopeRead, posthaste.ScopeOperate, posthaste.ScopeReadPayload, posthaste.ScopeAdmin} {
		v := signIn(scope)
		reads, deletes := scope.Includes(posthaste.ScopeReadPayload), scope == posthaste.ScopeAdmin
		if _, page := v.get("/dashboard/queues"); strings.Contains(page, `href="/caught/"`) != reads {
			t.Errorf("%s: the dashboard links to caught mail: %t", scope, !reads)
		}
		for _, path := range []string{"/caught/", "/caught/1", "/caught/1/html", "/caught/1/raw", "/caught/assets/style.css"} {
			if status, page := v.get(path); status == 200 != reads || strings.Contains(page, "Your order") && !reads {
				t.Errorf("%s: %s: %d %s", scope, path, status, page)
			}
		}
		own := csrfOf(func() string { _, page := v.get("/dashboard/queues"); return page }())
		for _, path := range []string{"/caught/delete", "/caught/1/delete"} {
			if status, _ := v.get(path); status == 200 != deletes {
				t.Errorf("%s: %s: %d", scope, path, status)
			}
			for _, csrf := range []string{"", csrfOf(open), own} {
				if csrf == own && deletes {
					continue
				}
				if status, _ := v.post(path, url.Values{"csrf": {csrf}}); status != 403 || len(mails.Mails()) != 2 {
					t.Fatalf("%s: %s with the CSRF token %q: %d, %d mails are left", scope, path, csrf, status, len(mails.Mails()))
				}
			}
		}
	}
	v := signIn(posthaste.ScopeReadPayload, posthaste.ScopeOperate)
	_, page := v.get("/caught/1")
	if !strings.Contains(page, `href="/caught/1/delete"`) || !strings.Contains(page, `href="/dashboard/"`) {
		t.Fatal(page)
	}
	_, page = v.get("/caught/1/delete")
	if status, page := v.post("/caught/1/delete", url.Values{"csrf": {csrfOf(page)}}); status != 200 || strings.Contains(page, `"/caught/1"`) || !strings.Contains(page, `"/caught/2"`) {
		t.Error(status, page)
	}
	if status, page := v.get("/caught/1"); status != 404 || !strings.Contains(page, "no longer kept") {
		t.Error(status, page)
	}
	_, page = v.get("/caught/delete")
	if status, page := v.post("/caught/delete", url.Values{"csrf": {csrfOf(page)}}); status != 200 || !strings.Contains(page, "Nothing caught yet") || len(mails.Mails()) != 0 {
		t.Error(status, page)
	}
	anonymous := &visitor{t, &http.Client{}, v.base}
	if status, page := anonymous.get("/caught/"); status != 200 || !strings.Contains(page, `name="token"`) {
		t.Errorf("without a session: %d %s", status, page)
	}
}
