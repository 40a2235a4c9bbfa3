package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/net/http/httpguts"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// job is a message in flight.
type job struct {
	relay.Job
	first  bool
	msg    *natsgo.Msg
	flight *flight
	ack    jetstream.PubAckFuture
}

// once keeps the library from publishing a message again by itself, which would change
// the order of messages.
var once = jetstream.WithRetryAttempts(0)

// Deliver implements [posthaste.Sink]. It publishes the whole batch and then waits for the
// acknowledgments.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	jobs := make([]job, 0, len(batch))
	for i := range batch {
		msg, err := s.target.prepare(&batch[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		jobs = append(jobs, job{Job: relay.Job{Index: i}, first: batch[i].Attempt <= 1, msg: msg})
	}
	for len(jobs) > 0 {
		n := min(len(jobs), s.target.Outstanding)
		s.publish(ctx, jobs[:n], results)
		jobs = jobs[n:]
	}
	return results
}

// prepare returns the message to publish for a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (*natsgo.Msg, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return nil, err
	}
	m := &natsgo.Msg{Data: out.Payload, Header: make(natsgo.Header, len(out.Headers)+4)}
	if m.Subject, err = t.subject.Execute(d); err != nil {
		return nil, err
	}
	if err := checkSubject(m.Subject); err != nil {
		return nil, posthaste.Permanent(err)
	}
	for _, h := range out.Headers {
		switch {
		case !validName(h.Name):
			return nil, posthaste.Permanent(posthaste.Invalidf("headers", "NATS does not allow the header name %q: use letters, digits and -_.!#$%%&'*+^`|~", h.Name))
		case strings.EqualFold(h.Name, HeaderContentType) && h.Value != out.ContentType:
			return nil, posthaste.Permanent(posthaste.Invalidf("headers", "header %s is %q, but the message's content type, which is sent under this name, is %q: remove or rename the header", h.Name, h.Value, out.ContentType))
		case strings.EqualFold(h.Name, HeaderContentType):
			continue // below
		case isCommand(h.Name) && !t.commands[h.Name]:
			return nil, posthaste.Permanent(posthaste.Invalidf("headers", "the header %s is a command to the server, which a message may not send: set it in the relay's configuration, or rename it", h.Name))
		case t.encoded && strings.HasPrefix(h.Name, eventPrefix):
			h.Value = encode(h.Value)
		}
		if err := checkValue(h.Name, h.Value); err != nil {
			return nil, err
		}
		m.Header[h.Name] = []string{h.Value}
	}
	for _, h := range [...]struct{ name, value string }{{natsgo.MsgIdHdr, out.MessageID}, {natsgo.ExpectedStreamHdr, t.Stream}, {HeaderContentType, out.ContentType}} {
		if err := checkValue(h.name, h.value); err != nil {
			return nil, err
		}
		if h.value != "" {
			m.Header[h.name] = []string{h.value}
		}
	}
	if t.encoded { // because receivers of CloudEvents read it there
		m.Header[eventPrefix+"datacontenttype"] = []string{encode(out.ContentType)}
	}
	return m, nil
}

// isCommand reports whether a header is a command to the server.
func isCommand(name string) bool {
	return len(name) >= len(commandPrefix) && strings.EqualFold(name[:len(commandPrefix)], commandPrefix)
}

func validName(name string) bool { return httpguts.ValidHeaderFieldName(name) }

// checkValue rejects values that the library would change silently.
func checkValue(name, value string) error {
	if strings.ContainsAny(value, "\r\n\x00") {
		return posthaste.Permanent(posthaste.Invalidf("headers", "the header %s holds a line break or a zero byte, which NATS does not allow: encode the value", name))
	}
	if strings.Trim(value, " \t") != value {
		return posthaste.Permanent(posthaste.Invalidf("headers", "header %s is %q: NATS clients strip blanks at the beginning and end of a value, so send it without them", name, value))
	}
	return nil
}

