package rabbitmq

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

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
	"github.com/posthaste-mq/posthaste/relay"
)

// URL names the broker: amqp://user:password@host:5672/vhost, or amqps:// with TLS. User,
// password and vhost are percent-encoded. Without a path the vhost is "/". Use amqp:// only
// on the same machine or in a trusted network, because it is unencrypted.
type URL string

// endpoint says how to connect to the broker. The sink and the source share it.
type endpoint struct {
	URL         URL
	TLS         *tls.Config
	DialTimeout time.Duration
	Heartbeat   time.Duration
	Name        string

	address string // host:port
}

// check checks the URL and fills in defaults. Errors never hold a part of the URL, because
// any part may belong to a password that is not encoded and is read as a port or a path.
func (r *endpoint) check() error {
	uri, err := amqp.ParseURI(string(r.URL))
	if err != nil || login.Misread(string(r.URL)) {
		what := "invalid URL of the broker"
		if scheme, _, _ := strings.Cut(string(r.URL), "://"); scheme != "amqp" && scheme != "amqps" {
			what = "the URL of the broker must begin with amqp:// or amqps://"
		}
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: what,
			Hint: "amqp://user:password@host:5672/vhost or amqps://, with special characters percent-encoded, such as / as %2F and @ as %40"}
	}
	r.address = net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	r.DialTimeout = cmp.Or(r.DialTimeout, 10*time.Second)
	r.Heartbeat = cmp.Or(r.Heartbeat, 10*time.Second)
	if uri.Scheme == "amqps" {
		r.TLS = relay.ClientTLS(r.TLS, uri.Host)
	}
	return nil
}

// dial opens a connection, bounded by ctx and DialTimeout. wrap gets the network
// connection below it, and open the connection. If open fails, the connection is closed.
// After the timeout, dial waits for neither of them.
func (r *endpoint) dial(ctx context.Context, wrap func(net.Conn) net.Conn, open func(*amqp.Connection) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.DialTimeout)
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
		conn, err := amqp.DialConfig(string(r.URL), amqp.Config{
			Heartbeat: r.Heartbeat, TLSClientConfig: r.TLS, Properties: amqp.Table{"connection_name": r.Name, "product": "posthaste"},
			Dial: func(network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				if deadline, ok := ctx.Deadline(); ok {
					_ = c.SetDeadline(deadline) // the library removes it once the connection is open
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
			return r.brokerError(err)
		}
		return nil
	case <-ctx.Done():
		shut()
		return fmt.Errorf("rabbitmq at %s does not answer: %w", r.address, ctx.Err())
	}
}

// connectError classifies an error of dial: Invalid with the field url and a hint if the
// configuration is at fault, Unavailable otherwise.
func (r *endpoint) connectError(err error) *posthaste.Error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		e.Hint = "check user and password in the URL, percent-encoded, and that the broker has the user"
	case errors.Is(err, amqp.ErrVhost), code(err) == amqp.NotAllowed:
		e.Hint = "check the vhost, which is the URL's path, and the user's permissions for it"
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	default:
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: err.Error(), Cause: err, Hint: "start the broker, or check host and port in its URL"}
	}
	return e
}

// brokerError returns an error with the broker's address and its own words, if there are any.
func (r *endpoint) brokerError(err error) error {
	return relay.Reworded(fmt.Sprintf("rabbitmq at %s: %s", r.address, words(err)), err)
}
