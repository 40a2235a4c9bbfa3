package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// Texts about searches name the number that the search has.
func TestTextsNameHowMuchIsSearched(t *testing.T) {
	t.Parallel()
	n := posthaste.MaxSearched
	said := fmt.Sprintf("%d,%03d deliveries", n/1000, n%1000)
	for file, want := range map[string]string{
		"../../sql/functions/search/list_messages.sql": fmt.Sprintf("v_looked < %d ", n),
		"../../server/openapi.yaml":                    said,
		"../../docs/reference/sql.md":                  said,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
	if long := newMessageLs(&app{}).Long; !strings.Contains(long, said) {
		t.Errorf("message ls does not say %q:\n%s", said, long)
	}
}
