package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
)

// Visit describes the request of a mounted page and its caller.
type Visit struct {
	// Actor names the caller in the records of actions, for example "http:ops". The request's
	// context has it, too: see [posthaste.WithActor].
	Actor string
	// Token has the caller's scopes and queues; nil if the server requires no token, so that
	// every caller may do everything.
	Token *posthaste.Token
	// Base is the path of the mount in the browser, without a slash at its end: all links begin
	// with it.
	Base string
	// CSRF is the value of the field csrf that each form of the page must send.
	CSRF string
	// Nonce marks the scripts and styles of the page, which the Content-Security-Policy allows.
	Nonce string
	// SignedIn reports that a form that posts to Base + "/sign-out" ends a session.
	SignedIn bool
	// Stopping is closed when the server stops. Handlers that stream then return.
	Stopping <-chan struct{}

	admitted bool
	fail     func(w http.ResponseWriter, r *http.Request, v *Visit, err error)
}

type visitKey struct{}

// VisitOf returns the visit of a request to a mounted page. Elsewhere it returns a visit that
// allows nothing.
func VisitOf(ctx context.Context) *Visit {
	if v, ok := ctx.Value(visitKey{}).(*Visit); ok {
		return v
	}
	return &Visit{}
}

// Allows reports whether the caller has a scope, or one that includes it.
func (v *Visit) Allows(scope Scope) bool {
	return v.admitted && (v.Token == nil || v.Token.Allows(scope))
}

// AllowsQueue reports whether the caller may see and use a queue.
func (v *Visit) AllowsQueue(name string) bool {
	return v.admitted && (v.Token == nil || v.Token.AllowsQueue(name))
}

// Limited reports whether the caller may see some queues only.
func (v *Visit) Limited() bool { return v.Token != nil && len(v.Token.Queues) > 0 }

// Fail answers with an error: a page for browsers, and a problem for other clients. It logs
// errors of the server.
func (v *Visit) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if v.fail == nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	v.fail(w, r, v, err)
}
