package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// patience bounds waiting for what must happen. Only a broken program exceeds it, so it
// is far longer than a busy machine stands still.
const patience = 2 * time.Minute

// orders is the subscription that these tests receive for.
var orders = posthaste.QueueRef{Queue: "orders", Subscription: posthaste.DefaultSubscription}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testrun.Until(t, patience, what, holds)
}

// waiting counts the receivers that wait for a queue, whatever their subscription.
func (g *gatherer) waiting(queue string) int {
	return g.count(queue, func(*waiter) bool { return true })
}

// tried counts the receivers that wait and whose queue was found empty.
func (g *gatherer) tried(queue string) (n int) {
	return g.count(queue, func(w *waiter) bool { return w.tried })
}

func (g *gatherer) count(queue string, which func(*waiter) bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ref, gathered := range g.gatherings {
		for _, w := range gathered.waiters {
			if ref.Queue == queue && which(w) {
				n++
			}
		}
	}
	return n
}

type receivedLater struct {
	got []wire.Delivery
	err error
}

func (a *api) receiveLater(ctx context.Context, body string) <-chan receivedLater {
	done := make(chan receivedLater, 1)
	go func() {
		got, err := a.try(ctx, "POST", "/v1/queues/orders/receive", body)
		var r receivedLater
		if r.err = err; err == nil {
			if got.status != 200 {
				r.err = fmt.Errorf("status %d: %s", got.status, got.body)
			} else {
				var answer wire.Received
				r.err = json.Unmarshal(got.body, &answer)
				r.got = answer.Deliveries
			}
		}
		done <- r
	}()
	return done
}

func (a *api) sendSome(n int) {
	a.t.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: "orders", Payload: i}
	}
	if _, err := a.engine.Store.Send(a.t.Context(), messages...); err != nil {
		a.t.Fatal(err)
	}
}

func TestDS3ReceiveInOrderOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.sendSome(3)
	var order []string
	for _, want := range []int{2, 1, 0} {
		var got []wire.Delivery
		a.call("POST", "/v1/queues/orders/receive", `{"max":2}`).want(t, 200).items(t, &got)
		if len(got) != want {
			t.Fatalf("%d instead of %d", len(got), want)
		}
		for _, d := range got {
			order = append(order, string(d.Payload))
		}
	}
	if fmt.Sprint(order) != "[0 1 2]" {
		t.Fatal(order)
	}
}

func TestDS3ReceiveWaitsUntilItsWaitIsOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		start := time.Now()
		r := <-a.receiveLater(t.Context(), `{"wait":"150ms"}`)
		if took := time.Since(start); r.err != nil || len(r.got) != 0 || took < 150*time.Millisecond || !onServer(t) && took > 150*time.Millisecond {
			t.Fatalf("%+v after %s", r, took)
		}
		if a.call("POST", "/v1/queues/orders/receive", `{"wait":"1ms"}`).want(t, 200); a.server.gatherer.waiting("orders") != 0 {
			t.Fatal("a receiver still waits")
		}
	})
}

