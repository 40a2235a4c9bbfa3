package smtp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

func TestPoolReuses(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "connections=2")
	for range 5 {
		r, _ := attemptOnce(t, s, delivery(t, simple()))
		wantOK(t, r)
	}
	if n := c.Stats().Connections; n != 1 {
		t.Errorf("%d connections for sequential mails", n)
	}
	var batch []posthaste.RawDelivery
	for range 20 {
		batch = append(batch, delivery(t, simple()))
	}
	for _, r := range s.Deliver(t.Context(), batch) {
		wantOK(t, r)
	}
	if n := c.Stats().Connections; n > 2 {
		t.Errorf("%d connections, but 2 are allowed", n)
	}
	// A refused mail does not cost the connection.
	c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Code: 550})
	before := c.Stats().Connections
	r, _ := attemptOnce(t, s, delivery(t, simple()))
	wantPermanent(t, r)
	r, _ = attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
	if n := c.Stats().Connections; n != before {
		t.Errorf("%d connections, %d before", n, before)
	}
	_ = s.Close()
	eventually(t, "all connections closed", func() bool { return c.Stats().Open == 0 })
}

// TestPoolDeadConnection: a pooled connection that ends at its check or right after it does
// not fail the mail.
func TestPoolDeadConnection(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(*catcher.Catcher){
		"between mails":   func(c *catcher.Catcher) { c.Cut() },
		"after the check": func(c *catcher.Catcher) { c.Inject(catcher.Fault{Stage: catcher.StageMail, Drop: true}) },
		"closed after the check": func(c *catcher.Catcher) {
			c.Inject(catcher.Fault{Stage: catcher.StageMail, Code: 421, DropAfter: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCatcher(t, catcher.Config{})
			s := newSink(t, c.Addr(), "connections=1")
			for range 3 {
				r, receipt := attemptOnce(t, s, delivery(t, simple()))
				wantOK(t, r)
				if len(receipt.Recipients) != 1 {
					t.Errorf("receipt %+v", receipt)
				}
				kill(c)
			}
			if len(c.Mails()) != 3 {
				t.Errorf("%d mails", len(c.Mails()))
			}
		})
	}
	// If the new one cannot be opened either, the attempt fails, and the pool still works.
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "connections=1")
	r, _ := attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
	c.Inject(catcher.Fault{Stage: catcher.StageMail, Drop: true})
	c.Inject(catcher.Fault{Stage: catcher.StageConnect, Code: 421})
	r, _ = attemptOnce(t, s, delivery(t, simple()))
	wantRetry(t, r, "421")
	r, _ = attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
}

func TestPoolIdleTimeout(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "idle_timeout=50ms")
	r, _ := attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
	eventually(t, "the idle connection closed", func() bool { return c.Stats().Open == 0 })
	r, _ = attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
}

func TestPoolLimitsUses(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "connections=1")
	for range maxUses + 1 {
		r, _ := attemptOnce(t, s, delivery(t, simple()))
		wantOK(t, r)
	}
	if n := c.Stats().Connections; n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestWaitingForAConnection: the wait for a connection ends with the attempt.
func TestWaitingForAConnection(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "connections=1")
	in := c.Inject(catcher.Fault{Stage: catcher.StageMail, Hang: true})
	first := make(chan posthaste.SinkResult, 1)
	go func() { first <- s.Deliver(t.Context(), []posthaste.RawDelivery{delivery(t, simple())})[0] }()
	<-in.Reached()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("the queue's timeout"))
	defer cancel()
	r := s.Deliver(ctx, []posthaste.RawDelivery{delivery(t, simple())})[0]
	wantRetry(t, r, "the queue's timeout")
	in.Remove()
	wantRetry(t, <-first)
	r, _ = attemptOnce(t, s, delivery(t, simple()))
	wantOK(t, r)
}
