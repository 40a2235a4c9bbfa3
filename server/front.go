package server

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// Pages configures the mounted pages. The zero value is for a server that browsers reach
// directly.
type Pages struct {
	// Key seals the sessions of browsers, in at least 32 bytes. Servers with the same key accept
	// each other's sessions. The default is a random key, so that sessions end with the process.
	Key []byte
	// Home is the path of the mount to which "/" redirects; "" for none.
	Home string
	// Prefix is the path under which browsers reach the server, such as "/posthaste", if a
	// reverse proxy removes it from the requests.
	Prefix string
	// Proxies are the addresses of reverse proxies whose headers are trusted:
	// X-Forwarded-Prefix in place of Prefix, X-Forwarded-Proto and UserHeader. Such a proxy must
	// remove these headers from the requests of its own callers. By default none is trusted.
	Proxies []netip.Prefix
	// UserHeader is the header in which a trusted proxy names the user that it has signed in.
	// The user then has UserScopes, and needs no token. With UserHeader, pages are never open
	// to callers without a user or a token.
	UserHeader string
	UserScopes []Scope
}

func (p *Pages) check() error {
	switch {
	case len(p.Key) > 0 && len(p.Key) < minSessionKey:
		return posthaste.Invalidf("Pages.Key", "the session key must have at least %d bytes, got %d", minSessionKey, len(p.Key))
	case p.Prefix != "" && !isPrefix(p.Prefix):
		return posthaste.Invalidf("Pages.Prefix", "the prefix must be a path such as /posthaste, without a slash at its end, got %q", p.Prefix)
	case p.UserHeader == "":
		return nil
	case len(p.Proxies) == 0:
		return posthaste.Invalidf("Pages.UserHeader", "a user header needs the addresses of trusted proxies, because any other caller could send it")
	}
	user := posthaste.Token{Name: "user", Scopes: p.UserScopes}
	return user.Check()
}

// front is what the proxies in front of the server say about a request.
type front struct {
	prefix string
	secure bool
	// user is the user that a proxy has signed in, or "".
	user string
}

func (p *Pages) front(r *http.Request) (front, error) {
	// A browser names the scheme of a page in Origin, also if TLS ends at a proxy.
	f := front{prefix: p.Prefix, secure: r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")}
	if !p.trusts(r.RemoteAddr) {
		return f, nil
	}
	if prefix := strings.TrimSuffix(r.Header.Get("X-Forwarded-Prefix"), "/"); isPrefix(prefix) {
		f.prefix = prefix
	}
	f.secure = f.secure || r.Header.Get("X-Forwarded-Proto") == "https"
	if p.UserHeader == "" {
		return f, nil
	}
	users := r.Header.Values(p.UserHeader)
	if len(users) == 0 || len(users) == 1 && users[0] == "" {
		return f, nil
	}
	f.user = users[0]
	if len(users) > 1 || len(f.user) > posthaste.MaxWordBytes || !utf8.ValidString(f.user) || strings.ContainsFunc(f.user, unicode.IsControl) {
		return f, posthaste.Invalidf(p.UserHeader, "the header %s must have one user name of at most %d bytes", p.UserHeader, posthaste.MaxWordBytes)
	}
	return f, nil
}

func (p *Pages) trusts(remote string) bool {
	addr, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p.Proxies, func(proxy netip.Prefix) bool { return proxy.Contains(addr.Addr().Unmap()) })
}

var prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// isPrefix reports whether a text can stand before the path of a link. It excludes paths that
// a browser would read as another host.
func isPrefix(text string) bool { return len(text) <= 255 && prefixPattern.MatchString(text) }
