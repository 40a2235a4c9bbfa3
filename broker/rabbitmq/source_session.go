package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/source"
)

// sourceBroker is a checked SourceConfig. It implements [source.Broker].
type sourceBroker struct {
	SourceConfig
	endpoint endpoint
}

// Kind implements [source.Broker].
func (b *sourceBroker) Kind() string { return "rabbitmq" }

// Address implements [source.Broker].
func (b *sourceBroker) Address() string { return b.endpoint.address }

// Check implements [source.Broker].
func (b *sourceBroker) Check(ctx context.Context) error {
	var faults *posthaste.Error
	c, err := b.connect(ctx, func(c *connection) error {
		ch, err := c.conn.Channel()
		if err != nil {
			return err
		}
		if _, err = ch.QueueDeclarePassive(b.FromQueue, true, false, false, false, nil); code(err) != 0 {
			faults = &posthaste.Error{Code: posthaste.CodeInvalid, Field: "from_queue", Message: b.endpoint.brokerError(err).Error(), Hint: "declare the queue, or name an existing one that the user may read"}
			return nil
		}
		if err == nil {
			if err = declareQueue(c.conn, b.Refused, ""); code(err) != 0 {
				faults = &posthaste.Error{Code: posthaste.CodeInvalid, Field: "refused", Message: b.endpoint.brokerError(err).Error(),
					Hint: "declare the queue yourself, grant the user the permission to configure it, or name another one with refused"}
				return nil
			}
		}
		return err
	})
	if err != nil {
		return b.endpoint.connectError(err)
	}
	c.close()
	if faults != nil {
		return faults
	}
	return nil
}

// connection is a connection to the broker, and the network connection below it.
type connection struct {
	conn *amqp.Connection
	raw  net.Conn
}

// connect opens a connection and calls use with it. If use fails, it closes the
// connection.
func (b *sourceBroker) connect(ctx context.Context, use func(c *connection) error) (*connection, error) {
	c := &connection{}
	err := b.endpoint.dial(ctx, func(raw net.Conn) net.Conn {
		c.raw = raw
		return raw
	}, func(conn *amqp.Connection) error {
		c.conn = conn
		return use(c)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// bound closes the network connection if ctx ends before the returned function is called.
func (c *connection) bound(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { _ = c.raw.Close() })
}

// close closes the connection in order, so that the broker gets all that was written
// before. After a second it closes the network connection.
func (c *connection) close() {
	_ = c.conn.CloseDeadline(time.Now().Add(time.Second))
	_ = c.raw.Close()
}

// session consumes on a connection of its own. It implements [source.Session].
type session struct {
	broker *sourceBroker
	*connection
	ch *amqp.Channel
	// arrived has room for all unacknowledged messages.
	arrived chan amqp.Delivery
	ended   chan *amqp.Error
	// open is the number of messages that were read and not acknowledged.
	open   int
	closed atomic.Bool
	aside  *aside // nil until something is refused
}

// Open implements [source.Broker].
func (b *sourceBroker) Open(ctx context.Context) (source.Session, error) {
	s := &session{broker: b, arrived: make(chan amqp.Delivery, b.Prefetch)}
	var err error
	s.connection, err = b.connect(ctx, func(c *connection) error {
		if err := declareQueue(c.conn, b.Refused, ""); err != nil {
			return err
		}
		ch, err := c.conn.Channel()
		if err != nil {
			return err
		}
		s.ch, s.ended = ch, ch.NotifyClose(make(chan *amqp.Error, 1))
		if err := ch.Qos(b.Prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(b.FromQueue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		// The channel of the library has no buffer.
		go func() {
			defer close(s.arrived)
			for d := range deliveries {
				s.arrived <- d
			}
		}()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Read implements [source.Session].
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	select {
	case d, ok := <-s.arrived:
		if !ok {
			return nil, s.lost("deliveries have ended")
		}
		all := []source.Arrival{arrival(d)}
		for len(all) < most {
			select {
			case d, ok := <-s.arrived:
				if ok {
					all = append(all, arrival(d))
					continue
				}
			default:
			}
			break
		}
		s.open += len(all)
		return all, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lost returns an error that the session has ended, with the reason if it is known.
func (s *session) lost(what string) error {
	select {
	case err := <-s.ended:
		if err != nil {
			return fmt.Errorf("%s: %w", what, s.broker.endpoint.brokerError(err))
		}
	default:
	}
	if !s.ch.IsClosed() {
		what += ", because the queue was deleted or moved"
	}
	return s.broker.endpoint.brokerError(errors.New(what))
}

// Acknowledge implements [source.Session].
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	stop := s.bound(ctx)
	defer stop()
	if len(arrived) == s.open {
		// All messages up to the last one, in one frame.
		s.open = 0
		return s.acked(s.ch.Ack(arrived[len(arrived)-1].Token.(amqp.Delivery).DeliveryTag, true))
	}
	for _, a := range arrived {
		if err := s.ch.Ack(a.Token.(amqp.Delivery).DeliveryTag, false); err != nil {
			return s.acked(err)
		}
		s.open--
	}
	return nil
}

func (s *session) acked(err error) error {
	if err == nil {
		return nil
	}
	return s.lost(err.Error())
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.closed.Load() && !s.ch.IsClosed() }

// Close implements [source.Session]. The broker requeues the unacknowledged messages.
func (s *session) Close() {
	s.closed.Store(true)
	if s.aside != nil {
		s.aside.close()
	}
	s.close()
}

// aside publishes refused messages with confirms. It has a connection of its own: a broker
// that is short of memory or disk reads nothing from connections that publish, so it would
// not get the acknowledgments either.
type aside struct {
	*connection
	ch       *amqp.Channel
	returned chan amqp.Return // messages that no queue gets; one at a time is published
}

// Refuse implements [source.Session].
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	if s.aside == nil {
		out := &aside{returned: make(chan amqp.Return, 1)}
		var err error
		out.connection, err = s.broker.connect(ctx, func(c *connection) (err error) {
			if out.ch, err = c.conn.Channel(); err != nil {
				return err
			}
			out.ch.NotifyReturn(out.returned)
			return out.ch.Confirm(false)
		})
		if err != nil {
			return err
		}
		s.aside = out
	}
	d := a.Token.(amqp.Delivery)
	table := amqp.Table{}
	for name, value := range d.Headers {
		table[name] = value
	}
	for name, value := range headers {
		table[name] = value
	}
	stop := s.aside.bound(ctx)
	defer stop()
	confirm, err := s.aside.ch.PublishWithDeferredConfirm("", s.broker.Refused, true, false, amqp.Publishing{Headers: table, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: amqp.Persistent, Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body})
	if err != nil {
		return s.broker.endpoint.brokerError(err)
	}
	acked, err := confirm.WaitContext(ctx)
	if err != nil {
		return err
	}
	select {
	case r, ok := <-s.aside.returned:
		if ok {
			return s.broker.endpoint.brokerError(fmt.Errorf("%d %s: queue %q", r.ReplyCode, r.ReplyText, s.broker.Refused))
		}
	default:
	}
	if !acked {
		return s.broker.endpoint.brokerError(fmt.Errorf("queue %q rejected the message (basic.nack), or the connection was lost", s.broker.Refused))
	}
	return nil
}
