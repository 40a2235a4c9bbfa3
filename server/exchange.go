package server

import (
	"cmp"
	"net/http"

	"github.com/posthaste-mq/posthaste"
)

// route is one operation of the API. openapi.yaml describes the same operations; a test
// compares both.
type route struct {
	method string
	path   string
	// scope is the scope that a token needs; "" means that no token is needed.
	scope posthaste.Scope
	// own reports that a token with the scope send is enough, too: the handler shows it only
	// the messages of that token.
	own     bool
	handler handler
	// body is the largest body in bytes; 0 means smallBody.
	body int64
	// queues reports that the handler checks by itself which queues a request is about.
	// Any other route without {queue} in its path is closed to tokens limited to queues.
	queues bool
	// idempotent reports that the route honors the header Idempotency-Key.
	idempotent bool
}

// Limits of request bodies. maxBody fits the largest payload, 32 MiB in base64. The limits
// of each queue are checked by the engine.
const (
	maxBody        = 48 << 20
	deliveriesBody = 16 << 20
	smallBody      = 1 << 20
)

func (r *route) bodyLimit() int64 { return cmp.Or(r.body, smallBody) }

// handler writes the response of a success, or returns the error for the problem response.
type handler func(w http.ResponseWriter, r *http.Request) error

// exchange is the state of one request that several steps share. The middleware puts it
// into the request's context.
type exchange struct {
	// id is the request id, which the log and problems carry.
	id string
	// route is nil until the mux has found it.
	route *route
	// caller is the token that the request carries; nil if none is required.
	caller *posthaste.Token
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// caller names the caller for the records of operators' actions.
func caller(r *http.Request) string {
	if t := exchangeOf(r).caller; t != nil {
		return senderOf(t)
	}
	return "http"
}
