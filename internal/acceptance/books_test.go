//go:build unix

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste/internal/testrun"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// books is a ledger with two tables that record the expected state: sent is written in the
// transactions that send, effects in those that acknowledge. In any copy of the database both
// are from the same moment. So after draining, each message has exactly one effect for each
// subscription, or the copy has lost it. The key rejects a second effect.
type books struct {
	*testing.T
	*pgxpool.Pool
	ctx context.Context
}

// openBooks opens the books of a database that has them.
func openBooks(t *testing.T, url string) *books {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	config.ConnConfig.RuntimeParams["search_path"] = "public"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &books{T: t, Pool: pool, ctx: ctx}
}

// newBooks creates them, and queues of every kind.
func newBooks(t *testing.T, url string) *books {
	t.Helper()
	b := openBooks(t, url)
	b.exec(`create table sent (id bigint primary key, queue text not null, kind text not null, key text, seq int, scheduled boolean not null)`)
	b.exec(`create table effects (queue text, subscription text, id bigint, n bigint generated always as identity, primary key (queue, subscription, id))`)
	b.exec(`create table subscribed (queue text, subscription text, kind text)`)
	for _, q := range [][2]string{
		{"plain", `{"backoff": {"base": "10ms", "max": "50ms"}}`}, {"kept", `{"retention": "1 day"}`}, {"urgent", `{}`},
		{"ordered", `{"ordered": true, "lanes": 2, "backoff": {"base": "10ms", "max": "50ms"}}`}, {"fair", `{"fair": true, "key_concurrency": 2}`},
		{"turns", `{"fair": true}`}, {"found", `{}`},
	} {
		b.exec(`select posthaste.create_queue($1, $2)`, q[0], q[1])
		b.exec(`insert into subscribed values ($1, 'default', null)`, q[0])
	}
	b.exec(`select posthaste.subscribe('plain', 'audit', '{"filter": {"kind": "a"}}')`)
	b.exec(`select posthaste.subscribe('ordered', 'copy')`)
	b.exec(`select posthaste.subscribe('turns', 'odd', '{"filter": {"kind": "b"}}')`)
	b.exec(`insert into subscribed values ('plain', 'audit', 'a'), ('ordered', 'copy', null), ('turns', 'odd', 'b')`)
	return b
}

func (b *books) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.Exec(b.ctx, sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](b *books, sql string, args ...any) T {
	b.Helper()
	rows, err := b.Query(b.ctx, sql, args...)
	if err == nil {
		var v T
		if v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T]); err == nil {
			return v
		}
	}
	b.Fatalf("%s: %v", sql, err)
	panic("unreachable")
}

// sqlState returns the SQLSTATE of an error, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// send sends some messages in one transaction, one in ten in a savepoint.
func (b *books) send(ctx context.Context, r *rand.Rand) error {
	return pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
		if r.IntN(10) == 0 {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return sendSome(ctx, tx, r) })
		}
		return sendSome(ctx, tx, r)
	})
}

