package nats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink publishes messages to streams. It implements [posthaste.Sink].
type Sink struct {
	target  *target
	links   *relay.Connections[*link]
	dropped atomic.Bool // a stream has dropped a first attempt as a duplicate
}

var _ posthaste.Sink = (*Sink)(nil)

// NewSink checks the configuration and returns a sink, which connects at its first
// delivery. Errors are *posthaste.Error with the field, and hold no password.
func NewSink(c SinkConfig) (*Sink, error) {
	t, err := parseSink(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, links: relay.NewConnections(t.Connections, relay.Server{Kind: "nats", Address: t.endpoint.address}, t.Logger, t.dial)}, nil
}

// Broker returns the servers' addresses, "host:port", separated by commas.
func (s *Sink) Broker() string { return s.target.endpoint.address }

// Away reports whether the last attempt to use the server failed. Messages wait for it
// then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.links.Away() }

// Close closes the connections. Messages in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.links.Close()
	return nil
}

// Check connects and verifies the login, JetStream, and that a stream takes the subject,
// if all messages have the same one and the user may ask. An error is a *posthaste.Error:
// Invalid with the field if the configuration is wrong, Unavailable if the server does not
// answer.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.target.dial(ctx)
	if err != nil {
		return s.connectError(err)
	}
	defer l.Close()
	invalid := func(field string, err error, hint string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("nats at %s: %v", s.target.endpoint.address, err), Hint: hint, Cause: err}
	}
	stream := s.target.Stream
	if stream != "" {
		err := l.ask(ctx, "$JS.API.STREAM.INFO."+stream, func(ctx context.Context) error {
			_, err := l.js.Stream(ctx, stream)
			return err
		})
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return invalid("stream", fmt.Errorf("stream %q not found", stream), "create the stream, or name an existing one")
		case withoutJetStream(err):
			return invalid("url", err, hintJetStream)
		case err != nil:
			return s.connectError(err)
		}
	}
	subject, static := s.target.subject.Static()
	if !static {
		return nil
	}
	var takes string
	err = l.ask(ctx, "$JS.API.STREAM.NAMES", func(ctx context.Context) (err error) {
		takes, err = l.js.StreamNameBySubject(ctx, subject)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return invalid("subject", fmt.Errorf("no stream takes subject %q", subject), "create a stream with this subject, or set a subject that a stream takes")
	case withoutJetStream(err):
		return invalid("url", err, hintJetStream)
	case err != nil:
		return s.connectError(err)
	case stream != "" && takes != "" && takes != stream:
		return invalid("subject", fmt.Errorf("subject %q belongs to stream %q, not to %q", subject, takes, stream), "add the subject to the stream, or name the other stream")
	}
	return nil
}

// ask sends a request to the server on a subject. It is no error if the user may not
// send it, because publishing will show what the answer would have said.
func (l *link) ask(ctx context.Context, subject string, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.conn.Opts.Timeout)
	defer cancel()
	f := l.take(subject)
	defer l.leave(subject, f)
	done := make(chan error, 1)
	go func() { done <- request(ctx) }()
	select {
	case err := <-done:
		return err
	case <-f.denied:
		return nil
	case <-l.ended:
		return l.lost()
	}
}

// connectError classifies an error of connecting, as [endpoint.connectError].
func (s *Sink) connectError(err error) error {
	e := s.target.endpoint.connectError(err)
	if errors.Is(err, natsgo.ErrPermissionViolation) {
		e.Code, e.Field, e.Hint = posthaste.CodeInvalid, "inbox_prefix", "allow the user to subscribe to inbox_prefix (default _INBOX.>), where acknowledgments are sent"
	}
	return e
}
