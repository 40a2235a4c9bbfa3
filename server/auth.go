package server

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Scope is a permission of a token, as in [posthaste.Scope].
type Scope = posthaste.Scope

// The scopes. Tokens do not have ScopeAny: it marks operations that are allowed to every
// token that is not limited to some queues.
const (
	ScopeRead        = posthaste.ScopeRead
	ScopeReadPayload = posthaste.ScopeReadPayload
	ScopeSend        = posthaste.ScopeSend
	ScopeReceive     = posthaste.ScopeReceive
	ScopeOperate     = posthaste.ScopeOperate
	ScopeAdmin       = posthaste.ScopeAdmin
	ScopeAny         = Scope("any")
)

// NewToken returns a token with the given secret for [Config.Tokens]. The secret must
// consist of visible ASCII characters, since the Authorization header carries it. It should
// be long and random, because only the rate limits slow down an attacker who guesses.
func NewToken(name, secret string, scopes ...Scope) (posthaste.Token, error) {
	if !isSecret(secret) {
		return posthaste.Token{}, posthaste.Invalidf("token", "a token must have 1 to %d visible ASCII characters without spaces", maxSecret)
	}
	t := posthaste.Token{Name: name, Hash: sha256.Sum256([]byte(secret)), Scopes: scopes}
	return t, t.Check()
}

// maxSecret limits the bytes that are hashed to look up a token.
const maxSecret = 4096

func isSecret(text string) bool {
	return len(text) <= maxSecret && wire.IsVisible(text)
}

// authorize returns the caller's token, nil if the route or the server requires none.
func (s *Server) authorize(r *http.Request, route *route) (*posthaste.Token, error) {
	if route.scope == "" {
		return nil, nil
	}
	secret, fault := bearer(r.Header.Values("Authorization"))
	return s.admit(r, route, secret, fault)
}

// admit returns the token with a secret if it allows the route, nil if the server requires none.
// fault is the error for a caller without a secret.
func (s *Server) admit(r *http.Request, route *route, secret string, fault error) (*posthaste.Token, error) {
	token, asked, err := s.tokens.find(r.Context(), secret, route.scope == ScopeAny)
	switch {
	case err != nil && route.scope == ScopeAny && !s.tokens.required:
		return nil, checkHost(r.Host) // metrics of a server on loopback that never reached its store
	case err != nil:
		return nil, err
	case !asked:
		return nil, checkHost(r.Host)
	case secret == "" && fault != nil:
		return nil, fault
	case token == nil:
		return nil, unauthorized("invalid_token", "unknown token", "check that it was copied completely, was not dropped and has not expired")
	}
	if err := allowed(token, r, route); err != nil {
		return nil, err
	}
	return token, nil
}

// allowed returns an error unless the token allows the route.
func allowed(token *posthaste.Token, r *http.Request, route *route) error {
	if !token.Allows(route.scope) && route.scope != ScopeAny && !(route.own && token.Allows(ScopeSend)) {
		return insufficient(route.scope, "token lacks scope "+strconv.Quote(string(route.scope)))
	}
	return allowPath(token, r, route)
}

// stillAuthorized repeats the check after a long wait, because the token may have been
// dropped in the meantime.
func (s *Server) stillAuthorized(r *http.Request) error {
	_, err := s.authorize(r, exchangeOf(r).route)
	return err
}

// bearer returns the secret in the Authorization headers. Its errors repeat nothing that
// the caller sent.
func bearer(headers []string) (secret string, fault error) {
	if len(headers) > 1 {
		return "", unauthorized("invalid_request", "the request has several Authorization headers", "send one: Authorization: Bearer TOKEN")
	}
	if len(headers) == 0 || strings.Trim(headers[0], " \t") == "" {
		return "", unauthorized("", "a token is required", "send the header Authorization: Bearer TOKEN")
	}
	scheme, rest, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", unauthorized("", "a token is required, and the scheme of Authorization is not Bearer", "send the header Authorization: Bearer TOKEN")
	}
	secret = strings.Trim(rest, " ")
	if !isSecret(secret) {
		return "", unauthorized("invalid_request", "the text after Bearer is not a token", "check that it was copied completely, without quotes and line breaks")
	}
	return secret, nil
}

func unauthorized(reason, message, hint string) error {
	challenge := `Bearer realm="posthaste"`
	if reason != "" {
		challenge += `, error="` + reason + `"`
	}
	return &httpError{status: http.StatusUnauthorized, challenge: challenge,
		err: &posthaste.Error{Code: posthaste.CodeDenied, Field: "Authorization", Message: message, Hint: hint}}
}

func insufficient(scope Scope, message string) error {
	return &httpError{status: http.StatusForbidden, challenge: `Bearer realm="posthaste", error="insufficient_scope", scope="` + string(scope) + `"`,
		err: &posthaste.Error{Code: posthaste.CodeDenied, Field: "Authorization", Message: message, Hint: "use a token that has this scope"}}
}

// allowPath checks the queue in the path if the token is limited to some queues.
func allowPath(token *posthaste.Token, r *http.Request, route *route) error {
	queue := r.PathValue("queue")
	switch {
	case len(token.Queues) == 0 || queue == "" && route.queues:
		return nil
	case queue == "":
		return denyQueue("the token is limited to some queues, and this request is about all of them")
	}
	return allowQueue(token, queue)
}

func allowQueue(token *posthaste.Token, queue string) error {
	if token == nil || token.AllowsQueue(queue) {
		return nil
	}
	return denyQueue("the token does not allow this queue")
}

func denyQueue(message string) error {
	return &httpError{status: http.StatusForbidden, challenge: `Bearer realm="posthaste", error="insufficient_scope"`,
		err: &posthaste.Error{Code: posthaste.CodeDenied, Field: "queue", Message: message, Hint: "use a token that allows it"}}
}

// allowDeliveries checks the queues of the deliveries that a token limited to some queues
// names, and returns the deliveries whose queue is unknown. Those must not be passed to the
// engine: a delivery that is claimed after this check may belong to any queue.
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
			return nil, denyQueue("the token does not allow the queue of some of these deliveries; none was changed")
		}
	}
	return unknown, nil
}

// checkOrigin rejects requests that change something and come from a page of another site.
// Only browsers send such requests.
func checkOrigin(protection *http.CrossOriginProtection, r *http.Request) error {
	if err := protection.Check(r); err != nil {
		return &posthaste.Error{Code: posthaste.CodeDenied, Field: "Origin", Message: "the request comes from a page of another site"}
	}
	return nil
}

// checkHost protects a server without tokens from DNS rebinding: it rejects host names that
// an attacker could point to this server, because a browser would send the attacker's
// scripts here.
func checkHost(name string) error {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		host = strings.Trim(name, "[]")
	}
	if name == "" || strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") || net.ParseIP(host) != nil {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.CodeDenied, Field: "Host", Message: "a server without tokens accepts only localhost and IP addresses as the host",
		Hint: "use its IP address, or create a token: posthaste token add",
	}
}
