package inbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// While the inbox's store is away nothing is handled and nothing acknowledged: each
// attempt is recorded as failed, and the message comes again until the store is back.
func TestNP4_NothingIsAcknowledgedWithoutTheStore(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pool, url := database(t)
		var now atomic.Pointer[pgxpool.Pool]
		away, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		away.Close()
		now.Store(away)
		begin := func(ctx context.Context) (pgx.Tx, error) { return now.Load().Begin(ctx) }
		comesAgain(t, func(h posthaste.Handler) posthaste.Handler {
			return Handler(begin, "c", func(ctx context.Context, _ pgx.Tx, d posthaste.RawDelivery) error { return h(ctx, d) })
		}, func() { now.Store(pool) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		own, err := devbroker.StartRedis(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Stop)
		r := onRedis(t, client(t, own.Address()), RedisConfig{})
		own.Kill()
		comesAgain(t, r.Middleware, func() {
			if err := own.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// comesAgain has a worker whose handler is behind an inbox try ten messages until each
// has failed twice, lets the store come back, and looks that each is handled once.
func comesAgain(t *testing.T, once func(posthaste.Handler) posthaste.Handler, back func()) {
	t.Helper()
	const n = 10
	engine := posthastetest.Memory()
	if err := engine.QueueCreate(t.Context(), "q", posthaste.QueueOptions{MaxAttempts: 100, BackoffBase: 100 * time.Millisecond, BackoffMax: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := engine.Send(t.Context(), posthaste.Message{Queue: "q"}); err != nil {
			t.Fatal(err)
		}
	}
	var handled atomic.Int64
	w := worker.New(engine, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.HandleRaw(w, "q", once(func(context.Context, posthaste.RawDelivery) error { handled.Add(1); return nil }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	until := func(what string, so func(posthaste.MessageState) bool) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			all := posthastetest.Sent(t, engine, "q")
			left := 0
			for _, m := range all {
				if !so(m.Subscriptions[0]) {
					left++
				}
			}
			if len(all) == n && left == 0 {
				return
			}
			if time.Since(begun) > 2*time.Minute {
				t.Fatalf("%d of %d are not %s", left, len(all), what)
			}
		}
	}
	until("failed twice", func(s posthaste.MessageState) bool {
		if s.State == posthaste.StateDone {
			t.Fatal("a message is acknowledged without the store")
		}
		return len(s.Attempts) >= 2 && s.Attempts[0].Error != "" && s.Attempts[1].Error != ""
	})
	if got := handled.Load(); got != 0 {
		t.Errorf("%d were handled without the store", got)
	}
	back()
	until("done", func(s posthaste.MessageState) bool { return s.State == posthaste.StateDone })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := handled.Load(); got != n {
		t.Errorf("%d were handled, want %d", got, n)
	}
}
