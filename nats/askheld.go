package nats

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// A message that waits may have been handed out by any process, or be under way to it. So a process
// that cancels one asks all: each marks what it holds, and does not hand out the entries if they come
// later.

// Bounds of asking all processes: they answer in the first time after another, and in the second in
// all.
const (
	askQuiet = 100 * time.Millisecond
	askMost  = time.Second
	// refusedFor is longer than an entry that was removed can be under way.
	refusedFor = 2 * time.Minute
)

// refusal is what a process asks all others: not to hand out entries of a message.
type refusal struct {
	From    int64               `json:"from"` // the process that asks
	Message posthaste.MessageID `json:"message"`
	Stream  string              `json:"stream"`
	Entries []uint64            `json:"entries"`
	At      int64               `json:"at"`
}

// entryKey names an entry of a queue.
type entryKey struct {
	stream string
	seq    uint64
}

// refused is an answer: what a process holds of the message.
type refused struct {
	// Held has the subscriptions whose deliveries are cancelled now; the value says whether they were
	// not before.
	Held map[string]bool `json:"held,omitempty"`
	// Busy says that a delivery is being settled at this moment.
	Busy bool `json:"busy,omitempty"`
}

// add takes what another process answered.
func (r *refused) add(other refused) {
	for name, fresh := range other.Held {
		if r.Held == nil {
			r.Held = map[string]bool{}
		}
		r.Held[name] = fresh
	}
	r.Busy = r.Busy || other.Busy
}

func (e *Engine) allSubject() string { return e.prefix + ".held.all" }

// listenRefusals answers the questions of other processes.
func (e *Engine) listenRefusals() error {
	return e.subscribe(e.allSubject(), func(m *natsgo.Msg) {
		var r refusal
		if json.Unmarshal(m.Data, &r) != nil || r.From == e.holding.number() {
			return
		}
		if body, err := json.Marshal(e.holding.refuse(r)); err == nil {
			_ = m.Respond(body)
		}
	})
}

// refuse makes this process not hand out the entries, and cancels what it holds of the message.
func (h *holding) refuse(r refusal) (answer refused) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	if h.refused == nil {
		h.refused = map[entryKey]time.Duration{}
	}
	for key, until := range h.refused {
		if now > until {
			delete(h.refused, key)
		}
	}
	for _, seq := range r.Entries {
		h.refused[entryKey{r.Stream, seq}] = now + refusedFor
	}
	for _, d := range h.byID {
		switch {
		case d.meta.ID != r.Message || d.q.stream != r.Stream || d.q.Options.Mode == posthaste.AtMostOnce:
		case d.settling:
			answer.Busy = true
		case now <= d.lease:
			answer.add(refused{Held: map[string]bool{d.sub.Name: !d.cancelled}})
			if d.cancelled = true; d.note.CancelRequestedAt.IsZero() {
				d.note.CancelRequestedAt = fromMicros(r.At)
			}
		}
	}
	return answer
}

// isRefused reports whether an entry must not be handed out. The process that asked for that
// removes it.
func (h *holding) isRefused(q *queue, seq uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uptime() <= h.refused[entryKey{q.stream, seq}]
}

// cancelSubject is the subject of the record that a message was cancelled while it was handed out. A
// process that gets a second delivery reads it.
func (q *queue) cancelSubject(subscription string, id posthaste.MessageID) string {
	return q.subjects.under("i", "c", token(subscription), id.String())
}

// wasCancelled reports whether a message was cancelled while its lost delivery was handed out.
func (e *Engine) wasCancelled(ctx context.Context, d *held) (bool, error) {
	m, err := e.lastOn(ctx, d.q.stream, d.q.cancelSubject(d.sub.Name, d.meta.ID))
	return m != nil, err
}

// refuseAll asks all processes, and returns their answers. Processes that do not answer in time still
// take the question.
func (e *Engine) refuseAll(ctx context.Context, r refusal) (answer refused, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	inbox := e.conn.NewInbox()
	answers, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return answer, e.fault(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := e.conn.PublishRequest(e.allSubject(), inbox, body); err != nil {
		return answer, e.fault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	for {
		quiet, stop := context.WithTimeout(ctx, askQuiet)
		m, err := answers.NextMsgWithContext(quiet)
		stop()
		switch {
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natsgo.ErrTimeout):
			return answer, nil
		case err != nil:
			return answer, e.fault(err)
		}
		var one refused
		if json.Unmarshal(m.Data, &one) == nil {
			answer.add(one)
		}
	}
}
