package nats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/nats"
	"github.com/posthaste-mq/posthaste/relay"
)

// Sink publishes messages to streams. It implements [posthaste.Sink].
type Sink struct {
	target   *target
	links    *relay.Connections[*link]
	repeated atomic.Bool // whether a first attempt was told to be a repetition
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with the field, and hold no password.
func New(c Config) (*Sink, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, links: relay.NewConnections(t.Connections, "nats", t.address, t.Logger, t.dial)}, nil
}

// Broker returns the servers' addresses, "host:port", separated by commas.
func (s *Sink) Broker() string { return s.target.address }

// Away says whether the broker could not be used when it was tried last: messages wait
// for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.links.Away() }

// Close ends the connections. What is being published stays unknown, and
// deliveries after it fail and can be retried. It may be called again.
func (s *Sink) Close() error {
	s.links.Close()
	return nil
}

// Check connects and looks whether the server will take messages as configured:
// the login, JetStream, and the stream that takes the subject, as far as they are
// the same for all messages and the user may ask. What is wrong with the
// configuration is a *posthaste.Error of code Invalid with the field; a server
// that does not answer one of code Unavailable.
func (s *Sink) Check(ctx context.Context) error {
	l, err := s.target.dial(ctx)
	if err != nil {
		return s.atStart(err)
	}
	defer l.Close()
	invalid := func(field string, err error, hint string) error {
		return &posthaste.Error{Code: posthaste.Invalid, Field: field, Message: fmt.Sprintf("nats at %s: %v", s.target.address, err), Hint: hint, Cause: err}
	}
	const noJetStream = "start the server with JetStream (nats-server --jetstream), and enable it for the user's account"
	stream := s.target.Stream
	if stream != "" {
		err := l.ask(ctx, "$JS.API.STREAM.INFO."+stream, func(ctx context.Context) error {
			_, err := l.js.Stream(ctx, stream)
			return err
		})
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return invalid("stream", fmt.Errorf("there is no stream %q", stream), "add the stream, or name one that is there")
		case withoutJetStream(err):
			return invalid("url", err, noJetStream)
		case err != nil:
			return s.atStart(err)
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
		return invalid("subject", fmt.Errorf("no stream takes subject %q", subject), "add a stream with this subject, or name one that a stream takes")
	case withoutJetStream(err):
		return invalid("url", err, noJetStream)
	case err != nil:
		return s.atStart(err)
	case stream != "" && takes != "" && takes != stream:
		return invalid("subject", fmt.Errorf("subject %q is taken by stream %q, and not by %q", subject, takes, stream), "give the stream this subject, or name the other one")
	}
	return nil
}

// withoutJetStream says whether an error tells that nobody answers for JetStream.
func withoutJetStream(err error) bool {
	return errors.Is(err, natsgo.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// ask asks the server by a request on a subject. One that the user may not ask is
// no error: what it would tell is found out by publishing.
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

// atStart says whether an error of connecting is one of the configuration.
func (s *Sink) atStart(err error) error {
	e := nats.AtStart(err, s.target.Credentials)
	if errors.Is(err, natsgo.ErrPermissionViolation) {
		e.Code, e.Field, e.Hint = posthaste.Invalid, "inbox_prefix", "let the user subscribe to inbox_prefix (default _INBOX.>), for acks come there"
	}
	return e
}
