package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

const (
	// large is the size in bytes above which a message is published alone, because the
	// broker closes the channel if a message is larger than its limit.
	large = 256 << 10
	// suspicious is the attempt from which on a message is published alone, because it
	// may have closed the channel or ended the relay before.
	suspicious = 4
	// shortText is the maximum length of AMQP's short strings, in bytes.
	shortText = 255
)

// job is a message in flight.
type job struct {
	relay.Job
	route route
	msg   amqp.Publishing
	// alone says that nothing else is on its link, so that this message is the cause if the
	// channel is closed.
	alone bool
	// confirm is nil without confirms.
	confirm *amqp.DeferredConfirmation
}

// Deliver implements [posthaste.Sink]. It publishes the whole batch and then waits for the
// confirms.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	jobs := make([]job, 0, len(batch))
	var alone []job
	for i := range batch {
		j, err := s.target.prepare(&batch[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		j.Index = i
		if len(j.msg.Body) > large || batch[i].Attempt >= suspicious || suspect(batch[i].Story) {
			j.alone = true
			alone = append(alone, j)
		} else {
			jobs = append(jobs, j)
		}
	}
	for len(jobs) > 0 {
		n := min(len(jobs), s.target.Outstanding)
		s.publish(ctx, s.links.Next(s.target.Connections), jobs[:n], results)
		jobs = jobs[n:]
	}
	for i := range alone {
		s.publishAlone(ctx, alone[i:i+1], results)
	}
	return results
}

// publishAlone publishes a job while no other job is on its link.
func (s *Sink) publishAlone(ctx context.Context, job []job, results []posthaste.SinkResult) {
	select {
	case s.alone <- struct{}{}:
		defer func() { <-s.alone }()
	case <-ctx.Done():
		relay.FailAll(job, results, s.failed(ctx, "nothing was published, because large messages and those whose channel was closed are published one at a time, and others came first", nil))
		return
	}
	s.publish(ctx, s.target.Connections, job, results)
}

// prepare returns the job of a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (job, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return job{}, err
	}
	j := job{route: route{id: out.MessageID}, msg: amqp.Publishing{
		MessageId: out.MessageID, ContentType: out.ContentType, Type: d.Kind, Timestamp: d.CreatedAt, DeliveryMode: amqp.Persistent, Body: out.Payload,
	}}
	if j.route.exchange, err = t.exchange.Execute(d); err != nil {
		return job{}, err
	}
	if j.route.key, err = t.routingKey.Execute(d); err != nil {
		return job{}, err
	}
	for _, f := range [...]struct{ name, text string }{{"exchange", j.route.exchange}, {"routing_key", j.route.key}, {"message_id", out.MessageID},
		{"content_type", out.ContentType}, {"kind", d.Kind}} {
		if err := short(f.name, f.text); err != nil {
			return job{}, err
		}
	}
	j.msg.Headers = make(amqp.Table, len(out.Headers))
	for _, h := range out.Headers {
		if err := short("headers", h.Name); err != nil {
			return job{}, err
		}
		if isRoutingHeader(h.Name) {
			return job{}, posthaste.Permanent(posthaste.Invalidf("headers", "RabbitMQ reads the header %s as a list of further routing keys, and a text closes the channel: rename the header", h.Name))
		}
		j.msg.Headers[h.Name] = h.Value
	}
	return j, nil
}

// isRoutingHeader reports whether RabbitMQ routes a message to further queues by a header
// (sender-selected distribution).
func isRoutingHeader(name string) bool { return name == "CC" || name == "BCC" }

// short checks that a text can be a short string of AMQP.
func short(field, text string) error {
	if len(text) > shortText || !utf8.ValidString(text) {
		return posthaste.Permanent(posthaste.Invalidf(field, "%s must be valid UTF-8 of at most %d bytes for RabbitMQ, got %d bytes", field, shortText, len(text)))
	}
	return nil
}

// publish publishes jobs on a link, or on those that replace it, and sets their results.
func (s *Sink) publish(ctx context.Context, which int, jobs []job, results []posthaste.SinkResult) {
	relay.PublishAll(ctx, s.links, which, jobs, results, func(l *link, jobs []job) []job { return s.publishOn(ctx, l, jobs, results) })
}

// publishOn publishes jobs on a link and sets their results, except for those that it
// returns: they must be published on another link.
func (s *Sink) publishOn(ctx context.Context, l *link, jobs []job, results []posthaste.SinkResult) (elsewhere []job) {
	defer l.release()
	jobs, err := s.routed(ctx, l, jobs, results)
	if err == nil {
		err = s.write(ctx, l, jobs, results)
	}
	switch {
	case errors.Is(err, errRetired):
		return jobs
	case err != nil && l.lost() != nil:
		l.drop()
	case err != nil:
		// These jobs have timed out. Confirms of others in flight can still arrive.
		l.retire()
	}
	return nil
}

// routed returns the jobs whose exchange exists, and sets the results of the others.
func (s *Sink) routed(ctx context.Context, l *link, jobs []job, results []posthaste.SinkResult) ([]job, error) {
	var missing map[string]error
	for i := range jobs {
		name := jobs[i].route.exchange
		if _, known := s.exchanges.Load(name); name == "" || known || missing[name] != nil {
			continue
		}
		err := l.checkExchange(ctx, name)
		switch {
		case code(err) == amqp.NotFound:
			if missing == nil {
				missing = map[string]error{}
			}
			missing[name] = fmt.Errorf("rabbitmq at %s: %s", s.target.endpoint.address, words(err))
		case err != nil && code(err) == 0:
			err = s.failed(ctx, "nothing was published, because the broker did not report whether the exchange exists", l.lost())
			relay.FailAll(jobs, results, err)
			return nil, err
		default: // it exists, or is hidden from this user
			s.exchanges.Store(name, true)
		}
	}
	if missing == nil {
		return jobs, nil
	}
	kept := jobs[:0]
	for i := range jobs {
		if err := missing[jobs[i].route.exchange]; err != nil {
			results[jobs[i].Index].Err = err
			continue
		}
		kept = append(kept, jobs[i])
	}
	return kept, nil
}

