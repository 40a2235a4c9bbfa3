package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/dashboard"
)

// Other pages use the style and the scripts, and browsers ask whether they have changed.
func TestAssetsForOtherPages(t *testing.T) {
	t.Parallel()
	get := func(method, path, version string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if version != "" {
			r.Header.Set("If-None-Match", version)
		}
		w := httptest.NewRecorder()
		dashboard.Assets().ServeHTTP(w, r)
		return w
	}
	for path, kind := range map[string]string{"/style.css": "text/css", "/dashboard.js": "text/javascript", "/htmx.min.js": "text/javascript"} {
		w := get("GET", path, "")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() < 500 || w.Header().Get("Cache-Control") != "private, no-cache" {
			t.Errorf("%s: %d %v, %d bytes", path, w.Code, w.Header(), w.Body.Len())
		}
		if again := get("GET", path, w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
		if other := get("GET", path, `"other"`); other.Code != 200 {
			t.Errorf("%s after a change: %d", path, other.Code)
		}
	}
	for _, request := range []string{"GET /", "GET /pages/layout.html", "GET /../dashboard.go", "POST /style.css"} {
		method, path, _ := strings.Cut(request, " ")
		if w := get(method, path, ""); w.Code != 404 {
			t.Errorf("%s: %d", request, w.Code)
		}
	}
}
