package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// job is a message in flight.
type job struct {
	index   int // index in the batch
	stream  string
	largest int // size of its largest word, in bytes
	command command
	// asks is the server to ask (ASK) in place of the owner of a stream that is moving.
	asks string
	why  error // the redirection, if there was one
}

// failed returns an error with the redirection that preceded it.
func (j *job) failed(err error) error {
	if err == nil || j.why == nil {
		return err
	}
	return fmt.Errorf("%w (before: %w)", err, j.why)
}

// Deliver implements [posthaste.Sink]. It adds the whole batch and then waits for the
// replies.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	jobs := make([]job, 0, len(batch))
	for i := range batch {
		j, err := s.target.prepare(&batch[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		j.index = i
		jobs = append(jobs, j)
	}
	for len(jobs) > 0 {
		n := min(len(jobs), s.target.Outstanding)
		s.add(ctx, jobs[:n], results)
		jobs = jobs[n:]
	}
	return results
}

// Pauses between attempts to add messages that a cluster redirects or cannot take now.
const (
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// add adds jobs at the servers that have their streams, and follows redirections.
func (s *Sink) add(ctx context.Context, jobs []job, results []posthaste.SinkResult) {
	for pause := time.Duration(0); ; pause = min(max(2*pause, firstPause), longPause) {
		groups := s.servers.split(jobs)
		again := make([][]job, len(groups))
		var all sync.WaitGroup
		for i, g := range groups[1:] {
			all.Go(func() { again[i+1] = s.publish(ctx, g.address, g.jobs, results) })
		}
		again[0] = s.publish(ctx, groups[0].address, groups[0].jobs, results)
		all.Wait()
		if jobs = slices.Concat(again...); len(jobs) == 0 {
			return
		}
		slices.SortFunc(jobs, func(a, b job) int { return a.index - b.index })
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			for i := range jobs {
				results[jobs[i].index].Err = s.failed(ctx, s.target.address, "nothing was added", jobs[i].why)
			}
			return
		}
	}
}

// prepare returns the job of a delivery. Errors are permanent.
func (t *target) prepare(d *posthaste.RawDelivery) (job, error) {
	out, err := t.mapper.Map(d)
	if err != nil {
		return job{}, err
	}
	j := job{largest: len(out.Payload)}
	if j.stream, err = t.stream.Execute(d); err != nil {
		return job{}, err
	}
	if j.stream == "" {
		return job{}, posthaste.Permanent(posthaste.Invalidf("stream", "the template stream yields an empty string"))
	}
	n, size := 9, len(j.stream)+len(out.MessageID)+len(out.ContentType)+len(out.Payload)+64
	if t.Existing {
		n++
	}
	if t.MaxLen > 0 {
		n += 3
	}
	for _, h := range out.Headers {
		if reserved(h.Name) {
			return job{}, posthaste.Permanent(posthaste.Invalidf("headers", "a header cannot have the name %s, which is a field of every entry: rename it", h.Name))
		}
		n += 2
		size += len(h.Name) + len(h.Value) + 16
		j.largest = max(j.largest, len(h.Name), len(h.Value))
	}
	c := word(word(newCommand(n, size), "XADD"), j.stream)
	if t.Existing {
		c = word(c, "NOMKSTREAM")
	}
	if t.MaxLen > 0 {
		c = word(word(word(c, "MAXLEN"), "~"), strconv.FormatInt(t.MaxLen, 10))
	}
	c = word(c, "*")
	c = word(word(c, FieldMessageID), out.MessageID)
	c = word(word(c, FieldContentType), out.ContentType)
	c = word(word(c, FieldPayload), out.Payload)
	for _, h := range out.Headers {
		c = word(word(c, h.Name), h.Value)
	}
	j.command = c
	j.largest = max(j.largest, len(j.stream), len(out.MessageID), len(out.ContentType))
	return j, nil
}

// publish adds jobs at the server at an address, on the next link, and sets their results,
// except for those that it returns: they must be added at another server.
func (s *Sink) publish(ctx context.Context, address string, jobs []job, results []posthaste.SinkResult) (again []job) {
	fail := func(jobs []job, err error) {
		for i := range jobs {
			results[jobs[i].index].Err = jobs[i].failed(err)
		}
	}
	links := s.servers.at(address)
	l, err := links.Get(ctx, links.Next(s.target.Connections))
	if errors.Is(err, relay.ErrElsewhere) {
		for i := range jobs {
			jobs[i].asks, jobs[i].why = "", err
		}
		return jobs
	}
	if err != nil {
		fail(jobs, err)
		return nil
	}
	defer l.release()
	if jobs = s.fitting(l, jobs, results); len(jobs) == 0 {
		return nil
	}
	if err := l.window.Acquire(ctx, int64(len(jobs))); err != nil {
		fail(jobs, s.failed(ctx, address, "nothing was added, because the server is slow to reply to earlier commands", nil))
		return nil
	}
	defer l.window.Release(int64(len(jobs)))
	commands, at := s.target.commands(jobs)
	c, err := l.send(ctx, commands)
	if err != nil {
		fail(jobs, s.failed(ctx, address, "nothing was added", err))
		return nil
	}
	broken := s.replied(ctx, l, c)
	replies := c.replies[:c.got.Load()]
	var held error
	if s.target.Replicas > 0 {
		held = s.replicated(address, replies, len(commands)-1, broken)
	}
	unserved := false
	for i := range jobs {
		err := broken
		if at[i] < len(replies) {
			r := replies[at[i]]
			if r.fault != "" && s.servers.redirected(&jobs[i], r.fault, address) {
				again = append(again, jobs[i])
				unserved = unserved || r.fault.code() == "CLUSTERDOWN"
				continue
			}
			if err = s.added(l, &jobs[i], r); err == nil {
				err = held
			}
		}
		results[jobs[i].index].Err = jobs[i].failed(err)
	}
	if unserved {
		s.servers.ask(ctx, address) // because this server may be the one that is cut off
	}
	return again
}

// commands returns the commands that add jobs, with WAIT as the last one if replicas are
// required, and the index of each job's reply.
func (t *target) commands(jobs []job) (commands []command, at []int) {
	commands, at = make([]command, 0, len(jobs)+1), make([]int, len(jobs))
	for i := range jobs {
		if jobs[i].asks != "" {
			commands = append(commands, words("ASKING"))
		}
		at[i] = len(commands)
		commands = append(commands, jobs[i].command)
	}
	if t.Replicas > 0 {
		commands = append(commands, words("WAIT", strconv.Itoa(t.Replicas), strconv.FormatInt(max(1, t.ReplicaTimeout.Milliseconds()), 10)))
	}
	return commands, at
}

// replied waits for the replies to a call. An error means that some of them are missing.
func (s *Sink) replied(ctx context.Context, l *link, c *call) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	select {
	case <-c.done:
		return nil
	case <-l.ended:
		return s.failed(ctx, l.address, "the connection was lost before the reply, so the message may be added twice", l.lost())
	case <-ctx.Done():
		l.Retire() // because the connection may be dead
		return s.failed(ctx, l.address, "sent, but no reply arrived", nil)
	}
}

