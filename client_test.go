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

// withHeldSends runs a test in a bubble, in parallel to others, with an engine whose calls of Send wait.
func withHeldSends(t *testing.T, run func(t *testing.T, e *sendEngine)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		run(t, e)
	})
}

func (e *sendEngine) Send(ctx context.Context, messages ...Message) ([]Sent, error) {
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
	results := make([]Sent, len(messages))
	for i := range results {
		e.next++
		results[i].ID = e.next
	}
	return results, nil
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
		ids, err := IDs(c.Send(context.Background(), message("first")))
		answers <- sent{"first", ids, err}
	}()
	<-e.entered
	for i, m := range messages {
		ctx := context.Background()
		if ctxs != nil {
			ctx = ctxs[i]
		}
		go func() {
			ids, err := IDs(c.Send(ctx, m))
			answers <- sent{m.Key, ids, err}
		}()
		atRest(t, "the message gathers", func() bool { return c.small.waiting() == i+1 })
	}
	return answers
}

func TestClientGathersWhileAFlushIsOnItsWay(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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

func TestClientEncodesInTheCaller(t *testing.T) {
	withHeldSends(t, func(t *testing.T, e *sendEngine) {
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

func (quickEngine) Send(_ context.Context, messages ...Message) ([]Sent, error) {
	runtime.Gosched()
	return make([]Sent, len(messages)), nil
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
