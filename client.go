package posthaste

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// ClientConfig tunes a [Client]. Zero values mean the defaults.
type ClientConfig struct {
	// Flushes is how many Engine.Send calls for gathered messages may be on
	// their way at the same time. While fewer are, a call goes out at once;
	// otherwise it goes out together with all that gathered meanwhile. More
	// lowers the wait of the single caller and makes batches smaller.
	// Default 1; 1 to 64.
	Flushes int
	// BatchMessages bounds how many messages one gathered Engine.Send carries.
	// Default 1,000; 1 to 100,000.
	BatchMessages int
	// BatchBytes bounds the payload bytes of one gathered Engine.Send. A
	// single call above it goes out alone. Default 4 MiB.
	BatchBytes int
	// BypassMessages is the size in messages from which a call is a batch of
	// its own and goes out at once, without gathering and beside Flushes.
	// Default 256.
	BypassMessages int
}

func (c *ClientConfig) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Flushes, 1)
	def(&c.BatchMessages, 1000)
	def(&c.BatchBytes, 4<<20)
	def(&c.BypassMessages, 256)
}

func (c *ClientConfig) check() error {
	var faults []error
	between := func(field string, v, low, high int) {
		if v < low || v > high {
			faults = append(faults, Invalidf(field, "%s must be %d to %d, got %d", field, low, high, v))
		}
	}
	between("Flushes", c.Flushes, 1, 64)
	between("BatchMessages", c.BatchMessages, 1, 100_000)
	between("BatchBytes", c.BatchBytes, 1, 1<<30)
	between("BypassMessages", c.BypassMessages, 1, 1<<30)
	return errors.Join(faults...)
}

// Client sends messages outside the caller's own transactions. Concurrent
// callers share transactions by natural batching: nobody waits for a timer,
// only for a flush that is on its way already. Safe for concurrent use; it
// holds nothing that must be closed.
type Client struct {
	engine Engine
	config ClientConfig

	mu     sync.Mutex
	flying int    // flushes on their way, also those of a lone caller
	dense  bool   // the last flush carried several callers' messages
	first  *group // oldest group that waits for a flush
	last   *group
}

// NewClient returns a client with default settings.
func NewClient(engine Engine) *Client {
	c, err := NewClientWith(engine, ClientConfig{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return c
}

// NewClientWith returns a client with the given settings, or an [Invalid]
// error that lists every fault in them.
func NewClientWith(engine Engine, config ClientConfig) (*Client, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	return &Client{engine: engine, config: config}, nil
}

// Send stores the messages in one transaction and returns their ids in order
// once it is committed: all of them or none. No messages are no error.
//
// An error with the code [OutcomeUnsure] means that the messages may or may
// not have been stored, because the answer was lost or because ctx ended while
// they were on their way; every other error means that they were not. Payloads
// must not be changed before Send returns, nor after an [OutcomeUnsure] error.
func (c *Client) Send(ctx context.Context, messages ...Message) ([]MessageID, error) {
	bytes, err := checkAll(messages)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if len(messages) >= c.config.BypassMessages || bytes > c.config.BatchBytes || deduped(messages) {
		return c.sendOwn(ctx, messages)
	}
	c.mu.Lock()
	if c.flying < c.config.Flushes && c.first == nil && !c.dense {
		// Nobody to share with: go at once, on this goroutine and with the
		// caller's own context.
		c.flying++
		c.mu.Unlock()
		defer c.landed()
		return c.sendOwn(ctx, messages)
	}
	c.mu.Unlock()
	return c.gather(ctx, messages)
}

// deduped reports whether a message has a dedupe key: such a send may have to
// wait for somebody's transaction, and must not make others wait with it.
func deduped(messages []Message) bool {
	for i := range messages {
		if messages[i].DedupeKey != "" {
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

// payloadBytes is the payload's size where that is known without encoding it.
func payloadBytes(payload any) int {
	switch p := payload.(type) {
	case []byte:
		return len(p)
	case json.RawMessage:
		return len(p)
	case string:
		return len(p)
	}
	return 128
}

// sendOwn sends one caller's messages by themselves.
func (c *Client) sendOwn(ctx context.Context, messages []Message) ([]MessageID, error) {
	ids, err := c.engine.Send(ctx, messages...)
	if err != nil {
		if end := ctx.Err(); end != nil && CodeOf(err) == "" && errors.Is(err, end) {
			return nil, unsure(end)
		}
		return nil, err
	}
	return ids, nil
}

// landed ends a lone caller's flush and starts one for what gathered meanwhile.
func (c *Client) landed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		go c.flush(c.dense) // keeps the place among the flying
		return
	}
	c.flying--
}

func notSent(cause error) error {
	return fmt.Errorf("not sent, nothing was stored: %w", cause)
}

func unsure(cause error) error {
	return &Error{Code: OutcomeUnsure, Cause: cause,
		Message: "the call ended while the messages were on their way (" + cause.Error() + "): they may or may not have been stored",
		Hint:    "look for them by their reference before sending again, or make handling them twice harmless"}
}
