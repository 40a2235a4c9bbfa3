package server

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Scope is what a token may do, as in [posthaste.Scope].
type Scope = posthaste.Scope

// The scopes. ScopeAny is not given to tokens: it marks what every token may
// do that is not limited to queues.
const (
	ScopeSend    = posthaste.ScopeSend
	ScopeReceive = posthaste.ScopeReceive
	ScopeAdmin   = posthaste.ScopeAdmin
	ScopeAny     = Scope("any")
)

// NewToken makes a token of its secret, for [Config.Tokens]. The secret must be
// of visible ASCII characters, as the Authorization header carries it, and
// should be long and random: nothing slows down who guesses but the limit on
// requests.
func NewToken(name, secret string, scopes ...Scope) (posthaste.Token, error) {
	if !isSecret(secret) {
		return posthaste.Token{}, posthaste.Invalidf("token", "a token must be of 1 to %d visible ASCII characters without spaces", maxSecret)
	}
	t := posthaste.Token{Name: name, Hash: sha256.Sum256([]byte(secret)), Scopes: scopes}
	return t, t.Check()
}

// maxSecret bounds what is hashed to look for a token.
const maxSecret = 4096

func isSecret(text string) bool {
	return text != "" && len(text) <= maxSecret && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

type callerKey struct{}

// callerOf is the token that a request came with, nil where none is asked for.
func callerOf(r *http.Request) *posthaste.Token {
	t, _ := r.Context().Value(callerKey{}).(*posthaste.Token)
	return t
}

// caller names who asked, for the records that operators' actions leave.
func caller(r *http.Request) string {
	if t := callerOf(r); t != nil {
		return "http:" + t.Name
	}
	return "http"
}

// authorize returns the request with its caller, or the error to tell.
func (s *Server) authorize(r *http.Request, scope Scope) (*http.Request, error) {
	if scope == "" {
		return r, nil
	}
	secret, fault := bearer(r.Header.Values("Authorization"))
	token, asked, err := s.tokens.find(r.Context(), secret, scope == ScopeAny)
	switch {
	case err != nil && scope == ScopeAny && !s.tokens.required:
		return r, checkHost(r.Host) // the metrics of a server on loopback, whose store is away since it started
	case err != nil:
		return r, err
	case !asked:
		return r, checkHost(r.Host)
	case fault != nil:
		return r, fault
	case token == nil:
		return r, unauthorized("invalid_token", "the token is not known", "check that it was copied whole, and was neither dropped nor has expired")
	}
	if !token.Allows(scope) && scope != ScopeAny {
		return r, insufficient(scope, "the token has not the scope "+string(scope))
	}
	if err := s.allowPath(token, r); err != nil {
		return r, err
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, token)), nil
}

// stillAuthorized is asked after long waiting, in which the token may have been
// dropped.
func (s *Server) stillAuthorized(r *http.Request, scope Scope) error {
	_, err := s.authorize(r, scope)
	return err
}

// bearer takes the secret out of the Authorization headers. Nothing that the
// caller sent is repeated in the error.
func bearer(headers []string) (secret string, fault error) {
	if len(headers) > 1 {
		return "", unauthorized("invalid_request", "there are several Authorization headers", "send one: Authorization: Bearer TOKEN")
	}
	if len(headers) == 0 || strings.Trim(headers[0], " \t") == "" {
		return "", unauthorized("", "a token is required", "send the header Authorization: Bearer TOKEN")
	}
	scheme, rest, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", unauthorized("", "a token is required, and Authorization has another scheme than Bearer", "send the header Authorization: Bearer TOKEN")
	}
	secret = strings.Trim(rest, " ")
	if !isSecret(secret) {
		return "", unauthorized("invalid_request", "what follows Bearer is no token", "check that it was copied whole, without quotes and line breaks")
	}
	return secret, nil
}

type pageKey struct{}

