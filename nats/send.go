package nats

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// maxBatch is how many messages and records the server stores in one atomic batch.
const maxBatch = 1000

// dueSoon is how close to its time a message is not scheduled any more.
const dueSoon = 5 * time.Millisecond

// outgoing is a message that a call sends.
type outgoing struct {
	meta   meta
	body   []byte
	once   string        // the subject of the record of its dedupe key, or ""
	window time.Duration // of its dedupe key
}

// sentRecord says which messages were sent under a key, as JSON.
type sentRecord struct {
	Digest []byte           `json:"digest,omitempty"`
	Sent   []posthaste.Sent `json:"sent"`
}

// Send implements [posthaste.Engine]. At most 1,000 messages of one queue can be sent in a call.
func (e *Engine) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	if len(messages) == 0 {
		return nil, ctx.Err()
	}
	sent, _, err := e.sendTwice(ctx, messages, nil)
	return sent, err
}

// sendTwice sends messages, and sends them again if their queue was dropped and created again and this
// process did not know.
func (e *Engine) sendTwice(ctx context.Context, messages []posthaste.Message, i *posthaste.Idempotency) (sent []posthaste.Sent, replayed bool, err error) {
	for range 2 {
		q, all, failed := e.prepare(ctx, messages)
		if failed != nil {
			return nil, false, failed
		}
		var r *onceRequest
		if i != nil {
			r = &onceRequest{subject: q.subjects.under("i", "o", hashOf(i.Scope, i.Key)), digest: i.Digest, window: i.Window}
		}
		if sent, replayed, err = e.sendWithRecord(ctx, q, all, r); !wasReplaced(err) {
			break
		}
	}
	return sent, replayed, err
}

// SendOnce implements [posthaste.Engine].
func (e *Engine) SendOnce(ctx context.Context, r posthaste.Idempotency, messages ...posthaste.Message) (sent []posthaste.Sent, replayed bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	if len(messages) == 0 {
		return nil, false, ctx.Err()
	}
	return e.sendTwice(ctx, messages, &r)
}

// onceRequest is a call of SendOnce. Its record is in the stream of the queue, so that the same key in a
// call for another queue is another key.
type onceRequest struct {
	subject string
	digest  []byte
	window  time.Duration
}

// prepare checks the messages of a call and gives them ids.
func (e *Engine) prepare(ctx context.Context, messages []posthaste.Message) (*queue, []outgoing, error) {
	messages = posthaste.Completed(messages)
	if len(messages) > maxBatch {
		return nil, nil, unsupported("messages", "more than %d messages in one call are not supported", maxBatch)
	}
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			return nil, nil, err
		}
	}
	for i := range messages {
		if _, err := e.queue(ctx, messages[i].Queue); err != nil {
			return nil, nil, err
		}
		if messages[i].Queue != messages[0].Queue {
			return nil, nil, unsupported("queue", "messages of several queues in one call are not supported")
		}
	}
	q, err := e.queue(ctx, messages[0].Queue)
	if err != nil {
		return nil, nil, err
	}
	all := make([]outgoing, len(messages))
	now := e.clock.now()
	for i := range messages {
		if all[i], err = e.newOutgoing(q, &messages[i], now); err != nil {
			return nil, nil, err
		}
		if q, err = e.ensurePriority(ctx, q, all[i].meta.Priority); err != nil {
			return nil, nil, err
		}
	}
	first, err := e.ids.take(ctx, len(all))
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		all[i].meta.ID = messageID(first+int64(i), q.No)
	}
	return q, all, nil
}

// newOutgoing checks a message, which has passed Check, against its queue.
func (e *Engine) newOutgoing(q *queue, m *posthaste.Message, now time.Time) (o outgoing, err error) {
	if err := m.CheckFor(&q.Options); err != nil {
		return o, err
	}
	if err := checkFor(q, m); err != nil {
		return o, err
	}
	body, contentType, err := jsoncheck.Body(m, q.Options.MaxPayload)
	if err != nil {
		return o, err
	}
	due := m.SendAt
	if m.Delay > 0 {
		due = now.Add(m.Delay)
	}
	if !due.After(now) {
		due = time.Time{} // a time in the past means now
	}
	o = outgoing{body: body, meta: meta{At: micros(now), Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, Type: contentType,
		Priority: m.Priority, Due: micros(due), MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, BackoffBase: m.Backoff.Base, BackoffMax: m.Backoff.Max}}
	if m.DedupeKey != "" {
		o.meta.Once = hashOf(m.DedupeKey)
		o.once, o.window = q.subjects.under("i", "k", o.meta.Once), cmp.Or(m.DedupeWindow, 24*time.Hour)
	}
	return o, nil
}

// hashOf returns a token of subjects for texts of a caller.
func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// newEntry returns a message as it is stored: in the queue, or as a schedule.
func (q *queue) newEntry(m *meta, body []byte, now time.Time) *natsgo.Msg {
	if !fromMicros(m.Due).After(now.Add(dueSoon)) {
		return m.encoded(q.waitSubject(m), body)
	}
	return asSchedule(m.encoded(q.subjects.under("s", m.ID.String()), body), q.waitSubject(m), fromMicros(m.Due))
}

// asSchedule turns a message into a schedule, which the server publishes to the target at a time.
func asSchedule(m *natsgo.Msg, target string, at time.Time) *natsgo.Msg {
	m.Header.Set(headerSchedule, "@at "+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerTarget, target)
	return m
}

