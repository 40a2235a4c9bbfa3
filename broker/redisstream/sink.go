package redisstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink adds messages to streams. It implements [posthaste.Sink].
type Sink struct {
	target  *target
	servers *servers
}

var _ posthaste.Sink = (*Sink)(nil)

// NewSink checks the configuration and returns a sink, which connects at its first
// delivery. Errors are *posthaste.Error with the field, and hold no password.
func NewSink(c SinkConfig) (*Sink, error) {
	t, err := parseSink(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, servers: newServers(t)}, nil
}

// Broker returns the server's address, "host:port", or several separated by commas.
func (s *Sink) Broker() string { return s.target.address }

// Away reports whether the last attempt to use a server failed. Messages wait for it then.
// It is safe for concurrent use.
func (s *Sink) Away() bool { return s.servers.Away() }

// Close closes the connections. Messages in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.servers.Close()
	return nil
}

// Check connects and verifies the login, the database, that the server is a primary and
// has the replicas, and the stream, if all messages go to the same one and the user may
// ask. An error is a *posthaste.Error: Invalid with the field if the configuration is
// wrong, Unavailable if the server does not answer or lacks replicas.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.servers.any(ctx)
	if err != nil {
		return s.connectError(err)
	}
	defer func() {
		if l != nil {
			l.Close()
		}
	}()
	stream, static := s.target.stream.Static()
	if !static {
		stream = "posthaste" // any name, because the answer is ignored
	}
	if address := s.servers.owner(stream); l.layout != nil && address != l.address {
		l.Close()
		if l, err = s.servers.dial(ctx, address); err != nil {
			return s.connectError(err)
		}
	}
	replies, err := l.ask(ctx, words("ROLE"), words("TYPE", stream))
	if err != nil {
		return s.connectError(fmt.Errorf("redis at %s: %w", l.address, err))
	}
	invalid := func(field, what, hint string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("redis at %s: %s", l.address, what), Hint: hint}
	}
	if role := replies[0].list; len(role) == 3 && role[0].text == "master" && len(role[2].list) < s.target.Replicas {
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Hint: "start the replicas, or require fewer (replicas)",
			Message: fmt.Sprintf("redis at %s has %d replicas, but %d are required", l.address, len(role[2].list), s.target.Replicas)}
	} else if len(role) > 0 && role[0].text == "slave" {
		return invalid("url", "this is a replica, which accepts no messages", "name the primary")
	}
	kind := replies[1]
	switch {
	case kind.fault.code() == "MOVED":
		return invalid("url", string(kind.fault)+": a server of a Redis Cluster; another one has the stream, and this user may not ask which", "allow the user to run CLUSTER SLOTS (ACL: +cluster|slots)")
	case kind.fault != "" || !static:
	case kind.text == "none" && s.target.Existing:
		return invalid("stream", fmt.Sprintf("stream %q not found, and existing forbids creating it", stream), "create the stream (XGROUP CREATE … MKSTREAM), or remove existing")
	case kind.text != "none" && kind.text != "stream":
		return invalid("stream", fmt.Sprintf("key %q holds a %s, not a stream", stream, kind.text), "name another key")
	}
	return nil
}

// denied reports whether the user is logged in and lacks a permission.
func denied(f fault) bool { return f.code() == "NOPERM" }

// connectError classifies an error of connecting: Invalid with the field and a hint if the
// configuration is at fault, Unavailable otherwise.
func (s *Sink) connectError(err error) error {
	var authority *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var f fault
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.As(err, &f) && (f.code() == "LOADING" || f == tooManyClients):
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: err.Error(), Cause: err, Hint: "wait until the server has loaded its data and has room for connections"}
	case errors.Is(err, errAlone):
		e.Hint = "name one server, the primary; or allow the user to run CLUSTER SLOTS (ACL: +cluster|slots)"
	case errors.As(err, &f) && (strings.Contains(string(f), "DB index") || strings.Contains(string(f), "SELECT")): // their code is ERR
		e.Hint = "check the number of the database, which is the URL's path"
	case errors.As(err, &f):
		e.Hint = "check user and password in the URL, percent-encoded, and that the server has the user"
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	case errors.Is(err, errProtocol), errors.As(err, &plain):
		e.Hint = "name a Redis server; use rediss:// if it has TLS, and redis:// if it has not"
	default:
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: err.Error(), Cause: err, Hint: "start the server, or check host and port in its URL"}
	}
	return e
}