// The look interval of these tests is an hour: only the doorbell can wake.
func TestDS3ReceiveIsWokenByAMessage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		for range 20 {
			later := a.receiveLater(t.Context(), `{"wait":"1m"}`)
			eventually(t, "the receiver waits", func() bool { return a.server.gatherer.tried("orders") == 1 })
			a.sendSome(1)
			if r := <-later; r.err != nil || len(r.got) != 1 {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// Receivers that come while a claim is under way share the next one.
func TestReceiversShareClaims(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		const receivers = 16
		var mu sync.Mutex
		var asked []int
		held, release := make(chan struct{}), make(chan struct{})
		a := newAPI(t, func(_ *Config, h *hooked) {
			h.receive = func(ctx context.Context, r posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
				mu.Lock()
				asked = append(asked, r.Max)
				first := len(asked) == 1
				mu.Unlock()
				if first {
					close(held)
					<-release
				}
				return h.Store.Receive(ctx, r)
			}
		})
		a.queue("orders")
		waits := []<-chan receivedLater{a.receiveLater(t.Context(), `{"max":2,"wait":"1m"}`)}
		<-held
		for range receivers - 1 {
			waits = append(waits, a.receiveLater(t.Context(), `{"max":2,"wait":"1m"}`))
		}
		eventually(t, "all have gathered", func() bool { return a.server.gatherer.waiting("orders") == receivers })
		a.sendSome(2 * receivers)
		close(release)
		seen := map[posthaste.MessageID]bool{}
		for _, wait := range waits {
			r := <-wait
			if r.err != nil || len(r.got) != 2 {
				t.Fatalf("%+v", r)
			}
			for _, d := range r.got {
				seen[d.MessageID] = true
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 2*receivers || len(asked) != 2 || asked[0] != 2 || asked[1] != 2*(receivers-1) {
			t.Fatalf("%d messages by claims of %v", len(seen), asked)
		}
	})
}

// Each subscription of a queue is received from on its own. Those who wait for
// several of them sleep at one bell, and each is woken by a message.
func TestReceiveFromSubscriptions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, func(_ *Config, h *hooked) {
			h.receive = func(ctx context.Context, r posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
				if r.Subscription == "audit" { // the engine has one subscription a queue
					r.QueueRef = posthaste.QueueRef{Queue: "orders-audit"}
				}
				return h.Store.Receive(ctx, r)
			}
		})
		a.queue("orders")
		a.queue("orders-audit")
		for n := range 20 {
			waits := []<-chan receivedLater{
				a.receiveLater(t.Context(), `{"max":1,"wait":"1m"}`), a.receiveLater(t.Context(), `{"max":1,"wait":"1m","subscription":"default"}`),
				a.receiveLater(t.Context(), `{"max":1,"wait":"1m","subscription":"audit"}`), a.receiveLater(t.Context(), `{"max":1,"wait":"1m","subscription":"audit"}`),
			}
			eventually(t, "all wait", func() bool { return a.server.gatherer.tried("orders") == 4 })
			// Receiving from an unknown subscription fails, and disturbs no other receiver.
			a.call("POST", "/v1/queues/orders/receive", `{"wait":"1m","subscription":"billing"}`).want(t, 404).wantProblem(t, 404, posthaste.CodeNotFound, "subscription")
			send := func(queue string) {
				if _, err := a.engine.Store.Send(t.Context(), posthaste.Message{Queue: queue, Payload: n}, posthaste.Message{Queue: queue, Payload: n}); err != nil {
					t.Fatal(err)
				}
			}
			// No bell rings for the first two: the bell of orders does for both.
			send("orders-audit")
			send("orders")
			for i, wait := range waits {
				r := <-wait
				if r.err != nil || len(r.got) != 1 || r.got[0].Queue != []string{"orders", "orders", "orders-audit", "orders-audit"}[i] {
					t.Fatalf("%d: %+v", i, r)
				}
			}
		}
	})
}

// More receivers than one claim can serve, and leases of several lengths.
func TestReceiversOfManySizes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	var waits []<-chan receivedLater
	for i := range 30 {
		waits = append(waits, a.receiveLater(t.Context(), fmt.Sprintf(`{"max":1000,"wait":"1m","lease":"%dm"}`, 10+i%3)))
	}
	eventually(t, "all wait", func() bool { return a.server.gatherer.waiting("orders") == 30 })
	seen := map[posthaste.MessageID]bool{}
	for range waits {
		a.sendSome(1)
	}
	// Any of them may be given several; the rest get what comes.
	answered := 0
	eventually(t, "all are answered", func() bool {
		for i, wait := range waits {
			select {
			case r := <-wait:
				if r.err != nil || len(r.got) == 0 {
					t.Fatalf("%+v", r)
				}
				for _, d := range r.got {
					if seen[d.MessageID] {
						t.Fatal("twice")
					}
					seen[d.MessageID] = true
				}
				waits[i] = nil
				answered++
			default:
			}
		}
		if n := a.server.gatherer.waiting("orders"); n > 0 {
			a.sendSome(1)
		}
		return answered == len(waits)
	})
}

// A caller that leaves while its claim is under way leaves nothing behind: the
// next one gets the messages at once, as first attempts.
func TestReceiverThatLeavesStrandsNothing(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.receive = func(ctx context.Context, r posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
			reply, err := h.Store.Receive(ctx, r)
			once.Do(func() { close(held); <-release })
			return reply, err
		}
	})
	a.queue("orders")
	a.sendSome(5)
	ctx, leave := context.WithCancel(t.Context())
	later := a.receiveLater(ctx, `{"max":5,"wait":"1m"}`)
	<-held
	leave()
	if r := <-later; !errors.Is(r.err, context.Canceled) {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the server notices", func() bool { return a.server.gatherer.waiting("orders") == 0 })
	close(release)
	got := map[posthaste.MessageID]bool{}
	for len(got) < 5 {
		r := <-a.receiveLater(t.Context(), `{"max":5,"wait":"1m"}`)
		if r.err != nil || len(r.got) == 0 {
			t.Fatalf("%+v", r)
		}
		for _, d := range r.got {
			if d.Attempt != 1 {
				t.Errorf("attempt %d", d.Attempt)
			}
			got[d.MessageID] = true
		}
	}
}

func TestReceiverThatLeavesWhileNothingComes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		ctx, leave := context.WithCancel(t.Context())
		later := a.receiveLater(ctx, `{"wait":"1m"}`)
		eventually(t, "it waits", func() bool { return a.server.gatherer.tried("orders") == 1 })
		leave()
		<-later
		eventually(t, "no receiver waits, and nothing runs", func() bool {
			a.server.gatherer.mu.Lock()
			defer a.server.gatherer.mu.Unlock()
			return len(a.server.gatherer.gatherings) == 0
		})
		a.sendSome(1)
		if r := <-a.receiveLater(t.Context(), ""); r.err != nil || len(r.got) != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

