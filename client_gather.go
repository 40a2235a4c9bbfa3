package posthaste

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// group holds the messages of one Send call while other flushes run.
type group struct {
	messages []Message
	one      [1]Message // backs messages in the usual case of one message
	bytes    int
	state    groupState
	left     bool          // its caller returned during the flush
	batch    *batch        // set when a flush takes the group
	done     chan struct{} // one token when sent and err are set
	sent     []Sent
	err      error
	next     *group
}

type groupState uint8

const (
	groupWaiting   groupState = iota // can still be withdrawn
	groupWithdrawn                   // its caller returned before a flush took it
	groupFlying                      // part of a running flush
	groupDone                        // sent and err are set
)

// batch holds the messages of one flush.
type batch struct {
	cancel func()
	// live counts the callers that still wait. When the last one returns, the flush is
	// cancelled.
	live int
}

// gatherer sends calls immediately while fewer than flushes are running, and gathers later
// calls into shared flushes.
type gatherer struct {
	engine   Engine
	flushes  int // maximum number of running flushes
	messages int // maximum number of messages per flush
	bytes    int // maximum number of bytes per flush
	groups   *sync.Pool
	users    int // calls that use a gatherer of large messages, guarded by the client's mutex

	mu     sync.Mutex
	flying int    // running flushes, including those of a single caller
	dense  bool   // the last flush carried messages of several callers
	first  *group // oldest group that waits for a flush
	last   *group
}

// send sends the messages of one caller, alone or together with those of other callers.
func (c *gatherer) send(ctx context.Context, messages []Message) ([]Sent, error) {
	c.mu.Lock()
	if c.flying < c.flushes && c.first == nil && !c.dense {
		// No other caller waits: send immediately, on this goroutine and with the caller's
		// context.
		c.flying++
		c.mu.Unlock()
		defer c.landed()
		return sendAlone(ctx, c.engine, messages)
	}
	c.mu.Unlock()
	return c.gather(ctx, messages)
}

// sendAlone sends one caller's messages by themselves.
func sendAlone(ctx context.Context, engine Engine, messages []Message) ([]Sent, error) {
	sent, err := engine.Send(ctx, messages...)
	if err != nil {
		if end := ctx.Err(); end != nil && CodeOf(err) == "" && errors.Is(err, end) {
			return nil, unsure(end)
		}
		return nil, err
	}
	return sent, nil
}

// landed ends the flush of a single caller, and starts one for the groups that gathered during
// it.
func (c *gatherer) landed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		go c.flush(c.dense) // still counts as running
		return
	}
	c.flying--
}

// gather adds the messages to the next flush and waits until it is committed.
func (c *gatherer) gather(ctx context.Context, messages []Message) ([]Sent, error) {
	g := c.groups.Get().(*group)
	if err := g.fill(messages); err != nil {
		c.recycle(g)
		return nil, err
	}
	c.mu.Lock()
	if c.last == nil {
		c.first = g
	} else {
		c.last.next = g
	}
	c.last = g
	if c.flying < c.flushes {
		c.flying++
		go c.flush(c.dense)
	}
	c.mu.Unlock()

	select {
	case <-g.done:
	case <-ctx.Done():
		if err := c.leave(g, ctx.Err()); err != nil {
			return nil, err // the flush still owns g, so g is not reused
		}
		<-g.done // the flush ended at the same moment: return its result
	}
	sent, err := g.sent, g.err
	c.recycle(g)
	return sent, err
}

// fill encodes the payloads in the caller's goroutine. So a payload that cannot be encoded
// never reaches a batch, and a panic in MarshalJSON reaches the caller that sent it. Payloads
// that are already encoded are borrowed: take and leave release them before Send returns,
// because the caller may change them afterwards.
func (g *group) fill(messages []Message) error {
	if len(messages) == 1 {
		g.one[0] = messages[0]
		messages = g.one[:]
	} else if !allEncoded(messages) {
		messages = slices.Clone(messages)
	}
	g.messages, g.bytes = messages, 0
	for i := range g.messages {
		m := &g.messages[i]
		if !m.encoded() {
			body, contentType, err := m.Body()
			if err != nil {
				return err
			}
			m.Payload, m.ContentType, m.Codec = body, contentType, nil
		}
		g.bytes += payloadBytes(m.Payload) + 128
	}
	return nil
}

func (c *gatherer) recycle(g *group) {
	g.messages, g.one[0] = nil, Message{}
	g.sent, g.err, g.next, g.batch = nil, nil, nil, nil
	g.state, g.left = groupWaiting, false
	c.groups.Put(g)
}

