// Package amqp1 relays messages to brokers that speak AMQP 1.0, such as Azure Service Bus,
// ActiveMQ Artemis, Apache Qpid and RabbitMQ from version 4 on. For AMQP 0-9-1, which
// older versions of RabbitMQ speak, use package broker/rabbitmq.
//
// [NewSink] returns a sink. It sends durable messages unsettled, so that the broker
// reports the outcome of each. An attempt ends in one of these ways:
//
//   - The broker accepts the message: delivered.
//   - The broker rejects the message with a condition that names a fault of the message
//     (amqp:link:message-size-exceeded, amqp:decode-error, amqp:invalid-field or
//     amqp:precondition-failed), or reports it as modified and undeliverable here:
//     dead-lettered at once.
//   - The broker rejects the message for another reason or for none (full queues do),
//     releases it (no queue gets it, or the broker cannot take it now), or reports it as
//     modified: retried with backoff, and dead-lettered after max_attempts. The error
//     has the broker's reason.
//   - The broker refuses to attach a link to the address: retried in the same way.
//   - The connection, session or link ends before the outcome is known: the broker may or
//     may not have the message, so it is sent again with the same message id.
//   - The message is larger than the link allows, its content type is not ASCII, its
//     address is empty, or a template names a missing header: dead-lettered at once.
//
// While the broker is unreachable, refuses the login or grants no credit, an attempt waits
// until the queue's timeout before it fails. Meanwhile a worker claims no more than its
// batches hold.
//
// Each address has a session of its own, because some brokers refuse an address or a
// message by ending the session, which leaves the outcome of all messages in flight on it
// unknown. If the broker names a fault of a message when it ends a session or a link, the
// receipt of all these messages says so, {"link_closed": "amqp:precondition-failed"}. From
// their next attempt on they are sent one by one on a connection of their own, as are
// large messages. A refused message therefore repeats its neighbors at most once.
package amqp1

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste/relay"
)

// kind names the broker in errors.
const kind = "AMQP 1.0 broker"

// eventPrefix precedes the attributes of a CloudEvent in application properties, as the
// AMQP protocol binding of CloudEvents specifies.
const eventPrefix = "cloudEvents:"

// brokerError returns an error with the broker's address and its own words, if there are any.
func (t *target) brokerError(err error) error {
	return relay.Reworded(fmt.Sprintf("%s at %s: %s", kind, t.address, words(err)), err)
}

// words returns the text of an error: the broker's own words, if there are any.
func words(err error) string {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return strings.TrimSuffix(fmt.Sprintf("%s: %s", remote.Condition, remote.Description), ": ")
	}
	return err.Error()
}
