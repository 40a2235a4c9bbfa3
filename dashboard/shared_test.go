package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A page that follows the store loads only what may have changed. Viewers share it only if they
// may do the same, and it has nothing that belongs to one of them.
func TestFragmentsAreSharedByRights(t *testing.T) {
	t.Parallel()
	s := newSite(t, newStock(t))
	fragment := func(v *viewer, path string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("HX-Request", "true")
		return v.do(r).want(200).body
	}
	reader, operator := s.viewer(posthaste.ScopeRead), s.viewer(posthaste.ScopeOperate)
	for _, path := range []string{"/", "/queues", "/queues/orders", "/failing", "/workers"} {
		of := fragment(operator, path)
		fragment(reader, path)
		for _, body := range []string{of, fragment(reader, path)} {
			if !strings.HasPrefix(body, `<div id="fresh">`) || strings.Contains(body, "nonce=") || strings.Contains(body, "csrf") {
				t.Errorf("%s: %s", path, body)
			}
		}
	}
	token, err := s.engine.CreateToken(t.Context(), posthaste.Token{Name: "some", Scopes: []posthaste.Scope{posthaste.ScopeRead}, Queues: []string{"emails"}})
	if err != nil {
		t.Fatal(err)
	}
	limited := s.viewer("")
	form := limited.get("/sign-in").form("/sign-in")
	form.Values.Set("token", token)
	limited.send(form).want(200)
	if !strings.Contains(fragment(reader, "/queues"), "orders") || strings.Contains(fragment(limited, "/queues"), "orders") {
		t.Error("a viewer gets the fragment of another one who may see other queues")
	}
	if whole := reader.get("/queues").body; !strings.Contains(whole, `id="fresh"`) || !strings.Contains(whole, "<!doctype html>") {
		t.Errorf("the page as a whole: %s", whole)
	}
}
