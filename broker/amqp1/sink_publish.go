package amqp1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// job is a message in flight.
type job struct {
	relay.Job
	address string
	msg     *amqp.Message
	// alone says that nothing else is in flight on its link, so that this message is the
	// cause if the broker closes the link.
	alone   bool
	link    *link // on which it was sent
	receipt amqp.SendReceipt
}

const (
	// large is the size in bytes above which a message is sent alone, because some brokers
	// end the session if a message is larger than their limit.
	large = 256 << 10
	// suspicious is the attempt from which on a message is sent alone, because it may have
	// closed its link or ended the relay before.
	suspicious = 4
)

// prepare returns the job of a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (job, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return job{}, err
	}
	address, err := t.to.Execute(d)
	if err != nil {
		return job{}, err
	}
	if address == "" {
		return job{}, posthaste.Permanent(posthaste.Invalidf("address", "the template address came out empty"))
	}
	group, err := t.group.Execute(d)
	if err != nil {
		return job{}, err
	}
	if i := strings.IndexFunc(out.ContentType, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		return job{}, posthaste.Permanent(posthaste.Invalidf("content_type", "AMQP 1.0 allows only ASCII in a content type, and byte %d of %q is not", i, out.ContentType))
	}
	properties := &amqp.MessageProperties{MessageID: out.MessageID, ContentType: &out.ContentType, Subject: optional(d.Kind), GroupID: optional(group)}
	if !d.CreatedAt.IsZero() {
		properties.CreationTime = &d.CreatedAt
	}
	msg := amqp.NewMessage(out.Payload)
	msg.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
	msg.Properties = properties
	msg.ApplicationProperties = make(map[string]any, len(out.Headers))
	for _, h := range out.Headers {
		msg.ApplicationProperties[h.Name] = h.Value
	}
	return job{address: address, msg: msg, alone: len(out.Payload) > large || d.Attempt >= suspicious || suspect(d.Story)}, nil
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Deliver implements [posthaste.Sink]. It sends the whole batch and then waits for the
// outcomes.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	var jobs, alone []job
	for i := range batch {
		j, err := s.target.prepare(&batch[i])
		j.Index = i
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
		relay.FailAll(job, results, s.failed(ctx, "nothing was sent, because the message goes alone and others were before it", nil))
	}
}

// publish sends jobs on a connection, or on those that replace it, and sets their results.
func (s *Sink) publish(ctx context.Context, which int, jobs []job, results []posthaste.SinkResult) {
	relay.PublishAll(ctx, s.connections, which, jobs, results, func(c *connection, jobs []job) []job { return s.publishOn(ctx, c, jobs, results) })
}

// publishOn sends jobs on a connection and sets their results, except for those that it
// returns: they must be sent on another connection.
func (s *Sink) publishOn(ctx context.Context, c *connection, jobs []job, results []posthaste.SinkResult) (elsewhere []job) {
	defer c.release()
	count := int64(len(jobs))
	if err := c.window.Acquire(ctx, count); err != nil {
		relay.FailAll(jobs, results, s.failed(ctx, "nothing was sent, because the broker is slow to settle earlier messages", nil))
		return nil
	}
	defer c.window.Release(count)
	sent, elsewhere := s.send(ctx, c, jobs, results)
	for _, j := range sent {
		state, err := j.receipt.Wait(ctx)
		if err != nil {
			results[j.Index] = s.lost(ctx, &j, err)
		} else {
			results[j.Index].Err = s.target.outcome(state)
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
			relay.FailAll(jobs[i:], results, s.failed(ctx, "nothing was sent", nil))
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
			results[j.Index].Err = s.failed(ctx, fmt.Sprintf("nothing was sent, because no link can be attached to address %q", j.address), j.link.err)
			continue
		}
		var err error
		if j.receipt, err = j.link.sender.SendWithReceipt(ctx, j.msg, nil); err != nil {
			results[j.Index] = s.lost(ctx, j, err)
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
		return posthaste.SinkResult{Err: posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Message: s.target.brokerError(err).Error(), Cause: err})}
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

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, what string, cause error) error {
	if cause != nil {
		cause = relay.Reworded(words(cause), cause)
	}
	return relay.Failed(ctx, fmt.Sprintf("%s at %s: %s", kind, s.target.address, what), cause)
}