// withPassword accepts a token as the password of basic authentication, under any user
// name, because browsers ask for a password but cannot send a bearer token by themselves.
func withPassword(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), pageKey{}, true))
		if _, password, ok := r.BasicAuth(); ok && len(r.Header.Values("Authorization")) == 1 {
			r.Header = r.Header.Clone()
			r.Header.Set("Authorization", "Bearer "+password)
		}
		next.ServeHTTP(w, r)
	})
}

func unauthorized(reason, message, hint string) error {
	challenge := `Bearer realm="posthaste"`
	if reason != "" {
		challenge += `, error="` + reason + `"`
	}
	return &httpError{status: http.StatusUnauthorized, challenge: challenge,
		err: &posthaste.Error{Code: posthaste.Denied, Field: "Authorization", Message: message, Hint: hint}}
}

func insufficient(scope Scope, message string) error {
	return &httpError{status: http.StatusForbidden, challenge: `Bearer realm="posthaste", error="insufficient_scope", scope="` + string(scope) + `"`,
		err: &posthaste.Error{Code: posthaste.Denied, Field: "Authorization", Message: message, Hint: "use a token that has it"}}
}

// queueElsewhere are the routes that find out themselves which queues a request
// is about. Any other that has no {queue} in its path is closed to tokens that
// are limited to queues.
var queueElsewhere = map[string]bool{
	"POST /v1/emails": true, "POST /v1/deliveries/ack": true, "POST /v1/deliveries/fail": true,
	"POST /v1/deliveries/release": true, "POST /v1/deliveries/extend": true,
}

// allowPath checks the queue in the path for tokens that are limited to some.
func (s *Server) allowPath(token *posthaste.Token, r *http.Request) error {
	queue := r.PathValue("queue")
	switch {
	case len(token.Queues) == 0 || queue == "" && queueElsewhere[r.Pattern]:
		return nil
	case queue == "":
		return denyQueue("the token is limited to queues, and this is about all of them")
	}
	return allowQueue(token, queue)
}

func allowQueue(token *posthaste.Token, queue string) error {
	if token == nil || token.AllowsQueue(queue) {
		return nil
	}
	return denyQueue("the token is not for this queue")
}

func denyQueue(message string) error {
	return &httpError{status: http.StatusForbidden, challenge: `Bearer realm="posthaste", error="insufficient_scope"`,
		err: &posthaste.Error{Code: posthaste.Denied, Field: "queue", Message: message, Hint: "use a token that is for it"}}
}

// allowDeliveries checks whose queues' deliveries a limited token names, and
// returns those whose queue is not known. They must not be passed on to the
// engine: one that is claimed after this look may be of any queue.
func (s *Server) allowDeliveries(ctx context.Context, token *posthaste.Token, ids []posthaste.DeliveryID) (unknown map[posthaste.DeliveryID]bool, err error) {
	if token == nil || len(token.Queues) == 0 {
		return nil, nil
	}
	queues, err := s.engine.DeliveryQueues(ctx, ids...)
	if err != nil {
		return nil, err
	}
	unknown = map[posthaste.DeliveryID]bool{}
	for i, queue := range queues {
		switch {
		case queue == "":
			unknown[ids[i]] = true
		case !token.AllowsQueue(queue):
			return nil, denyQueue("the token is not for the queue of some of these deliveries; none was touched")
		}
	}
	return unknown, nil
}

// checkOrigin refuses what only a browser on somebody else's page would send:
// requests from another site that change something.
func checkOrigin(protection *http.CrossOriginProtection, r *http.Request) error {
	if err := protection.Check(r); err != nil {
		return &posthaste.Error{Code: posthaste.Denied, Field: "Origin", Message: "the request comes from a page of another site"}
	}
	return nil
}

// checkHost refuses, where no token protects, names that somebody made to point
// here (DNS rebinding): the browser would take the server for that somebody's.
func checkHost(name string) error {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		host = strings.Trim(name, "[]")
	}
	if name == "" || strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") || net.ParseIP(host) != nil {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.Denied, Field: "Host", Message: "a server without tokens answers only to localhost and to addresses in digits",
		Hint: "call it by its address, or make a token: posthaste token add",
	}
}
