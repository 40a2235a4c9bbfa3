package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink publishes messages to a broker. It implements [posthaste.Sink].
type Sink struct {
	target *target
	links  *relay.Connections[*link]
	// exchanges are known to exist.
	exchanges sync.Map
	// alone is held while a message is published on the last link. If the channel is
	// closed then, that message is the cause.
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
	// The last one is for messages that may close the channel.
	return &Sink{target: t, links: relay.NewConnections(t.Connections+1, relay.Server{Kind: "rabbitmq", Address: t.endpoint.address}, t.Logger, t.dial), alone: make(chan struct{}, 1)}, nil
}

// Broker returns the broker's address, "host:port".
func (s *Sink) Broker() string { return s.target.endpoint.address }

// Away reports whether the last attempt to use the broker failed, or it blocks publishers.
// Messages wait for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.links.Away() || s.target.blocked.Load() }

// Close closes the connections. Messages in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.links.Close()
	return nil
}

// Check connects and verifies the login, the vhost, the exchange, and the queue to which
// the default exchange routes, if all messages have the same ones. An error is a
// *posthaste.Error: Invalid with the field if the configuration is wrong, Unavailable if
// the broker does not answer.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.target.dial(ctx)
	if err != nil {
		return s.connectError(err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, l.wire.cut)
	defer stop()
	exchange, static := s.target.exchange.Static()
	if !static {
		return nil
	}
	if exchange != "" {
		if err := l.hasExchange(exchange); err != nil {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "exchange", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.endpoint.address, words(err)),
				Hint: "declare the exchange and bind a queue to it, or name an existing one"}
		}
		return nil
	}
	queue, static := s.target.routingKey.Static()
	if !static || s.target.Unroutable || s.target.declare != "" {
		return nil
	}
	ch, err := l.conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	}
	if code(err) == amqp.NotFound {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "routing_key", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.endpoint.address, words(err)),
			Hint: "declare the queue, let the relay create it (declare: quorum), or name an exchange"}
	}
	return nil
}

// connectError classifies an error of connecting, as [endpoint.connectError].
func (s *Sink) connectError(err error) error {
	e := s.target.endpoint.connectError(err)
	if e.Code == posthaste.CodeUnavailable && s.target.declare != "" && code(err) != 0 {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "declare", Message: e.Message, Cause: err,
			Hint: "declare the queue yourself, or grant the user the permission to configure it"}
	}
	return e
}

// hasExchange returns an error unless an exchange exists. It uses a channel of its own,
// because the broker closes the channel if it does not exist.
func (l *link) hasExchange(name string) error {
	ch, err := l.conn.Channel()
	if err != nil {
		return err
	}
	if err = ch.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return err
	}
	return ch.Close()
}

// checkExchange calls hasExchange, bounded by ctx.
func (l *link) checkExchange(ctx context.Context, name string) error {
	done := make(chan error, 1)
	go func() { done <- l.hasExchange(name) }() // ends with the link at the latest
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
