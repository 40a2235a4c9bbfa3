package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// server is the Redis of all tests that do not stop it.
var server *devbroker.Redis

func TestMain(m *testing.M) {
	devbroker.Main(m, &server, func(ctx context.Context, dir string) (*devbroker.Redis, error) {
		return devbroker.StartRedis(ctx, dir)
	})
}

func client(t *testing.T, address string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func onRedis(t *testing.T, c *redis.Client, config RedisConfig) *Redis {
	t.Helper()
	if config.Consumer == "" {
		// The consumer is unique to this run, because the server remembers earlier runs.
		config.Consumer = filepath.Base(filepath.Dir(t.TempDir()))
	}
	r, err := NewRedis(c, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counts counts effects by id.
type counts struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counts) handle(_ context.Context, d posthaste.RawDelivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[ID(d)]++
	return nil
}

func (c *counts) effects() (all, distinct int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		all += n
	}
	return all, len(c.seen)
}

func TestNP2_OnceOnRedis(t *testing.T) {
	t.Parallel()
	var c counts
	r := onRedis(t, client(t, server.Address()), RedisConfig{})
	testOnce(t, store{r.Middleware(c.handle), c.effects})
}

// Two consumers never run at the same time, and a handler that takes longer than its
// reservation keeps it.
func TestReservation(t *testing.T) {
	t.Parallel()
	c := client(t, server.Address())
	const reservation = 2 * time.Second
	r := onRedis(t, c, RedisConfig{Reservation: reservation})
	var id string
	for held := false; !held; {
		id += "a"
		started, end := make(chan struct{}), make(chan error)
		first := make(chan error)
		go func() {
			_, err := r.Do(t.Context(), id, func(context.Context) error { close(started); return <-end })
			first <- err
		}()
		<-started
		delayed := false
		last := time.Now()
		held = !testrun.Happens(2*reservation, func() bool {
			ran, err := r.Do(t.Context(), id, func(context.Context) error { return errors.New("both run") })
			delayed = delayed || time.Since(last) > reservation/2
			last = time.Now()
			if after, ok := posthaste.RetryDelay(err); !ran && errors.Is(err, ErrReserved) && ok && after <= reservation {
				return false
			}
			if !delayed {
				t.Fatalf("%v, %v", ran, err)
			}
			// The machine stalled for so long that the reservation could not be renewed: start
			// again.
			return true
		})
		end <- errors.New("no")
		if err := <-first; err == nil || err.Error() != "no" {
			t.Error(err)
		}
	}
	// A failed message is released immediately, and so is one whose handler panicked.
	func() {
		defer func() { _ = recover() }()
		_, _ = r.Do(t.Context(), id, func(context.Context) error { panic("worse") })
	}()
	for i, want := range []bool{true, false} {
		if ran, err := r.Do(t.Context(), id, func(context.Context) error { return nil }); ran != want || err != nil {
			t.Errorf("call %d: %v, %v", i, ran, err)
		}
	}
	// Losing the reservation cancels the context.
	_, err := r.Do(t.Context(), "b", func(ctx context.Context) error {
		c.Set(ctx, r.config.Prefix+r.config.Consumer+":b", "another consumer", time.Minute)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, errLost) {
		t.Errorf("got %v", err)
	}
	if got := c.Get(t.Context(), r.config.Prefix+r.config.Consumer+":b").Val(); got != "another consumer" {
		t.Errorf("the other's reservation is %q", got)
	}
}

// A message that another consumer handles costs a worker no attempt, even if the queue allows
// only one.
func TestReservedIsNoAttempt(t *testing.T) {
	t.Parallel()
	c := client(t, server.Address())
	r := onRedis(t, c, RedisConfig{})
	engine := posthastetest.Memory()
	if err := engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{MaxAttempts: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Send(t.Context(), posthaste.Message{Queue: "q", Headers: map[string]string{posthaste.HeaderMessageID: "a"}}); err != nil {
		t.Fatal(err)
	}
	attempts := make(chan int, 10)
	w := worker.New(engine, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	once := r.Middleware(func(_ context.Context, d posthaste.RawDelivery) error { attempts <- d.Attempt; return nil })
	reserved := false
	worker.HandleRaw(w, "q", func(ctx context.Context, d posthaste.RawDelivery) error {
		if !reserved {
			reserved = true
			if err := reserve.Run(ctx, c, []string{r.config.Prefix + r.config.Consumer + ":a"}, "another", 3000).Err(); err != nil {
				t.Error(err)
			}
		}
		return once(ctx, d)
	}, worker.WithConcurrency(1))
	stop := testrun.Background(t, w.Run)
	state := func() posthaste.MessageState { return posthastetest.Sent(t, engine, "q")[0].Subscriptions[0] }
	testrun.Until(t, patience, "it is done or dead", func() bool {
		s := state().State
		return s == posthaste.StateDone || s == posthaste.StateDead
	})
	stop()
	if s := state(); s.State != posthaste.StateDone || len(attempts) != 1 || <-attempts != 1 {
		t.Errorf("it is %s after %+v", s.State, s.Attempts)
	}
}

// If a consumer crashes, its reservation expires and the message runs again.
func TestConsumerDies(t *testing.T) {
	t.Parallel()
	c := client(t, server.Address())
	r := onRedis(t, c, RedisConfig{})
	key := r.config.Prefix + r.config.Consumer + ":a"
	if err := reserve.Run(t.Context(), c, []string{key}, "the dead", time.Hour.Milliseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	var effects counts
	if ran, err := r.Do(t.Context(), "a", func(context.Context) error { return nil }); ran || !errors.Is(err, ErrReserved) {
		t.Errorf("while another consumer holds the message: %v, %v", ran, err)
	}
	if err := c.PExpire(t.Context(), key, time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	again(t, r.Middleware(effects.handle), posthaste.RawDelivery{Headers: map[string]string{posthaste.HeaderMessageID: "a"}})
	if all, _ := effects.effects(); all != 1 {
		t.Errorf("%d effects", all)
	}
}

// TestNP4 on Redis: ids are forgotten after the window, memory stays constant, and no message
// is handled while Redis is down.
func TestNP4_ForgetsOnRedis(t *testing.T) {
	t.Parallel()
	own, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	c := client(t, own.Address())
	const window = 2 * time.Second
	r := onRedis(t, c, RedisConfig{Window: window, Reservation: time.Second})
	for round := range 2 {
		before := memory(t, c)
		n := testrun.Size(2000, 20_000)
		for i := range n {
			if ran, err := r.Do(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil }); !ran || err != nil {
				t.Fatalf("round %d: id %d ran: %v, %v", round, i, ran, err)
			}
		}
		most := memory(t, c)
		// The server removes expired keys gradually. A small number of ids needs less memory
		// than the test's other connections.
		forgotten := func() bool {
			return c.DBSize(t.Context()).Val() == 0 && (!testrun.Full() || memory(t, c) < most-(most-before)/2)
		}
		if !testrun.Happens(patience, forgotten) {
			t.Fatalf("round %d: long after the window Redis keeps %d ids; memory grew from %d to %d bytes, and is %d now", round, c.DBSize(t.Context()).Val(), before, most, memory(t, c))
		}
	}
	own.Kill()
	if ran, err := r.Do(t.Context(), "new", func(context.Context) error { t.Error("handled"); return nil }); ran || err == nil {
		t.Errorf("with Redis away: %v, %v", ran, err)
	}
}

// memory returns the server's used memory in bytes.
func memory(t *testing.T, c *redis.Client) (used int64) {
	t.Helper()
	info, err := c.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	if _, err := fmt.Sscan(rest, &used); err != nil {
		t.Fatalf("%q: %v", info, err)
	}
	return used
}

// A lost reply never causes a message to be handled twice at the same time, or not at all.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy, err := faultproxy.New(server.Address(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := onRedis(t, client(t, proxy.Address()), RedisConfig{Reservation: 500 * time.Millisecond})
	var running atomic.Int64
	for n := range 10 {
		id := fmt.Sprint(n)
		effects, failures, cut := 0, 0, false
		if n%2 == 0 {
			proxy.CutAfter() // the reservation's reply
		}
		testrun.Until(t, patience, "it is handled and confirmed", func() bool {
			ran, err := r.Do(t.Context(), id, func(context.Context) error {
				if running.Add(1) > 1 {
					t.Error("two run at the same time")
				}
				defer running.Add(-1)
				if n%2 == 1 && !cut {
					cut = true
					proxy.CutAfter() // the confirm's reply
				}
				effects++
				return nil
			})
			if err != nil {
				failures++
			}
			if ran && err != nil && !strings.Contains(err.Error(), "redelivered") {
				t.Error(err)
			}
			return err == nil
		})
		if effects == 0 || failures == 0 {
			t.Errorf("message %d: %d effects after %d lost replies, want some of each", n, effects, failures)
		}
	}
}

func TestRedisConfig(t *testing.T) {
	for field, c := range map[string]RedisConfig{"consumer": {}, "reservation": {Consumer: "c", Reservation: time.Hour, Window: time.Minute}} {
		_, err := NewRedis(nil, c)
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	r := onRedis(t, client(t, server.Address()), RedisConfig{})
	if _, err := r.Do(t.Context(), "", func(context.Context) error { return nil }); !posthaste.IsPermanent(err) {
		t.Errorf("no id: %v", err)
	}
}
