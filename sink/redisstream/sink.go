package redisstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Sink adds messages to streams. It implements [posthaste.Sink].
type Sink struct {
	target  *target
	servers *servers
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with the field, and hold no password.
func New(c Config) (*Sink, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, servers: newServers(t)}, nil
}

// Broker returns the server's address, "host:port", or several separated by commas.
func (s *Sink) Broker() string { return s.target.address }

// Away says whether the broker could not be used when it was tried last: messages wait
// for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.servers.Away() }

// Close ends the connections. What is being added stays unknown, and deliveries
// after it fail and can be retried. It may be called again.
func (s *Sink) Close() error {
	s.servers.Close()
	return nil
}

// Check connects and looks whether the server will take messages as configured:
// the login, the database, whether it is a primary and has the replicas, and the
// stream, as far as it is the same for all messages and the user may ask. What is
// wrong with the configuration is a *posthaste.Error of code Invalid with the
// field; a server that does not answer, or lacks replicas, one of code Unavailable.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.servers.any(ctx)
	if err != nil {
		return s.atStart(err)
	}
	defer func() {
		if l != nil {
			l.Close()
		}
	}()
	stream, static := s.target.stream.Static()
	if !static {
		stream = "posthaste" // any: the answer is not looked at
	}
	if address := s.servers.owner(stream); l.layout != nil && address != l.address {
		l.Close()
		if l, err = s.servers.dial(ctx, address); err != nil {
			return s.atStart(err)
		}
	}
	replies, err := l.ask(ctx, words("ROLE"), words("TYPE", stream))
	if err != nil {
		return s.atStart(fmt.Errorf("redis at %s: %w", l.address, err))
	}
	invalid := func(field, what, hint string) error {
		return &posthaste.Error{Code: posthaste.Invalid, Field: field, Message: fmt.Sprintf("redis at %s: %s", l.address, what), Hint: hint}
	}
	if role := replies[0].list; len(role) == 3 && role[0].text == "master" && len(role[2].list) < s.target.Replicas {
		return &posthaste.Error{Code: posthaste.Unavailable, Hint: "start the replicas, or ask for fewer (replicas)",
			Message: fmt.Sprintf("redis at %s has %d replicas, and %d are asked for", l.address, len(role[2].list), s.target.Replicas)}
	} else if len(role) > 0 && role[0].text == "slave" {
		return invalid("url", "this is a replica, which takes no messages", "name the primary")
	}
	kind := replies[1]
	switch {
	case strings.HasPrefix(string(kind.fault), "MOVED "):
		return invalid("url", string(kind.fault)+": a server of a Redis Cluster, and the stream is on another, of which this user may not be told", "let the user run CLUSTER SLOTS (ACL: +cluster|slots)")
	case kind.fault != "" || !static:
	case kind.text == "none" && s.target.Existing:
		return invalid("stream", fmt.Sprintf("there is no stream %q, and none shall be made", stream), "make the stream (XGROUP CREATE … MKSTREAM), or leave existing out")
	case kind.text != "none" && kind.text != "stream":
		return invalid("stream", fmt.Sprintf("key %q holds a %s and no stream", stream, kind.text), "name another key")
	}
	return nil
}

// denied says whether the server's words are that the user may not do that, though
// he is known.
func denied(f fault) bool { return strings.HasPrefix(string(f), "NOPERM") }

// atStart says whether an error of connecting is one of the configuration.
func (s *Sink) atStart(err error) error {
	var authority *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var said fault
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.As(err, &said) && (strings.HasPrefix(string(said), "LOADING") || strings.Contains(string(said), "max number of clients")):
		return &posthaste.Error{Code: posthaste.Unavailable, Message: err.Error(), Cause: err, Hint: "wait until the server has loaded its data and has room for connections"}
	case errors.Is(err, errAlone):
		e.Hint = "name one server, the primary; or let the user run CLUSTER SLOTS (ACL: +cluster|slots)"
	case errors.As(err, &said) && (strings.Contains(string(said), "DB index") || strings.Contains(string(said), "SELECT")):
		e.Hint = "check the number of the database, which is the URL's path"
	case errors.As(err, &said):
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the server"
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	case errors.Is(err, errProtocol), errors.As(err, &plain):
		e.Hint = "name a Redis server; use rediss:// with one that has TLS, and redis:// with one that has not"
	default:
		return &posthaste.Error{Code: posthaste.Unavailable, Message: err.Error(), Cause: err, Hint: "start the server, or check host and port in its URL"}
	}
	return e
}
