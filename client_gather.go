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

// group is what one caller sends while other flushes are on their way.
type group struct {
	messages []Message
	one      [1]Message // backs messages for the usual call of one
	bytes    int
	state    groupState
	left     bool          // its caller left while it was on its way
	batch    *batch        // set once on the way
	done     chan struct{} // one token when ids and err are set
	ids      []MessageID
	err      error
	next     *group
}

type groupState uint8

const (
	groupWaiting   groupState = iota // may still be withdrawn
	groupWithdrawn                   // its caller left before it went out
	groupFlying                      // part of a batch on its way
	groupDone                        // ids and err are set
)

// batch is what one flush carries.
type batch struct {
	cancel func()
	// live counts the callers that still wait; the last to leave cancels.
	live int
}

// gatherer sends calls at once while few are on their way, and those that come
// meanwhile together.
type gatherer struct {
	engine   Engine
	flushes  int // how many may be on their way
	messages int // bound of what one carries
	bytes    int // likewise
	groups   *sync.Pool
	users    int // of a large one: calls that are in it, guarded by the client's mutex

	mu     sync.Mutex
	flying int    // on their way, also those of a lone caller
	dense  bool   // the last flush carried several callers' messages
	first  *group // oldest group that waits for a flush
	last   *group
}

// send sends one caller's messages, alone or with those of others.
func (c *gatherer) send(ctx context.Context, messages []Message) ([]MessageID, error) {
	c.mu.Lock()
	if c.flying < c.flushes && c.first == nil && !c.dense {
		// No other call to share with: go at once, on this goroutine and with the
		// caller's own context.
		c.flying++
		c.mu.Unlock()
		defer c.landed()
		return sendAlone(ctx, c.engine, messages)
	}
	c.mu.Unlock()
	return c.gather(ctx, messages)
}

// sendAlone sends one caller's messages by themselves.
func sendAlone(ctx context.Context, engine Engine, messages []Message) ([]MessageID, error) {
	ids, err := engine.Send(ctx, messages...)
	if err != nil {
		if end := ctx.Err(); end != nil && CodeOf(err) == "" && errors.Is(err, end) {
			return nil, unsure(end)
		}
		return nil, err
	}
	return ids, nil
}

// landed ends a lone caller's flush and starts one for what gathered meanwhile.
func (c *gatherer) landed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		go c.flush(c.dense) // keeps the place among the flying
		return
	}
	c.flying--
}

// gather joins what waits for the next flush and waits for the commit.
func (c *gatherer) gather(ctx context.Context, messages []Message) ([]MessageID, error) {
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
			return nil, err // g stays with the flush and is not used again
		}
		<-g.done // it ended at the same moment: the true answer is better
	}
	ids, err := g.ids, g.err
	c.recycle(g)
	return ids, err
}

// fill encodes the payloads here, in the caller's goroutine: payloads that cannot be encoded
// never reach a batch, and a panic of a caller's MarshalJSON stays with that caller.
// Encoded payloads are only lent until the group goes on its way or is
// withdrawn, which take and leave see to before the caller may change it.
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
	g.ids, g.err, g.next, g.batch = nil, nil, nil, nil
	g.state, g.left = groupWaiting, false
	c.groups.Put(g)
}

// leave takes a caller whose context ended out of its group. It returns nil if
// the group's answer is there already.
func (c *gatherer) leave(g *group, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch g.state {
	case groupWaiting:
		g.state = groupWithdrawn // the next flush passes over it
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

// flush sends what gathered, batch after batch, until nothing waits. Where
// traffic is dense, those whom the last flush answered send again at once: it
// lets them, or the first would go alone, and the others after it.
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

// take moves groups from the queue to b, oldest first and up to the limits. If
// none waits, it gives the flush's place back.
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

// carry sends the groups in one transaction. If that is refused, nothing was
// stored, and halves are tried, so that in the end only the sender of an
// invalid message gets the error.
func (c *gatherer) carry(ctx context.Context, taken []*group, messages []Message) {
	ids, err := c.engine.Send(ctx, messages...)
	if err == nil && len(ids) != len(messages) {
		err = &Error{Code: OutcomeUnsure, Message: "the engine answered with another number of ids than messages were sent"}
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
			g.ids, ids = ids[:n:n], ids[n:]
		}
	}
	c.mu.Unlock()
	for _, g := range taken {
		g.done <- struct{}{} // its caller may reuse g from here on
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

// encoded reports whether the payload is sent as it is.
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

// refused reports whether err says that the store refused what was sent for
// its content, so that a part of it may be accepted.
func refused(err error) bool {
	switch CodeOf(err) {
	case "", OutcomeUnsure, Unavailable, ReadOnly, SchemaOld, SchemaNew:
		return false
	}
	return true
}

func notSent(cause error) error {
	return fmt.Errorf("not sent, nothing was stored: %w", cause)
}

func unsure(cause error) error {
	return &Error{Code: OutcomeUnsure, Cause: cause,
		Message: "the call ended while the messages were on their way (" + cause.Error() + "): they may or may not have been stored",
		Hint:    "look for them by their reference before sending again, or make handling them twice harmless"}
}
