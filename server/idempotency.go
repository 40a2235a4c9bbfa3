package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// idempotencyWindow is the time for which the response to an Idempotency-Key is kept.
const idempotencyWindow = 24 * time.Hour

const idempotencyHeader = "Idempotency-Key"

// refuseIdempotencyKey rejects the header on operations that ignore it. The client would
// otherwise rely on a deduplication that does not happen.
func refuseIdempotencyKey(r *http.Request, route *route) error {
	if _, given := r.Header[idempotencyHeader]; !given || route.idempotent {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.CodeUnsupported, Field: idempotencyHeader,
		Message: "this operation does not support the header Idempotency-Key", Hint: "leave it out; it is for sending messages and e-mails",
	}
}

// idempotencyKey returns the value of the header, with or without quotes around it; "" if
// there is no header.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header[idempotencyHeader]
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if len(values) > 1 || !wire.IsVisible(key) {
		return "", posthaste.Invalidf(idempotencyHeader, "the header Idempotency-Key must appear once and have 1 to %d visible ASCII characters without spaces", posthaste.MaxWordBytes)
	}
	return key, nil
}
