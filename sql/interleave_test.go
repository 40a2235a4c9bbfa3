package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The random interleavings: senders, receivers, workers, rescuers and a turning
// ring, all at once on a real server. Everybody writes down what they were told;
// check compares that afterwards and reads nothing from the ledger.
type interleaving struct {
	shape
	t    testing.TB
	url  string
	ctx  context.Context
	seed uint64

	mu        sync.Mutex
	committed map[int64]sent   // by message id
	undone    map[int64]bool   // sent and rolled back
	handed    map[handing]int  // (subscription, message, attempt) → times handed out and not released
	done      map[[2]int64]int // (subscription, message) → settled as done
	faults    []string         // what must not happen, as it happened
	stopSend  chan struct{}    // closed when no more is sent
}

type sent struct{ due time.Time }

type handing struct {
	subscription, message int64
	attempt               int
}

const subscriptions = 2

func (x *interleaving) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found(format, args...)
}

// found is fault under the mutex.
func (x *interleaving) found(format string, args ...any) {
	if len(x.faults) < 50 {
		x.faults = append(x.faults, fmt.Sprintf(format, args...))
	}
}

func (x *interleaving) faulty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.faults) > 0
}

func (x *interleaving) connect() *pgx.Conn {
	conn, err := pgx.Connect(x.ctx, x.url)
	if err != nil {
		x.t.Fatal(err)
	}
	return conn
}

// run lets everything loose for the duration, then waits until every committed
// message is done for both subscriptions, or until none has ended for so long
// that the rest are lost: longer than leases take to end.
func (x *interleaving) run(duration, still time.Duration) {
	x.committed, x.undone = map[int64]sent{}, map[int64]bool{}
	x.handed, x.done = map[handing]int{}, map[[2]int64]int{}
	x.stopSend = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	x.ctx = ctx
	admin := x.connect()
	x.must(admin, `select posthaste.create_queue('q', '{"max_attempts": 1000, "backoff": {"base": "20 milliseconds", "max": "50 milliseconds"}}')`)
	x.must(admin, `insert into posthaste.subscriptions (queue_id, number, name, since) select id, 1, 'second', posthaste.first_snapshot() from posthaste.queue_settings`)
	x.must(admin, `insert into posthaste.counters (queue_id, subscription) select id, 1 from posthaste.queue_settings`)
	x.must(admin, `alter table posthaste.settings drop constraint settings_slot_rows_check`)
	x.must(admin, `update posthaste.settings set slot_rows = $1, spare_slots = $2, carry_after = '200 milliseconds'`, x.rows, x.spare)
	// Many wait here for holders that pause: how long they do says nothing.
	x.must(admin, fmt.Sprintf(`alter function posthaste.lock_reader set lock_timeout = '%d s'`, patience/time.Second))

	var senders, others sync.WaitGroup
	actors := uint64(0)
	start := func(wg *sync.WaitGroup, n int, f func(*pgx.Conn, *rand.Rand)) {
		for range n {
			wg.Add(1)
			actors++
			r := rand.New(rand.NewPCG(x.seed, actors))
			go func() {
				defer wg.Done()
				conn := x.connect()
				defer conn.Close(context.Background())
				f(conn, r)
			}()
		}
	}
	start(&senders, x.senders, x.sender)
	start(&senders, x.preparers, x.prepares)
	for s := range subscriptions {
		start(&others, x.receivers, func(c *pgx.Conn, r *rand.Rand) { x.receiver(c, r, s) })
		start(&others, x.workers, func(c *pgx.Conn, r *rand.Rand) { x.worker(c, r, s) })
	}
	start(&others, 1, x.janitor)
	start(&others, 1, x.runsOn)

	end := time.After(duration)
	for waiting := true; waiting; {
		select {
		case <-end:
			waiting = false
		case <-time.After(50 * time.Millisecond):
			waiting = !x.faulty()
		}
	}
	close(x.stopSend)
	senders.Wait()
	for ended, since := -1, time.Now(); time.Since(since) < still && !x.finished() && !x.faulty(); {
		if n := x.ended(); n != ended {
			ended, since = n, time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	others.Wait()
	x.check()
}

func (x *interleaving) must(conn *pgx.Conn, sql string, args ...any) {
	if _, err := conn.Exec(x.ctx, sql, args...); err != nil {
		x.t.Fatalf("%s: %v", sql, err)
	}
}

// ended counts the messages that are done, once for each subscription.
func (x *interleaving) ended() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.done)
}