// encode percent-encodes the characters that the bindings of CloudEvents require.
func encode(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// checkSubject rejects subjects that cannot be published to, and those for the
// administration of the server.
func checkSubject(subject string) error {
	var why string
	switch {
	case !plainSubject(subject):
		why = "it must be tokens separated by dots, without spaces, control characters, * and >"
	case strings.HasPrefix(subject, "$JS.") || strings.HasPrefix(subject, "$SYS.") || strings.HasPrefix(subject, "_INBOX."):
		why = "it is for the administration of the server"
	default:
		return nil
	}
	if len(subject) > 100 {
		subject = subject[:100] + "…"
	}
	return posthaste.Invalidf("subject", "publishing to subject %q is not possible: %s", subject, why)
}

// publish publishes jobs on the next link and sets their results.
func (s *Sink) publish(ctx context.Context, jobs []job, results []posthaste.SinkResult) {
	l, err := s.acquireLink(ctx, int64(len(jobs)))
	if err != nil {
		relay.FailAll(jobs, results, err)
		return
	}
	defer l.release()
	defer l.window.Release(int64(len(jobs)))
	written := s.send(ctx, l, jobs, results)
	if written < len(jobs) {
		why := "the connection was lost before the message was published"
		if l.lost() == nil {
			why = "it was not published"
		}
		relay.FailAll(jobs[written:], results, s.failed(ctx, why, l.lost()))
	}
	for i := range jobs[:written] {
		j := &jobs[i]
		if j.ack == nil {
			continue // it has its result
		}
		results[j.Index].Err = s.acked(ctx, l, j)
		l.leave(j.msg.Subject, j.flight)
	}
}

// acquireLink returns the next link, with room for n unacknowledged messages.
func (s *Sink) acquireLink(ctx context.Context, n int64) (*link, error) {
	index := s.links.Next(s.target.Connections)
	for {
		l, err := s.links.Get(ctx, index)
		if err != nil {
			return nil, err
		}
		if err := l.window.Acquire(ctx, n); err != nil {
			l.release()
			return nil, s.failed(ctx, "nothing was published, because the server is slow to acknowledge earlier messages", nil)
		}
		if l.unanswered.Load() < int64(s.target.Outstanding) {
			return l, nil
		}
		// The link was retired while this call waited. Its replacement has room.
		l.window.Release(n)
		l.release()
	}
}

// unanswered counts a message whose acknowledgment is no longer awaited.
func (s *Sink) unanswered(l *link) {
	if l.unanswered.Add(1) >= int64(s.target.Outstanding) {
		l.Retire() // before the library reaches its bound
	}
}

// send writes jobs to the connection and returns how many it has taken. That includes
// jobs that the library refused one by one, whose results are set.
func (s *Sink) send(ctx context.Context, l *link, jobs []job, results []posthaste.SinkResult) (written int) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0
	}
	if ctx.Err() != nil {
		return 0 // without ending the link, which others use
	}
	// A write hangs if the server has stopped reading.
	stop := context.AfterFunc(ctx, l.cut)
	defer stop()
	for i := range jobs {
		j := &jobs[i]
		if ctx.Err() != nil {
			return i // without ending the link
		}
		j.flight = l.take(j.msg.Subject)
		ack, err := l.js.PublishMsgAsync(j.msg, once)
		if err == nil {
			j.ack = ack
			continue
		}
		l.leave(j.msg.Subject, j.flight)
		switch {
		case errors.Is(err, natsgo.ErrMaxPayload):
			results[j.Index].Err = posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload",
				Message: fmt.Sprintf("%v: payload and headers have %d bytes, but the limit of nats at %s is %d (max_payload)", err, size(j.msg), s.target.endpoint.address, l.conn.MaxPayload())})
		case errors.Is(err, natsgo.ErrBadSubject):
			results[j.Index].Err = posthaste.Permanent(posthaste.Invalidf("subject", "publishing to subject %q is not possible: %v", j.msg.Subject, err))
		default:
			l.end(err)
			l.cut()
			return i
		}
	}
	return len(jobs)
}

// size returns about what counts towards max_payload, in bytes.
func size(m *natsgo.Msg) int {
	n := len(m.Data) + len("NATS/1.0\r\n\r\n")
	for name, values := range m.Header {
		n += len(name) + len(values[0]) + len(": \r\n")
	}
	return n
}

// acked waits for the acknowledgment of a message.
func (s *Sink) acked(ctx context.Context, l *link, j *job) error {
	ok, failed := j.ack.Ok(), j.ack.Err()
	select {
	case ack := <-ok:
		return s.stored(j, ack)
	case err := <-failed:
		return s.refused(ctx, j, err)
	default:
	}
	select {
	case ack := <-ok:
		return s.stored(j, ack)
	case err := <-failed:
		return s.refused(ctx, j, err)
	case <-j.flight.denied:
		s.unanswered(l)
		return fmt.Errorf("nats at %s: %s", s.target.endpoint.address, j.flight.words)
	case <-l.ended:
		select { // an acknowledgment that came before the end counts
		case ack := <-ok:
			return s.stored(j, ack)
		default:
		}
		return s.failed(ctx, "the connection was lost before the acknowledgment, so the message may be published twice", l.lost())
	case <-ctx.Done():
		s.unanswered(l)
		l.Retire()
		return s.failed(ctx, fmt.Sprintf("published, but not acknowledged (does a stream take subject %q?)", j.msg.Subject), nil)
	}
}

// stored returns the result of an acknowledged message, which is nil.
func (s *Sink) stored(j *job, ack *jetstream.PubAck) error {
	if ack.Duplicate && j.first && !s.dropped.Swap(true) {
		s.target.Logger.Warn("a stream dropped a first attempt as a duplicate: use message_id to distinguish databases, subscriptions or replays",
			"server", s.target.endpoint.address, "stream", ack.Stream, "subject", j.msg.Subject, "message_id", j.msg.Header.Get(natsgo.MsgIdHdr))
	}
	return nil
}

// refused returns the result of a message that got an error in place of an
// acknowledgment.
func (s *Sink) refused(ctx context.Context, j *job, err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("nats at %s: no responders: no stream takes subject %q, or its leader is away; create a stream with this subject", s.target.endpoint.address, j.msg.Subject)
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Cause: err,
			Message: fmt.Sprintf("nats at %s: %s (%d): payload and headers have %d bytes", s.target.endpoint.address, api.Description, api.ErrorCode, size(j.msg))})
	case errors.As(err, &api):
		return fmt.Errorf("nats at %s refused the message: %s (%d)", s.target.endpoint.address, api.Description, api.ErrorCode)
	}
	return s.failed(ctx, "no acknowledgment", err)
}

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, what string, cause error) error {
	return relay.Failed(ctx, fmt.Sprintf("nats at %s: %s", s.target.endpoint.address, what), cause)
}
