package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// job is a message in flight.
type job struct {
	relay.Job
	record *kgo.Record
}

// Deliver implements [posthaste.Sink]. It produces the whole batch and then waits for the
// acknowledgments.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	jobs := make([]job, 0, len(batch))
	for i := range batch {
		record, err := s.target.prepare(&batch[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		jobs = append(jobs, job{relay.Job{Index: i}, record})
	}
	var alone []job
	for len(jobs) > 0 {
		n := min(len(jobs), s.target.Outstanding)
		alone = append(alone, s.publish(ctx, together, jobs[:n], results)...)
		jobs = jobs[n:]
	}
	if len(alone) > 0 {
		s.eachAlone(ctx, alone, results)
	}
	return results
}

// prepare makes the record of a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (*kgo.Record, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return nil, err
	}
	r := &kgo.Record{Value: out.Payload, Headers: make([]kgo.RecordHeader, 0, len(out.Headers)+2)}
	if r.Topic, err = t.topic.Execute(d); err != nil {
		return nil, err
	}
	if err := checkTopic(r.Topic); err != nil {
		return nil, posthaste.Permanent(err)
	}
	key, err := t.key.Execute(d)
	if err != nil {
		return nil, err
	}
	if key != "" {
		r.Key = []byte(key)
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderMessageID, Value: []byte(out.MessageID)}, kgo.RecordHeader{Key: HeaderContentType, Value: []byte(out.ContentType)})
	for _, h := range out.Headers {
		if h.Name == HeaderContentType && h.Value != out.ContentType {
			return nil, posthaste.Permanent(posthaste.Invalidf("headers", "header %s is %q, but the message's content type, which is sent under this name, is %q: remove or rename the header", h.Name, h.Value, out.ContentType))
		}
		if !reserved(h.Name) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
	}
	return r, nil
}

// answer is the result of a job.
type answer struct {
	job int
	err error
}

// publish produces jobs and sets their results, except for those that it returns: they
// were refused together with others.
func (s *Sink) publish(ctx context.Context, which int, jobs []job, results []posthaste.SinkResult) (alone []job) {
	p, err := s.producers.Get(ctx, which)
	if err != nil {
		relay.FailAll(jobs, results, err)
		return nil
	}
	defer p.release()
	if err := p.window.Acquire(ctx, int64(len(jobs))); err != nil {
		relay.FailAll(jobs, results, s.failed(ctx, "nothing was produced, because the brokers are slow to acknowledge earlier messages", p.why()))
		return nil
	}
	defer p.window.Release(int64(len(jobs)))
	// Without cancellation, because the client would also drop the records of others when
	// ctx ends.
	lasting := context.WithoutCancel(ctx)
	answers := make(chan answer, len(jobs))
	for i := range jobs {
		p.client.TryProduce(lasting, jobs[i].record, func(_ *kgo.Record, err error) { answers <- answer{i, err} })
	}
	return s.await(ctx, p, jobs, answers, results)
}

// await waits for the answers to jobs, and sets results and returns jobs as publish does.
func (s *Sink) await(ctx context.Context, p *producer, jobs []job, answers <-chan answer, results []posthaste.SinkResult) (alone []job) {
	open := make([]bool, len(jobs))
	for i := range open {
		open[i] = true
	}
	take := func(a answer) {
		open[a.job] = false
		if mayBeOthers(a.err) && len(jobs) > 1 {
			alone = append(alone, jobs[a.job])
			return
		}
		results[jobs[a.job].Index].Err = s.answered(jobs[a.job].record, a.err)
	}
	for range jobs {
		select {
		case a := <-answers:
			take(a)
			continue
		default:
		}
		select {
		case a := <-answers:
			take(a)
			continue
		case <-ctx.Done():
		}
		p.Retire()
		err := s.failed(ctx, "sent, but not acknowledged (are enough replicas in sync for min.insync.replicas?)", nil)
		if why := p.why(); why != nil {
			err = s.failed(ctx, "not acknowledged", why)
		}
		for i := range jobs {
			if open[i] {
				results[jobs[i].Index].Err = err
			}
		}
		break
	}
	return alone
}

// mayBeOthers reports whether another record of the same batch may have caused an error.
func mayBeOthers(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord) ||
		errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.CorruptMessage)
}

// eachAlone produces jobs one by one, in order, with a producer that has no other records.
func (s *Sink) eachAlone(ctx context.Context, jobs []job, results []posthaste.SinkResult) {
	select {
	case s.aloneTurn <- struct{}{}:
		defer func() { <-s.aloneTurn }()
	case <-ctx.Done():
		relay.FailAll(jobs, results, s.failed(ctx, "the batch was refused, and the message was not yet produced alone", nil))
		return
	}
	for _, j := range jobs {
		r := *j.record // the client has set these fields of the first copy
		r.Context, r.Partition, r.Offset = nil, 0, 0
		s.publish(ctx, alone, []job{{j.Job, &r}}, results)
	}
}

// answered returns the error of a record from the brokers' answer.
func (s *Sink) answered(r *kgo.Record, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Cause: err,
			Message: fmt.Sprintf("kafka at %s: %v: the payload has %d bytes; the limit of the relay is %d (max_message_bytes), and that of topic %q may be lower (max.message.bytes)",
				s.target.address, err, len(r.Value), s.target.MaxMessageBytes, r.Topic)})
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("kafka at %s: topic %q not found: %w", s.target.address, r.Topic, err)
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("kafka at %s: the relay was closed before the acknowledgment", s.target.address)
	}
	return fmt.Errorf("kafka at %s: topic %q: %w", s.target.address, r.Topic, err)
}

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, what string, cause error) error {
	return relay.Failed(ctx, fmt.Sprintf("kafka at %s: %s", s.target.address, what), cause)
}
