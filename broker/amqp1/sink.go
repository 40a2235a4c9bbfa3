package amqp1

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink sends messages to a broker. It implements [posthaste.Sink].
type Sink struct {
	target      *target
	connections *relay.Connections[*connection]
	// alone is held while a message is sent on the last connection.
	alone chan struct{}
}

var _ posthaste.Sink = (*Sink)(nil)

// NewSink checks the configuration and returns a sink, which connects at its first
// delivery. Errors are *posthaste.Error with the field, and hold no password.
func NewSink(c SinkConfig) (*Sink, error) {
	t, err := parseSink(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, connections: relay.NewConnections(t.Connections+1, relay.Server{Kind: kind, Address: t.address}, t.Logger, t.dial), alone: make(chan struct{}, 1)}, nil
}

// Broker returns the broker's address, "host:port".
func (s *Sink) Broker() string { return s.target.address }

// Away reports whether the last attempt to use the broker failed. Messages wait for it
// then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.connections.Away() }

// Close closes the connections. Messages in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.connections.Close()
	return nil
}

// Check connects and verifies the login, the virtual host, and the address, if all
// messages have the same one. An error is a *posthaste.Error: Invalid with the field if
// the configuration is wrong, Unavailable if the broker does not answer.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.target.DialTimeout)
	defer cancel()
	c, err := s.target.dial(ctx)
	if err != nil {
		return connectError(err, "url")
	}
	defer c.Close()
	if _, err := c.conn.NewSession(ctx, nil); err != nil {
		return connectError(s.target.brokerError(err), "url")
	}
	if address, static := s.target.to.Static(); static {
		if l := c.attach(ctx, address); l.err != nil {
			return connectError(s.target.brokerError(l.err), "address")
		}
	}
	return nil
}

// misconfigured are conditions with which brokers refuse a configuration.
var misconfigured = []amqp.ErrCond{amqp.ErrCondNotFound, amqp.ErrCondUnauthorizedAccess, amqp.ErrCondNotAllowed, amqp.ErrCondInvalidField,
	amqp.ErrCondNotImplemented, amqp.ErrCondPreconditionFailed, amqp.ErrCondResourceDeleted}

// connectError classifies an error of connecting or attaching: Invalid with a hint if the
// configuration is at fault, Unavailable otherwise.
func connectError(err error, field string) error {
	var authority *tls.CertificateVerificationError
	var remote *amqp.Error
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: err.Error(), Cause: err}
	switch {
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	case strings.Contains(err.Error(), "auth failed"), strings.Contains(err.Error(), "auth mechanism"): // the library has no values for these errors
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the broker"
	case errors.As(err, &remote) && slices.Contains(misconfigured, remote.Condition) && field == "address":
		e.Hint = "create the queue or topic, let the user send to it, or give its address in the form that the broker expects"
	case errors.As(err, &remote) && slices.Contains(misconfigured, remote.Condition):
		e.Hint = "check the virtual host, which is the URL's path, and the user's permissions"
	default:
		e.Code, e.Field, e.Hint = posthaste.CodeUnavailable, "", "start the broker, or check host and port in its URL"
	}
	return e
}
