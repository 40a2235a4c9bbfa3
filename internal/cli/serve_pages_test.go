package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
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
