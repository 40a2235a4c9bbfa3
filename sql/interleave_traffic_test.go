package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sender sends in transactions of every shape.
func (x *interleaving) sender(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		x.transaction(conn, r, "")
		if r.IntN(4) == 0 {
			pause(r, 0, 5)
		}
	}
}

// prepares sends in transactions that commit in two phases.
func (x *interleaving) prepares(conn *pgx.Conn, r *rand.Rand) {
	for n := 0; x.sending(); n++ {
		// Such names are the server's, not the database's.
		x.transaction(conn, r, fmt.Sprintf("%s-%d", conn.Config().Database, n))
		pause(r, 0, 20)
	}
}

func (x *interleaving) transaction(conn *pgx.Conn, r *rand.Rand, prepare string) {
	level := ""
	if r.IntN(5) == 0 {
		level = " isolation level repeatable read"
	}
	x.exec(conn, "begin"+level)
	ids := map[int64]*sent{}
	undone := map[int64]bool{}
	once := x.dedupe && level == "" // one key in a transaction, or two would deadlock
	send := func() (int64, *sent) {
		id, m := x.send(conn, r, prepare != "", once && r.IntN(2) == 0)
		once = once && m.key == ""
		if ids[id] != nil || x.known(id) {
			return 0, m // it returned the first message
		}
		m.id = id
		return id, m
	}
	var received []received
	claimed := false
	for n := 1 + r.IntN(5); n > 0; n-- {
		switch k := r.IntN(12); {
		case k == 0:
			x.pause(r, 30)
		case k == 1 && r.IntN(8) == 0:
			x.pause(r, 800)
		case k == 2:
			x.exec(conn, "savepoint s")
			id, m := send()
			if r.IntN(2) == 0 {
				x.exec(conn, "rollback to savepoint s")
				undone[id] = true
			} else {
				x.exec(conn, "release savepoint s")
				ids[id] = m
			}
		case k == 3 && level == "" && prepare == "" && !claimed && once == x.dedupe:
			// Claims in the middle of a transaction that sends before and after; only once,
			// because several readers are taken in ascending order, and without waiting for a key
			// afterwards.
			once, claimed = false, true
			received = append(received, x.receive(conn, r, x.fixed[r.IntN(len(x.fixed))])...)
		default:
			id, m := send()
			ids[id] = m
		}
	}
	delete(ids, 0)
	delete(undone, 0)
	commit := r.IntN(4) != 0
	if prepare != "" {
		x.exec(conn, "prepare transaction '"+prepare+"'")
		pause(r, 0, 40)
		prepare = " prepared '" + prepare + "'"
	}
	// Before the commit: a receiver may be faster than its reply.
	if commit {
		x.mu.Lock()
		for id, m := range ids {
			m.begun = x.clock.Add(1)
			x.committed[id] = m
			x.ids = append(x.ids, id)
			if m.key != "" {
				x.dedupeKeys[m.key] = append(x.dedupeKeys[m.key], m)
			}
		}
		x.mu.Unlock()
		x.exec(conn, "commit"+prepare)
		x.mu.Lock()
		for _, m := range ids {
			m.acked = x.clock.Add(1)
		}
		x.mu.Unlock()
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

// known reports whether a message was sent and committed before, or will be.
func (x *interleaving) known(id int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.committed[id] != nil
}

func (x *interleaving) send(conn *pgx.Conn, r *rand.Rand, quiet, keyed bool) (int64, *sent) {
	m := &sent{kind: []string{"x", "y"}[r.IntN(2)]}
	options := []string{fmt.Sprintf(`"kind": %q`, m.kind)}
	delay := 0
	if r.IntN(3) == 0 {
		delay = 1 + r.IntN(x.delay)
		options = append(options, fmt.Sprintf(`"delay": "%d milliseconds"`, delay))
	}
	if quiet {
		options = append(options, `"wake": false`)
	}
	if x.priorities && r.IntN(2) == 0 {
		options = append(options, fmt.Sprintf(`"priority": %d`, r.IntN(4)))
	}
	if keyed {
		m.key, m.window = fmt.Sprint("key ", r.IntN(6)), time.Duration(1+r.IntN(400))*time.Millisecond
		options = append(options, fmt.Sprintf(`"dedupe_key": %q, "dedupe_window": "%d milliseconds"`, m.key, m.window.Milliseconds()))
	}
	var id int64
	err := conn.QueryRow(context.Background(), "select clock_timestamp(), posthaste.send('q', '1', $1), clock_timestamp()", "{"+strings.Join(options, ",")+"}").Scan(&m.before, &id, &m.after)
	if err != nil {
		x.unexpected("send", err)
	}
	if delay > 0 {
		m.due = m.before.Add(time.Duration(delay) * time.Millisecond)
	}
	return id, m
}

type received struct {
	reader   *reader
	delivery int64
	message  int64
	attempt  int
	moment
}

// moment is the time of an event, by the database's clock and by its log, which does not go back. Of
// two transactions that wait for each other the later one has more of it.
type moment struct {
	at      time.Time
	written int64
}

// written is the size of the log.
const written = `(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8`

func (v received) of() [2]int64 { return [2]int64{int64(v.reader.n), v.message} }

func (x *interleaving) receive(conn *pgx.Conn, r *rand.Rand, u *reader) []received {
	lease := "2 seconds"
	if r.IntN(x.abandoned/2) == 0 {
		lease = fmt.Sprintf("%d milliseconds", 1+r.IntN(100))
	}
	most := 1 + r.IntN(20)
	rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt, clock_timestamp(), `+written+` from posthaste.receive('q', $1, $2::text::interval, jsonb_build_object('subscription', $3::text))`,
		most, lease, u.name)
	if err != nil {
		x.unexpectedOf(u, "receive", err)
		return nil
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (received, error) {
		v := received{reader: u}
		return v, row.Scan(&v.delivery, &v.message, &v.attempt, &v.at, &v.written)
	})
	if err != nil {
		x.unexpectedOf(u, "receive", err)
	}
	if len(out) > most {
		x.fault("%d were handed out, and %d wanted", len(out), most)
	}
	return out
}

// handedOut records the deliveries of a committed claim.
func (x *interleaving) handedOut(got []received) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range got {
		h := handing{int64(v.reader.n), v.message, v.attempt}
		again := x.seen[h]
		x.seen[h] = true
		x.count(v, 1)
		m, ok := x.committed[v.message]
		if !ok || x.undone[v.message] {
			x.found("message %d was handed out and never committed", v.message)
			continue
		}
		if !v.reader.may(m) && !x.moved[m.id] {
			x.found("message %d of kind %q, committed by %d, was handed out to subscription %s, made from %d to %d", v.message, m.kind, m.acked, v.reader.name, v.reader.begun, v.reader.made)
		}
		if c, ok := x.cancelled[v.of()]; ok && v.written > c.written {
			x.found("message %d was cancelled for subscription %s at %s (%d), and handed out at %s (%d) as attempt %d; it may have been moved: %v", v.message, v.reader.name, c.at, c.written, v.at, v.written, v.attempt, x.moved[v.message])
		}
		// Attempt 1 only: a retry's due time lies later anyway.
		if v.attempt == 1 && v.at.Before(m.due) && !x.moved[v.message] {
			x.found("early: message %d, due %s, was handed out at %s", v.message, m.due, v.at)
		}
		w := waiting{1, m.acked}
		if v.attempt > 1 {
			w = x.waits[v.of()]
		}
		for _, p := range x.purges {
			// A subscription that ends is not checked: a claim that began before may hand out its
			// messages.
			if w.attempt == v.attempt && w.since != 0 && w.since < p.begun && v.at.After(p.at) && !again && !v.reader.ended {
				x.found("attempt %d of message %d waited when the queue was purged at %s, and was handed out to subscription %s at %s", v.attempt, v.message, p.at, v.reader.name, v.at)
			}
		}
		if x.once {
			x.isDone(v)
		}
	}
}

// count records under the mutex that an attempt was handed out, or is released.
func (x *interleaving) count(v received, n int) {
	h := handing{int64(v.reader.n), v.message, v.attempt}
	if x.handed[h] += n; x.handed[h] > 1 {
		x.found("twice: attempt %d of message %d was handed out %d times to subscription %s (it may have been moved: %v)", h.attempt, h.message, x.handed[h], v.reader.name, x.moved[h.message])
	}
}

// isDone records under the mutex that a message was settled as done.
func (x *interleaving) isDone(v received) {
	k := v.of()
	if x.done[k]++; x.done[k] > 1 {
		x.found("twice: message %d was settled as done %d times for subscription %s", v.message, x.done[k], v.reader.name)
	}
}

func (x *interleaving) receiver(conn *pgx.Conn, r *rand.Rand, u *reader) {
	for x.ctx.Err() == nil && !u.gone.Load() {
		rollback := r.IntN(6) == 0
		x.exec(conn, "begin")
		got := x.receive(conn, r, u)
		if r.IntN(10) < x.holding {
			pause(r, 0, x.held)
		}
		if rollback {
			x.exec(conn, "rollback")
			continue
		}
		x.exec(conn, "commit")
		x.handedOut(got)
		x.settle(conn, r, got)
		if len(got) == 0 {
			pause(r, 0, 10)
		}
	}
}

// settle ends deliveries in every way, and leaves some to their lease.
func (x *interleaving) settle(conn *pgx.Conn, r *rand.Rand, got []received) {
	if x.once {
		return // they are
	}
	for _, v := range got {
		if r.IntN(x.abandoned) == 0 {
			continue // its lease ends
		}
		switch k := r.IntN(20); {
		case k <= 2:
			if x.one(conn, v, "retried", "select settled from posthaste.fail($1, 'again', '{\"retry_after\": \"10 milliseconds\"}')") {
				x.mu.Lock()
				x.waits[v.of()] = waiting{v.attempt + 1, x.clock.Add(1)}
				x.mu.Unlock()
			}
		case k == 3:
			// Recorded before: the next receiver may be faster than the reply.
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
		x.unexpectedOf(v.reader, outcome, err)
		return false
	}
	if outcome == "done" {
		x.mu.Lock()
		if settled {
			x.isDone(v)
		} else {
			x.late[v.of()] = true
		}
		x.mu.Unlock()
	}
	return settled
}
