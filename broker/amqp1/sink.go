package amqp1

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/Azure/go-amqp"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// kind names the broker in errors.
const kind = "AMQP 1.0 broker"

// Sink sends messages to a broker. It implements [posthaste.Sink].
type Sink struct {
	target      *target
	connections *relay.Connections[*connection]
	// alone is held while a message is sent on the last connection.
	alone chan struct{}
}

var _ posthaste.Sink = (*Sink)(nil)

// NewSink checks the configuration and returns a sink, which connects at its first
// delivery. Errors are *posthaste.Error with the field, and hold no password.
func NewSink(c SinkConfig) (*Sink, error) {
	t, err := parseSink(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, connections: relay.NewConnections(t.Connections+1, relay.Server{Kind: kind, Address: t.address}, t.Logger, t.dial), alone: make(chan struct{}, 1)}, nil
}

// Broker returns the broker's address, "host:port".
func (s *Sink) Broker() string { return s.target.address }

// Away reports whether the last attempt to use the broker failed. Messages wait for it
// then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.connections.Away() }

// Close closes the connections. Messages in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.connections.Close()
	return nil
}

// Check connects and verifies the login, the virtual host, and the address, if all
// messages have the same one. An error is a *posthaste.Error: Invalid with the field if
// the configuration is wrong, Unavailable if the broker does not answer.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.target.DialTimeout)
	defer cancel()
	c, err := s.target.dial(ctx)
	if err != nil {
		return atStart(err, "url")
	}
	defer c.Close()
	if _, err := c.conn.NewSession(ctx, nil); err != nil {
		return atStart(s.target.said(err), "url")
	}
	if address, static := s.target.to.Static(); static {
		if l := c.attach(ctx, address); l.err != nil {
			return atStart(s.target.said(l.err), "address")
		}
	}
	return nil
}

// misconfigured are conditions with which brokers refuse a configuration.
var misconfigured = []amqp.ErrCond{amqp.ErrCondNotFound, amqp.ErrCondUnauthorizedAccess, amqp.ErrCondNotAllowed, amqp.ErrCondInvalidField,
	amqp.ErrCondNotImplemented, amqp.ErrCondPreconditionFailed, amqp.ErrCondResourceDeleted}

// atStart classifies an error of connecting or attaching: Invalid with a hint if the
// configuration is at fault, Unavailable otherwise.
func atStart(err error, field string) error {
	var authority *tls.CertificateVerificationError
	var remote *amqp.Error
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: err.Error(), Cause: err}
	switch {
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	case strings.Contains(err.Error(), "auth failed"), strings.Contains(err.Error(), "auth mechanism"): // the library has no values for these errors
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the broker"
	case errors.As(err, &remote) && slices.Contains(misconfigured, remote.Condition) && field == "address":
		e.Hint = "create the queue or topic, let the user send to it, or give its address in the form that the broker expects"
	case errors.As(err, &remote) && slices.Contains(misconfigured, remote.Condition):
		e.Hint = "check the virtual host, which is the URL's path, and the user's permissions"
	default:
		e.Code, e.Field, e.Hint = posthaste.CodeUnavailable, "", "start the broker, or check host and port in its URL"
	}
	return e
}

// saidError is an error with the broker's address and its own words, if there are any.
type saidError struct {
	text  string
	cause error
}

// Error implements error.
func (e *saidError) Error() string { return e.text }

// Unwrap returns the error of the library.
func (e *saidError) Unwrap() error { return e.cause }

func (t *target) said(err error) error {
	return &saidError{fmt.Sprintf("%s at %s: %s", kind, t.address, words(err)), err}
}

// words returns the text of an error: the broker's own words, if there are any.
func words(err error) string {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return strings.TrimSuffix(fmt.Sprintf("%s: %s", remote.Condition, remote.Description), ": ")
	}
	return err.Error()
}

// connection is a connection that several batches use concurrently. It is never repaired
// but replaced.
type connection struct {
	relay.Users
	conn   *amqp.Conn
	raw    net.Conn            // below TLS
	window *semaphore.Weighted // bounds the unsettled messages
	used   atomic.Int64        // when a batch last ended, in Unix nanoseconds

	turn  chan struct{} // held to read and change links
	links map[string]*link
}

// link is a sender for an address, in a session of its own.
type link struct {
	session *amqp.Session
	sender  *amqp.Sender
	err     error       // why it could not be attached
	ended   atomic.Bool // whether it must be replaced
}

const (
	// maxLinks is the maximum number of addresses of a connection. A connection that needs
	// more is replaced.
	maxLinks = 100
	// maxIdle is how long a connection may be unused. Azure Service Bus detaches links
	// after 10 idle minutes, and the library does not tell before the next message is lost.
	maxIdle = 5 * time.Minute
	// hangs is how long a write may last after the attempt has timed out.
	hangs = time.Second
)

// errFull is the error of a connection with maxLinks links.
var errFull = errors.New("the connection has no room for another link")

