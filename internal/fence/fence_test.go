package fence

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestThisModule(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	found, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	// It did look: the rules would be kept by an empty folder too.
	planted := os.DirFS("testdata/planted")
	if found, err := Check(planted); err != nil || len(found) != 1 || found[0].File != "worker/fetcher.go" || found[0].Line != 6 {
		t.Errorf("the violation planted in testdata: %v (%v)", found, err)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	const m = module
	for _, c := range []struct {
		file, imports string
		ok            bool
	}{
		{"message.go", "net/http", true},
		{"message.go", "golang.org/x/sync/errgroup", false},
		{"message.go", m + "/worker", false},
		{"message_test.go", m + "/worker", true},
		{"postgres/send.go", m, true},
		{"postgres/send.go", m + "/sql", true},
		{"postgres/send.go", "github.com/jackc/pgx/v5", true},
		{"postgres/send.go", m + "/worker", false},
		{"postgres/send_linux.go", m + "/worker", false},
		{"worker/fetcher.go", m + "/postgres", false},
		{"worker/fetcher.go", "github.com/jackc/pgx/v5/pgconn", false},
		{"worker/fetcher.go", "github.com/lib/pq", false},
		{"worker/fetcher.go", m + "/internal/cli", false},
		{"email/mail.go", m + "/sink/smtp", false},
		{"sink/smtp/smtp.go", m + "/email", true},
		{"sink/webhook/webhook.go", m + "/email", false},
		{"sink/webhook/webhook.go", m + "/sink/smtp", false},
		{"sink/webhook/webhook.go", m, true},
		{"broker/kafka/sink.go", m + "/relay", true},
		{"broker/kafka/source.go", m + "/source", true},
		{"broker/kafka/sink.go", m + "/broker/nats", false},
		{"broker/kafka/sink.go", m + "/worker", false},
		{"source/source.go", m + "/broker/kafka", false},
		{"server/server.go", m + "/email", true},
		{"server/server.go", m + "/postgres", false},
		{"server/server.go", m + "/sink/smtp", false},
		{"server/server.go", m + "/internal/devpg", false},
		{"server/server.go", "C", false},
		{"internal/cli/up.go", m + "/sink/smtp", true},
		{"internal/cli/up.go", m + "/internal/testpg", false},
		{"internal/catcher/catcher.go", m + "/postgres", false},
		{"internal/testpg/testdb/server.go", m + "/postgres", false},
		{"cmd/posthaste/main.go", m + "/internal/cli", true},
		{"cmd/posthaste/main.go", m + "/server", false},
		{"newcomer/newcomer.go", "fmt", false},
		{"worker/testdata/x.go", m + "/postgres", true},
	} {
		content := "package p\nimport _ \"" + c.imports + "\"\n"
		found, err := Check(fstest.MapFS{c.file: {Data: []byte(content)}})
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) == 0) != c.ok {
			t.Errorf("%s imports %s: %v", c.file, c.imports, found)
		}
		for _, v := range found {
			if v.Why == "" || !strings.HasPrefix(v.String(), c.file+":") {
				t.Errorf("a violation does not tell where and why: %v", v)
			}
		}
	}
}

func TestModulesWithinAreTheirOwn(t *testing.T) {
	t.Parallel()
	found, err := Check(fstest.MapFS{
		"bench/go.mod":  {Data: []byte("module bench\n")},
		"bench/main.go": {Data: []byte("package main\nimport _ \"" + module + "/postgres\"\n")},
	})
	if err != nil || len(found) > 0 {
		t.Errorf("got %v (%v)", found, err)
	}
}

func TestNoRoomIsThereTwice(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rooms {
		if seen[r.name] {
			t.Errorf("room %s is there twice", r.name)
		}
		seen[r.name] = true
	}
}
