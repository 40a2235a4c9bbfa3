package brokertest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// CheckedSink is a sink that can check its configuration.
type CheckedSink interface {
	posthaste.Sink
	configtest.Checked
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

// RunSinkAway tests that messages wait while the broker is down, and are delivered once it is
// back. Errors name the address. refuse makes the broker refuse connections while on, and count
// returns how often the n-th of [sinktest.Delivery] has arrived: the second once, and the first,
// whose attempt times out, never.
func RunSinkAway(t *testing.T, s interface {
	posthaste.Sink
	Away() bool
}, address string, refuse func(on bool), count func(n int) int) {
	t.Helper()
	refuse(true)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := s.Deliver(short, []posthaste.RawDelivery{sinktest.Delivery(1)}); !errors.Is(r[0].Err, context.DeadlineExceeded) || !strings.Contains(r[0].Err.Error(), address) {
		t.Errorf("got %v, want the deadline's error with the address %s", r[0].Err, address)
	}
	done := make(chan error)
	go func() { done <- sinktest.Deliver(t, s, sinktest.Delivery(2))[0].Err }()
	testrun.Until(t, time.Minute, "the sink reports that the broker is away", s.Away)
	refuse(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if one, two := count(1), count(2); one != 0 || two != 1 {
		t.Errorf("the messages arrived %d and %d times, want 0 and 1", one, two)
	}
}

// RunAnswerLost tests that a message whose confirmation is lost is not taken for delivered: its
// error contains text, and the next attempt has the same id. cutAfter cuts the connection
// between the next message and its confirmation. count returns how often the n-th of
// [sinktest.Delivery] has arrived, which in the end is want.
func RunAnswerLost(t *testing.T, s posthaste.Sink, cutAfter func() (cut <-chan struct{}), text string, count func(n int) int, want int) {
	t.Helper()
	cut := cutAfter()
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], text)
	<-cut
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if got := count(1); got != want {
		t.Errorf("the message arrived %d times, want %d", got, want)
	}
}

// Count returns how many messages have the id of the n-th of [sinktest.Delivery].
func Count[M any](all []M, n int, id func(m M) string) (count int) {
	for _, m := range all {
		if id(m) == fmt.Sprint(n) {
			count++
		}
	}
	return count
}