// dial opens a connection, bounded by ctx and DialTimeout.
func (t *target) dial(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, t.DialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, t.said(err)
	}
	through := raw
	if t.TLS != nil {
		secured := tls.Client(raw, t.TLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, t.said(err)
		}
		through = secured
	}
	conn, err := amqp.NewConn(ctx, through, &amqp.ConnOptions{ContainerID: "posthaste-relay-" + rand.Text(), HostName: t.host, SASLType: t.login,
		Properties: map[string]any{"product": "posthaste"}})
	if err != nil {
		raw.Close()
		return nil, t.said(err)
	}
	c := &connection{conn: conn, raw: raw, window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1), links: map[string]*link{}}
	c.used.Store(time.Now().UnixNano())
	return c, nil
}

// Use implements [relay.Connection].
func (c *connection) Use() bool {
	if !c.Users.Use() {
		return false
	}
	select {
	case <-c.conn.Done():
	default:
		if time.Since(time.Unix(0, c.used.Load())) < maxIdle {
			return true
		}
	}
	c.Retire()
	c.release()
	return false
}

// release undoes Use. The last user closes a retired connection.
func (c *connection) release() {
	c.used.Store(time.Now().UnixNano())
	if c.Leave() {
		c.Close()
	}
}

// Close closes the connection. Messages in flight may or may not be stored.
func (c *connection) Close() {
	c.Retire()
	defer time.AfterFunc(hangs, c.cut).Stop()
	_ = c.conn.Close()
}

// cut closes the connection at once, even if a write hangs.
func (c *connection) cut() { _ = c.raw.Close() }

// attach returns the link to an address, which has an err if it cannot be attached.
func (c *connection) attach(ctx context.Context, address string) *link {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return &link{err: ctx.Err()}
	}
	if l := c.links[address]; l != nil {
		if !l.ended.Load() {
			return l
		}
		delete(c.links, address)
		go l.session.Close(context.Background()) // ends with the connection at the latest
	}
	if len(c.links) >= maxLinks {
		return &link{err: errFull}
	}
	session, err := c.conn.NewSession(ctx, nil)
	if err != nil {
		return &link{err: err}
	}
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		go session.Close(context.Background())
		return &link{err: err}
	}
	l := &link{session: session, sender: sender}
	c.links[address] = l
	return l
}

// Deliver implements [posthaste.Sink]. It sends the whole batch and then waits for the
// outcomes.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	var jobs, alone []job
	for i := range batch {
		j, err := s.target.prepare(&batch[i])
		j.place = i
		switch {
		case err != nil:
			results[i].Err = err
		case j.alone:
			alone = append(alone, j)
		default:
			jobs = append(jobs, j)
		}
	}
	for part := range slices.Chunk(jobs, s.target.Outstanding) {
		s.publish(ctx, s.connections.Next(s.target.Connections), part, results)
	}
	for i := range alone {
		s.publishAlone(ctx, alone[i:i+1], results)
	}
	return results
}

// publishAlone sends a job while no other job is on its connection.
func (s *Sink) publishAlone(ctx context.Context, job []job, results []posthaste.SinkResult) {
	select {
	case s.alone <- struct{}{}:
		defer func() { <-s.alone }()
		s.publish(ctx, s.target.Connections, job, results)
	case <-ctx.Done():
		answer(job, results, s.failed(ctx, "nothing was sent, because the message goes alone and others were before it", nil))
	}
}

// publish sends jobs on a connection and sets their results. Jobs for which that
// connection has no room are sent on the next one.
func (s *Sink) publish(ctx context.Context, which int, jobs []job, results []posthaste.SinkResult) {
	for len(jobs) > 0 {
		c, err := s.connections.Get(ctx, which)
		if err != nil {
			answer(jobs, results, err)
			return
		}
		jobs = s.publishOn(ctx, c, jobs, results)
	}
}

// publishOn sends jobs on a connection and sets their results, except for those that it
// returns: they must be sent on another connection.
func (s *Sink) publishOn(ctx context.Context, c *connection, jobs []job, results []posthaste.SinkResult) (elsewhere []job) {
	defer c.release()
	count := int64(len(jobs))
	if err := c.window.Acquire(ctx, count); err != nil {
		answer(jobs, results, s.failed(ctx, "nothing was sent, because the broker is slow to settle earlier messages", nil))
		return nil
	}
	defer c.window.Release(count)
	sent, elsewhere := s.send(ctx, c, jobs, results)
	for _, j := range sent {
		state, err := j.receipt.Wait(ctx)
		if err != nil {
			results[j.place] = s.lost(ctx, &j, err)
		} else {
			results[j.place].Err = s.target.outcome(state)
		}
	}
	if ctx.Err() != nil {
		c.Retire() // because it may hang, with messages that stay unsettled
	}
	return elsewhere
}

