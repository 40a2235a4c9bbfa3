// Package rabbitmq is the sink that publishes messages to RabbitMQ (AMQP 0-9-1)
// and answers only what the broker has confirmed: persistent messages, publisher
// confirms, and the mandatory flag, so that a message that no queue would get is
// no success.
//
// # What an attempt ends with
//
//   - The broker's ack: delivered. With mirrored or quorum queues that means what
//     RabbitMQ says of it: on disk on a majority.
//   - The broker's nack (a full queue with reject-publish, a failed node), an
//     unroutable message, an exchange that is not there: tried again with backoff,
//     with the broker's words, and dead after max_attempts.
//   - A connection lost before the confirm: unknown whether the broker has it, so
//     it is published again, with the same message id.
//   - A routing key, message id or header that AMQP cannot carry, a header CC or BCC,
//     which RabbitMQ takes for a list of routing keys, a template that
//     names a missing header, a message above the broker's limit: dead at once, or
//     at the second attempt where that limit is below 256 KiB.
//
// While the broker cannot be reached, refuses the login or blocks publishers
// (memory or disk alarm), what is in hand waits as long as the queue's timeout
// allows before the attempt fails. Meanwhile a worker takes no more than its
// batches hold.
//
// A broker answers some mistakes by closing the channel, which leaves unknown what
// became of all that was in flight on it. So exchanges are looked up before they
// are first published to, and large messages take a connection of their own, one
// by one. All that another refusal (a permission, an exchange that vanished) left
// unknown says so in its receipt, {"channel_closed": 403}, and goes there, too, from
// its next attempt on: a message that is refused repeats its neighbours at most once.
package rabbitmq

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/rabbit"
	"github.com/posthaste-mq/posthaste/relay"
)

// Config says which broker gets the messages and how. Only URL is required.
type Config struct {
	// URL names the broker: amqp://user:password@host:5672/vhost or amqps://. User,
	// password and vhost are percent-encoded; without a path the vhost is "/".
	// Unencrypted it is meant for the same machine or a trusted network.
	URL string
	// Exchange is the template of the exchange (default: the default exchange).
	Exchange string
	// RoutingKey is the template of the routing key (default "{{.Queue}}": with
	// the default exchange, the RabbitMQ queue of the same name).
	RoutingKey string
	// Mapping is what goes along.
	Mapping relay.Mapping
	// Declare makes a durable queue of this type, "classic" or "quorum", for the
	// routing key, before it is first published to. It needs the default exchange
	// and a routing key without templates. Empty: nothing is declared.
	Declare string
	// Unroutable accepts messages that no queue gets as delivered. By default
	// they are not.
	Unroutable bool
	// Unsafe publishes without confirms: a message counts as delivered once it
	// was written to the connection, and is lost if the broker does not take it.
	Unsafe bool
	// Connections is how many publish side by side (default 2; 1 to 100). There is
	// one more for what is published alone.
	Connections int
	// Outstanding is how many messages of a connection may be without a confirm
	// (default 4096; 1 to 65536).
	Outstanding int
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// Heartbeat is how often connections show that they live (default 10 s).
	Heartbeat time.Duration
	// TLS is used for amqps://; ServerName and MinVersion get defaults. Nil trusts
	// the system's authorities.
	TLS *tls.Config
	// Name is what the broker shows of the connections (default "posthaste relay").
	Name string
	// Logger is told when the broker was lost or blocks, and when it is back (nil:
	// nobody).
	Logger *slog.Logger
}

// target is a checked Config.
type target struct {
	Config
	broker     *rabbit.Broker
	exchange   *relay.Template
	routingKey *relay.Template
	mapper     *relay.Mapper
	declare    string      // the queue
	blocked    atomic.Bool // the broker blocks publishers, as it told last
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the
// standard's binding to AMQP.
const eventPrefix = "cloudEvents:"

// parse checks the config and fills in defaults. Errors never hold the URL, for
// it may hold a password.
func parse(c Config) (*target, error) {
	t := &target{Config: c, broker: &rabbit.Broker{URL: c.URL, TLS: c.TLS, DialTimeout: c.DialTimeout, Heartbeat: c.Heartbeat, Name: cmp.Or(c.Name, "posthaste relay")}}
	err := t.broker.Check()
	if err != nil {
		return nil, err
	}
	if err := relay.Bounded("connections", &t.Connections, 2, 100); err != nil {
		return nil, err
	}
	if err := relay.Bounded("outstanding", &t.Outstanding, 4096, 1<<16); err != nil {
		return nil, err
	}
	if t.Logger == nil {
		t.Logger = slog.New(slog.DiscardHandler)
	}
	if t.exchange, err = relay.Compile("exchange", c.Exchange); err != nil {
		return nil, err
	}
	if t.routingKey, err = relay.Compile("routing_key", cmp.Or(c.RoutingKey, "{{.Queue}}")); err != nil {
		return nil, err
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	for name := range c.Mapping.Headers {
		if isOrder(name) {
			return nil, posthaste.Invalidf("headers."+name, "RabbitMQ takes the header %s for a list of further routing keys: name it otherwise", name)
		}
	}
	switch c.Declare {
	case "":
	case "classic", "quorum":
		queue, static := t.routingKey.Static()
		if exchange, ok := t.exchange.Static(); !static || !ok || exchange != "" {
			return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "declare", Message: "declare needs the default exchange and a routing_key without templates: that is the queue it makes",
				Hint: "leave exchange out and give routing_key the queue's name, or declare exchange, queue and binding yourself"}
		}
		t.declare = queue
	default:
		return nil, posthaste.Invalidf("declare", "declare must be classic or quorum, and is %q", c.Declare)
	}
	return t, nil
}