// leave removes a caller whose context ended from its group. It returns nil if the group
// already has its result.
func (c *gatherer) leave(g *group, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch g.state {
	case groupWaiting:
		g.state = groupWithdrawn // the next flush skips it
		g.messages, g.one[0] = nil, Message{}
		return notSent(cause)
	case groupFlying:
		g.left = true
		if g.batch.live--; g.batch.live == 0 {
			g.batch.cancel()
		}
		return unsure(cause)
	default:
		return nil
	}
}

// flush sends the gathered groups, batch after batch, until none waits. If traffic is dense,
// it first yields, so that the callers of the last flush can join the next one. Otherwise the
// first of them would be sent alone and the others in a second flush.
func (c *gatherer) flush(dense bool) {
	var taken []*group
	var messages []Message
	for {
		if dense {
			runtime.Gosched()
		}
		ctx, cancel := context.WithCancel(context.Background())
		taken, messages = c.take(&batch{cancel: cancel}, taken[:0], messages[:0])
		if len(taken) > 0 {
			c.carry(ctx, taken, messages)
		}
		cancel()
		dense = len(taken) > 1
		clear(taken)
		clear(messages)
		if len(taken) == 0 {
			return
		}
	}
}

// take moves groups from the queue to b, oldest first and up to the limits. If no group waits,
// it ends the flush.
func (c *gatherer) take(b *batch, taken []*group, messages []Message) ([]*group, []Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes := 0
	for g := c.first; g != nil; g = c.first {
		if g.state == groupWaiting {
			if len(taken) > 0 && (len(messages)+len(g.messages) > c.messages || bytes+g.bytes > c.bytes) {
				break
			}
			g.state, g.batch = groupFlying, b
			b.live++
			bytes += g.bytes
			taken = append(taken, g)
			messages = append(messages, g.messages...)
		}
		if c.first = g.next; c.first == nil {
			c.last = nil
		}
		g.next = nil
	}
	if len(taken) == 0 {
		c.flying--
	} else {
		c.dense = len(taken) > 1
	}
	return taken, messages
}

// carry sends the groups in one transaction. If the store rejects them, nothing was stored,
// and carry retries with each half. In the end only the caller with the invalid message gets
// the error.
func (c *gatherer) carry(ctx context.Context, taken []*group, messages []Message) {
	sent, err := c.engine.Send(ctx, messages...)
	if err == nil && len(sent) != len(messages) {
		err = &Error{Code: CodeOutcomeUnknown, Message: "the engine answered with a different number of results than messages were sent"}
	}
	if len(taken) > 1 && refused(err) {
		half, n := len(taken)/2, 0
		for _, g := range taken[:half] {
			n += len(g.messages)
		}
		c.carry(ctx, taken[:half], messages[:n])
		c.carry(ctx, taken[half:], messages[n:])
		return
	}
	c.mu.Lock()
	for _, g := range taken {
		n := len(g.messages)
		if !g.left {
			g.batch.live--
		}
		g.state = groupDone
		if g.err = err; err == nil {
			g.sent, sent = sent[:n:n], sent[n:]
		}
	}
	c.mu.Unlock()
	for _, g := range taken {
		g.done <- struct{}{} // the caller may reuse g from now on
	}
}

func allEncoded(messages []Message) bool {
	for i := range messages {
		if !messages[i].encoded() {
			return false
		}
	}
	return true
}

// encoded reports whether the payload is sent unchanged.
func (m *Message) encoded() bool {
	if m.Codec != nil {
		return false
	}
	switch m.Payload.(type) {
	case nil, []byte, json.RawMessage:
		return true
	}
	return false
}

// refused reports whether err says that the store rejected the content of the messages. Then a
// part of them may be accepted.
func refused(err error) bool {
	switch CodeOf(err) {
	case "", CodeOutcomeUnknown, CodeUnavailable, CodeReadOnly, CodeSchemaOld, CodeSchemaNew:
		return false
	}
	return true
}

func notSent(cause error) error {
	return fmt.Errorf("not sent, nothing was stored: %w", cause)
}

func unsure(cause error) error {
	return &Error{Code: CodeOutcomeUnknown, Cause: cause,
		Message: "the call ended while the messages were on their way (" + cause.Error() + "): they may or may not have been stored",
		Hint:    "look for them by their reference before sending again, or make handling them twice harmless"}
}
