package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/rabbit"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink publishes messages to a broker. It implements [posthaste.Sink].
type Sink struct {
	target *target
	links  *relay.Connections[*link]
	// exchanges are those that are known to be there.
	exchanges sync.Map
	// alone is held by who publishes on the last link: what ends its channel is then
	// the one message that was on it.
	alone chan struct{}
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with the field, and hold no password.
func New(c Config) (*Sink, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	// The last one is for what may end its channel.
	return &Sink{target: t, links: relay.NewConnections(t.Connections+1, "rabbitmq", t.broker.Address(), t.Logger, t.dial), alone: make(chan struct{}, 1)}, nil
}

// Broker returns the broker's address, "host:port".
func (s *Sink) Broker() string { return s.target.broker.Address() }

// Away says whether the broker could not be used when it was tried last, or blocks
// publishers: messages wait for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.links.Away() || s.target.blocked.Load() }

// Close ends the connections. What is being published stays unknown, and
// deliveries after it fail and can be retried. It may be called again.
func (s *Sink) Close() error {
	s.links.Close()
	return nil
}

// Check connects and looks whether the broker will take messages as configured:
// the login, the vhost, the exchange, and the queue that the default exchange
// would route to, as far as they are the same for all messages. What is wrong with
// the configuration is a *posthaste.Error of code Invalid with the field; a broker
// that does not answer one of code Unavailable.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.target.dial(ctx)
	if err != nil {
		return s.atStart(err)
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
			return &posthaste.Error{Code: posthaste.Invalid, Field: "exchange", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.broker.Address(), rabbit.Words(err)),
				Hint: "declare the exchange and bind a queue to it, or name one that is there"}
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
	if rabbit.Code(err) == amqp.NotFound {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "routing_key", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.broker.Address(), rabbit.Words(err)),
			Hint: "declare the queue, let the relay make it (declare: quorum), or name an exchange"}
	}
	return nil
}

// atStart says whether an error of dialing is one of the configuration.
func (s *Sink) atStart(err error) error {
	e := s.target.broker.AtStart(err)
	if e.Code == posthaste.Unavailable && s.target.declare != "" && rabbit.Code(err) != 0 {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "declare", Message: e.Message, Cause: err,
			Hint: "declare the queue yourself, or give the user the permission to configure it"}
	}
	return e
}

// hasExchange asks the broker for an exchange, on a channel of its own: the answer
// that there is none closes it.
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

// looked is hasExchange, for as long as ctx lasts.
func (l *link) looked(ctx context.Context, name string) error {
	done := make(chan error, 1)
	go func() { done <- l.hasExchange(name) }() // ends with the link at the latest
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