func (x *interleaving) finished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.committed {
		for s := range int64(subscriptions) {
			if x.done[[2]int64{s, id}] == 0 {
				return false
			}
		}
	}
	return true
}

func (x *interleaving) check() {
	x.mu.Lock()
	defer x.mu.Unlock()
	lost := 0
	for id := range x.committed {
		for s := range int64(subscriptions) {
			if x.done[[2]int64{s, id}] == 0 {
				if lost++; lost <= 5 {
					x.found("lost: message %d never ended for subscription %d", id, s)
				}
			}
		}
	}
	x.t.Logf("%s, seed %d: %d messages committed, %d rolled back, %d handings, %d lost, faults: %d", x.name, x.seed, len(x.committed), len(x.undone), len(x.handed), lost, len(x.faults))
}

func (x *interleaving) sending() bool {
	select {
	case <-x.stopSend:
		return false
	default:
		return true
	}
}

// sender sends in transactions of every shape.
func (x *interleaving) sender(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		x.transaction(conn, r, "")
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
	}
}

// prepares sends in transactions that commit in two phases.
func (x *interleaving) prepares(conn *pgx.Conn, r *rand.Rand) {
	for n := 0; x.sending(); n++ {
		x.transaction(conn, r, fmt.Sprintf("interleave-%d", n))
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
}

func (x *interleaving) transaction(conn *pgx.Conn, r *rand.Rand, prepare string) {
	level := ""
	if r.IntN(5) == 0 {
		level = " isolation level repeatable read"
	}
	x.exec(conn, "begin"+level)
	ids := map[int64]sent{}
	undone := map[int64]bool{}
	var received []received
	for n := 1 + r.IntN(5); n > 0; n-- {
		switch k := r.IntN(12); {
		case k == 0:
			x.pause(r, 30)
		case k == 1 && r.IntN(8) == 0:
			x.pause(r, 800)
		case k == 2:
			x.exec(conn, "savepoint s")
			id, due := x.send(conn, r, prepare != "")
			if r.IntN(2) == 0 {
				x.exec(conn, "rollback to savepoint s")
				undone[id] = true
			} else {
				x.exec(conn, "release savepoint s")
				ids[id] = sent{due}
			}
		case k == 3 && level == "" && prepare == "" && received == nil:
			// Claims in the middle of a transaction that sends before and after;
			// once only, for several readers are taken in ascending order.
			received = append(received, x.receive(conn, r, r.IntN(subscriptions))...)
		default:
			id, due := x.send(conn, r, prepare != "")
			ids[id] = sent{due}
		}
	}
	commit := r.IntN(4) != 0
	if prepare != "" {
		x.exec(conn, "prepare transaction '"+prepare+"'")
		time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
		prepare = " prepared '" + prepare + "'"
	}
	// Before the commit: a receiver may be faster than its answer.
	if commit {
		x.mu.Lock()
		for id, s := range ids {
			x.committed[id] = s
		}
		x.mu.Unlock()
		x.exec(conn, "commit"+prepare)
	} else {
		for id := range ids {
			undone[id] = true
		}
		x.exec(conn, "rollback"+prepare)
	}
	x.mu.Lock()
	for id := range undone {
		x.undone[id] = true
	}
	x.mu.Unlock()
	if commit {
		x.handedOut(received)
		x.settle(conn, r, received)
	}
}

// exec runs a statement that must work; once the test is over anything may fail.
func (x *interleaving) exec(conn *pgx.Conn, sql string, args ...any) {
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		x.unexpected(sql, err)
	}
}

func (x *interleaving) unexpected(what string, err error) {
	if x.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		x.fault("error: %s: %v", what, err)
	}
}

