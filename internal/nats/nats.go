// Package nats says how servers of NATS are reached, for the sink and the source.
package nats

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// Address checks a URL of servers and the path of credentials, which may be empty, and
// returns the hosts and ports, without secrets. Errors are *posthaste.Error with the
// field, and never hold a part of the URL, for each may be one of the password.
func Address(servers, credentials string) (string, error) {
	address, err := addresses(servers)
	if err != nil {
		return "", &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "the server's URL cannot be used: " + err.Error(),
			Hint: "nats://user:password@host:4222 or tls://, with special characters percent-encoded, such as / as %2F; several separated by commas"}
	}
	if credentials != "" {
		if _, err := os.Stat(credentials); err != nil {
			return "", &posthaste.Error{Code: posthaste.Invalid, Field: "credentials", Message: "the credentials cannot be read: " + err.Error(), Cause: err, Hint: "give the path of the user's .creds file"}
		}
	}
	return address, nil
}

func addresses(servers string) (string, error) {
	var all []string
	for one := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || login.Misread(one) {
			return "", errors.New("it cannot be read") // package url's words may be of the password
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

// AtStart says what an error of connecting means: Invalid with the field and what to do
// where the configuration is at fault, and else Unavailable.
func AtStart(err error, credentials string) *posthaste.Error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAuthRevoked),
		errors.Is(err, natsgo.ErrAccountAuthExpired), errors.Is(err, natsgo.ErrNkeysNotSupported):
		if e.Hint = "check user and password or token in the URL, percent-encoded"; credentials != "" {
			e.Field, e.Hint = "credentials", "check that the credentials are of a user of this server, and neither expired nor revoked"
		}
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	case errors.Is(err, natsgo.ErrSecureConnWanted), errors.Is(err, natsgo.ErrSecureConnRequired):
		e.Hint = "use tls:// with a server that has TLS, and nats:// with one that has not"
	default:
		e.Code, e.Field, e.Hint = posthaste.Unavailable, "", "start the server, or check host and port in its URL"
	}
	return e
}
