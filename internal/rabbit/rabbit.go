// Package rabbit opens connections to RabbitMQ (AMQP 0-9-1) for the sink and the
// source, and says in words what the broker answered.
package rabbit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// Broker says how a broker is reached. [Broker.Check] fills in defaults.
type Broker struct {
	// URL is amqp://user:password@host:5672/vhost or amqps://.
	URL string
	// TLS is for amqps://; nil trusts the system's authorities.
	TLS *tls.Config
	// DialTimeout and Heartbeat are 10 s where they are 0.
	DialTimeout, Heartbeat time.Duration
	// Name is what the broker shows of the connections.
	Name string

	address string
}

// Check says what is wrong with the URL, never with a part of it, for each may be one of
// the password: what is not percent-encoded there is taken for a port, a path and so on.
func (b *Broker) Check() error {
	uri, err := amqp.ParseURI(b.URL)
	if err != nil || login.Misread(b.URL) {
		what := "the broker's URL cannot be read"
		if scheme, _, _ := strings.Cut(b.URL, "://"); scheme != "amqp" && scheme != "amqps" {
			what = "the broker's URL must begin with amqp:// or amqps://"
		}
		return &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: what,
			Hint: "amqp://user:password@host:5672/vhost or amqps://, with special characters percent-encoded, such as / as %2F and @ as %40"}
	}
	b.address = net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	b.DialTimeout = cmp.Or(b.DialTimeout, 10*time.Second)
	b.Heartbeat = cmp.Or(b.Heartbeat, 10*time.Second)
	if uri.Scheme == "amqps" {
		if b.TLS = b.TLS.Clone(); b.TLS == nil {
			b.TLS = &tls.Config{}
		}
		if b.TLS.ServerName == "" {
			b.TLS.ServerName = uri.Host
		}
		b.TLS.MinVersion = max(b.TLS.MinVersion, tls.VersionTLS12)
	}
	return nil
}

// Address is the broker's "host:port".
func (b *Broker) Address() string { return b.address }

// Dial opens a connection; ctx and DialTimeout bound it. wrap gets the network
// connection below, and open is called with what was opened: where it fails, the
// connection is closed. Neither is waited for once the time is up.
func (b *Broker) Dial(ctx context.Context, wrap func(net.Conn) net.Conn, open func(*amqp.Connection) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	done := make(chan error, 1)
	var raw net.Conn
	var opened sync.Mutex
	shut := func() {
		opened.Lock()
		defer opened.Unlock()
		if raw != nil {
			raw.Close()
		}
	}
	go func() {
		conn, err := amqp.DialConfig(b.URL, amqp.Config{
			Heartbeat: b.Heartbeat, TLSClientConfig: b.TLS, Properties: amqp.Table{"connection_name": b.Name, "product": "posthaste"},
			Dial: func(network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				if deadline, ok := ctx.Deadline(); ok {
					_ = c.SetDeadline(deadline) // the library lifts it when the connection is open
				}
				opened.Lock()
				defer opened.Unlock()
				if err := ctx.Err(); err != nil {
					c.Close()
					return nil, err
				}
				raw = c
				return wrap(c), nil
			},
		})
		if err == nil {
			err = open(conn)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			shut()
			return b.Said(err)
		}
		return nil
	case <-ctx.Done():
		shut()
		return fmt.Errorf("rabbitmq at %s does not answer: %w", b.address, ctx.Err())
	}
}

// AtStart says of an error of [Broker.Dial] whether it is one of the configuration:
// a *posthaste.Error of code Invalid with the field url, or of code Unavailable.
func (b *Broker) AtStart(err error) *posthaste.Error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the broker"
	case errors.Is(err, amqp.ErrVhost), Code(err) == amqp.NotAllowed:
		e.Hint = "check the vhost, which is the URL's path, and the user's permissions on it"
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	default:
		return &posthaste.Error{Code: posthaste.Unavailable, Message: err.Error(), Cause: err, Hint: "start the broker, or check host and port in its URL"}
	}
	return e
}

// Code is the broker's code in an error; 0 if it is none of the broker's.
func Code(err error) int {
	var broker *amqp.Error
	if errors.As(err, &broker) && broker.Server {
		return broker.Code
	}
	return 0
}

// Said is an error with the broker's address and its own words, where there are any.
func (b *Broker) Said(err error) error {
	return &said{fmt.Sprintf("rabbitmq at %s: %s", b.address, Words(err)), err}
}

// Worded is an error with its [Words].
func Worded(err error) error { return &said{Words(err), err} }

type said struct {
	text  string
	cause error
}

// Error implements error.
func (e *said) Error() string { return e.text }

// Unwrap returns the error of the library.
func (e *said) Unwrap() error { return e.cause }

// Words is an error as a person reads it: the broker's own words where there are any.
func Words(err error) string {
	var broker *amqp.Error
	if errors.As(err, &broker) {
		switch {
		case errors.Is(broker, amqp.ErrCredentials):
			return "the broker refuses user or password (403 ACCESS_REFUSED)"
		case errors.Is(broker, amqp.ErrVhost):
			return "there is no such vhost, or the user may not use it"
		}
		return strings.TrimSpace(fmt.Sprintf("%d %s", broker.Code, broker.Reason))
	}
	return err.Error()
}
