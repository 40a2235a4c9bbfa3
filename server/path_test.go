package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// Every key that a message can have can be paused, also those that no path can hold.
func TestEveryKeyCanBePaused(t *testing.T) {
	t.Parallel()
	var paused []string
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.pause = func(_ context.Context, _, _, key string) error { paused = append(paused, key); return nil }
	})
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	for _, key := range []string{"/", ".", "..", "a/b", "//", "%2F", "%", " ", " a ", "?", "#", "+", "zoë", "\t", `"`, "\u2028", strings.Repeat("k", 255)} {
		body, err := json.Marshal(map[string]string{"key": key})
		if err != nil {
			t.Fatal(err)
		}
		paused = nil
		a.call("POST", "/v1/queues/orders/keys/pause", string(body)).want(t, 200)
		if len(paused) != 1 || paused[0] != key {
			t.Errorf("paused %q for the key %q", paused, key)
		}
	}
	for _, body := range []string{`{}`, `{"key":""}`, `{"key":null}`, `{"key":7}`} {
		a.call("POST", "/v1/queues/orders/keys/pause", body).wantProblem(t, 400, posthaste.Invalid, "key")
		a.call("POST", "/v1/queues/orders/keys/resume", body).wantProblem(t, 400, posthaste.Invalid, "key")
	}
}
