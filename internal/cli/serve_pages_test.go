package cli

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

func TestPageFlags(t *testing.T) {
	t.Parallel()
	good := pageFlags{sessionKey: strings.Repeat("k", 32), proxies: []string{"10.0.0.0/8", "127.0.0.1", "::1"}, userHeader: "X-User", userScopes: []string{"operate"}}
	pages, err := good.pages()
	if err != nil || len(pages.Proxies) != 3 || pages.Proxies[1] != netip.MustParsePrefix("127.0.0.1/32") || pages.UserScopes[0] != posthaste.ScopeOperate {
		t.Errorf("%+v %v", pages, err)
	}
	for _, bad := range []pageFlags{{sessionKey: "short"}, {proxies: []string{"proxy.example"}}} {
		if _, err := bad.pages(); posthaste.CodeOf(err) != posthaste.CodeInvalid || strings.Contains(err.Error(), "short") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The dashboard is on by default where only this machine reaches it.
func TestDashboardIsMounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen   string
		flag     string
		status   int
		location string
	}{
		{"127.0.0.1:0", "", 302, "/dashboard/"},
		{"127.0.0.1:0", "--dashboard=false", 404, ""},
		{"0.0.0.0:0", "", 404, ""},
		{"0.0.0.0:0", "--dashboard", 302, "/dashboard/"},
	} {
		a := &app{stdout: io.Discard, stderr: io.Discard, log: slog.New(slog.DiscardHandler)}
		serve := serverFlags{}
		cmd := newServe(a)
		cmd.ResetFlags()
		serve.flags(cmd)
		args := []string{"--listen", c.listen}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		api, _, err := newAPI(a, memory.Open(), serve, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", nil))
		if w.Code != c.status || w.Header().Get("Location") != c.location {
			t.Errorf("%+v: status %d to %q", c, w.Code, w.Header().Get("Location"))
		}
		if c.status == 302 {
			w = httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/dashboard/", nil)
			api.ServeHTTP(w, r)
			if want := map[bool]int{true: 200, false: 401}[c.listen == "127.0.0.1:0"]; w.Code != want {
				t.Errorf("%+v: the dashboard answers %d, want %d", c, w.Code, want)
			}
		}
	}
}
