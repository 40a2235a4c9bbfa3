package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Sink publishes messages to a broker. It implements [posthaste.Sink].
type Sink struct {
	target *target
	slots  []*slot
	next   atomic.Uint64
	alone  *slot // for what may end its channel
	// exchanges are those that are known to be there.
	exchanges sync.Map
	down      atomic.Bool // whether the broker was told to be away
	done      chan struct{}
	closing   sync.Once
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with the field, and hold no password.
func New(c Config) (*Sink, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	s := &Sink{target: t, alone: newSlot(), done: make(chan struct{})}
	for range t.Connections {
		s.slots = append(s.slots, newSlot())
	}
	return s, nil
}

// Broker returns the broker's address, "host:port".
func (s *Sink) Broker() string { return s.target.address }

// Close ends the connections. What is being published stays unknown, and
// deliveries after it fail and can be retried. It may be called again.
func (s *Sink) Close() error {
	s.closing.Do(func() {
		close(s.done)
		for _, slot := range append(s.slots, s.alone) {
			slot.turn <- struct{}{}
			if slot.link != nil {
				slot.link.close()
			}
			<-slot.turn
		}
	})
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
	defer l.close()
	stop := context.AfterFunc(ctx, l.wire.cut)
	defer stop()
	exchange, static := s.target.exchange.Static()
	if !static {
		return nil
	}
	if exchange != "" {
		if err := l.hasExchange(exchange); err != nil {
			return &posthaste.Error{Code: posthaste.Invalid, Field: "exchange", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.address, words(err)),
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
	if code(err) == amqp.NotFound {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "routing_key", Message: fmt.Sprintf("rabbitmq at %s: %s", s.target.address, words(err)),
			Hint: "declare the queue, let the relay make it (declare: quorum), or name an exchange"}
	}
	return nil
}

// atStart says whether an error of dialing is one of the configuration.
func (s *Sink) atStart(err error) error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the broker"
	case errors.Is(err, amqp.ErrVhost), code(err) == amqp.NotAllowed:
		e.Hint = "check the vhost, which is the URL's path, and the user's permissions on it"
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	case s.target.declare != "" && code(err) != 0:
		e.Field, e.Hint = "declare", "declare the queue yourself, or give the user the permission to configure it"
	default:
		return &posthaste.Error{Code: posthaste.Unavailable, Message: err.Error(), Cause: err, Hint: "start the broker, or check host and port in its URL"}
	}
	return e
}

// code is the broker's code in an error; 0 if it is none of the broker's.
func code(err error) int {
	var broker *amqp.Error
	if errors.As(err, &broker) && broker.Server {
		return broker.Code
	}
	return 0
}

// slot holds a link and opens it anew.
type slot struct {
	turn chan struct{} // held to look at link
	link *link
}

func newSlot() *slot { return &slot{turn: make(chan struct{}, 1)} }

// Pauses between attempts to connect.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// get returns a link that works as far as is known, and waits for the broker as
// long as ctx lasts.
func (s *Sink) get(ctx context.Context, slot *slot) (*link, error) {
	select {
	case slot.turn <- struct{}{}:
		defer func() { <-slot.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("no connection to rabbitmq at %s: %w", s.target.address, ctx.Err())
	}
	if slot.link != nil && slot.link.lost() == nil {
		return slot.link, nil
	}
	if slot.link != nil {
		slot.link.drop()
		slot.link = nil
	}
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		select {
		case <-s.done:
			return nil, errors.New("the relay to rabbitmq was closed")
		default:
		}
		l, err := s.target.dial(ctx)
		if err == nil {
			slot.link = l
			if s.down.Swap(false) {
				s.target.Logger.Info("the broker is back", "broker", s.target.address)
			}
			return l, nil
		}
		if ctx.Err() == nil && !s.down.Swap(true) {
			s.target.Logger.Warn("the broker cannot be used: messages wait, and it is tried again", "broker", s.target.address, "error", err)
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				return nil, err
			}
			return nil, fmt.Errorf("%w (waited for it: %w)", err, ctx.Err())
		case <-s.done:
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
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