// brokenPipe is a connection that takes no answer.
type brokenPipe struct{ *httptest.ResponseRecorder }

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAnswerThatIsNotTakenIsHandedBack(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.sendSome(2)
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/queues/orders/receive", strings.NewReader(`{"max":2}`))
	r.Header.Set("Content-Type", "application/json")
	a.server.ServeHTTP(brokenPipe{httptest.NewRecorder()}, r)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", `{"max":2}`).want(t, 200).items(t, &got)
	if len(got) != 2 || got[0].Attempt != 1 {
		t.Fatalf("%+v", got)
	}
}

// What cannot be handed back at first is tried again.
func TestHandingBackIsTriedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		failures := 2
		a := newAPI(t, func(_ *Config, h *hooked) {
			h.settle = func(ctx context.Context, s []posthaste.Settlement) ([]posthaste.SettleResult, error) {
				if failures--; failures >= 0 {
					return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
				}
				return h.Store.Settle(ctx, s)
			}
		})
		a.queue("orders")
		a.sendSome(1)
		reply, err := a.engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1, Lease: time.Hour})
		got := reply.Deliveries
		if err != nil {
			t.Fatal(err)
		}
		a.server.gatherer.release(got)
		if r := <-a.receiveLater(t.Context(), ""); r.err != nil || len(r.got) != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestReceiveTellsErrorsToAllWhoWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		var waits []<-chan receivedLater
		for range 3 {
			waits = append(waits, a.receiveLater(t.Context(), `{"wait":"1m"}`))
		}
		eventually(t, "they wait", func() bool { return a.server.gatherer.tried("orders") == 3 })
		if err := a.engine.DropQueue(t.Context(), "orders", posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		a.server.gatherer.bell.Wake("orders")
		for _, wait := range waits {
			if r := <-wait; r.err == nil || !strings.Contains(r.err.Error(), "status 404") {
				t.Errorf("%+v, want status 404", r)
			}
		}
	})
}

// A message without a ring, such as one that falls due, is found by the regular look.
func TestReceiveFindsWhatFallsDue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, func(c *Config, _ *hooked) { c.LookInterval = 5 * time.Millisecond })
		a.queue("orders")
		a.call("POST", "/v1/queues/orders/messages", `{"payload":1,"delay":"50ms","wake":false}`).want(t, 201)
		if r := <-a.receiveLater(t.Context(), `{"wait":"1m"}`); r.err != nil || len(r.got) != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

// An answer that was given in the moment the caller left is handed back too.
func TestAnswerGivenWhileLeavingIsHandedBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		a.sendSome(1)
		g := a.server.gatherer
		w := &waiter{max: 1, lease: time.Hour, reply: make(chan received, 1)}
		if err := g.join(t.Context(), orders, w); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is answered", func() bool { return len(w.reply) == 1 })
		g.leave(orders, w)
		if r := <-a.receiveLater(t.Context(), ""); r.err != nil || len(r.got) != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

// Many receivers come and go, with and without waiting, while messages arrive: each message is
// received once, and none is left behind. The receivers call the gatherer as the handler does,
// since a message in the response to a caller who hangs up in that moment comes again only
// when its lease ends.
func TestReceiversComeAndGo(t *testing.T) {
	t.Parallel()
	const total = 400
	a := newAPI(t, func(c *Config, h *hooked) { c.Client = posthaste.NewClient(h) })
	a.queue("orders")
	var mu sync.Mutex
	seen := map[posthaste.MessageID]int{}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute) // much is sent, and all of it must come
	defer stop()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				// Every third hardly waits and leaves in the middle of it.
				ctx, cancel := context.WithCancel(ctx)
				if n%3 == 0 {
					time.AfterFunc(time.Duration(n%7)*time.Millisecond, cancel)
				}
				got, _, err := a.server.gatherer.receive(ctx, orders, 3, time.Hour, time.Duration(n%5*10)*time.Millisecond)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, d := range got {
					if seen[d.MessageID]++; seen[d.MessageID] > 1 || d.Attempt != 1 {
						t.Errorf("message %s came %d times, attempt %d", d.MessageID, seen[d.MessageID], d.Attempt)
					}
				}
				if len(seen) == total {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	for range 4 {
		group.Go(func() {
			for range total / 4 { // not held against openapi.yaml, which takes longer than all the rest
				got, err := a.client.Do(a.request(t.Context(), "POST", "/v1/queues/orders/messages", `{"payload":1}`))
				if err != nil {
					t.Error(err)
					return
				}
				got.Body.Close()
				if got.StatusCode != 201 {
					t.Errorf("sending is answered %d", got.StatusCode)
					return
				}
			}
		})
	}
	group.Wait()
	if len(seen) != total {
		t.Errorf("only %d of %d arrived", len(seen), total)
	}
}
