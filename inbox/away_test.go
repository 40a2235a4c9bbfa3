package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// While the inbox's store is down, no message is handled or acknowledged. Each message is
// redelivered until the store is back, and no attempt is counted before it is handled.
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

// comesAgain runs a worker whose handler is behind an inbox, with ten messages of at most one
// attempt. When one was redelivered, it brings the store back, and checks that each message is
// handled once.
func comesAgain(t *testing.T, once func(posthaste.Handler) posthaste.Handler, back func()) {
	t.Helper()
	const n = 10
	engine := posthastetest.Memory()
	if err := engine.CreateQueue(t.Context(), "q", posthaste.QueueOptions{MaxAttempts: 1}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := engine.Send(t.Context(), posthaste.Message{Queue: "q"}); err != nil {
			t.Fatal(err)
		}
	}
	var handled, snoozed atomic.Int64
	w := worker.New(engine, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	handle := once(func(context.Context, posthaste.RawDelivery) error { handled.Add(1); return nil })
	worker.HandleRaw(w, "q", func(ctx context.Context, d posthaste.RawDelivery) error {
		err := handle(ctx, d)
		if err != nil {
			snoozed.Add(1)
			if after, ok := posthaste.SnoozeDelay(err); !ok || after < time.Second || d.Attempt != 1 || !strings.Contains(err.Error(), "the inbox cannot be") {
				t.Errorf("attempt %d: %v", d.Attempt, err)
			}
		}
		return err
	})
	stop := testrun.Background(t, w.Run)
	states := func() map[posthaste.State]int {
		all := map[posthaste.State]int{}
		for _, m := range posthastetest.Sent(t, engine, "q") {
			all[m.Subscriptions[0].State]++
		}
		return all
	}
	until := func(what string, so func() bool) {
		t.Helper()
		if !testrun.Happens(patience, so) {
			t.Fatalf("not %s: %v", what, states())
		}
	}
	until("snoozed", func() bool { return snoozed.Load() > n })
	if all := states(); handled.Load() != 0 || all[posthaste.StateDone]+all[posthaste.StateDead] != 0 {
		t.Errorf("without the store %d were handled, and are %v", handled.Load(), all)
	}
	back()
	until("done", func() bool { return states()[posthaste.StateDone] == n })
	stop()
	if got := handled.Load(); got != n {
		t.Errorf("%d were handled, want %d", got, n)
	}
	for _, m := range posthastetest.Sent(t, engine, "q") {
		for _, a := range m.Subscriptions[0].Attempts {
			if a.Attempt != 1 || a.Outcome != posthaste.OutcomeDone && a.Outcome != posthaste.OutcomeReleased {
				t.Errorf("a message was handled by %+v", m.Subscriptions[0].Attempts)
			}
		}
	}
}

// answer is an error with the SQLSTATE of a server.
type answer struct{ state string }

// Error implements error.
func (a answer) Error() string { return "SQLSTATE " + a.state }

// SQLState has the signature that drivers use.
func (a answer) SQLState() string { return a.state }

// lostTx is a transaction whose connection is lost immediately.
type lostTx struct{ pgx.Tx }

// QueryRow implements [Tx].
func (lostTx) QueryRow(context.Context, string, ...any) pgx.Row { return lostRow{} }

// Rollback implements [Tx].
func (lostTx) Rollback(context.Context) error { return nil }

type lostRow struct{}

// Scan implements [Row].
func (lostRow) Scan(...any) error { return errors.New("unexpected EOF") }

// full is a Redis error.
type full struct{ error }

func (full) RedisError() {}

// A store that is unreachable or serves no client costs no attempt. A rejected statement costs
// an attempt, and so does a handler that ran.
func TestOnlyAStoreThatIsAwayCostsNoAttempt(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		errors.New("connection refused"): true, context.DeadlineExceeded: true, answer{"57P03"}: true, answer{"53300"}: true, answer{"08006"}: true, answer{"25006"}: true,
		answer{"28P01"}: false, answer{"3D000"}: false, answer{"42501"}: false,
	} {
		h := Handler(func(context.Context) (pgx.Tx, error) { return nil, err }, "c", effect)
		said := h(t.Context(), delivery(1))
		if _, snoozed := posthaste.SnoozeDelay(said); snoozed != want || !errors.Is(said, err) {
			t.Errorf("%v: %v", err, said)
		}
	}
	h := Handler(func(context.Context) (pgx.Tx, error) { return lostTx{}, nil }, "c", effect)
	if _, snoozed := posthaste.SnoozeDelay(h(t.Context(), delivery(1))); !snoozed {
		t.Error("a connection that is lost before the handler ran costs an attempt")
	}
	pool, _ := database(t)
	lost := errors.New("connection refused")
	h = Handler(pool.Begin, "c", func(context.Context, pgx.Tx, posthaste.RawDelivery) error { return lost })
	if said := h(t.Context(), delivery(1)); !errors.Is(said, lost) {
		t.Error(said)
	} else if _, snoozed := posthaste.SnoozeDelay(said); snoozed {
		t.Errorf("a handler that has run made no attempt: %v", said)
	}
	if !redisAway(fmt.Errorf("the inbox cannot be read: %w", full{errors.New("MISCONF Redis is configured to save RDB snapshots")})) {
		t.Error("a Redis that cannot write costs an attempt")
	}
	locked, err := devbroker.StartRedis(t.Context(), t.TempDir(), "--requirepass", "right")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locked.Stop)
	r := onRedis(t, client(t, locked.Address()), RedisConfig{})
	_, said := r.Do(t.Context(), "a", func(context.Context) error { return nil })
	if _, snoozed := posthaste.SnoozeDelay(said); said == nil || snoozed {
		t.Errorf("without the password: %v", said)
	}
	r = onRedis(t, client(t, server.Address()), RedisConfig{})
	if ran, said := r.Do(t.Context(), "a", func(context.Context) error { return lost }); !ran || !errors.Is(said, lost) {
		t.Error(ran, said)
	} else if _, snoozed := posthaste.SnoozeDelay(said); snoozed {
		t.Errorf("a function that has run made no attempt: %v", said)
	}
}
