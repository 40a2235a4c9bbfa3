package posthaste

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// ClientConfig tunes a [Client]. Zero values mean the defaults.
type ClientConfig struct {
	// Flushes is the maximum number of concurrent Engine.Send calls for batched messages.
	// Below it a call is sent immediately; otherwise it is sent in the next batch. A higher
	// number makes callers wait less, and batches smaller. Default 1; 1 to 64.
	Flushes int
	// LargeMessages is the number of messages from which a call is large. Large and small
	// calls do not wait for each other, and large calls are batched per queue. Default 256;
	// 1 to 2³⁰.
	LargeMessages int
	// LargeFlushes is the maximum number of concurrent Engine.Send calls of large calls to
	// one queue. Default the number of processors the program may use, at least 2; 1 to 64.
	LargeFlushes int
	// BatchMessages is the maximum number of messages of a batch. A single call above it is
	// sent immediately by itself. Default 4,000; 1 to 100,000.
	BatchMessages int
	// BatchBytes is the maximum number of payload bytes of a batch. A single call above it
	// is sent immediately by itself. Default 4 MiB.
	BatchBytes int
}

func (c *ClientConfig) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Flushes, 1)
	def(&c.LargeMessages, 256)
	def(&c.LargeFlushes, min(max(2, runtime.GOMAXPROCS(0)), 64))
	def(&c.BatchMessages, 4000)
	def(&c.BatchBytes, 4<<20)
}

func (c *ClientConfig) check() error {
	var faults []error
	between := func(field string, v, low, high int) {
		if v < low || v > high {
			faults = append(faults, Invalidf(field, "%s must be %d to %d, got %d", field, low, high, v))
		}
	}
	between("Flushes", c.Flushes, 1, 64)
	between("LargeMessages", c.LargeMessages, 1, 1<<30)
	between("LargeFlushes", c.LargeFlushes, 1, 64)
	between("BatchMessages", c.BatchMessages, 1, 100_000)
	between("BatchBytes", c.BatchBytes, 1, 1<<30)
	return errors.Join(faults...)
}

// Client sends messages outside the caller's own transactions. Messages of concurrent callers
// share transactions: a call waits for a batch that is being sent, never for a timer. A
// Client is safe for concurrent use and needs no closing.
type Client struct {
	engine Engine
	config ClientConfig
	apart  bool // calls are not gathered
	small  gatherer
	// groups has a group for each call that gathers. Clients share none, because a
	// channel that was made in a bubble of testing/synctest cannot be used outside it.
	groups sync.Pool

	mu    sync.Mutex
	large map[string]*gatherer // those of queues that large calls are sent to just now
}

// NewClient returns a client with default settings.
func NewClient(engine Engine) *Client {
	c, err := NewClientWith(engine, ClientConfig{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return c
}

// NewClientWith returns a client with the given settings, or a [CodeInvalid]
// error that lists every fault in them.
func NewClientWith(engine Engine, config ClientConfig) (*Client, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Client{engine: engine, config: config, large: map[string]*gatherer{}}
	c.groups.New = func() any { return &group{done: make(chan struct{}, 1)} }
	c.small = gatherer{engine: engine, flushes: config.Flushes, messages: config.BatchMessages, bytes: config.BatchBytes, groups: &c.groups}
	if o, ok := engine.(Observer); ok {
		c.apart = o.Capabilities().SendApart
	}
	return c, nil
}

// Send stores the messages in one transaction and returns what became of each, in order, after
// the commit: all of them or none. Sending no messages is no error.
//
// An error with the code [CodeOutcomeUnknown] means that the messages may or may not have been
// stored, because the response was lost or ctx ended meanwhile. Any other error means that
// they were not. Payloads, Headers and Terms must not be changed before Send returns, nor
// after a [CodeOutcomeUnknown] error.
func (c *Client) Send(ctx context.Context, messages ...Message) ([]Sent, error) {
	messages = Completed(messages)
	bytes, err := checkAll(messages)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	switch {
	case c.apart || len(messages) > c.config.BatchMessages || bytes > c.config.BatchBytes || deduped(messages):
		return sendAlone(ctx, c.engine, messages)
	case len(messages) < c.config.LargeMessages:
		return c.small.send(ctx, messages)
	case !alike(messages):
		return sendAlone(ctx, c.engine, messages)
	}
	return c.sendLarge(ctx, messages)
}

// sendLarge sends a large call to one queue. Each queue has its own gatherer, so that a slow
// queue does not delay another.
func (c *Client) sendLarge(ctx context.Context, messages []Message) ([]Sent, error) {
	queue := messages[0].Queue
	c.mu.Lock()
	g := c.large[queue]
	if g == nil {
		g = &gatherer{engine: c.engine, flushes: c.config.LargeFlushes, messages: c.config.BatchMessages, bytes: c.config.BatchBytes, groups: &c.groups}
		c.large[queue] = g
	}
	g.users++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.users--; g.users == 0 {
			delete(c.large, queue)
		}
	}()
	return g.send(ctx, messages)
}

// alike reports whether all messages go to one queue and none is delayed: engines
// have a cheaper way for many of those, which others beside them would bar.
func alike(messages []Message) bool {
	for i := range messages {
		if messages[i].Queue != messages[0].Queue || messages[i].Delay > 0 {
			return false
		}
	}
	return true
}

// deduped reports whether a message has a dedupe key or a unique key: such a send may wait for
// another transaction, and must not delay the rest of a batch.
func deduped(messages []Message) bool {
	for i := range messages {
		if messages[i].DedupeKey != "" || messages[i].Unique != nil {
			return true
		}
	}
	return false
}

// checkAll checks every message and returns an estimate of their bytes.
func checkAll(messages []Message) (bytes int, err error) {
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			var e *Error
			if len(messages) > 1 && errors.As(err, &e) {
				e.Message = fmt.Sprintf("message %d of %d: %s", i+1, len(messages), e.Message)
				e.Field = fmt.Sprintf("messages[%d].%s", i, e.Field)
			}
			return 0, err
		}
		bytes += payloadBytes(messages[i].Payload) + 128
	}
	return bytes, nil
}
