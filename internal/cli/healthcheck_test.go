package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// The health check reports what the server answers, also of a server that listens on all
// addresses.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && !ready:
			http.Error(w, `{"message": "the database is away"}`, http.StatusServiceUnavailable)
		case r.URL.Path == "/readyz":
			_, _ = w.Write([]byte(`{"status": "ready"}`))
		case r.URL.Path == "/healthz":
			_, _ = w.Write([]byte(`{"status": "ok"}`))
		default:
			_, _ = w.Write([]byte("another program"))
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	for _, listen := range []string{address, "0.0.0.0:" + port, ":" + port} {
		if status, err := checkHealth(t.Context(), listen, "/readyz"); status != "ready" || err != nil {
			t.Errorf("%s answers %q, %v", listen, status, err)
		}
	}
	ready = false
	_, err := checkHealth(t.Context(), address, "/readyz")
	if posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "the database is away") {
		t.Errorf("a server without its database: %v", err)
	}
	if status, err := checkHealth(t.Context(), address, "/healthz"); status != "ok" || err != nil {
		t.Errorf("its process is %q, %v", status, err)
	}
	if _, err := checkHealth(t.Context(), address, "/"); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("another program at the address: %v", err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`{"status": "starting"}`)) }))
	defer other.Close()
	for _, path := range []string{"/readyz", "/healthz"} {
		if status, err := checkHealth(t.Context(), strings.TrimPrefix(other.URL, "http://"), path); err == nil {
			t.Errorf("a program whose %s says %q counts as healthy", path, status)
		}
	}
	server.Close()
	if _, err := checkHealth(t.Context(), address, "/readyz"); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("no server: %v", err)
	}
	if _, err := checkHealth(t.Context(), "nonsense", "/readyz"); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Errorf("a wrong address: %v", err)
	}
}