// recordEntry returns the entry of a record. It is stored only if its subject has no entry.
func recordEntry(subject string, content any, ttl time.Duration) *natsgo.Msg {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // all contents can be encoded
	}
	m := &natsgo.Msg{Subject: subject, Header: natsgo.Header{headerExpectedSeq: {"0"}}, Data: body}
	if ttl > 0 {
		m.Header.Set(headerTTL, strconv.FormatInt(int64((ttl+time.Second-1)/time.Second), 10)+"s")
	}
	return m
}

// sendWithRecord stores the messages in one atomic batch, with the record of the request, if it has one.
// Messages whose dedupe key was used are left out.
func (e *Engine) sendWithRecord(ctx context.Context, q *queue, all []outgoing, r *onceRequest) (sent []posthaste.Sent, replayed bool, err error) {
	keyed := r != nil || slices.ContainsFunc(all, func(o outgoing) bool { return o.once != "" })
	if keyed { // other calls store once, and that is bounded
		var cancel context.CancelFunc
		ctx, cancel = withSendTimeout(ctx)
		defer cancel()
	}
	for {
		if r != nil {
			if before, err := e.readRecord(ctx, q, r.subject); err != nil {
				return nil, false, err
			} else if before != nil && !bytes.Equal(before.Digest, r.digest) {
				return nil, false, &posthaste.Error{Code: posthaste.CodeKeyReused, Field: "Idempotency-Key", Message: "the key was used for a different request", Hint: "use a new key for each request"}
			} else if before != nil {
				return before.Sent, true, nil
			}
		}
		sent, parts, err := e.parts(ctx, q, all)
		if err != nil {
			return nil, false, err
		}
		if r != nil {
			parts = append(parts, recordEntry(r.subject, sentRecord{Digest: r.digest, Sent: sent}, r.window))
		}
		err = e.store(ctx, q, parts)
		if keyed && errors.Is(err, errExists) {
			continue // another sender was faster, or a record has just ended
		}
		if err != nil {
			return nil, false, err
		}
		return sent, false, nil
	}
}

// parts returns the entries and records of messages whose dedupe keys were not used.
func (e *Engine) parts(ctx context.Context, q *queue, all []outgoing) (sent []posthaste.Sent, parts []*natsgo.Msg, err error) {
	sent, parts = make([]posthaste.Sent, len(all)), make([]*natsgo.Msg, 0, len(all)+1)
	var used map[string]posthaste.MessageID // dedupe keys in this call
	for i := range all {
		o := &all[i]
		sent[i].ID = o.meta.ID
		if o.once != "" {
			first := used[o.once]
			if first == 0 {
				before, err := e.readRecord(ctx, q, o.once)
				if err != nil {
					return nil, nil, err
				}
				if before != nil {
					first = before.Sent[0].ID
				}
			}
			if first != 0 {
				sent[i] = posthaste.Sent{ID: first, Duplicate: true}
				continue
			}
			if used == nil {
				used = map[string]posthaste.MessageID{}
			}
			used[o.once] = o.meta.ID
			parts = append(parts, recordEntry(o.once, sentRecord{Sent: []posthaste.Sent{{ID: o.meta.ID}}}, o.window))
		}
		entry := q.newEntry(&o.meta, o.body, e.clock.now())
		if err := e.checkSize(entry); err != nil {
			return nil, nil, err
		}
		parts = append(parts, entry)
	}
	return sent, parts, nil
}

// readRecord returns the record on a subject, or nil.
func (e *Engine) readRecord(ctx context.Context, q *queue, subject string) (*sentRecord, error) {
	m, err := e.lastOn(ctx, q.stream, subject)
	for posthaste.CodeOf(err) == posthaste.CodeUnavailable && sleepFor(ctx, pauseBetween) { // as plain sends do
		m, err = e.lastOn(ctx, q.stream, subject)
	}
	if err != nil || m == nil {
		return nil, err
	}
	r := &sentRecord{}
	if err := json.Unmarshal(m.Data, r); err != nil || len(r.Sent) == 0 {
		return nil, fmt.Errorf("nats: the record on %s cannot be read", subject)
	}
	return r, nil
}

// freeDedupeKey frees the dedupe key of a message that was withdrawn from all subscriptions. If that fails,
// the key is free when its window ends.
func (e *Engine) freeDedupeKey(ctx context.Context, q *queue, m *meta) {
	if m.Once == "" {
		return
	}
	subject := q.subjects.under("i", "k", m.Once)
	last, err := e.lastOn(ctx, q.stream, subject)
	if err != nil || last == nil {
		return
	}
	var r sentRecord
	if json.Unmarshal(last.Data, &r) == nil && len(r.Sent) == 1 && r.Sent[0].ID == m.ID {
		_, _ = e.deleteEntry(ctx, q.stream, last.Sequence)
	}
}

// sendUnlessRecorded stores a message and a record in one batch. If the record exists, it stores nothing, and
// stored is false.
func (e *Engine) sendUnlessRecorded(ctx context.Context, q *queue, subject string, ttl time.Duration, m *meta, body []byte) (stored bool, err error) {
	err = e.store(ctx, q, []*natsgo.Msg{recordEntry(subject, sentRecord{Sent: []posthaste.Sent{{ID: m.ID}}}, ttl), q.newEntry(m, body, e.clock.now())})
	if errors.Is(err, errExists) {
		return false, nil
	}
	return err == nil, err
}
