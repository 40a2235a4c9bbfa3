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

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/source"
)

// sourceBroker is a checked SourceConfig. It implements [source.Broker].
type sourceBroker struct {
	SourceConfig
	endpoint      endpoint
	createRefused bool // create a missing stream for refused messages
	// unreturned are the reply subjects of messages that the previous session held when its
	// connection was lost.
	unreturned []string
}

// Kind implements [source.Broker].
func (b *sourceBroker) Kind() string { return "nats" }

// Address implements [source.Broker].
func (b *sourceBroker) Address() string { return b.endpoint.address }

func (b *sourceBroker) brokerError(err error) error {
	return fmt.Errorf("nats at %s: %w", b.endpoint.address, err)
}

// fault is an error in the configuration.
type fault struct {
	error
	field, hint string
}

func (f *fault) Unwrap() error { return f.error }

// Check implements [source.Broker].
func (b *sourceBroker) Check(ctx context.Context) error {
	s, err := b.open(ctx)
	if err == nil {
		s.Close()
		return nil
	}
	e := b.endpoint.connectError(err)
	var f *fault
	if errors.As(err, &f) {
		e.Code, e.Field, e.Hint = posthaste.CodeInvalid, f.field, f.hint
	}
	return e
}

// session reads on a connection of its own. It implements [source.Session].
type session struct {
	*sourceBroker
	conn     *natsgo.Conn
	js       jetstream.JetStream
	consumer *jetstream.ConsumerInfo
	pull     *puller
	// created is when the stream was created, because the sequences of a recreated one begin
	// at 1 again.
	created int64
	lost    atomic.Bool
	beat    *time.Ticker
	over    chan struct{} // closed once the session holds no messages

	mu   sync.Mutex
	held map[string]*natsgo.Msg // messages that were read and not acknowledged, by reply subject
}

// Open implements [source.Broker].
func (b *sourceBroker) Open(ctx context.Context) (source.Session, error) {
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	for _, subject := range b.unreturned {
		if err := s.conn.Publish(subject, []byte("-NAK")); err != nil {
			s.conn.Close()
			return nil, b.brokerError(err)
		}
	}
	b.unreturned = nil
	return s, nil
}

func (b *sourceBroker) open(ctx context.Context) (*session, error) {
	gone := make(chan struct{})
	conn, err := natsgo.Connect(string(b.URL), b.endpoint.options(natsgo.ClosedHandler(func(*natsgo.Conn) { close(gone) }))...)
	if err != nil {
		return nil, b.brokerError(err)
	}
	s := &session{sourceBroker: b, conn: conn, over: make(chan struct{}), held: map[string]*natsgo.Msg{}}
	ctx, cancel := context.WithTimeout(ctx, b.endpoint.DialTimeout)
	defer cancel()
	err = s.prepare(ctx)
	if err == nil {
		s.pull, err = newPuller(conn, gone, s.consumer.Stream, s.consumer.Name)
	}
	if err != nil {
		conn.Close()
		return nil, b.brokerError(err)
	}
	s.beat = time.NewTicker(max(s.consumer.Config.AckWait/4, 100*time.Millisecond))
	go s.hold()
	return s, nil
}

// prepare finds the stream, the consumer and the stream for refused messages. It creates
// the latter two if they are missing.
func (s *session) prepare(ctx context.Context) error {
	var err error
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	stream, err := s.js.Stream(ctx, s.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &fault{fmt.Errorf("stream %q not found", s.Stream), "stream", "create the stream, or name an existing one"}
	case withoutJetStream(err):
		return &fault{err, "url", hintJetStream}
	case err != nil:
		return err
	}
	s.created = stream.CachedInfo().Created.Unix()
	consumer, err := stream.Consumer(ctx, s.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: s.Consumer, FilterSubject: s.Subject, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 10_000})
		var api *jetstream.APIError
		if errors.As(err, &api) {
			return &fault{err, "consumer", "create the consumer, or name another one"}
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) || err == nil && consumer.CachedInfo().Config.AckPolicy != jetstream.AckExplicitPolicy {
		return &fault{fmt.Errorf("consumer %q is not a pull consumer with explicit acknowledgments", s.Consumer), "consumer", "name another one; a missing consumer is created"}
	}
	if err != nil {
		return err
	}
	if most := consumer.CachedInfo().Config.MaxDeliver; most > 0 {
		// Each lost connection counts as a delivery, and the server stops redelivering a
		// message after the last one.
		return &fault{fmt.Errorf("consumer %q stops redelivering a message after %d deliveries (MaxDeliver), so it would be lost", s.Consumer, most), "consumer",
			"set its MaxDeliver to -1; messages that the queue rejects are put aside"}
	}
	s.consumer = consumer.CachedInfo()
	takes, err := s.js.StreamNameBySubject(ctx, s.Refused)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.createRefused:
		if _, err = s.js.CreateStream(ctx, jetstream.StreamConfig{Name: s.Stream + "-refused", Subjects: []string{s.Refused}}); err != nil {
			return &fault{err, "refused", "create a stream that takes subject " + s.Refused + ", or set another subject"}
		}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &fault{fmt.Errorf("no stream takes subject %q", s.Refused), "refused", "create a stream with this subject, or set a subject that a stream takes"}
	case err == nil && takes == s.Stream:
		return &fault{fmt.Errorf("subject %q belongs to the stream that the source reads, so refused messages would be read again", s.Refused), "refused", "set a subject of another stream"}
	}
	return err
}

// ackWait is the AckWait of a consumer that the source creates: the time after which an
// unacknowledged message is redelivered. Sessions extend it four times as often.
const ackWait = 30 * time.Second

// hold extends the AckWait of the held messages until the session is closed.
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
			_ = m.InProgress() // Read and Acknowledge notice a lost connection
		}
	}
}

// wait is how long one request waits for messages. A request cannot be interrupted.
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
			return nil, s.brokerError(errors.Join(err, s.conn.LastError()))
		}
	}
}

// Acknowledge implements [source.Session]. The server processes acknowledgments in order,
// so that it has all of them once it has confirmed the last one.
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
			return s.brokerError(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range arrived {
		delete(s.held, a.Token.(*natsgo.Msg).Reply)
	}
	return nil
}

// Refuse implements [source.Session]. If message and reason together are too large, it
// publishes the message unchanged, and the reason after it in a message of its own.
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m := a.Token.(*natsgo.Msg)
	as := &natsgo.Msg{Subject: s.Refused, Header: natsgo.Header{}, Data: m.Data}
	for name, values := range m.Header {
		if name == natsgo.MsgIdHdr || !strings.HasPrefix(name, commandPrefix) {
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
		return s.brokerError(err)
	}
	return nil
}

// noRoom reports whether a message is too large for the server or the stream.
func noRoom(err error) bool {
	const exceedsMaximum = 10054 // the server's code for messages above a stream's max_msg_size
	var api *jetstream.APIError
	return errors.Is(err, natsgo.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsMaximum
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() && !s.conn.IsClosed() }

// Close implements [source.Session]. It returns the held messages to the server at once,
// or on the next connection if this one is lost.
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
			s.unreturned = append(s.unreturned, reply)
		}
	}
	s.held = nil
	if !s.lost.Swap(true) {
		_ = s.conn.FlushTimeout(time.Second)
	}
	s.conn.Close()
}