func sendSome(ctx context.Context, tx pgx.Tx, r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		queue := []string{"plain", "plain", "kept", "urgent", "ordered", "ordered", "fair"}[r.IntN(7)]
		kind, key, scheduled := string(rune('a'+r.IntN(2))), fmt.Sprint("key-", r.IntN(6)), false
		options := map[string]any{"kind": kind, "key": key}
		switch queue {
		case "plain":
			if scheduled = r.IntN(10) == 0; scheduled {
				options["delay"] = "1 hour"
			} else if r.IntN(5) == 0 {
				options["delay"] = fmt.Sprintf("%d ms", r.IntN(1000))
			}
		case "urgent":
			options["priority"] = r.IntN(4)
		case "ordered":
			// One at a time, so that seq is the order of the key's sends.
			if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(42)`); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `insert into sent select posthaste.send($1::text, '{"n": 1}', $2::jsonb), $1, $3, $4,
			case when $1 = 'ordered' then 1 + (select count(*) from sent where queue = 'ordered' and key = $4) end, $5`, queue, options, kind, key, scheduled); err != nil {
			return err
		}
	}
	return nil
}

// delivery is a message as posthaste.receive hands it out.
type delivery struct {
	ID, Message int64
	Attempt     int
}

// receive receives a few messages for a subscription.
func (b *books) receive(ctx context.Context, queue, subscription string, most int, lease time.Duration) ([]delivery, error) {
	rows, err := b.Query(ctx, `select delivery_id, message_id, attempt from posthaste.receive($1, $2, $3, jsonb_build_object('subscription', $4::text))`, queue, most, lease, subscription)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[delivery])
}

// settle acknowledges together with the effects, atomically.
func (b *books) settle(ctx context.Context, queue, subscription string, received ...delivery) error {
	var ids, messages []int64
	for _, d := range received {
		ids, messages = append(ids, d.ID), append(messages, d.Message)
	}
	return pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into effects (queue, subscription, id) select $1, $2, x from unnest($3::bigint[]) with ordinality u (x, n) order by n`, queue, subscription, messages); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `select posthaste.ack($1::bigint[], '{"strict": true}')`, ids)
		return err
	})
}

// work receives messages, and settles them in every possible way or leaves them in flight.
func (b *books) work(ctx context.Context, r *rand.Rand) error {
	at := readers[r.IntN(7)]
	received, err := b.receive(ctx, at[0], at[1], 4, 3*time.Second)
	for _, d := range received {
		switch dice := r.IntN(20); {
		case dice == 0:
			_, err = b.Exec(ctx, `select posthaste.fail($1, 'no', '{"retry_after": "200ms"}')`, d.ID)
		case dice == 1 && at[0] != "ordered": // later messages of a key would not wait for a replay
			_, err = b.Exec(ctx, `select posthaste.fail($1, 'never', '{"permanent": true}')`, d.ID)
		case dice == 2:
			_, err = b.Exec(ctx, `select posthaste.release(array[$1::bigint])`, d.ID)
		case dice == 3:
			continue // stays in flight
		default:
			err = b.settle(ctx, at[0], at[1], d)
		}
		if state := sqlState(err); state == "PH409" {
			err = nil // its lease ended
		} else if err != nil {
			return err
		}
	}
	return err
}

