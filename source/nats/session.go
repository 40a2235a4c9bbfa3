package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
		s.Close()
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
	consumer *jetstream.ConsumerInfo
	pull     *puller
	// made is when the stream was made, for sequences begin anew with a new one.
	made int64
	lost atomic.Bool
	beat *time.Ticker
	over chan struct{} // closed when nothing is held any more

	mu   sync.Mutex
	held map[string]*natsgo.Msg // what was read and not acknowledged, by where it is
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
	gone := make(chan struct{})
	options = append(options, natsgo.ClosedHandler(func(*natsgo.Conn) { close(gone) }))
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
	s := &session{broker: b, conn: conn, over: make(chan struct{}), held: map[string]*natsgo.Msg{}}
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	err = s.prepare(ctx)
	if err == nil {
		s.pull, err = newPuller(conn, gone, s.consumer.Stream, s.consumer.Name)
	}
	if err != nil {
		conn.Close()
		return nil, b.said(err)
	}
	s.beat = time.NewTicker(max(s.consumer.Config.AckWait/4, 100*time.Millisecond))
	go s.hold()
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
	consumer, err := stream.Consumer(ctx, s.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: s.Consumer, FilterSubject: s.Subject, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 10_000})
		var api *jetstream.APIError
		if errors.As(err, &api) {
			return &fault{err, "consumer", "make the consumer yourself, or name another"}
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) || err == nil && consumer.CachedInfo().Config.AckPolicy != jetstream.AckExplicitPolicy {
		return &fault{fmt.Errorf("consumer %q is no pull consumer with explicit acknowledgements", s.Consumer), "consumer", "name another one; one that is not there is made"}
	}
	if err != nil {
		return err
	}
	if most := consumer.CachedInfo().Config.MaxDeliver; most > 0 {
		// Each lost connection is a delivery, and after the last one the server hands a
		// message out no more.
		return &fault{fmt.Errorf("consumer %q gives a message up after %d deliveries (MaxDeliver): it would be lost", s.Consumer, most), "consumer",
			"let its MaxDeliver be -1; what cannot be taken in is put aside"}
	}
	s.consumer = consumer.CachedInfo()
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

// ackWait is that of a consumer that is made: how long what was handed over may be
// without a sign of life before it comes again. What is held gives one four times as
// often.
const ackWait = 30 * time.Second

// hold tells the server that what is held is still being worked on, until the session
// is closed.
func (s *session) hold() {
	for {
		select {
		case <-s.over:
			return
		case <-s.beat.C:
		}
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.held))
		s.mu.Unlock()
		for _, m := range all {
			_ = m.InProgress() // a lost connection is noticed elsewhere
		}
	}
}

// wait is how long one request waits for messages: it cannot be interrupted.
const wait = 500 * time.Millisecond

// Read implements [source.Session].
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		messages, err := s.pull.next(most, 0)
		if len(messages) == 0 && err == nil {
			messages, err = s.pull.next(1, wait)
		}
		var all []source.Arrival
		s.mu.Lock()
		for _, m := range messages {
			s.held[m.Reply] = m
			all = append(all, s.arrival(m))
		}
		s.mu.Unlock()
		if len(all) > 0 {
			return all, nil
		}
		if err != nil {
			s.lost.Store(true)
			return nil, s.said(errors.Join(err, s.conn.LastError()))
		}
	}
}

// Acknowledge implements [source.Session]. The server takes acknowledgements in order:
// when it has confirmed the last one, it has those before.
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i, a := range arrived {
		m := a.Token.(*natsgo.Msg)
		var err error
		if i < len(arrived)-1 {
			err = m.Ack()
		} else {
			err = m.AckSync(natsgo.Context(ctx))
		}
		if err != nil {
			s.lost.Store(true)
			return s.said(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range arrived {
		delete(s.held, a.Token.(*natsgo.Msg).Reply)
	}
	return nil
}

// HeaderRefusedAt is where a message lies that was put aside without the reason, as
// "STREAM/SEQUENCE".
const HeaderRefusedAt = "posthaste-refused-at"

// Refuse implements [source.Session]. A message that has no room left for the reason is
// put aside as it came, and the reason behind it in a message of its own.
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m := a.Token.(*natsgo.Msg)
	as := &natsgo.Msg{Subject: s.Refused, Header: natsgo.Header{}, Data: m.Data}
	for name, values := range m.Header {
		if name == natsgo.MsgIdHdr || !strings.HasPrefix(name, orderPrefix) {
			as.Header[name] = values
		}
	}
	with := &natsgo.Msg{Subject: s.Refused, Header: maps.Clone(as.Header), Data: m.Data}
	for name, value := range headers {
		with.Header[name] = []string{strings.Join(strings.Fields(value), " ")} // on one line
	}
	_, err := s.js.PublishMsg(ctx, with)
	if noRoom(err) {
		var at *jetstream.PubAck
		if at, err = s.js.PublishMsg(ctx, as); err == nil {
			reason := &natsgo.Msg{Subject: s.Refused, Header: natsgo.Header{HeaderRefusedAt: {fmt.Sprintf("%s/%d", at.Stream, at.Sequence)}}}
			for name := range headers {
				reason.Header[name] = with.Header[name]
			}
			if id := m.Header.Get(natsgo.MsgIdHdr); id != "" {
				reason.Header[natsgo.MsgIdHdr] = []string{id + "/" + source.HeaderRefused}
			}
			_, err = s.js.PublishMsg(ctx, reason)
		}
	}
	if err != nil {
		s.lost.Store(true)
		return s.said(err)
	}
	return nil
}

// noRoom says whether a message was too large for the server or the stream.
func noRoom(err error) bool {
	const exceedsMaximum = 10054 // the server's code of what is above a stream's max_msg_size
	var api *jetstream.APIError
	return errors.Is(err, natsgo.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsMaximum
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() && !s.conn.IsClosed() }

// Close implements [source.Session]: what is held is given back at once, if not on
// this connection then on the next one.
func (s *session) Close() {
	s.beat.Stop()
	close(s.over)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.pull.late() {
		s.held[m.Reply] = m
	}
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
