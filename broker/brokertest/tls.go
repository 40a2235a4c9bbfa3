package brokertest

import (
	"context"
	"crypto/tls"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// CheckedSink is a sink that can check its configuration.
type CheckedSink interface {
	posthaste.Sink
	Check(ctx context.Context) error
}

// RunSinkTLS tests that a sink verifies the broker's certificate, and delivers over TLS. The
// certificate is valid for localhost and trusted by trust. at returns a sink that connects to
// the name of a host. count returns how often the n-th of [sinktest.Delivery] has arrived.
func RunSinkTLS[S CheckedSink](t *testing.T, trust *tls.Config, at func(host string, trust *tls.Config) S, count func(n int) int) {
	configtest.TLS(t, trust, at)
	if r := sinktest.Deliver(t, at("localhost", trust), sinktest.Delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if n := count(1); n != 1 {
		t.Errorf("the message arrived %d times, want once", n)
	}
}