// write publishes jobs and waits for their confirms. After an error the link must not be
// used again. With errRetired nothing was published.
func (s *Sink) write(ctx context.Context, l *link, jobs []job, results []posthaste.SinkResult) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := l.ready(ctx); err != nil {
		relay.FailAll(jobs, results, s.failed(ctx, "nothing was published", err))
		return l.lost()
	}
	if err := l.acquire(ctx, int64(len(jobs))); errors.Is(err, errRetired) {
		return err
	} else if err != nil {
		relay.FailAll(jobs, results, s.failed(ctx, "nothing was published, because the broker is slow to confirm earlier messages", nil))
		return nil
	}
	written := s.send(ctx, l, jobs)
	if written == 0 && l.lost() == nil {
		l.window.Release(int64(len(jobs)))
		relay.FailAll(jobs, results, s.failed(ctx, "nothing was published", nil))
		return nil
	}
	// Errors before the confirms mean that the link has ended or the attempt timed out.
	var broken error
	for i := range jobs {
		j := &jobs[i]
		if i >= written {
			broken = s.failed(ctx, "the connection was lost before the message was published", l.lost())
			relay.FailAll(jobs[i:], results, broken)
			break
		}
		if err := s.confirmed(ctx, l, j); err != nil {
			results[j.Index] = posthaste.SinkResult{Err: err, Receipt: receipt(l.lost())}
			var unknown *unknownError
			if errors.As(err, &unknown) {
				broken = err
			}
		}
	}
	if broken != nil {
		return broken // without releasing the window, which ends with the link
	}
	if s.target.blocked.Load() && l.blocking() == nil {
		s.target.block("")
	}
	l.window.Release(int64(len(jobs)))
	return nil
}

// send writes jobs to the connection and returns how many of them may have arrived.
// Without confirms it returns 0 if any of them fails, because none is known to have
// arrived.
func (s *Sink) send(ctx context.Context, l *link, jobs []job) (written int) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return 0
	}
	// A write hangs if the broker has stopped reading.
	stop := context.AfterFunc(ctx, l.wire.cut)
	defer stop()
	l.wire.hold()
	written = len(jobs)
	for i := range jobs {
		j := &jobs[i]
		if !s.target.Unroutable {
			l.take(j.route)
		}
		var err error
		if j.confirm, err = l.ch.PublishWithDeferredConfirm(j.route.exchange, j.route.key, !s.target.Unroutable, false, j.msg); err != nil {
			written = i
			break
		}
	}
	if err := l.wire.release(); err != nil || written < len(jobs) {
		// A part of the buffer may have been written, so all of it counts as written. The
		// link ends, because no confirm will arrive.
		l.drop()
		if s.target.Unsafe {
			return 0
		}
	}
	return written
}

// unknownError is the error of a message that the broker may or may not have.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

// confirmed waits for the confirm of a message.
func (s *Sink) confirmed(ctx context.Context, l *link, j *job) error {
	if j.confirm != nil {
		select {
		case <-j.confirm.Done():
		default:
			select {
			case <-j.confirm.Done():
			case <-ctx.Done():
				return &unknownError{s.failed(ctx, "published, but not confirmed", l.blocking())}
			}
		}
	}
	var returned string
	if !s.target.Unroutable {
		returned = l.conclude(j.route)
	}
	switch {
	case returned != "":
		return fmt.Errorf("rabbitmq at %s: %s: no queue gets messages of exchange %q with routing key %q; bind one", s.target.endpoint.address, returned, j.route.exchange, j.route.key)
	case j.confirm == nil || j.confirm.Acked():
		return nil
	}
	lost := l.lost()
	switch {
	case lost == nil:
		return fmt.Errorf("rabbitmq at %s refused the message (basic.nack): a queue is full and rejects messages, or could not store it", s.target.endpoint.address)
	case code(lost) == amqp.PreconditionFailed && j.alone:
		return posthaste.Permanent(&unknownError{fmt.Errorf("rabbitmq at %s: %s", s.target.endpoint.address, words(lost))})
	case code(lost) == amqp.NotFound:
		s.exchanges.Clear()
	}
	if j.alone && closed(lost) != 0 {
		return &unknownError{fmt.Errorf("rabbitmq at %s refused the message and closed the channel: %s", s.target.endpoint.address, words(lost))}
	}
	return &unknownError{s.failed(ctx, "the connection was lost before the confirm, so the message may be published twice", lost)}
}

// blocking returns an error with the reason why the broker blocks publishers, or nil.
func (l *link) blocking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked == "" {
		return nil
	}
	return fmt.Errorf("the broker blocks publishers: %s", l.blocked)
}

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, what string, cause error) error {
	if cause != nil {
		cause = relay.Reworded(words(cause), cause)
	}
	return relay.Failed(ctx, fmt.Sprintf("rabbitmq at %s: %s", s.target.endpoint.address, what), cause)
}
