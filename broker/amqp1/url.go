package amqp1

import (
	"cmp"
	"net"
	"net/url"
	"strings"

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
		t.TLS = relay.ClientTLS(t.TLS, u.Hostname())
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
