package nats

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
	"github.com/posthaste-mq/posthaste/relay"
)

// URL names the servers of a cluster, separated by commas:
// nats://user:password@host:4222, nats://token@host or tls://host. User, password and
// token are percent-encoded. Use nats:// only on the same machine or in a trusted network,
// because it is unencrypted unless the server asks for TLS.
type URL string

// endpoint says how to connect to the servers. The sink and the source share it.
type endpoint struct {
	URL         URL
	Credentials string
	InboxPrefix string
	DialTimeout time.Duration
	Heartbeat   time.Duration
	TLS         *tls.Config
	Name        string

	address string // hosts and ports, without secrets
}

// check checks the URL and the path of the credentials, and fills in defaults. Errors are
// *posthaste.Error with the field. They never hold a part of the URL, because any part may
// belong to a password that is not encoded.
func (r *endpoint) check() (err error) {
	if r.address, err = r.URL.addresses(); err != nil {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "invalid URL of the server: " + err.Error(),
			Hint: "nats://user:password@host:4222 or tls://, with special characters percent-encoded, such as / as %2F; several separated by commas"}
	}
	if r.Credentials != "" {
		if _, err := os.Stat(r.Credentials); err != nil {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "credentials", Message: "reading the credentials: " + err.Error(), Cause: err, Hint: "set the path of the user's .creds file"}
		}
	}
	if r.TLS != nil || strings.HasPrefix(string(r.URL), "tls:") {
		r.TLS = relay.ClientTLS(r.TLS, "")
	}
	r.DialTimeout = cmp.Or(r.DialTimeout, 10*time.Second)
	r.Heartbeat = cmp.Or(r.Heartbeat, 10*time.Second)
	return nil
}

// options returns the options of a connection that is never repaired, with further ones.
func (r *endpoint) options(further ...natsgo.Option) []natsgo.Option {
	options := append([]natsgo.Option{natsgo.Name(r.Name), natsgo.NoReconnect(), natsgo.Timeout(r.DialTimeout), natsgo.PingInterval(r.Heartbeat), natsgo.MaxPingsOutstanding(2)}, further...)
	if r.TLS != nil {
		options = append(options, natsgo.Secure(r.TLS))
	}
	if r.Credentials != "" {
		options = append(options, natsgo.UserCredentials(r.Credentials))
	}
	if r.InboxPrefix != "" {
		options = append(options, natsgo.CustomInboxPrefix(r.InboxPrefix))
	}
	return options
}

// addresses returns the hosts and ports, separated by commas.
func (u URL) addresses() (string, error) {
	var all []string
	for one := range strings.SplitSeq(string(u), ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || login.Misread(one) {
			return "", errors.New("it cannot be parsed") // the error of package url may quote the password
		}
		switch {
		case u.Scheme != "nats" && u.Scheme != "tls":
			return "", errors.New("it must begin with nats:// or tls://")
		case u.Hostname() == "":
			return "", errors.New("it names no host")
		}
		all = append(all, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222")))
	}
	return strings.Join(all, ","), nil
}

// connectError classifies an error of connecting: Invalid with the field and a hint if the
// configuration is at fault, Unavailable otherwise.
func (r *endpoint) connectError(err error) *posthaste.Error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAuthRevoked),
		errors.Is(err, natsgo.ErrAccountAuthExpired), errors.Is(err, natsgo.ErrNkeysNotSupported):
		if e.Hint = "check user and password or token in the URL, percent-encoded"; r.Credentials != "" {
			e.Field, e.Hint = "credentials", "check that the credentials belong to a user of this server and are neither expired nor revoked"
		}
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	case errors.Is(err, natsgo.ErrSecureConnWanted), errors.Is(err, natsgo.ErrSecureConnRequired):
		e.Hint = "use tls:// if the server has TLS, and nats:// if it has not"
	default:
		e.Code, e.Field, e.Hint = posthaste.CodeUnavailable, "", "start the server, or check host and port in its URL"
	}
	return e
}
