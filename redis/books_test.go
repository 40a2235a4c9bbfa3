package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// books record what happens to the messages of a queue, to be accounted for.
type books struct {
	t      *testing.T
	e      *Engine
	dir    string
	sends  *history.Recorder
	claims *history.Recorder
	runs   *history.Recorder
	marks  *history.Recorder
	tokens atomic.Int64
}

func openBooks(t *testing.T, e *Engine) *books {
	t.Helper()
	b := &books{t: t, e: e, dir: t.TempDir()}
	for name, r := range map[string]**history.Recorder{"sends": &b.sends, "claims": &b.claims, "runs": &b.runs, "marks": &b.marks} {
		var err error
		if *r, err = history.Open(b.dir, name); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// part is the header that says which message of which send it is: "token.part".
const part = "part"

// parsed are the token and the part of a header.
func parsed(headers map[string]string) (token string, n int) {
	token, text, _ := strings.Cut(headers[part], ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return "", -1
	}
	return token, n
}

// send sends n messages at once.
func (b *books) send(n int, delay time.Duration) ([]posthaste.MessageID, error) {
	token := strconv.FormatInt(b.tokens.Add(1), 10)
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: jobs, Payload: i, Delay: delay, Headers: map[string]string{part: fmt.Sprintf("%s.%d", token, i)}}
	}
	b.sends.Record(history.Event{Kind: intent, Token: token, Count: n})
	ids, err := posthaste.IDs(b.e.Send(context.Background(), messages...))
	answer := history.Event{Kind: history.Sent, Token: token, IDs: ids, Note: string(posthaste.CodeOf(err))}
	switch {
	case err == nil:
	case posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown:
		answer.Kind = unsure
	default:
		answer.Kind = refused
	}
	b.sends.Record(answer)
	return ids, err
}

// handle records that a message is handled, which is what f does.
func (b *books) handle(d posthaste.RawDelivery, f func()) {
	e := history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt}
	e.Token, e.Part = parsed(d.Headers)
	b.runs.Record(e)
	f()
	e.Kind = history.Handled
	b.runs.Record(e)
}

// recorded is an engine that records the deliveries it hands out and those that are settled.
type recorded struct {
	posthaste.Store
	b        *books
	mu       sync.Mutex
	messages map[posthaste.DeliveryID]posthaste.MessageID
}

func (b *books) engine() *recorded {
	return &recorded{Store: b.e, b: b, messages: map[posthaste.DeliveryID]posthaste.MessageID{}}
}

func (r *recorded) Claim(ctx context.Context, c posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	begun := history.Now()
	reply, err := r.Store.Claim(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range reply.Deliveries {
		r.messages[d.ID] = d.MessageID
		r.b.claims.Record(history.Event{Kind: givenOut, ID: d.MessageID, Attempt: d.Attempt, Took: history.Now() - begun})
	}
	return reply, err
}

func (r *recorded) Settle(ctx context.Context, all []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	begun := history.Now()
	results, err := r.Store.Settle(ctx, all)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, result := range results {
		if result.Settled && result.Outcome == posthaste.OutcomeDone {
			r.b.claims.Record(history.Event{Kind: takenDone, ID: r.messages[result.Delivery], Took: history.Now() - begun})
		}
	}
	return results, err
}

// copied reports whether a replica of the node has all that was written to it, and
// records that.
func (b *books) copied(m *node, key string) bool {
	b.marks.Record(history.Event{Kind: probing})
	ok := m.replicated(key)
	if ok {
		b.marks.Record(history.Event{Kind: copied})
	}
	return ok
}

// killed kills a node.
func (b *books) killed(m *node) {
	m.Kill()
	b.marks.Record(history.Event{Kind: died})
}

// runsOf is how often a message was handled so far.
func (b *books) runsOf(id posthaste.MessageID) (n int) {
	b.t.Helper()
	for _, e := range b.read() {
		if e.Kind == history.Handled && e.ID == id {
			n++
		}
	}
	return n
}

func (b *books) read() []history.Event {
	b.t.Helper()
	events, err := history.Read(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

// account records what the store has in the end, and accounts for every message.
func (b *books) account() *accounting {
	b.t.Helper()
	b.close()
	a := account(b.read())
	b.t.Log(a)
	if a.err() != nil {
		b.t.Error(a.err())
	}
	if account(withoutOne(a.events, history.Handled)).err() == nil {
		b.t.Error("it is as promised, though of the first message it is not recorded that it was handled")
	}
	return a
}

// without leaves out the events of a kind, and withoutOne the first of them.
func without(events []history.Event, kind history.Kind) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.Kind == kind })
}

func withoutOne(events []history.Event, kind history.Kind) []history.Event {
	i := slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == kind })
	return slices.Delete(slices.Clone(events), i, i+1)
}

// close records what the store has in the end.
func (b *books) close() {
	b.t.Helper()
	ctx := b.t.Context()
	for before := posthaste.MessageID(0); ; {
		page, err := b.e.Messages(ctx, posthaste.MessageFilter{Queue: jobs, Before: before, Limit: 1000})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, m := range page.Items {
			e := history.Event{Kind: kept, ID: m.ID, Note: string(m.Subscriptions[0].State)}
			e.Token, e.Part = parsed(m.Headers)
			b.marks.Record(e)
			before = m.ID
		}
		if len(page.Items) == 0 {
			break
		}
	}
	for _, what := range []string{"run", "claim", "open", "claims", "timed", "due", "alone", "ready0", "stale", "dead", "apart"} {
		n, err := b.e.client.Exists(ctx, b.e.keys.of(jobs, what)).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		if n > 0 {
			b.marks.Record(history.Event{Kind: left, Note: what})
		}
	}
}

// stream sends one to three messages after the other, until it is stopped.
type stream struct {
	mu      sync.Mutex
	n       int // that were acknowledged
	refused map[posthaste.Code]int
	stop    chan struct{}
	stopped chan struct{}
}

func startStream(b *books) *stream {
	s := &stream{refused: map[posthaste.Code]int{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(s.stopped)
		for i := 0; ; i++ {
			select {
			case <-s.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			ids, err := b.send(1+i%3, 0)
			s.mu.Lock()
			s.n += len(ids)
			if err != nil {
				s.refused[posthaste.CodeOf(err)]++
			}
			s.mu.Unlock()
		}
	}()
	b.t.Cleanup(s.end)
	return s
}

func (s *stream) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *stream) refusals() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.refused {
		n += times
	}
	return n
}

// end stops it. It may be called again.
func (s *stream) end() {
	s.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	<-s.stopped
}
