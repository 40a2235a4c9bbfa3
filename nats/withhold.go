package nats

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// Any process may hold a waiting message, or may be about to get it. So a process that cancels one asks
// all processes to withhold it: each marks the deliveries of the message that it holds as cancelled, and
// does not hand out the entries if they come later.

// Bounds of asking all processes: askMost while a known process has not answered, otherwise askQuiet. A
// process that does not answer is not known any more, until it asks or answers.
const (
	askQuiet = 100 * time.Millisecond
	askMost  = 2 * time.Second
	// helloFor is how long a new process waits for the answers that make it know the others.
	helloFor = time.Second
	// withheldFor is longer than a removed entry can be under way to a process.
	withheldFor = 2 * time.Minute
)

// withholdRequest asks all other processes not to hand out entries of a message.
type withholdRequest struct {
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

// withholdAnswer says what a process holds of the message.
type withholdAnswer struct {
	Process int64 `json:"no"` // the number of the process that answers
	// Held has the subscriptions whose deliveries are now cancelled. The value says whether this request
	// has cancelled them.
	Held map[string]bool `json:"held,omitempty"`
	// Busy says that a delivery is being settled at this moment.
	Busy bool `json:"busy,omitempty"`
}

// add adds the answer of another process.
func (r *withholdAnswer) add(other withholdAnswer) {
	for name, fresh := range other.Held {
		if r.Held == nil {
			r.Held = map[string]bool{}
		}
		r.Held[name] = fresh
	}
	r.Busy = r.Busy || other.Busy
}

func (e *Engine) askAllSubject() string { return e.prefix + ".held.all" }

// peers are the other processes that have asked or answered.
type peers struct {
	complete chan struct{} // closed when this process knows the others
	mu       sync.Mutex
	known    map[int64]bool
}

func (p *peers) set(no int64, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[int64]bool{}
	}
	if p.known[no] = there; !there {
		delete(p.known, no)
	}
}

func (p *peers) all() map[int64]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.known)
}

// listenWithhold answers the questions of other processes, and makes this one known to them.
func (e *Engine) listenWithhold() error {
	no := e.holding.processNumber()
	err := e.subscribe(e.askAllSubject(), func(m *natsgo.Msg) {
		var r withholdRequest
		if json.Unmarshal(m.Data, &r) != nil || r.From == no {
			return
		}
		e.peers.set(r.From, true)
		answer := e.holding.withhold(r)
		answer.Process = no
		if body, err := json.Marshal(answer); err == nil {
			_ = m.Respond(body)
		}
	})
	if err != nil {
		return err
	}
	e.peers.complete = make(chan struct{})
	e.runInBackground(func(ctx context.Context) {
		defer close(e.peers.complete)
		_ = e.askAll(ctx, withholdRequest{From: no}, func() time.Duration { return helloFor }, func(*withholdAnswer) {})
	})
	return nil
}

// withhold makes this process withhold the entries, and cancels the deliveries of the message that it holds.
func (h *holding) withhold(r withholdRequest) (answer withholdAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	if h.withheld == nil {
		h.withheld = map[entryKey]time.Duration{}
	}
	for key, until := range h.withheld {
		if now > until {
			delete(h.withheld, key)
		}
	}
	for _, seq := range r.Entries {
		h.withheld[entryKey{r.Stream, seq}] = now + withheldFor
	}
	for _, d := range h.byID {
		switch {
		case d.meta.ID != r.Message || d.q.stream != r.Stream || d.q.Options.Mode == posthaste.AtMostOnce:
		case d.settling:
			answer.Busy = true
		case now <= d.lease:
			answer.add(withholdAnswer{Held: map[string]bool{d.sub.Name: !d.cancelled}})
			if d.cancelled = true; d.note.CancelRequestedAt.IsZero() {
				d.note.CancelRequestedAt = fromMicros(r.At)
			}
		}
	}
	return answer
}

// isWithheld reports whether an entry must not be handed out. The process that asked for that removes the
// entry.
func (h *holding) isWithheld(q *queue, seq uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uptime() <= h.withheld[entryKey{q.stream, seq}]
}

// cancelSubject is the subject of the record that a message was cancelled while it was handed out. A
// process reads it when it gets a redelivery.
func (q *queue) cancelSubject(subscription string, id posthaste.MessageID) string {
	return q.subjects.under("i", "c", subjectToken(subscription), id.String())
}

// wasCancelled reports whether a message was cancelled while its lost delivery was handed out.
func (e *Engine) wasCancelled(ctx context.Context, d *held) (bool, error) {
	m, err := e.lastOn(ctx, d.q.stream, d.q.cancelSubject(d.sub.Name, d.meta.ID))
	return m != nil, err
}

// withholdEverywhere asks all processes, and returns their answers. Processes that do not answer in time still
// take the question.
func (e *Engine) withholdEverywhere(ctx context.Context, r withholdRequest) (answer withholdAnswer, err error) {
	select {
	case <-e.peers.complete:
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	missing := e.peers.all()
	err = e.askAll(ctx, r, func() time.Duration {
		if len(missing) > 0 {
			return askMost
		}
		return askQuiet
	}, func(one *withholdAnswer) {
		delete(missing, one.Process)
		answer.add(*one)
	})
	for no := range missing {
		e.peers.set(no, false)
	}
	return answer, err
}

// askAll asks all processes and calls each with their answers, until the time that most returns
// has passed.
func (e *Engine) askAll(ctx context.Context, r withholdRequest, most func() time.Duration, each func(*withholdAnswer)) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	inbox := e.conn.NewInbox()
	answers, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return e.readError(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := e.conn.PublishRequest(e.askAllSubject(), inbox, body); err != nil {
		return e.readError(err)
	}
	for begun := time.Now(); ; {
		one, err := e.nextWithholdAnswer(ctx, answers, most()-time.Since(begun))
		if err != nil || one == nil {
			return err
		}
		e.peers.set(one.Process, true)
		each(one)
	}
}

// nextWithholdAnswer returns the next answer, or nil if none comes in time.
func (e *Engine) nextWithholdAnswer(ctx context.Context, answers *natsgo.Subscription, most time.Duration) (*withholdAnswer, error) {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m, err := answers.NextMsgWithContext(within)
	switch {
	case err != nil && ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natsgo.ErrTimeout)):
		return nil, nil
	case err != nil:
		return nil, e.readError(err)
	}
	one := &withholdAnswer{}
	return one, json.Unmarshal(m.Data, one)
}
