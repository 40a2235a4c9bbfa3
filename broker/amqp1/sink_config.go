package amqp1

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"time"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste/relay"
)

// SinkConfig configures a sink. Only URL is required. The fields with a key can be set in
// a file of relays.
type SinkConfig struct {
	URL URL `yaml:"-"`
	// Address is the template of the broker's address of a queue or topic (default
	// "{{.Queue}}"). Brokers differ in the form of addresses.
	Address string `yaml:"address"`
	// GroupID is the template of the property group-id (default "{{.Key}}"). If the result
	// is empty, the message has none.
	GroupID string `yaml:"group_id"`
	// Mapping sets the message id, further headers and the form of a CloudEvent.
	Mapping relay.Mapping `yaml:",inline"`
	// Connections is the number of connections that send in parallel (default 2; 1 to
	// 100). One more sends messages one by one.
	Connections int `yaml:"connections"`
	// Outstanding is the maximum number of unsettled messages of a connection (default
	// 4096; 1 to 65536).
	Outstanding int `yaml:"outstanding"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with amqp1s://; ServerName and MinVersion get defaults. Nil trusts the
	// system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Logger logs when the broker becomes unreachable and when it is back. Nil disables
	// logging.
	Logger *slog.Logger `yaml:"-"`
}

// target is a checked SinkConfig.
type target struct {
	SinkConfig
	address   string // host:port
	host      string // as the broker is told: the name in the URL, or a virtual host
	login     amqp.SASLType
	to, group *relay.Template
	mapper    *relay.Mapper
}

// parseSink checks the configuration and fills in defaults. Errors never hold the URL,
// because it may hold a password.
func parseSink(c SinkConfig) (*target, error) {
	t := &target{SinkConfig: c}
	err := t.parseURL()
	if err != nil {
		return nil, err
	}
	if err := relay.BoundedLoad(&t.Connections, &t.Outstanding); err != nil {
		return nil, err
	}
	t.DialTimeout = cmp.Or(t.DialTimeout, 10*time.Second)
	t.Logger = cmp.Or(t.Logger, slog.New(slog.DiscardHandler))
	if t.to, err = relay.Compile("address", cmp.Or(c.Address, "{{.Queue}}")); err != nil {
		return nil, err
	}
	if t.group, err = relay.Compile("group_id", cmp.Or(c.GroupID, "{{.Key}}")); err != nil {
		return nil, err
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	return t, nil
}