// busy runs senders and workers until stop is called, which waits for them. An error ends
// them, and stop returns it.
func (b *books) busy() (stop func() error) {
	ctx, cancel := context.WithCancel(b.ctx)
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range 6 {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		do := b.work
		if i%2 == 0 {
			do = b.send
		}
		group.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, r); err != nil {
					if ctx.Err() == nil {
						failed.CompareAndSwap(nil, &err)
					}
					return
				}
			}
		})
	}
	return func() error {
		cancel()
		group.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// still waits until nothing runs in the database any more, because a server continues to run
// statements of clients that have disconnected.
func (b *books) still() {
	b.Helper()
	b.until("nothing runs any more", func() bool {
		return ask[int](b, `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'`) == 0
	})
}

// until waits for a condition.
func (b *books) until(what string, f func() bool) {
	b.Helper()
	for !f() {
		select {
		case <-b.ctx.Done():
			b.Fatalf("not in time: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readers are the subscriptions of the books' queues. Those after the first seven are as
// prepare left them.
var readers = [][2]string{{"plain", "default"}, {"plain", "audit"}, {"kept", "default"}, {"urgent", "default"}, {"ordered", "default"}, {"ordered", "copy"}, {"fair", "default"},
	{"turns", "default"}, {"turns", "odd"}, {"found", "default"}}

// handleSome receives once for each subscription, including dead letters, and settles the
// deliveries. It returns their number, and a fault if one had its effect before.
func (b *books) handleSome() (found int, fault string) {
	b.Helper()
	b.exec(`select posthaste.replay(array(select message_id from posthaste.dead_letters limit 1000))`)
	for _, at := range readers {
		received, err := b.receive(b.ctx, at[0], at[1], 100, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if len(received) == 0 {
			continue
		}
		found += len(received)
		var pg *pgconn.PgError
		if err := b.settle(b.ctx, at[0], at[1], received...); errors.As(err, &pg) && pg.Code == "23505" {
			return found, "a message was settled, and handed out again: " + pg.Detail
		} else if err != nil {
			b.Fatal(err)
		}
	}
	return found, ""
}

// drain receives all messages, including dead letters and scheduled ones. It returns "" if
// every message had its effect once, and in its key's order, and otherwise a description of
// the fault. A message counts as lost when nothing was handed out for idle: leases of 3 s must
// end first, and retries must become due.
func (b *books) drain(idle time.Duration) string {
	b.Helper()
	const missing = `from sent m join subscribed s on s.queue = m.queue and (s.kind is null or s.kind = m.kind)
		where not exists (select from effects e where e.queue = m.queue and e.subscription = s.subscription and e.id = m.id)`
	if _, err := b.Exec(b.ctx, `select posthaste.reschedule(id, now()) from sent s where scheduled and exists (select from posthaste.message(s.id) m where m.state = 'scheduled')`); sqlState(err) != "" {
		return "scheduled messages cannot be moved: " + err.Error()
	} else if err != nil {
		b.Fatal(err)
	}
	for ask[int](b, `select count(*) `+missing) > 0 {
		fault := ""
		if !testrun.Happens(idle, func() bool {
			var found int
			found, fault = b.handleSome()
			return found > 0 || fault != ""
		}) {
			return "lost: " + ask[string](b, `select string_agg(distinct m.queue || '/' || s.subscription || ' ' || m.id, ', ') `+missing)
		}
		if fault != "" {
			return fault
		}
	}
	if n := ask[int](b, `select count(*) from effects e where not exists (select from sent m where m.id = e.id)`); n > 0 {
		return fmt.Sprintf("%d effects of messages that were not sent", n)
	}
	for _, at := range readers {
		if again, err := b.receive(b.ctx, at[0], at[1], 100, time.Minute); err != nil || len(again) > 0 {
			return fmt.Sprintf("everything was settled, and %v was handed out again (%v)", again, err)
		}
	}
	if wrong := ask[string](b, `select coalesce(string_agg(x.key || ' ' || x.id, ', '), '') from (
		select m.key, m.id, m.seq, lag(m.seq) over (partition by e.subscription, m.key order by e.n) as before
		  from effects e join sent m on m.id = e.id where m.queue = 'ordered') x where x.seq <> coalesce(x.before, 0) + 1`); wrong != "" {
		return "out of their key's order: " + wrong
	}
	var left string
	b.Cleanup(func() {
		if b.Failed() {
			b.Log("the counters that were not zero:", left)
		}
	})
	b.until("counters at zero", func() bool {
		b.exec(`select posthaste.maintain()`)
		// With a filter, depth includes messages that the subscription has skipped since its
		// last claim: up to 64 of them are not worth a claim's row.
		left = ask[string](b, `select coalesce(string_agg(q::text, ' '), '') from posthaste.queues q
			where depth > case when filter is null then 0 else 64 end or in_flight <> 0`)
		return left == ""
	})
	return ""
}

// drained fails the test unless drain finds no fault.
func (b *books) drained() {
	b.Helper()
	if wrong := b.drain(30 * time.Second); wrong != "" {
		b.Fatal(wrong)
	}
}

// broken installs a function of the ledger with changed conditions, given as pairs of old and
// new, or as it is shipped.
func (b *books) broken(file string, changes ...string) {
	b.Helper()
	text, err := ledger.Function(file)
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			b.Fatalf("%s has no %q any more", file, changes[i])
		}
	}
	b.exec(strings.NewReplacer(changes...).Replace(text))
}
