package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// BenchmarkSendMessages measures what one request costs before the store: an engine that
// stores nothing answers it.
func BenchmarkSendMessages(b *testing.B) {
	engine := &hooked{Store: memory.Open(), send: func(_ context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
		return make([]posthaste.Sent, len(messages)), nil
	}}
	server, err := New(Config{Engine: engine, Client: posthaste.NewClient(engine)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	message := `{"payload":{"order":4711,"customer":"Jane Doe","items":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}],"total":59.9},` +
		`"key":"customer-17","kind":"order.placed","headers":{"tenant":"acme","source":"shop"},"reference":"order-4711"}`
	for name, body := range map[string]string{
		"1":    message,
		"100":  "[" + strings.Repeat(message+",", 99) + message + "]",
		"1MiB": `{"payload":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/queues/orders/messages", io.NopCloser(strings.NewReader(body)))
				r.ContentLength = int64(len(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				if server.ServeHTTP(w, r); w.Code != http.StatusCreated {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}
