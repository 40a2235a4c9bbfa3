package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/nats"
	"github.com/posthaste-mq/posthaste/source"
)

// broker is a checked Config. It implements [source.Broker].
type broker struct {
	Config
	address string // host:port, without user and password
	makes   bool   // a stream for what is refused, if there is none
	// left are where those are acknowledged that the session before held when its
	// connection was lost.
	left []string
}

// Kind implements [source.Broker].
func (b *broker) Kind() string { return "nats" }

// Address implements [source.Broker].
func (b *broker) Address() string { return b.address }

func (b *broker) said(err error) error { return fmt.Errorf("nats at %s: %w", b.address, err) }

// fault is an error of the configuration.
type fault struct {
	error
	field, hint string
}

func (f *fault) Unwrap() error { return f.error }

// Check implements [source.Broker].
func (b *broker) Check(ctx context.Context) error {
	s, err := b.open(ctx)
	if err == nil {
		s.conn.Close()
		return nil
	}
	e := nats.AtStart(err, b.Credentials)
	var f *fault
	if errors.As(err, &f) {
		e.Code, e.Field, e.Hint = posthaste.Invalid, f.field, f.hint
	}
	return e
}

// session consumes on a connection of its own. It implements [source.Session].
type session struct {
	*broker
	conn     *natsgo.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	// made is when the stream was made, for sequences begin anew with a new one.
	made int64
	lost atomic.Bool
	held map[string]jetstream.Msg // what was read and not acknowledged, by where it is
}

// Open implements [source.Broker].
func (b *broker) Open(ctx context.Context) (source.Session, error) {
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	for _, subject := range b.left {
		if err := s.conn.Publish(subject, []byte("-NAK")); err != nil {
			s.conn.Close()
			return nil, b.said(err)
		}
	}
	b.left = nil
	return s, nil
}

func (b *broker) open(ctx context.Context) (*session, error) {
	options := []natsgo.Option{natsgo.Name(b.Name), natsgo.NoReconnect(), natsgo.Timeout(b.DialTimeout), natsgo.PingInterval(10 * time.Second), natsgo.MaxPingsOutstanding(2)}
	if b.TLS != nil {
		options = append(options, natsgo.Secure(b.TLS))
	}
	if b.Credentials != "" {
		options = append(options, natsgo.UserCredentials(b.Credentials))
	}
	if b.InboxPrefix != "" {
		options = append(options, natsgo.CustomInboxPrefix(b.InboxPrefix))
	}
	conn, err := natsgo.Connect(b.URL, options...)
	if err != nil {
		return nil, b.said(err)
	}
	s := &session{broker: b, conn: conn, held: map[string]jetstream.Msg{}}
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		conn.Close()
		return nil, b.said(err)
	}
	return s, nil
}

// prepare finds the stream and the consumer, which it makes if there is none, and a
// place for what is refused.
func (s *session) prepare(ctx context.Context) error {
	const noJetStream = "start the server with JetStream (nats-server --jetstream), and enable it for the user's account"
	var err error
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	stream, err := s.js.Stream(ctx, s.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &fault{fmt.Errorf("there is no stream %q", s.Stream), "stream", "add the stream, or name one that is there"}
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return &fault{err, "url", noJetStream}
	case err != nil:
		return err
	}
	s.made = stream.CachedInfo().Created.Unix()
	if s.consumer, err = stream.Consumer(ctx, s.Consumer); errors.Is(err, jetstream.ErrConsumerNotFound) {
		s.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: s.Consumer, FilterSubject: s.Subject, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 2 * time.Minute, MaxDeliver: -1, MaxAckPending: 10_000})
		var api *jetstream.APIError
		if errors.As(err, &api) {
			return &fault{err, "consumer", "make the consumer yourself, or name another"}
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) || err == nil && s.consumer.CachedInfo().Config.AckPolicy != jetstream.AckExplicitPolicy {
		return &fault{fmt.Errorf("consumer %q is no pull consumer with explicit acknowledgements", s.Consumer), "consumer", "name another one; one that is not there is made"}
	}
	if err != nil {
		return err
	}
	takes, err := s.js.StreamNameBySubject(ctx, s.Refused)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.makes:
		if _, err = s.js.CreateStream(ctx, jetstream.StreamConfig{Name: s.Stream + "-refused", Subjects: []string{s.Refused}}); err != nil {
			return &fault{err, "refused", "add a stream that takes subject " + s.Refused + " yourself, or name another subject"}
		}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &fault{fmt.Errorf("no stream takes subject %q", s.Refused), "refused", "add a stream with this subject, or name one that a stream takes"}
	case err == nil && takes == s.Stream:
		return &fault{fmt.Errorf("subject %q is taken by the stream that messages are taken from: what is put aside there would come again", s.Refused), "refused", "name a subject of another stream"}
	}
	return err
}

// pull is how long one request waits for messages: it cannot be interrupted.
const pull = 500 * time.Millisecond

// Read implements [source.Session].
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all, err := s.collect(s.consumer.FetchNoWait(most))
		if len(all) == 0 && err == nil {
			all, err = s.collect(s.consumer.Fetch(1, jetstream.FetchMaxWait(pull)))
		}
		if len(all) > 0 {
			return all, nil
		}
		if err == nil && s.conn.IsClosed() {
			err = errors.Join(errors.New("the connection was lost"), s.conn.LastError())
		}
		if err != nil {
			s.lost.Store(true)
			return nil, s.said(err)
		}
	}
}

func (s *session) collect(batch jetstream.MessageBatch, err error) (all []source.Arrival, _ error) {
	if err != nil {
		return nil, err
	}
	for m := range batch.Messages() {
		s.held[m.Reply()] = m
		all = append(all, s.arrival(m))
	}
	return all, batch.Error()
}

// Acknowledge implements [source.Session]. The server takes acknowledgements in order:
// when it has confirmed the last one, it has those before.
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i, a := range arrived {
		m := a.Token.(jetstream.Msg)
		var err error
		if i < len(arrived)-1 {
			err = m.Ack()
		} else {
			err = m.DoubleAck(ctx)
		}
		if err != nil {
			s.lost.Store(true)
			return s.said(err)
		}
	}
	for _, a := range arrived {
		delete(s.held, a.Token.(jetstream.Msg).Reply())
	}
	return nil
}

// Refuse implements [source.Session].
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m := a.Token.(jetstream.Msg)
	out := &natsgo.Msg{Subject: s.Refused, Header: natsgo.Header{}, Data: m.Data()}
	for name, values := range m.Headers() {
		if name == natsgo.MsgIdHdr || !strings.HasPrefix(name, orderPrefix) {
			out.Header[name] = values
		}
	}
	for name, value := range headers {
		out.Header[name] = []string{strings.Join(strings.Fields(value), " ")} // on one line
	}
	if _, err := s.js.PublishMsg(ctx, out); err != nil {
		s.lost.Store(true)
		return s.said(err)
	}
	return nil
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() && !s.conn.IsClosed() }

// Close implements [source.Session]: what is held is given back at once, if not on
// this connection then on the next one.
func (s *session) Close() {
	for reply, m := range s.held {
		if s.lost.Load() || s.conn.IsClosed() || m.Nak() != nil {
			s.left = append(s.left, reply)
		}
	}
	s.held = nil
	if !s.lost.Swap(true) {
		_ = s.conn.FlushTimeout(time.Second)
	}
	s.conn.Close()
}
