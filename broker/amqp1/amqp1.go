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
//     holds the broker's words.
//   - The broker refuses to attach a link to the address: the same.
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
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
	"github.com/posthaste-mq/posthaste/relay"
)

// URL names the broker: amqp1://user:password@host:5672, or amqp1s:// with TLS and port
// 5671. User and password are percent-encoded; for Azure Service Bus they are name and key
// of a shared access policy. Without a user the login is anonymous. A path is the name of
// a virtual host of RabbitMQ. Use amqp1:// only on the same machine or in a trusted
// network, because it is unencrypted.
type URL string

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

// eventPrefix precedes the attributes of a CloudEvent in application properties, as the
// AMQP protocol binding of CloudEvents specifies.
const eventPrefix = "cloudEvents:"

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
	if err := relay.Bounded("connections", &t.Connections, 2, 100); err != nil {
		return nil, err
	}
	if err := relay.Bounded("outstanding", &t.Outstanding, 4096, 1<<16); err != nil {
		return nil, err
	}
	t.DialTimeout = cmp.Or(t.DialTimeout, 10*time.Second)
	if t.Logger == nil {
		t.Logger = slog.New(slog.DiscardHandler)
	}
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

// parseURL reads the URL. Errors never hold a part of it, because any part may belong to a
// password that is not encoded and is read as a port or a path.
func (t *target) parseURL() error {
	u, err := url.Parse(string(t.URL))
	scheme, _, _ := strings.Cut(string(t.URL), "://")
	what := ""
	switch {
	case scheme != "amqp1" && scheme != "amqp1s":
		what = "the broker's URL must begin with amqp1:// or amqp1s://"
	case err != nil || login.Misread(string(t.URL)) || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		what = "the broker's URL cannot be read"
	}
	if what != "" {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: what,
			Hint: "amqp1://user:password@host:5672 or amqp1s://, with special characters percent-encoded, such as / as %2F and @ as %40"}
	}
	port := "5672"
	if scheme == "amqp1s" {
		port = "5671"
		if t.TLS = t.TLS.Clone(); t.TLS == nil {
			t.TLS = &tls.Config{}
		}
		t.TLS.ServerName = cmp.Or(t.TLS.ServerName, u.Hostname())
		t.TLS.MinVersion = max(t.TLS.MinVersion, tls.VersionTLS12)
	} else {
		t.TLS = nil
	}
	t.address = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	t.host = u.Hostname()
	if vhost := strings.TrimPrefix(u.Path, "/"); vhost != "" {
		t.host = "vhost:" + vhost // how RabbitMQ reads the host name
	}
	t.login = amqp.SASLTypeAnonymous()
	if u.User != nil {
		password, _ := u.User.Password()
		t.login = amqp.SASLTypePlain(u.User.Username(), password)
	}
	return nil
}

// job is a message in flight.
type job struct {
	place   int // index in the batch
	address string
	msg     *amqp.Message
	// alone says that nothing else is in flight on its link, so that this message is the
	// cause if the broker closes the link.
	alone   bool
	link    *link // on which it was sent
	receipt amqp.SendReceipt
}

const (
	// large is the size in bytes above which a message is sent alone, because some brokers
	// end the session if a message is larger than their limit.
	large = 256 << 10
	// suspicious is the attempt from which on a message is sent alone, because it may have
	// closed its link or ended the relay before.
	suspicious = 4
)

// prepare returns the job of a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (job, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return job{}, err
	}
	address, err := t.to.Execute(d)
	if err != nil {
		return job{}, err
	}
	if address == "" {
		return job{}, posthaste.Permanent(posthaste.Invalidf("address", "the template address came out empty"))
	}
	group, err := t.group.Execute(d)
	if err != nil {
		return job{}, err
	}
	if i := strings.IndexFunc(out.ContentType, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		return job{}, posthaste.Permanent(posthaste.Invalidf("content_type", "AMQP 1.0 allows only ASCII in a content type, and byte %d of %q is not", i, out.ContentType))
	}
	properties := &amqp.MessageProperties{MessageID: out.MessageID, ContentType: &out.ContentType, Subject: optional(d.Kind), GroupID: optional(group)}
	if !d.CreatedAt.IsZero() {
		properties.CreationTime = &d.CreatedAt
	}
	msg := amqp.NewMessage(out.Payload)
	msg.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
	msg.Properties = properties
	msg.ApplicationProperties = make(map[string]any, len(out.Headers))
	for _, h := range out.Headers {
		msg.ApplicationProperties[h.Name] = h.Value
	}
	return job{address: address, msg: msg, alone: len(out.Payload) > large || d.Attempt >= suspicious || suspect(d.Story)}, nil
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
