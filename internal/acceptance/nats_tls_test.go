//go:build unix

package acceptance

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/nats"
)

// TLS: a server whose authority is not known, or that has no TLS, is refused with what to do; with its
// authority it is used.
func TestNJ9_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := devbroker.NewCertificates(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := devbroker.StartNATSTLS(t.Context(), t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	plain := devbroker.Own(t, devbroker.StartNATS)
	for url, want := range map[string]string{
		"tls://" + c.Address("localhost"):                           "parameter ca",
		"tls://" + plain.Address():                                  "tls://",
		"tls://" + c.Address("127.0.0.1") + "?ca=" + c.Authority():  "127.0.0.1",
		"tls://" + c.Address("localhost") + "?ca=" + c.Authority():  "",
		"nats://" + c.Address("localhost") + "?ca=" + c.Authority(): "",
	} {
		engine, err := nats.Open(t.Context(), url)
		if err == nil {
			err = engine.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{})
			engine.Close()
		}
		if (err == nil) != (want == "") || err != nil && (posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
