package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Scope is what a token may do.
type Scope string

// The scopes. ScopeAdmin includes the other two. ScopeAny is not given to
// tokens: it marks what every token may do.
const (
	ScopeSend    Scope = "send"    // send messages and e-mails
	ScopeReceive Scope = "receive" // receive and settle deliveries
	ScopeAdmin   Scope = "admin"   // everything
	ScopeAny     Scope = "any"
)

// Token lets its bearer call the API. Only the hash of the secret is kept.
type Token struct {
	// Name says whose token it is; it appears in the record of who asked.
	Name string
	// Hash is the SHA-256 of the secret.
	Hash [sha256.Size]byte
	// Scopes are what the bearer may do; at least one.
	Scopes []Scope
}

// NewToken makes a token of its secret. The secret must be of visible ASCII
// characters, as the Authorization header carries it.
func NewToken(name, secret string, scopes ...Scope) (Token, error) {
	if secret == "" || strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return Token{}, posthaste.Invalidf("token", "a token must be of visible ASCII characters without spaces, and not empty")
	}
	t := Token{Name: name, Hash: sha256.Sum256([]byte(secret)), Scopes: scopes}
	return t, t.check()
}

func (t Token) check() error {
	if len(t.Scopes) == 0 {
		return posthaste.Invalidf("scopes", "token %q has no scope: give send, receive or admin", t.Name)
	}
	for _, scope := range t.Scopes {
		if scope != ScopeSend && scope != ScopeReceive && scope != ScopeAdmin {
			return posthaste.Invalidf("scopes", "token %q: scope %q is unknown: give send, receive or admin", t.Name, scope)
		}
	}
	return nil
}

func (t Token) allows(scope Scope) bool {
	return scope == ScopeAny || slices.Contains(t.Scopes, scope) || slices.Contains(t.Scopes, ScopeAdmin)
}

type callerKey struct{}

// caller names who asked, for the records that operators' actions leave.
func caller(r *http.Request) string {
	if name, _ := r.Context().Value(callerKey{}).(string); name != "" {
		return "http:" + name
	}
	return "http"
}

// authorize returns the request with its caller's name, or the error to tell.
func (s *Server) authorize(r *http.Request, scope Scope) (*http.Request, error) {
	if scope == "" || len(s.tokens) == 0 {
		return r, nil
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return r, &httpError{status: http.StatusUnauthorized, challenge: `Bearer realm="posthaste"`, err: &posthaste.Error{
			Code: posthaste.Denied, Field: "Authorization", Message: "a token is required", Hint: "send the header Authorization: Bearer TOKEN",
		}}
	}
	token, ok := s.findToken(strings.TrimSpace(secret))
	if !ok {
		return r, &httpError{status: http.StatusUnauthorized, challenge: `Bearer realm="posthaste", error="invalid_token"`, err: &posthaste.Error{
			Code: posthaste.Denied, Field: "Authorization", Message: "the token is not known", Hint: "check that it was copied whole and not dropped since",
		}}
	}
	if !token.allows(scope) {
		return r, &httpError{status: http.StatusForbidden, challenge: `Bearer realm="posthaste", error="insufficient_scope", scope="` + string(scope) + `"`, err: &posthaste.Error{
			Code: posthaste.Denied, Field: "Authorization", Message: "the token has not the scope " + string(scope), Hint: "use a token that has it",
		}}
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, token.Name)), nil
}

// findToken compares with every token in constant time, so that the time taken
// tells nothing of which came near.
func (s *Server) findToken(secret string) (Token, bool) {
	hash := sha256.Sum256([]byte(secret))
	found := -1
	for i := range s.tokens {
		if subtle.ConstantTimeCompare(hash[:], s.tokens[i].Hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Token{}, false
	}
	return s.tokens[found], true
}

// checkBrowser refuses what only a browser on somebody else's page would send:
// requests that change something from another site, and, where no token
// protects, names that somebody made to point here (DNS rebinding).
func (s *Server) checkBrowser(protection *http.CrossOriginProtection, r *http.Request) error {
	if err := protection.Check(r); err != nil {
		return &posthaste.Error{Code: posthaste.Denied, Field: "Origin", Message: "the request comes from a page of another site"}
	}
	if len(s.tokens) > 0 || r.Host == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.Denied, Field: "Host", Message: "a server without tokens answers only to localhost and to addresses in digits",
		Hint: "call it by its address, or give the server a token",
	}
}
