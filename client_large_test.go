package posthaste

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestClientLargeCallsBypass(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
		c := NewClient(e)
		answers := gathering(t, c, e, nil, message("a"))
		large := slices.Repeat([]Message{message("x")}, 300)
		done := make(chan int)
		go func() {
			ids, _ := IDs(c.Send(context.Background(), large...))
			done <- len(ids)
		}()
		<-e.entered // while the first is still running
		close(e.hold)
		if n := <-done; n != 300 {
			t.Errorf("%d ids, want 300", n)
		}
		<-answers
		<-answers
	})
}

// gatheringLarge starts large sends. The first blocks in the engine, and the others wait
// behind it in order.
func gatheringLarge(t *testing.T, c *Client, e *sendEngine, queue string, large ...[]Message) <-chan sent {
	t.Helper()
	answers := make(chan sent, len(large))
	for i, messages := range large {
		go func() {
			ids, err := IDs(c.Send(context.Background(), messages...))
			answers <- sent{messages[0].Key, ids, err}
		}()
		if i == 0 {
			<-e.entered
			continue
		}
		atRest(t, "the large call gathers", func() bool { return c.gathererOf(queue).waiting() == i })
	}
	return answers
}

func times(n int, m Message) []Message { return slices.Repeat([]Message{m}, n) }

func TestClientLargeCallsOfAQueueGather(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
		c, err := NewClientWith(e, ClientConfig{LargeFlushes: 1, BatchMessages: 1000})
		if err != nil {
			t.Fatal(err)
		}
		answers := gatheringLarge(t, c, e, "q", times(300, message("a")), times(400, message("b")), times(600, message("c")), times(300, message("d")))

		// Sends to another queue, to several queues, with a delay, or above the size limit do
		// not wait behind them.
		others := make(chan error)
		other := message("other")
		other.Queue = "r"
		delayed := message("delayed")
		delayed.Delay = time.Second
		for _, messages := range [][]Message{times(300, other), append(times(300, message("x")), other), times(300, delayed), times(1001, message("y"))} {
			go func() {
				_, err := c.Send(context.Background(), messages...)
				others <- err
			}()
			<-e.entered
		}
		close(e.hold)
		for range 4 {
			if err := <-others; err != nil {
				t.Error(err)
			}
		}
		want := map[string]int{"a": 300, "b": 400, "c": 600, "d": 300}
		for range want {
			if a := <-answers; a.err != nil || len(a.ids) != want[a.key] {
				t.Errorf("%s: %d ids and %v, want %d ids", a.key, len(a.ids), a.err, want[a.key])
			}
		}
		var sizes []string
		for _, keys := range e.calls {
			switch keys[0] {
			case "a", "b", "c", "d":
				sizes = append(sizes, fmt.Sprint(keys[0], len(keys)))
			}
		}
		if slices.Sort(sizes); !slices.Equal(sizes, []string{"a300", "b1000", "d300"}) {
			t.Errorf("sent as %v, want b and c together, and d for itself", sizes)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.large) > 0 {
			t.Errorf("the client keeps %d queues that nothing is sent to", len(c.large))
		}
	})
}

func TestClientLargeRefusalReachesOnlyItsSender(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
		e.answer = func(_ context.Context, messages []Message) error {
			if slices.ContainsFunc(messages, func(m Message) bool { return m.Key == "bad" }) {
				return Invalidf("payload", "too large")
			}
			return nil
		}
		c, err := NewClientWith(e, ClientConfig{LargeFlushes: 1})
		if err != nil {
			t.Fatal(err)
		}
		answers := gatheringLarge(t, c, e, "q", times(300, message("a")), times(300, message("b")), times(300, message("bad")), times(300, message("c")))
		close(e.hold)
		for range 4 {
			if a := <-answers; (a.err != nil) != (a.key == "bad") || a.err == nil && len(a.ids) != 300 {
				t.Errorf("%s: %d ids and %v", a.key, len(a.ids), a.err)
			}
		}
	})
}

// A caller may change its messages after Send returned, even if it returned because the
// context ended.
func TestClientLargeCallerMayChangeMessagesAfterwards(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
		c, err := NewClientWith(e, ClientConfig{LargeFlushes: 1})
		if err != nil {
			t.Fatal(err)
		}
		answers := gatheringLarge(t, c, e, "q", times(300, message("a")))
		ctx, leave := context.WithCancel(context.Background())
		mine := times(300, message("mine"))
		left := make(chan error)
		go func() {
			_, err := c.Send(ctx, mine...)
			left <- err
		}()
		other := make(chan error)
		atRest(t, "mine gathers", func() bool { return c.gathererOf("q").waiting() == 1 })
		go func() {
			_, err := c.Send(context.Background(), times(300, message("other"))...)
			other <- err
		}()
		atRest(t, "the other gathers", func() bool { return c.gathererOf("q").waiting() == 2 })
		e.hold <- struct{}{}
		<-answers
		<-e.entered // mine and the other are on their way
		leave()
		if err := <-left; CodeOf(err) != CodeOutcomeUnknown {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		for i := range mine {
			mine[i] = message("changed")
		}
		e.hold <- struct{}{}
		if err := <-other; err != nil {
			t.Error(err)
		}
		if keys := e.calls[1]; len(keys) != 600 || slices.Contains(keys, "changed") {
			t.Errorf("%d messages were sent, some as they were changed later: %v", len(keys), slices.Contains(keys, "changed"))
		}
	})
}

func (c *Client) gathererOf(queue string) *gatherer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.large[queue]
}
