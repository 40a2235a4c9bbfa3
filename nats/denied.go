package nats

import (
	"errors"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// A server reports a missing permission as an error of the connection, and the call gets no answer.

// deniedFor is how long a call without an answer is explained by the last missing permission.
const deniedFor = 2 * callTimeout

// denials has the last missing permission that a server has reported.
type denials struct {
	mu   sync.Mutex
	last error
	at   time.Duration // by uptime
}

// handleError is a natsgo.ErrHandler.
func (d *denials) handleError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if errors.Is(err, natsgo.ErrPermissionViolation) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last, d.at = err, uptime()
	}
}

// recent returns an error that names the permission that the user lacks, or nil.
func (d *denials) recent() error {
	if d == nil { // the connection is the caller's, and reports to the caller
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || uptime()-d.at > deniedFor {
		return nil
	}
	return denied(d.last)
}

// forgetSince forgets a permission that was reported at a time, by uptime, or later.
func (d *denials) forgetSince(at time.Duration) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at >= at {
		d.last = nil
	}
}

func denied(err error) error {
	what := strings.TrimPrefix(err.Error(), natsgo.ErrPermissionViolation.Error()+": ")
	return &posthaste.Error{Code: posthaste.CodeDenied, Message: "NATS refuses this user: " + what, Cause: err,
		Hint: "grant the user the right to the subject that the message names; docs/production/nats-engine.md lists those that Posthaste needs"}
}
