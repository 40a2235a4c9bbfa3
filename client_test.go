package posthaste

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sendEngine records the calls of Send. Its other methods must not be called.
type sendEngine struct {
	Engine
	mu      sync.Mutex
	calls   [][]string // keys of each call
	next    MessageID
	entered chan struct{}                                       // one token per started call
	hold    chan struct{}                                       // if set, a call waits for a token
	riding  int                                                 // messages of the call that waits for hold
	answer  func(ctx context.Context, messages []Message) error // if set, returns the result of a call
}

func newSendEngine() *sendEngine { return &sendEngine{entered: make(chan struct{}, 1000)} }

func (e *sendEngine) Send(ctx context.Context, messages ...Message) ([]MessageID, error) {
	e.mu.Lock()
	e.riding = len(messages)
	e.mu.Unlock()
	e.entered <- struct{}{}
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var keys []string
	for _, m := range messages {
		keys = append(keys, m.Key)
	}
	e.calls = append(e.calls, keys)
	if e.answer != nil {
		if err := e.answer(ctx, messages); err != nil {
			return nil, err
		}
	}
	ids := make([]MessageID, len(messages))
	for i := range ids {
		e.next++
		ids[i] = e.next
	}
	return ids, nil
}

// waiting counts the groups that wait for a flush.
func (c *gatherer) waiting() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := c.first; g != nil; g = g.next {
		if g.state == groupWaiting {
			n++
		}
	}
	return n
}

// atRest checks a condition when all goroutines of the bubble are blocked.
func atRest(t *testing.T, what string, ok func() bool) {
	t.Helper()
	synctest.Wait()
	if !ok() {
		t.Fatalf("every goroutine waits, and it does not hold that %s", what)
	}
}

func message(key string) Message { return Message{Queue: "q", Key: key, Payload: []byte(key)} }

type sent struct {
	key string
	ids []MessageID
	err error
}

// gathering starts one send that blocks in the engine and n more that gather behind it, in
// order. The results arrive in any order.
func gathering(t *testing.T, c *Client, e *sendEngine, ctxs []context.Context, messages ...Message) <-chan sent {
	t.Helper()
	answers := make(chan sent, len(messages)+1)
	go func() {
		ids, err := c.Send(context.Background(), message("first"))
		answers <- sent{"first", ids, err}
	}()
	<-e.entered
	for i, m := range messages {
		ctx := context.Background()
		if ctxs != nil {
			ctx = ctxs[i]
		}
		go func() {
			ids, err := c.Send(ctx, m)
			answers <- sent{m.Key, ids, err}
		}()
		atRest(t, "the message gathers", func() bool { return c.small.waiting() == i+1 })
	}
	return answers
}

func TestClientGathersWhileAFlushIsOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		answers := gathering(t, c, e, nil, message("a"), message("b"), message("c"))
		close(e.hold)
		seen := map[MessageID]string{}
		for range 4 {
			a := <-answers
			if a.err != nil || len(a.ids) != 1 {
				t.Fatalf("%s: ids %v, error %v", a.key, a.ids, a.err)
			}
			seen[a.ids[0]] = a.key
		}
		if want := [][]string{{"first"}, {"a", "b", "c"}}; !equalCalls(e.calls, want) {
			t.Errorf("calls %v, want %v", e.calls, want)
		}
		if want := map[MessageID]string{1: "first", 2: "a", 3: "b", 4: "c"}; fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("ids went to %v, want %v", seen, want)
		}
	})
}

func equalCalls(a, b [][]string) bool {
	return slices.EqualFunc(a, b, func(x, y []string) bool { return slices.Equal(x, y) })
}

// Clients in different synctest bubbles must not share channels: the runtime ends the process
// if a channel of one bubble is used in another.
func TestClientsShareNoBubble(t *testing.T) {
	t.Parallel()
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			e := newSendEngine()
			e.hold = make(chan struct{})
			answers := gathering(t, NewClient(e), e, nil, message("a"))
			close(e.hold)
			for range 2 {
				if a := <-answers; a.err != nil {
					t.Error(a.err)
				}
			}
		})
	}
}

func TestClientBoundsBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c, err := NewClientWith(e, ClientConfig{BatchMessages: 2})
		if err != nil {
			t.Fatal(err)
		}
		answers := gathering(t, c, e, nil, message("a"), message("b"), message("c"))
		close(e.hold)
		for range 4 {
			<-answers
		}
		if want := [][]string{{"first"}, {"a", "b"}, {"c"}}; !equalCalls(e.calls, want) {
			t.Errorf("calls %v, want %v", e.calls, want)
		}
	})
}

func TestClientRefusalReachesOnlyItsSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		stored := map[string]bool{}
		e.answer = func(_ context.Context, messages []Message) error {
			for _, m := range messages {
				if m.Key == "bad" {
					return &Error{Code: CodeNotFound, Field: "queue", Message: "no such queue"}
				}
			}
			for _, m := range messages {
				stored[m.Key] = true
			}
			return nil
		}
		c := NewClient(e)
		answers := gathering(t, c, e, nil, message("a"), message("b"), message("bad"), message("c"), message("d"))
		close(e.hold)
		var all []sent
		for range 6 {
			all = append(all, <-answers)
		}
		for _, a := range all {
			if bad := a.key == "bad"; bad != (CodeOf(a.err) == CodeNotFound) || bad == stored[a.key] || bad == (len(a.ids) == 1) {
				t.Errorf("%s: ids %v, error %v, stored %v", a.key, a.ids, a.err, stored[a.key])
			}
		}
	})
}

func TestClientLostAnswerIsToldToAllAndNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		e.answer = func(_ context.Context, messages []Message) error {
			if len(messages) > 1 {
				return &Error{Code: CodeOutcomeUnknown, Message: "lost"}
			}
			return nil
		}
		c := NewClient(e)
		answers := gathering(t, c, e, nil, message("a"), message("b"))
		close(e.hold)
		for range 3 {
			if a := <-answers; (a.key != "first") != (CodeOf(a.err) == CodeOutcomeUnknown) {
				t.Errorf("%s: error %v", a.key, a.err)
			}
		}
		if len(e.calls) != 2 {
			t.Errorf("calls %v: what may be stored must not be sent again", e.calls)
		}
	})
}

func TestClientWithdrawsWhatIsNotOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		ctx, cancel := context.WithCancel(context.Background())
		answers := gathering(t, c, e, []context.Context{context.Background(), ctx}, message("a"), message("b"))
		cancel()
		b := <-answers
		if b.key != "b" || !errors.Is(b.err, context.Canceled) || CodeOf(b.err) != "" {
			t.Errorf("%s: error %v, want a plain cancellation of b", b.key, b.err)
		}
		close(e.hold)
		for range 2 {
			if a := <-answers; a.err != nil {
				t.Errorf("%s: %v", a.key, a.err)
			}
		}
		if want := [][]string{{"first"}, {"a"}}; !equalCalls(e.calls, want) {
			t.Errorf("calls %v, want %v: b was withdrawn", e.calls, want)
		}
	})
}

func TestClientContextEndsOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		ctx, cancel := context.WithCancel(context.Background())
		answers := gathering(t, c, e, []context.Context{ctx, context.Background()}, message("a"), message("b"))
		e.hold <- struct{}{} // first lands
		if a := <-answers; a.key != "first" || a.err != nil {
			t.Fatalf("%s: %v", a.key, a.err)
		}
		<-e.entered // a and b are on their way
		cancel()
		if a := <-answers; a.key != "a" || CodeOf(a.err) != CodeOutcomeUnknown || !errors.Is(a.err, context.Canceled) {
			t.Errorf("%s: error %v, want outcome_unknown caused by the cancellation", a.key, a.err)
		}
		close(e.hold)
		if a := <-answers; a.key != "b" || a.err != nil {
			t.Errorf("%s: error %v: the others of the batch must not notice", a.key, a.err)
		}
	})
}

func TestClientLoneCallerContextEndsOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-e.entered; cancel() }()
		if _, err := NewClient(e).Send(ctx, message("a")); CodeOf(err) != CodeOutcomeUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want outcome_unknown caused by the cancellation", err)
		}
		if _, err := NewClient(e).Send(ctx, message("a")); CodeOf(err) != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want a plain cancellation: nothing was sent", err)
		}
	})
}

func TestClientAllLeavingCancelsTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		ctx, cancel := context.WithCancel(context.Background())
		answers := gathering(t, c, e, []context.Context{ctx, ctx}, message("a"), message("b"))
		e.hold <- struct{}{}
		<-answers
		<-e.entered
		cancel()
		<-answers
		<-answers
		atRest(t, "the flush ends without an answer", func() bool {
			c.small.mu.Lock()
			defer c.small.mu.Unlock()
			return c.small.flying == 0
		})
	})
}

func TestClientLargeCallsBypass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		answers := gathering(t, c, e, nil, message("a"))
		large := slices.Repeat([]Message{message("x")}, 300)
		done := make(chan int)
		go func() {
			ids, _ := c.Send(context.Background(), large...)
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
			ids, err := c.Send(context.Background(), messages...)
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
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

func TestClientEncodesInTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		gathering(t, c, e, nil)
		_, err := c.Send(context.Background(), Message{Queue: "q", Payload: make(chan int)})
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Field != "payload" {
			t.Errorf("error %v, want one of field payload", err)
		}
		close(e.hold)
	})
}

