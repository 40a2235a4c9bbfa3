package server

import (
	"net/http"
	"net/url"
	"testing"
)

// A request of a signed-in browser without its cookie, for example from a frame, starts no session
// that replaces the one that it has.
func TestDB4AnonymousSessionsReplaceNone(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	b := a.browser()
	b.signIn("/pages", "read-secret", "/").want(t, 303)
	stranger := a.browser().get("/pages/sign-in").want(t, 200)
	at, _ := url.Parse(a.url)
	b.client.Jar.SetCookies(at, []*http.Cookie{cookieOf(t, stranger)})
	b.get("/pages/queues").want(t, 200).wantBody(t, "http:reader")
	b.do("POST", "/pages/sign-out", url.Values{"csrf": {stranger.csrf(t)}}).want(t, 403)
}

func TestDB4MethodsOfSigningIn(t *testing.T) {
	t.Parallel()
	changed := 0
	a := newAPI(t, withTokens(t), withPages(&changed))
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "PATCH"} {
		for _, path := range []string{"/pages/sign-in", "/pages/sign-out"} {
			got := a.browser().do(method, path, nil).want(t, 405)
			if allow := got.header.Get("Allow"); allow != "GET, HEAD, POST" {
				t.Errorf("%s allows %q", path, allow)
			}
		}
	}
}

// A mount's path may end with a slash.
func TestDB4MountWithASlash(t *testing.T) {
	t.Parallel()
	a := newAPI(t, withTokens(t), func(c *Config, _ *hooked) { c.Mount = map[string]Mount{"/pages/": {Handler: http.NotFoundHandler()}} })
	b := a.browser()
	if cookie := cookieOf(t, b.signIn("/pages", "admin-secret", "/")); cookie.Path != "/pages" {
		t.Errorf("the cookie's path is %q", cookie.Path)
	}
	b.get("/pages").want(t, 404)
	b.get("/pages/x").want(t, 404)
}
