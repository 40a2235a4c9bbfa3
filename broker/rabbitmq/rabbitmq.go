// Package rabbitmq relays messages to RabbitMQ (AMQP 0-9-1) and takes messages of its
// queues into queues of Posthaste.
//
// # The sink
//
// [NewSink] returns a sink. It publishes persistent messages with publisher confirms and
// the mandatory flag, so that a message that no queue gets is not a success. An attempt
// ends in one of these ways:
//
//   - The broker confirms the message (ack): delivered. For quorum queues, RabbitMQ
//     confirms once the message is on disk on a majority.
//   - The broker rejects the message (nack, such as a full queue with reject-publish or a
//     failed node), no queue gets it, or the exchange does not exist: retried with
//     backoff, and dead-lettered after max_attempts. The error has the broker's reason.
//   - The connection is lost before the confirm: the broker may or may not have the
//     message, so it is published again with the same message id.
//   - AMQP cannot carry the routing key, message id or a header, a header is named CC or
//     BCC (RabbitMQ reads it as a list of routing keys), a template names a missing
//     header, or the message is larger than the broker's limit: dead-lettered at once, or
//     at the second attempt if that limit is below 256 KiB.
//
// While the broker is unreachable, refuses the login or blocks publishers (memory or disk
// alarm), an attempt waits until the queue's timeout before it fails. Meanwhile a worker
// claims no more than its batches hold.
//
// RabbitMQ answers some errors by closing the channel, so that the result of all messages
// in flight on it is unknown. Therefore the sink looks up exchanges before their first
// use, and publishes large messages one by one on a connection of their own. If another
// refusal (a permission, an exchange that was deleted) closes the channel, the receipt of
// all messages in flight says so, {"channel_closed": 403}. From their next attempt on they
// are published one by one, too. A refused message repeats its neighbors at most once.
//
// # The source
//
// [NewSource] returns a source that consumes a queue. See package source for its
// guarantees.
//
// Messages are deduplicated by their message-id. A message without it may be stored
// twice after a lost connection, so let publishers set it.
//
// Messages that the queue rejects for good are published to a durable queue of the broker,
// by default the same name with the suffix ".refused", with the reason in headers. They
// are acknowledged once the broker has confirmed that.
package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// eventPrefix precedes the attributes of a CloudEvent in headers, as the AMQP protocol
// binding of CloudEvents specifies.
const eventPrefix = "cloudEvents:"

// declareQueue creates a durable queue of a type unless a queue of that name exists. An
// empty type is the broker's default. It uses channels of its own, because the broker
// closes a channel to say that a queue does not exist.
func declareQueue(conn *amqp.Connection, name, queueType string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err = ch.QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
		return ch.Close()
	}
	if ch, err = conn.Channel(); err != nil {
		return err
	}
	var args amqp.Table
	if queueType != "" {
		args = amqp.Table{"x-queue-type": queueType}
	}
	if _, err = ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		return err
	}
	return ch.Close()
}

// code returns the broker's code in an error, or 0 if the error is not the broker's.
func code(err error) int {
	var broker *amqp.Error
	if errors.As(err, &broker) && broker.Server {
		return broker.Code
	}
	return 0
}

// words returns the text of an error: the broker's own words, if there are any.
func words(err error) string {
	var broker *amqp.Error
	if errors.As(err, &broker) {
		switch {
		case errors.Is(broker, amqp.ErrCredentials):
			return "the broker rejects the user or the password (403 ACCESS_REFUSED)"
		case errors.Is(broker, amqp.ErrVhost):
			return "vhost not found, or the user has no access to it"
		}
		return strings.TrimSpace(fmt.Sprintf("%d %s", broker.Code, broker.Reason))
	}
	return err.Error()
}
