package fence

import (
	"os/exec"
	"strings"
	"testing"
)

// notShipped are packages that the program must not link, because each one makes it
// larger and slower to build: servers that only tests and benchmarks run, and libraries
// that only tests use.
var notShipped = []string{
	"github.com/nats-io/nats-server/",
	"github.com/chromedp/",
	"github.com/getkin/kin-openapi/",
	"github.com/lib/pq",
	"github.com/rogpeppe/go-internal/",
	"github.com/posthaste-mq/posthaste/internal/chaos",
	"github.com/posthaste-mq/posthaste/internal/testpg",
	"github.com/posthaste-mq/posthaste/internal/testrun",
	"honnef.co/",
}

func TestProgramLinksNoServer(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/posthaste").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	linked := strings.Fields(string(out))
	for _, imported := range linked {
		for _, banned := range notShipped {
			if strings.HasPrefix(imported, banned) {
				t.Errorf("cmd/posthaste links %s; find the import with: go list -deps -f '{{.ImportPath}} {{.Imports}}' ./cmd/posthaste | grep %[1]s", imported)
			}
		}
	}
	if !strings.Contains(string(out), module+"/internal/bench\n") {
		t.Errorf("go list names %d packages, and internal/bench is not among them", len(linked))
	}
}
