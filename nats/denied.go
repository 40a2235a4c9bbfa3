package nats

import (
	"errors"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// A server tells that a user lacks a right beside the call, which then gets no answer.

// deniedFor is how long a call without an answer is explained by a right that was missing before.
const deniedFor = 2 * callTimeout

// denials has what the server has refused last.
type denials struct {
	mu   sync.Mutex
	last error
	at   time.Duration // by uptime
}

// take is a natsgo.ErrHandler.
func (d *denials) take(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if errors.Is(err, natsgo.ErrPermissionViolation) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last, d.at = err, uptime()
	}
}

// recent returns an error that names the right that the user lacks, or nil.
func (d *denials) recent() error {
	if d == nil { // the connection is the caller's
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || uptime()-d.at > deniedFor {
		return nil
	}
	return denied(d.last)
}

func denied(err error) error {
	what := strings.TrimPrefix(err.Error(), natsgo.ErrPermissionViolation.Error()+": ")
	return &posthaste.Error{Code: posthaste.CodeDenied, Message: "NATS refuses this user: " + what, Cause: err,
		Hint: "grant the user the right to the subject that the message names; docs/production/nats-engine.md lists those that Posthaste needs"}
}
