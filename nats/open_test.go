package nats

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A program that waits for its servers is told why it cannot connect.
func TestLazyConnectTellsWhy(t *testing.T) {
	t.Parallel()
	s := startServerWith(t, &server.Options{Username: "a", Password: "b"})
	address := s.Addr().String()
	var err error
	for url, want := range map[string]posthaste.Code{
		"nats://a:hunter2@" + address: posthaste.CodeDenied, "nats://hunter2@" + address: posthaste.CodeDenied, "tls://a:b@" + address: posthaste.CodeInvalid, "nats://a:hunter2@127.0.0.1:1": posthaste.CodeUnavailable,
	} {
		e := openEngine(t, url, WithLazyConnect())
		if !testrun.Happens(30*time.Second, func() bool {
			err = e.Ready(t.Context())
			return posthaste.CodeOf(err) == want
		}) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	e := openEngine(t, "nats://a:b@"+address, WithLazyConnect())
	if !testrun.Happens(30*time.Second, func() bool { err = e.Ready(t.Context()); return err == nil }) {
		t.Errorf("with the password: %v", err)
	}
}

// Errors about a URL name the fault and never quote the URL.
func TestURLs(t *testing.T) {
	t.Parallel()
	credentials := filepath.Join(t.TempDir(), "hunter2.creds")
	for url, want := range map[string]string{
		"nats://a:hunter2@b:c":                      "cannot be parsed",
		"nats://a:hun/ter2@b":                       "cannot be parsed",
		"redis://a:hunter2@b":                       "must begin with nats://",
		"nats://a:hunter2@b,c":                      "must begin with nats://",
		"nats://a:hunter2@":                         "names no host",
		"nats://b?hunter2=1":                        "unknown parameter",
		"nats://b?replicas=hunter2":                 "replicas must be a number",
		"nats://b?replicas=6":                       "replicas must be",
		"nats://b?ack_wait=hunter2":                 "ack_wait must be a duration",
		"nats://b?ack_wait=1s":                      "ack_wait must be 3s to 1h",
		"nats://b?prefix=a.b":                       "prefix must not contain a dot",
		"nats://b?prefix=%zzhunter2":                "cannot be parsed",
		"nats://b?credentials=" + credentials + "x": "reading the credentials",
	} {
		_, err := Open(t.Context(), url)
		if posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if strings.Contains(err.Error(), "hunter2") && !strings.Contains(url, "credentials") {
			t.Errorf("%s: the error quotes it: %v", url, err)
		}
	}
}

// An engine whose start failed halfway starts completely when it is used again.
func TestStartsAgainAfterFailure(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t), WithLazyConnect(), WithAckWait(leastAckWait))
	prefix := e.prefix
	e.prefix = "not a subject"
	if err := e.startLoops(1); err == nil {
		t.Fatal("it listens on a subject that is invalid")
	}
	if len(e.subscriptions) > 0 {
		t.Errorf("%d subscriptions are left", len(e.subscriptions))
	}
	e.prefix = prefix
	must(t, e.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{}))
	sendJobs(t, e, posthaste.Message{Payload: 1})
	d := e.holding.get(receiveJobs(t, e, 1)[0].ID)
	before := e.holding.leaseOf(d)
	if !testrun.Happens(30*time.Second, func() bool { return e.holding.leaseOf(d) > before }) {
		t.Error("the lease is not extended")
	}
}