// fitting returns the jobs that are within the server's limit, and sets the results of the
// others. The server closes the connection if a text is larger.
func (s *Sink) fitting(l *link, jobs []job, results []posthaste.SinkResult) []job {
	kept := jobs[:0]
	for i := range jobs {
		if jobs[i].largest > l.limit {
			results[jobs[i].index].Err = posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload",
				Message: fmt.Sprintf("redis at %s accepts at most %d bytes per field (proto-max-bulk-len), but the message has a field of %d", l.address, l.limit, jobs[i].largest)})
			continue
		}
		kept = append(kept, jobs[i])
	}
	return kept
}

// added returns the result of a job from the reply to XADD.
func (s *Sink) added(l *link, j *job, r reply) error {
	switch {
	case r.null:
		return fmt.Errorf("redis at %s: stream %q not found, and existing forbids creating it", l.address, j.stream)
	case r.fault == "" && r.list == nil && strings.Contains(r.text, "-"):
		return nil
	case r.fault == "":
		l.Retire()
		return fmt.Errorf("redis at %s: %w", l.address, r.unexpected())
	case r.fault.code() == "READONLY":
		l.Retire() // because another server may have this address now
	case strings.Contains(string(r.fault), "too large to be stored"): // its code is ERR
		return posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Message: fmt.Sprintf("redis at %s: %v", l.address, r.fault), Cause: r.fault})
	}
	return fmt.Errorf("redis at %s refused the message for stream %q: %w", l.address, j.stream, r.fault)
}

// replicated returns the error that the reply to WAIT means for all jobs.
func (s *Sink) replicated(address string, replies []reply, index int, broken error) error {
	if len(replies) <= index {
		return broken
	}
	if r := replies[index]; r.fault != "" {
		return fmt.Errorf("redis at %s: added, but the number of replicas is unknown, so the message may be added twice: %w", address, r.fault)
	} else if n := r.int(); n < s.target.Replicas {
		return fmt.Errorf("redis at %s: added, but only on %d of %d replicas after %s, so the message may be added twice", address, n, s.target.Replicas,
			s.target.ReplicaTimeout.Round(time.Millisecond))
	}
	return nil
}

// failed returns an error that says what happened, why, and whether the attempt timed out.
func (s *Sink) failed(ctx context.Context, address, what string, cause error) error {
	return relay.Failed(ctx, fmt.Sprintf("redis at %s: %s", address, what), cause)
}
