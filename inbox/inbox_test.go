package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// patience bounds waiting for what must happen.
const patience = 2 * time.Minute

// database returns a database with an inbox and a table of effects, and its URL.
func database(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	url := testpg.Empty(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, statement := range []string{Schema(), Schema(), "create table effects (id text not null)"} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return pool, url
}

func effect(ctx context.Context, tx pgx.Tx, d posthaste.RawDelivery) error {
	_, err := tx.Exec(ctx, "insert into effects values ($1)", ID(d))
	return err
}

func one[T any](t *testing.T, pool *pgxpool.Pool, query string, args ...any) (value T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// store runs deliveries through an inbox and counts their effects.
type store struct {
	handle  posthaste.Handler
	effects func() (all, distinct int)
}

func onPostgres(t *testing.T) store {
	pool, _ := database(t)
	return store{Handler(pool.Begin, "c", effect), func() (int, int) {
		return one[int](t, pool, "select count(*) from effects"), one[int](t, pool, "select count(distinct id) from effects")
	}}
}

func delivery(n int) posthaste.RawDelivery {
	return posthaste.RawDelivery{MessageID: posthaste.MessageID(n)}
}

// again handles a delivery repeatedly until it succeeds.
func again(t *testing.T, h posthaste.Handler, d posthaste.RawDelivery) {
	var err error
	testrun.Happens(patience, func() bool {
		err = h(t.Context(), d)
		_, again := posthaste.RetryDelay(err)
		return !again || t.Context().Err() != nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNP2: redelivered messages have one effect, even if two consumers handle the same id at
// the same time.
func testOnce(t *testing.T, s store) {
	n := testrun.Size(300, 10_000)
	var all []int
	for i := range n {
		if all = append(all, i+1); i%10 == 0 {
			all = append(all, i+1)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for id := range next {
				again(t, s.handle, delivery(id))
			}
		})
	}
	for _, id := range all {
		next <- id
	}
	close(next)
	wg.Wait()
	if all, distinct := s.effects(); all != n || distinct != n {
		t.Fatalf("%d effects of %d ids, want %d", all, distinct, n)
	}
	instants := testrun.Size(200, 1000)
	for i := range instants {
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				<-start
				again(t, s.handle, delivery(n+1+i))
			})
		}
		close(start)
		wg.Wait()
	}
	if all, distinct := s.effects(); all != n+instants || distinct != all {
		t.Errorf("%d effects of %d ids, want %d", all, distinct, n+instants)
	}
}

func TestNP2_OnceOnPostgres(t *testing.T) {
	t.Parallel()
	testOnce(t, onPostgres(t))
}

// A failed message is not remembered, whatever the failure.
func TestFailureIsForgotten(t *testing.T) {
	t.Parallel()
	pool, url := database(t)
	calls := 0
	h := Handler(pool.Begin, "c", func(ctx context.Context, tx pgx.Tx, d posthaste.RawDelivery) error {
		if err := effect(ctx, tx, d); err != nil {
			return err
		}
		if calls++; calls == 1 {
			return errors.New("no")
		} else if calls == 2 {
			panic("worse")
		}
		return nil
	})
	if err := h(t.Context(), delivery(1)); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = h(t.Context(), delivery(1))
	}()
	for range 2 {
		if err := h(t.Context(), delivery(1)); err != nil {
			t.Error(err)
		}
	}
	if n := one[int](t, pool, "select count(*) from effects"); n != 1 || calls != 3 {
		t.Errorf("%d effects of %d calls", n, calls)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still in use", n)
	}

	// Another consumer handles it too. database/sql uses the same inbox.
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for consumer, want := range map[string]bool{"c": false, "d": true} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if fresh, err := RememberSQL(t.Context(), tx, consumer, "1"); fresh != want || err != nil {
			t.Errorf("%s: %v, %v", consumer, fresh, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	d := delivery(5)
	d.Headers = map[string]string{posthaste.HeaderMessageID: "order-5"}
	if got := ID(d); got != "order-5" {
		t.Errorf("ID is %q", got)
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	pool, _ := database(t)
	many := func(ids ...string) string {
		t.Helper()
		rows, _ := pool.Query(t.Context(), "select posthaste_inbox.remember_many('c', $1)", ids)
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(fresh, " ")
	}
	if got := many("b", "a", "b"); got != "a b" {
		t.Errorf("got %q", got)
	}
	if got := many("b", "c"); got != "c" {
		t.Errorf("got %q", got)
	}
	if got := many(); got != "" {
		t.Errorf("got %q", got)
	}
	const empty, isolation = "not empty", "isolation read committed"
	for bad, want := range map[string]string{"select posthaste_inbox.remember('', 'x')": empty, "select posthaste_inbox.remember('c', '')": empty,
		"select posthaste_inbox.remember('c', null)": empty, "begin isolation level repeatable read; select posthaste_inbox.remember('c', 'x')": isolation} {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", bad, err, want)
		}
		_ = conn.Conn().Close(t.Context())
		conn.Release()
	}
}

// TestNP4: the inbox forgets after its window and not earlier, its size stays constant over
// several windows, and while its store is down no message is handled.
func TestNP4_ForgetsOnPostgres(t *testing.T) {
	t.Parallel()
	pool, _ := database(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("select posthaste_inbox.set_window('1 hour')")
	// later moves the inbox's clock.
	later := func(by string) {
		t.Helper()
		exec("update posthaste_inbox.settings set rotated_at = rotated_at - '" + by + "'::interval")
	}
	size := func() int {
		return one[int](t, pool, "select sum(pg_total_relation_size(format('posthaste_inbox.seen_%s', n)::regclass))::int from generate_series(0, 2) n")
	}
	seen := func() int { return one[int](t, pool, "select count(*) from posthaste_inbox.seen") }
	var most, settled int
	for window := range 9 {
		exec(fmt.Sprintf("select count(*) from (select posthaste_inbox.remember_many('c', (select array_agg(n::text || '-%d') from generate_series(1, 5000) n))) x", window))
		if one[bool](t, pool, "select posthaste_inbox.rotate()") {
			t.Fatal("it rotated before half a window was over")
		}
		later("30 minutes")
		if !one[bool](t, pool, "select posthaste_inbox.rotate()") {
			t.Fatal("it did not rotate after half a window")
		}
		if window == 3 {
			settled = size()
		}
		most = max(most, size())
		// All ids of the last window are still there.
		for back := range min(2, window+1) {
			if one[bool](t, pool, "select posthaste_inbox.remember('c', $1)", fmt.Sprintf("17-%d", window-back)) {
				t.Fatalf("an id was forgotten within the window")
			}
		}
	}
	if n := seen(); n != 10_000 {
		t.Errorf("it remembers %d ids, want those of two thirds", n)
	}
	if most > settled*11/10 {
		t.Errorf("it grew from %d to %d bytes over three windows", settled, most)
	}
	if !one[bool](t, pool, "select posthaste_inbox.remember('c', '17-0')") {
		t.Error("an id of several windows ago is still known")
	}

	// Forget does the same in the background.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { forget(ctx, pool, nil, 10*time.Millisecond); close(ended) }()
	testrun.Until(t, patience, "it forgets all ids", func() bool {
		later("30 minutes")
		return seen() == 0
	})
	stop()
	<-ended

	pool.Close()
	handled := false
	err := Handler(pool.Begin, "c", func(context.Context, pgx.Tx, posthaste.RawDelivery) error { handled = true; return nil })(t.Context(), delivery(1))
	if err == nil || handled || !strings.Contains(err.Error(), "inbox") {
		t.Errorf("with the store away: handled %v, %v", handled, err)
	}
}

// No message is handled twice while partitions rotate as fast as possible. Without the
// rotation lock, one is.
func TestOnceWhileRotating(t *testing.T) {
	for name, broken := range map[string]string{
		"shipped": "", "without the lock": "perform pg_advisory_xact_lock_shared(5784909358553004082);", "without the other thirds": "s.third = any",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, _ := database(t)
			if broken != "" {
				changed := strings.Replace(Schema(), broken, map[string]string{"s.third = any": "false and s.third = any"}[broken], 1)
				if changed == Schema() {
					t.Fatal("the schema has no such line")
				}
				if _, err := pool.Exec(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
			}
			// The window is very long and the clock runs. Rotation never truncates ids younger
			// than the window, so it runs at most twice.
			twice := func() int {
				return one[int](t, pool, "select count(*) - count(distinct id) from effects")
			}
			h := Handler(pool.Begin, "c", effect)
			rounds, begun := testrun.Size(40, 1000), time.Now()
			more := func(round int) bool {
				if broken == "" {
					return round < rounds
				}
				return twice() == 0 && time.Since(begun) < 3*time.Minute
			}
			for round := 0; more(round); round++ {
				if _, err := pool.Exec(t.Context(), "truncate effects, posthaste_inbox.seen"); err != nil {
					t.Fatal(err)
				}
				var next atomic.Int64
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for n := next.Add(1); n <= 80; n = next.Add(1) {
							if err := h(t.Context(), delivery(int(n/4))); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Go(func() {
					for range 2 {
						if _, err := pool.Exec(t.Context(), "update posthaste_inbox.settings set rotated_at = '-infinity'"); err != nil {
							t.Error(err)
						}
						if _, err := pool.Exec(t.Context(), "select posthaste_inbox.rotate()"); err != nil {
							t.Error(err)
						}
					}
				})
				wg.Wait()
				if broken == "" && twice() > 0 {
					t.Fatalf("%d handled twice in round %d", twice(), round)
				}
			}
			if broken != "" && twice() == 0 {
				t.Error("nothing was handled twice without the protection")
			}
		})
	}
}