// send writes jobs to a connection. It returns those that were written, and those for
// which the connection has no room. It sets the results of all others.
func (s *Sink) send(ctx context.Context, c *connection, jobs []job, results []posthaste.SinkResult) (sent, elsewhere []job) {
	written := make(chan struct{})
	defer close(written)
	// A write hangs if the broker has stopped reading.
	defer context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(hangs):
			c.cut()
		}
	})()
	links := map[string]*link{}
	for i := range jobs {
		j := &jobs[i]
		if ctx.Err() != nil {
			answer(jobs[i:], results, s.failed(ctx, "nothing was sent", nil))
			return sent, nil
		}
		if links[j.address] == nil {
			links[j.address] = c.attach(ctx, j.address)
		}
		j.link = links[j.address]
		if errors.Is(j.link.err, errFull) {
			c.Retire()
			return sent, jobs[i:]
		}
		if j.link.err != nil {
			results[j.place].Err = s.failed(ctx, fmt.Sprintf("nothing was sent, because no link can be attached to address %q", j.address), j.link.err)
			continue
		}
		var err error
		if j.receipt, err = j.link.sender.SendWithReceipt(ctx, j.msg, nil); err != nil {
			results[j.place] = s.lost(ctx, j, err)
			continue
		}
		sent = append(sent, *j)
	}
	return sent, nil
}

// faulty are conditions that name a fault of a message, so that no retry can succeed.
var faulty = []amqp.ErrCond{amqp.ErrCondMessageSizeExceeded, amqp.ErrCondDecodeError, amqp.ErrCondInvalidField, amqp.ErrCondPreconditionFailed}

// outcome returns the error of a message that the broker has settled, or nil if the broker
// accepted it.
func (t *target) outcome(state amqp.DeliveryState) error {
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		// By the specification the message is invalid. Brokers also reject messages for
		// which they have no room. Only the condition distinguishes the two.
		reason := &amqp.Error{Condition: "no reason given"}
		if state.Error != nil {
			reason = state.Error
		}
		err := fmt.Errorf("%s at %s rejected the message: %s", kind, t.address, words(reason))
		if slices.Contains(faulty, reason.Condition) {
			return posthaste.Permanent(err)
		}
		return err
	case *amqp.StateReleased:
		return fmt.Errorf("%s at %s released the message: no queue gets it, or the broker cannot take it now", kind, t.address)
	case *amqp.StateModified:
		err := fmt.Errorf("%s at %s did not take the message (modified, undeliverable here: %t)", kind, t.address, state.UndeliverableHere)
		if state.UndeliverableHere {
			return posthaste.Permanent(err)
		}
		return err
	}
	return fmt.Errorf("%s at %s settled the message with the unknown outcome %T", kind, t.address, state)
}

// linkClosed is the receipt of an attempt during which the broker closed the link and
// named a fault of one of the messages in flight on it.
type linkClosed struct {
	Condition amqp.ErrCond `json:"link_closed"`
}

// suspect reports whether a message may have closed a link in an earlier attempt.
func suspect(story []posthaste.Attempt) bool {
	return slices.ContainsFunc(story, func(a posthaste.Attempt) bool {
		var r linkClosed
		return len(a.Receipt) > 0 && json.Unmarshal(a.Receipt, &r) == nil && r.Condition != ""
	})
}

// lost returns the result of a message that was not sent, or whose outcome is unknown.
func (s *Sink) lost(ctx context.Context, j *job, err error) posthaste.SinkResult {
	var byLink *amqp.LinkError
	var bySession *amqp.SessionError
	var byConnection *amqp.ConnError
	var reason *amqp.Error
	closed := errors.As(err, &byLink) || errors.As(err, &bySession)
	switch {
	case closed || errors.As(err, &byConnection):
		j.link.ended.Store(true)
	case ctx.Err() != nil:
		return posthaste.SinkResult{Err: s.failed(ctx, "the broker did not settle the message in time", err)}
	case errors.As(err, &reason) && reason.Condition == amqp.ErrCondMessageSizeExceeded: // found before it was sent
		return posthaste.SinkResult{Err: posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Message: s.target.said(err).Error(), Cause: err})}
	default:
		return posthaste.SinkResult{Err: s.failed(ctx, "nothing was sent", err)}
	}
	result := posthaste.SinkResult{Err: s.failed(ctx, "the link ended before the broker settled the message, so that it may be sent twice", err)}
	if !closed || !errors.As(err, &reason) || !slices.Contains(faulty, reason.Condition) {
		return result
	}
	if j.alone {
		result.Err = posthaste.Permanent(fmt.Errorf("%s at %s refused the message and closed the link: %s", kind, s.target.address, words(err)))
	}
	result.Receipt, _ = json.Marshal(linkClosed{reason.Condition}) // a string can be encoded
	return result
}

// answer sets the results of jobs to one error.
func answer(jobs []job, results []posthaste.SinkResult, err error) {
	for i := range jobs {
		results[jobs[i].place].Err = err
	}
}

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, what string, cause error) error {
	if cause != nil {
		cause = &saidError{words(cause), cause}
	}
	return relay.Failed(ctx, fmt.Sprintf("%s at %s: %s", kind, s.target.address, what), cause)
}
