package server

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// idempotencyWindow is how long the answer of a request with an Idempotency-Key
// is kept.
const idempotencyWindow = 24 * time.Hour

const idempotencyHeader = "Idempotency-Key"

// refuseIdempotencyKey refuses the header where it is not honoured: a client that
// sends it would otherwise believe that a repetition is harmless.
func refuseIdempotencyKey(r *http.Request) error {
	if _, given := r.Header[idempotencyHeader]; !given || r.Pattern == "POST /v1/queues/{queue}/messages" || r.Pattern == "POST /v1/emails" {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.Unsupported, Field: idempotencyHeader,
		Message: "the header Idempotency-Key is not supported here", Hint: "leave it out; it is for sending messages and e-mails",
	}
}

// idempotencyKey reads the header: visible ASCII, in quotes or not. Empty means
// that it was not given.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header[idempotencyHeader]
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if len(values) > 1 || key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", posthaste.Invalidf(idempotencyHeader, "the header Idempotency-Key must be there once, of 1 to %d visible ASCII characters without spaces", posthaste.MaxWordBytes)
	}
	return key, nil
}

// send stores what a request asks for. With a key it does so once: a repetition
// gets the same ids. The key is the caller's own, and of this path.
func (s *Server) send(r *http.Request, key string, body []byte, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	continueTrace(r, messages)
	ended := func([]posthaste.MessageID, error) {}
	if s.tracing != nil {
		ctx, messages, ended = s.tracing.Sending(ctx, messages)
	}
	if key == "" {
		ids, err := s.client.Send(ctx, messages...)
		ended(ids, err)
		return ids, err
	}
	digest := sha256.Sum256(body)
	ids, err := s.engine.SendIdempotent(ctx, posthaste.Idempotency{
		Scope: caller(r) + " " + r.URL.Path, Key: key, Digest: digest[:], Window: idempotencyWindow,
	}, messages...)
	ended(ids, err)
	return ids, err
}
