package rabbitmq

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// SinkConfig configures a sink. Only URL is required. The fields with a key can be set in
// a file of relays.
type SinkConfig struct {
	URL URL `yaml:"-"`
	// Exchange is the template of the exchange (default: the default exchange).
	Exchange string `yaml:"exchange"`
	// RoutingKey is the template of the routing key (default "{{.Queue}}": with the
	// default exchange, the RabbitMQ queue of the same name).
	RoutingKey string `yaml:"routing_key"`
	// Mapping configures the id, the headers and the format of messages.
	Mapping relay.Mapping `yaml:",inline"`
	// Declare is the type, "classic" or "quorum", of a durable queue named by the
	// routing key that is created before the first message. It needs the default
	// exchange and a routing key without templates. Empty creates nothing.
	Declare string `yaml:"declare"`
	// Unroutable counts messages that no queue gets as delivered. By default they fail.
	Unroutable bool `yaml:"accept_unroutable"`
	// Unsafe publishes without confirms. A message counts as delivered once it is written
	// to the connection, and is lost if the broker does not take it.
	Unsafe bool `yaml:"unsafe"`
	// Connections is the number of connections that publish in parallel (default 2; 1 to
	// 100). One more publishes messages one by one.
	Connections int `yaml:"connections"`
	// Outstanding is the maximum number of unconfirmed messages of a connection (default
	// 4096; 1 to 65536).
	Outstanding int `yaml:"outstanding"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// Heartbeat is the interval of heartbeats (default 10 s).
	Heartbeat time.Duration `yaml:"-"`
	// TLS is used with amqps://; ServerName and MinVersion get defaults. Nil trusts the
	// system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the name of the connections that the broker shows (default "posthaste
	// relay").
	Name string `yaml:"-"`
	// Logger logs when the broker becomes unreachable or blocks publishers, and when it
	// is back. Nil disables logging.
	Logger *slog.Logger `yaml:"-"`
}

// target is a checked SinkConfig.
type target struct {
	SinkConfig
	endpoint   endpoint
	exchange   *relay.Template
	routingKey *relay.Template
	mapper     *relay.Mapper
	declare    string      // the queue to create; empty if none
	blocked    atomic.Bool // the broker blocked publishers when it last reported
}

// parseSink checks the configuration and fills in defaults. Errors never hold the URL,
// because it may hold a password.
func parseSink(c SinkConfig) (*target, error) {
	t := &target{SinkConfig: c, endpoint: endpoint{URL: c.URL, TLS: c.TLS, DialTimeout: c.DialTimeout, Heartbeat: c.Heartbeat, Name: cmp.Or(c.Name, "posthaste relay")}}
	err := t.endpoint.check()
	if err != nil {
		return nil, err
	}
	if err := relay.BoundedLoad(&t.Connections, &t.Outstanding); err != nil {
		return nil, err
	}
	t.Logger = cmp.Or(t.Logger, slog.New(slog.DiscardHandler))
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
		if isRoutingHeader(name) {
			return nil, posthaste.Invalidf("headers."+name, "RabbitMQ reads the header %s as a list of further routing keys: rename it", name)
		}
	}
	switch c.Declare {
	case "":
	case "classic", "quorum":
		queue, static := t.routingKey.Static()
		if exchange, ok := t.exchange.Static(); !static || !ok || exchange != "" {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "declare", Message: "declare requires the default exchange and a routing_key without templates, which names the queue to create",
				Hint: "remove exchange and set routing_key to the queue's name, or declare exchange, queue and binding yourself"}
		}
		t.declare = queue
	default:
		return nil, posthaste.Invalidf("declare", "declare must be classic or quorum, got %q", c.Declare)
	}
	return t, nil
}
