package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// handledBy is how often each message was handled.
type handledBy struct {
	mu    sync.Mutex
	times map[posthaste.MessageID]int
}

func (h *handledBy) handle(d posthaste.RawDelivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times[d.MessageID]++
}

// all reports whether all of ids were handled.
func (h *handledBy) all(ids []posthaste.MessageID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.times[id] == 0 {
			return false
		}
	}
	return true
}

func (h *handledBy) twice() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, times := range h.times {
		if times > 1 {
			n++
		}
	}
	return n
}

// work runs a worker on e until the test ends.
func work(t *testing.T, e posthaste.Store, c worker.Config, handle func(posthaste.RawDelivery) error, further ...func(*worker.Worker)) *handledBy {
	t.Helper()
	h := &handledBy{times: map[posthaste.MessageID]int{}}
	runWorker(t, e, c, append(further, func(w *worker.Worker) {
		worker.Handle(w, jobs, func(_ context.Context, d posthaste.Delivery[int]) error {
			h.handle(d.RawDelivery)
			if handle == nil {
				return nil
			}
			return handle(d.RawDelivery)
		})
	})...)
	return h
}

// runWorker runs a worker with the given handlers until the test ends.
func runWorker(t *testing.T, e posthaste.Store, c worker.Config, handle ...func(*worker.Worker)) {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	w := worker.New(e, c)
	for _, f := range handle {
		f(w)
	}
	testrun.Background(t, w.Run)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testrun.Until(t, 2*time.Minute, what, ok)
}

// tries waits until met, and gives up after some rounds that took at least so long.
func tries(rounds int, least time.Duration, met func() bool) (ok bool) {
	begun := time.Now()
	testrun.Happens(2*time.Minute, func() bool {
		ok = met()
		rounds--
		return ok || rounds < 0 && time.Since(begun) > least
	})
	return ok
}

// elapses waits until the server's clock has gone on by d.
func elapses(t *testing.T, e *Engine, d time.Duration) {
	t.Helper()
	now := func() time.Time {
		at, err := e.client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	from := now()
	until(t, fmt.Sprint(d, " have passed"), func() bool { return now().Sub(from) > d })
}

func settledAll(t *testing.T, e *Engine) func() bool {
	return func() bool {
		infos, err := e.Queues(t.Context(), jobs)
		return err == nil && len(infos) == 1 && infos[0].Subscriptions[0].Depth == 0 && infos[0].Subscriptions[0].InFlight == 0
	}
}

// A worker of the runtime handles everything, retries failures, and wakes up for messages that
// are sent while it sleeps.
func TestWorker(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond, MaxAttempts: 3})
	h := work(t, e, worker.Config{}, func(d posthaste.RawDelivery) error {
		switch {
		case string(d.Payload) == "7":
			return errors.New("seven never works")
		case string(d.Payload) == "8" && d.Attempt == 1:
			return errors.New("eight works later")
		}
		return nil
	})
	ids := send(t, e, 500)
	for range 20 {
		until(t, "all are handled", func() bool { return h.all(ids) })
		ids = append(ids, send(t, e, 1)...)
	}
	until(t, "all are settled", settledAll(t, e))
	dead, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: jobs})
	if err != nil || len(dead.Items) != 1 || string(dead.Items[0].Payload) != "7" || len(dead.Items[0].Attempts) != 3 || h.times[ids[8]] != 2 || h.twice() != 2 {
		t.Errorf("dead letters %+v, %v; the eighth was handled %d times, %d more than once", dead.Items, err, h.times[ids[8]], h.twice())
	}
}

// Replies that get lost after Redis has handed out, settled or kept alive: every
// message is handled and settled, while the process lives on.
func TestRE7_LostReplies(t *testing.T) {
	for name, s := range map[string]*script{"claim": &claimScript, "settle": &settleScript, "beat": &workerScript} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, posthaste.QueueOptions{})
			// So that Redis knows the scripts, and they are called by their hashes.
			first := send(t, e, 1)
			w := register(t, e)
			done(t, e, claim(t, e, w, 1, 1)...)
			proxy, err := faultproxy.New(server.Address(), func(sent []byte) bool { return bytes.Contains(sent, []byte(s.read().sha)) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			weak, err := Open(t.Context(), "redis://"+proxy.Address(), WithPrefix(e.keys.prefix))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(weak.Close)
			h := work(t, weak, worker.Config{Lease: time.Minute, Heartbeat: 200 * time.Millisecond}, nil)
			ids := send(t, e, 20)
			until(t, "the worker works", func() bool { return h.all(ids) })
			for range 5 {
				cut := proxy.CutAfter()
				ids = append(ids, send(t, e, 20)...)
				// On a slow machine the worker itself may have given up the connection
				// that was to be cut.
				until(t, "a connection is cut", func() bool {
					select {
					case <-cut:
						return true
					case <-time.After(5 * time.Second):
						cut = proxy.CutAfter()
						ids = append(ids, send(t, e, 1)...)
						return false
					}
				})
				until(t, "all are handled", func() bool { return h.all(ids) })
			}
			until(t, "all are settled", settledAll(t, e))
			if h.times[first[0]] != 0 {
				t.Error("a settled message came again")
			}
			if name != "beat" && h.twice() > 0 {
				t.Errorf("%d were handled twice, though their worker lived on", h.twice())
			}
		})
	}
}

// mortal starts a Redis of the test's own, to be killed, that loses nothing it has
// answered, and opens an engine on it.
func mortal(t *testing.T) (context.Context, *devbroker.Redis, *Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r, err := devbroker.StartRedis(ctx, t.TempDir(), "--appendfsync", "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	return ctx, r, open(t, r.URL())
}

// Redis is killed and restarted while messages flow. It keeps every message that it confirmed,
// and all of these are handled.
func TestRE1_RedisKilled(t *testing.T) {
	t.Parallel()
	ctx, r, e := mortal(t)
	create(t, e, posthaste.QueueOptions{})
	h := work(t, e, worker.Config{Lease: 2 * time.Second}, nil)
	var ids []posthaste.MessageID
	stop := make(chan struct{})
	sent := make(chan struct{})
	var mu sync.Mutex
	go func() {
		defer close(sent)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: jobs, Payload: i}, posthaste.Message{Queue: jobs, Payload: i, Delay: time.Millisecond})); err == nil {
				mu.Lock()
				ids = append(ids, got...)
				mu.Unlock()
			} else {
				testrun.Pause(2 * time.Millisecond)
			}
		}
	}()
	confirmed := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	for range 3 {
		have := confirmed()
		until(t, "more is sent", func() bool { return confirmed() > have+50 })
		r.Kill()
		if err := r.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	have := confirmed()
	until(t, "it goes on", func() bool { return confirmed() > have+50 })
	close(stop)
	<-sent
	until(t, fmt.Sprintf("all %d are handled", len(ids)), func() bool { return h.all(ids) })
	until(t, "all are settled", settledAll(t, e))
}