func TestMessageCheck(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	cases := []struct {
		name  string
		m     Message
		code  Code
		field string
	}{
		{"plain", Message{Queue: "a-z_0.9"}, "", ""},
		{"longest words", Message{Queue: strings.Repeat("q", 63), Key: long[:255], Terms: []string{long[:255]}}, "", ""},
		{"no queue", Message{}, CodeInvalid, "queue"},
		{"long queue", Message{Queue: strings.Repeat("q", 64)}, CodeInvalid, "queue"},
		{"upper case", Message{Queue: "Orders"}, CodeInvalid, "queue"},
		{"key", Message{Queue: "q", Key: long}, CodeTooLarge, "key"},
		{"kind", Message{Queue: "q", Kind: long}, CodeTooLarge, "kind"},
		{"reference", Message{Queue: "q", Reference: long}, CodeTooLarge, "reference"},
		{"term", Message{Queue: "q", Terms: []string{"a", long}}, CodeTooLarge, "terms[1]"},
		{"nul", Message{Queue: "q", Key: "a\x00"}, CodeInvalid, "key"},
		{"not utf-8", Message{Queue: "q", Key: "\xff"}, CodeInvalid, "key"},
		{"headers", Message{Queue: "q", Headers: map[string]string{"h": strings.Repeat("x", MaxHeaderBytes)}}, CodeTooLarge, "headers"},
		{"header name", Message{Queue: "q", Headers: map[string]string{"": "x"}}, CodeInvalid, "headers"},
		{"delay", Message{Queue: "q", Delay: -1}, CodeInvalid, "delay"},
		{"both times", Message{Queue: "q", Delay: 1, SendAt: time.Unix(1, 0)}, CodeInvalid, "send_at"},
		{"payload", Message{Queue: "q", Payload: make([]byte, MaxPayloadBytes+1)}, CodeTooLarge, "payload"},
	}
	for _, c := range cases {
		err := c.m.Check()
		var e *Error
		if c.code == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field {
			t.Errorf("%s: %#v, want code %s of field %s", c.name, err, c.code, c.field)
		}
	}
	engine := newSendEngine()
	_, err := NewClient(engine).Send(context.Background(), message("a"), Message{Queue: "q", Key: long})
	var e *Error
	if !errors.As(err, &e) || e.Field != "messages[1].key" || len(engine.calls) != 0 {
		t.Errorf("error %#v, want field messages[1].key and nothing sent", err)
	}
}

func TestClientConfigTellsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := NewClientWith(newSendEngine(), ClientConfig{Flushes: -1, BatchBytes: -1})
	if err == nil || !strings.Contains(err.Error(), "Flushes") || !strings.Contains(err.Error(), "BatchBytes") {
		t.Errorf("error %v, want both faults", err)
	}
}

type quickEngine struct{ Engine }

func (quickEngine) Send(_ context.Context, messages ...Message) ([]MessageID, error) {
	runtime.Gosched()
	return make([]MessageID, len(messages)), nil
}

func BenchmarkClientSend(b *testing.B) {
	for _, senders := range []int{1, 32} {
		b.Run(fmt.Sprintf("senders=%d", senders), func(b *testing.B) {
			c := NewClient(quickEngine{})
			m := message("a")
			b.ReportAllocs()
			b.SetParallelism(max(1, senders/runtime.GOMAXPROCS(0)))
			if senders == 1 {
				for b.Loop() {
					_, _ = c.Send(context.Background(), m)
				}
				return
			}
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, _ = c.Send(context.Background(), m)
				}
			})
		})
	}
}

// Callers that send again as soon as they get their result share each flush. They do not split
// into one that is sent first and the others after it.
func TestClientDenseSendersStayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, calls = 16, 400
		e := newSendEngine()
		e.hold = make(chan struct{})
		c := NewClient(e)
		ctx, stop := context.WithCancel(context.Background())
		var out sync.WaitGroup
		for range senders {
			out.Go(func() {
				for ctx.Err() == nil {
					_, _ = c.Send(ctx, message("m"))
				}
			})
		}
		carried := 0
		for call := range calls {
			<-e.entered
			e.mu.Lock()
			riding := e.riding
			e.mu.Unlock()
			// The store is slow: callers that are not part of the running flush have time to
			// gather.
			atRest(t, "every caller is in a flush or waits", func() bool { return riding+c.small.waiting() == senders })
			if call >= calls/2 {
				carried += riding
			}
			e.hold <- struct{}{}
		}
		stop()
		out.Wait()
		if mean := float64(carried) / (calls / 2); mean < 0.6*senders {
			t.Errorf("a call carried %.1f of %d senders' messages on average", mean, senders)
		}
	})
}
