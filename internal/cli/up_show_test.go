//go:build unix

package cli

import (
	"bytes"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

func TestProgressInPlainLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out)
	for done := int64(0); done <= 20e6; done += 1e6 {
		p.stage(devpg.StageFetch, done, 20e6)
	}
	p.stage(devpg.StageInit, 0, 0)
	p.stage(devpg.StageStart, 0, 0)
	p.end()
	want := `posthaste: downloading PostgreSQL (the first time only)
posthaste: downloading: 25 % of 20.0 MB
posthaste: downloading: 50 % of 20.0 MB
posthaste: downloading: 75 % of 20.0 MB
posthaste: downloading: 100 % of 20.0 MB
posthaste: creating the database cluster
posthaste: starting PostgreSQL
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", &out, want)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:2": "127.0.0.1:2", ":3": "127.0.0.1:3", "[::]:4": "[::1]:4", "localhost:5": "localhost:5",
	} {
		if got := reachable(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

func TestTerminalIsSafeFromStoredText(t *testing.T) {
	t.Parallel()
	if got := oneLine("a\x1b[31mb\nc\u009bd", 80); got != "a [31mb c d" {
		t.Errorf("got %q", got)
	}
	if got := payloadText([]byte("x\x1b]0;y\a")); got != "(7 bytes; use --json to print them)" {
		t.Errorf("got %q", got)
	}
	if got := payloadText([]byte("{\n\t\"ü\": 1}")); got != "{\n\t\"ü\": 1}" {
		t.Errorf("got %q", got)
	}
}
