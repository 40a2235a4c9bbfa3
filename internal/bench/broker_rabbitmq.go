package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
)

// rabbitmqPlace is a queue of RabbitMQ.
type rabbitmqPlace struct {
	url, queueType string
	conn           *amqp.Connection
	ch             *amqp.Channel
}

func openRabbitMQ(_ context.Context, r *run, url string) (place, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, notUsed(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &rabbitmqPlace{url: url, queueType: r.o.QueueType, conn: conn, ch: ch}, nil
}

func (p *rabbitmqPlace) fresh(context.Context) error {
	_, err := p.ch.QueueDelete(relayPlace, false, false, false)
	if err == nil {
		_, err = p.ch.QueueDeclare(relayPlace, true, false, false, false, amqp.Table{"x-queue-type": p.queueType})
	}
	return err
}

func (p *rabbitmqPlace) count(context.Context) (int64, error) {
	q, err := p.ch.QueueDeclarePassive(relayPlace, true, false, false, false, nil)
	return int64(q.Messages), err
}

func (p *rabbitmqPlace) sink(log *slog.Logger) (posthaste.Sink, error) {
	return rabbitmq.NewSink(rabbitmq.SinkConfig{URL: rabbitmq.URL(p.url), RoutingKey: relayPlace, Logger: log})
}

func (p *rabbitmqPlace) close() {
	_, _ = p.ch.QueueDelete(relayPlace, false, false, false)
	p.conn.Close()
}

type rabbitmqPublisher struct {
	conn   *amqp.Connection
	ch     *amqp.Channel
	window int
}

func (p *rabbitmqPlace) publisher(_ context.Context, window int) (publisher, error) {
	conn, err := amqp.Dial(p.url)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &rabbitmqPublisher{conn, ch, window}, nil
}

func (p *rabbitmqPublisher) close() { p.conn.Close() }

func (p *rabbitmqPublisher) publish(ctx context.Context, until time.Time) (int64, error) {
	return flying(until, p.window, func(n int) (*amqp.DeferredConfirmation, error) {
		return p.ch.PublishWithDeferredConfirm("", relayPlace, false, false, amqp.Publishing{MessageId: strconv.Itoa(n), ContentType: posthaste.ContentTypeJSON,
			DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: payload, Headers: amqp.Table{"posthaste-queue": "relay"}})
	}, func(c *amqp.DeferredConfirmation) error {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("the broker did not confirm a message: %v", err)
		}
		return nil
	})
}