func (x *interleaving) send(conn *pgx.Conn, r *rand.Rand, quiet bool) (int64, time.Time) {
	options := []string{}
	delay := 0
	if r.IntN(3) == 0 {
		delay = 1 + r.IntN(x.delay)
		options = append(options, fmt.Sprintf(`"delay": "%d milliseconds"`, delay))
	}
	if quiet {
		options = append(options, `"wake": false`)
	}
	var id int64
	var at time.Time
	err := conn.QueryRow(context.Background(), "select clock_timestamp(), posthaste.send('q', '1', $1)", "{"+strings.Join(options, ",")+"}").Scan(&at, &id)
	if err != nil {
		x.unexpected("send", err)
	}
	if delay == 0 {
		return id, time.Time{}
	}
	return id, at.Add(time.Duration(delay) * time.Millisecond)
}

type received struct {
	subscription int
	delivery     int64
	message      int64
	attempt      int
	at           time.Time
}

var subscriptionNames = [subscriptions]string{"default", "second"}

func (x *interleaving) receive(conn *pgx.Conn, r *rand.Rand, subscription int) []received {
	lease := "2 seconds"
	if r.IntN(x.abandoned/2) == 0 {
		lease = fmt.Sprintf("%d milliseconds", 1+r.IntN(100))
	}
	rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt, clock_timestamp() from posthaste.receive('q', $1, $2::text::interval, jsonb_build_object('subscription', $3::text))`,
		1+r.IntN(20), lease, subscriptionNames[subscription])
	if err != nil {
		x.unexpected("receive", err)
		return nil
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (received, error) {
		v := received{subscription: subscription}
		return v, row.Scan(&v.delivery, &v.message, &v.attempt, &v.at)
	})
	if err != nil {
		x.unexpected("receive", err)
	}
	return out
}

// handedOut writes down what a committed claim handed out.
func (x *interleaving) handedOut(got []received) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range got {
		x.count(v, 1)
		s, ok := x.committed[v.message]
		if !ok || x.undone[v.message] {
			x.found("message %d was handed out and never committed", v.message)
		}
		// Attempt 1 only: a retry's due time lies later anyway.
		if ok && v.attempt == 1 && v.at.Before(s.due) {
			x.found("early: message %d, due %s, was handed out at %s", v.message, s.due, v.at)
		}
	}
}

// count notes under the mutex that an attempt was handed out, or is given back.
func (x *interleaving) count(v received, n int) {
	h := handing{int64(v.subscription), v.message, v.attempt}
	if x.handed[h] += n; x.handed[h] > 1 {
		x.found("twice: attempt %d of message %d was handed out %d times to subscription %d", h.attempt, h.message, x.handed[h], h.subscription)
	}
}

// isDone notes under the mutex that a message was settled as done.
func (x *interleaving) isDone(v received) {
	k := [2]int64{int64(v.subscription), v.message}
	if x.done[k]++; x.done[k] > 1 {
		x.found("twice: message %d was settled as done %d times for subscription %d", v.message, x.done[k], v.subscription)
	}
}

func (x *interleaving) receiver(conn *pgx.Conn, r *rand.Rand, subscription int) {
	for x.ctx.Err() == nil {
		rollback := r.IntN(6) == 0
		x.exec(conn, "begin")
		got := x.receive(conn, r, subscription)
		if r.IntN(10) < x.holding {
			time.Sleep(time.Duration(r.IntN(x.held)) * time.Millisecond)
		}
		if rollback {
			x.exec(conn, "rollback")
			continue
		}
		x.exec(conn, "commit")
		x.handedOut(got)
		x.settle(conn, r, got)
		if len(got) == 0 {
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}
	}
}

// settle ends deliveries in every way, and leaves some to their lease.
func (x *interleaving) settle(conn *pgx.Conn, r *rand.Rand, got []received) {
	for _, v := range got {
		if r.IntN(x.abandoned) == 0 {
			continue // its lease ends
		}
		switch k := r.IntN(20); {
		case k <= 2:
			x.one(conn, v, "retried", "select settled from posthaste.fail($1, 'again', '{\"retry_after\": \"10 milliseconds\"}')")
		case k == 3:
			// Noted before: who receives it next may be faster than the answer.
			x.mu.Lock()
			x.count(v, -1)
			x.mu.Unlock()
			if !x.one(conn, v, "released", "select settled from posthaste.release(array[$1::bigint])") {
				x.mu.Lock()
				x.count(v, 1)
				x.mu.Unlock()
			}
		default:
			x.one(conn, v, "done", "select settled from posthaste.ack(array[$1::bigint])")
		}
	}
}

func (x *interleaving) one(conn *pgx.Conn, v received, outcome, sql string) bool {
	var settled bool
	if err := conn.QueryRow(context.Background(), sql, v.delivery).Scan(&settled); err != nil {
		x.unexpected(outcome, err)
		return false
	}
	if settled && outcome == "done" {
		x.mu.Lock()
		x.isDone(v)
		x.mu.Unlock()
	}
	return settled
}

// worker claims as workers do, settles by bits from two connections at once,
// and every now and then is gone in the middle of it.
func (x *interleaving) worker(conn *pgx.Conn, r *rand.Rand, subscription int) {
	other := x.connect()
	defer other.Close(context.Background())
	third := x.connect()
	defer third.Close(context.Background())
	for x.ctx.Err() == nil {
		var id int64
		if err := conn.QueryRow(context.Background(), "select posthaste.worker_register('w', 'test', '1 hour')").Scan(&id); err != nil {
			x.unexpected("register", err)
			return
		}
		for number := 1; number < 1+r.IntN(12); number++ {
			got := x.claim(conn, r, id, number, subscription)
			if len(got) == 0 {
				time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
				continue
			}
			var wg sync.WaitGroup
			wg.Add(2)
			go func() { defer wg.Done(); x.settleBits(conn, got) }()
			go func() { defer wg.Done(); x.settleBits(other, got[:(len(got)+1)/2]) }()
			if r.IntN(3) == 0 {
				// Gone while both are settling.
				x.exec(third, "select posthaste.worker_unregister($1)", id)
				x.exec(third, "select posthaste.rescue()")
			}
			wg.Wait()
		}
		x.exec(third, "select posthaste.worker_unregister($1)", id)
	}
}

func (x *interleaving) claim(conn *pgx.Conn, r *rand.Rand, id int64, number, subscription int) []received {
	scan := func(row pgx.CollectableRow) (received, error) {
		v := received{subscription: subscription}
		return v, row.Scan(&v.delivery, &v.message, &v.attempt, &v.at)
	}
	// Rows that the claim returns itself, or rows fetched.
	inline := r.IntN(2) * 30
	rows, err := conn.Query(context.Background(), `select coalesce(delivery_id, -handed), coalesce(message_id, 0), coalesce(attempt, 0), clock_timestamp()
		from posthaste.claim($1, $2, 'q', $3, $4, false, true, $5, p_rows => $6)`, id, number, subscriptionNames[subscription], 1+r.IntN(30), r.IntN(2) == 0, inline)
	var got []received
	if err == nil {
		got, err = pgx.CollectRows(rows, scan)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "PH410" {
		return nil
	}
	if err == nil && len(got) == 0 {
		err = errors.New("no row")
	}
	if err != nil {
		x.unexpected("claim", err)
		return nil
	}
	if handed := -got[0].delivery; handed >= 0 {
		if handed > 0 && inline > 0 {
			x.unexpected("claim", fmt.Errorf("it handed out %d and returned none", handed))
		}
		rows, err := conn.Query(context.Background(), "select numbered_from + ordinality, message_id, attempt, clock_timestamp() from posthaste.fetch($1, $2) with ordinality", id, number)
		if err == nil {
			got, err = pgx.CollectRows(rows, scan)
		}
		if err != nil {
			x.unexpected("fetch", err)
			return nil
		}
	}
	x.handedOut(got)
	return got
}

// settleBits settles all of got as done in one statement.
func (x *interleaving) settleBits(conn *pgx.Conn, got []received) {
	var claims []int64
	var bits []string
	for _, v := range got {
		c, place := v.delivery>>12, int(v.delivery&4095)
		if len(claims) == 0 || claims[len(claims)-1] != c {
			claims, bits = append(claims, c), append(bits, "")
		}
		b := &bits[len(bits)-1]
		*b += strings.Repeat("0", place-len(*b)) + "1"
	}
	rows, err := conn.Query(context.Background(), "select delivery_id from posthaste.settle($1, $2::text[]::bit varying[])", claims, bits)
	if err != nil {
		x.unexpected("settle", err)
		return
	}
	refused, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		x.unexpected("settle", err)
		return
	}
	no := map[int64]bool{}
	for _, d := range refused {
		no[d] = true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range got {
		if !no[v.delivery] {
			x.isDone(v)
		}
	}
}
