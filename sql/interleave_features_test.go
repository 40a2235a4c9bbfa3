package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// features are the options and events of a run besides the plain flow.
type features struct {
	priorities bool
	guests     bool // subscriptions that come and go
	purging    bool
	once       bool // the queue hands out at most once
	dedupe     bool
	retention  bool
}

// drawn returns random features: about half of them.
func drawn(r *rand.Rand) features {
	lot := func() bool { return r.IntN(2) == 0 }
	return features{priorities: lot(), guests: lot(), purging: lot(), once: r.IntN(4) == 0, dedupe: lot(), retention: lot()}
}

func (f features) String() string {
	var names []string
	for _, n := range []struct {
		name string
		on   bool
	}{{"priorities", f.priorities}, {"guests", f.guests}, {"purging", f.purging}, {"at most once", f.once}, {"dedupe keys", f.dedupe}, {"retention", f.retention}} {
		if n.on {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "nothing else"
	}
	return strings.Join(names, ", ")
}

// options returns the queue's options.
func (f features) options() string {
	o := []string{`"max_attempts": 1000, "backoff": {"base": "20 milliseconds", "max": "50 milliseconds"}`}
	if f.once {
		o = []string{`"mode": "at_most_once"`}
	}
	if f.retention {
		o = append(o, `"retention": "1 day"`)
	}
	return "{" + strings.Join(o, ", ") + "}"
}

// reader is one life of a subscription. Those that exist from the start have no from.
type reader struct {
	n           int
	name, kind  string // kind: the one that its filter lets through
	from        string
	scheduled   bool
	begun, made int64 // by the test's clock
	madeAt      time.Time
	ended       bool        // under the run's mutex: it is being unsubscribed
	gone        atomic.Bool // the same, for concurrent readers
}

// must reports whether the subscription must get a message, may whether it can.
func (u *reader) must(m *sent) bool {
	return !u.ended && (u.kind == "" || m.kind == u.kind) && (u.from == "" || m.begun > u.made)
}

func (u *reader) may(m *sent) bool {
	return (u.kind == "" || m.kind == u.kind) &&
		(u.from != "now" || m.acked == 0 || m.acked > u.begun || u.scheduled && m.due.After(u.madeAt))
}

// unexpectedOf ignores errors that occur because the subscription is being ended.
func (x *interleaving) unexpectedOf(u *reader, what string, err error) {
	var pg *pgconn.PgError
	if u.gone.Load() && errors.As(err, &pg) && (pg.Code == "PH404" || pg.Code == "PH409" || pg.Code == "25P02") {
		return
	}
	x.unexpected(what, err)
}

// guest subscribes, reads for a random time, and unsubscribes, with or without settling its
// deliveries.
func (x *interleaving) guest(conn *pgx.Conn, r *rand.Rand) {
	for x.ctx.Err() == nil {
		u := &reader{from: []string{"now", "oldest"}[r.IntN(2)], kind: []string{"", "y"}[r.IntN(2)]}
		u.scheduled = u.from == "now" && r.IntN(2) == 0
		options := []string{fmt.Sprintf(`"from": %q, "scheduled": %v`, u.from, u.scheduled)}
		if u.kind != "" {
			options = append(options, `"filter": {"kind": "y"}`)
		}
		x.mu.Lock()
		u.n = len(x.readers)
		u.name = fmt.Sprint("guest-", u.n)
		u.ended = true // until it is made
		u.begun = x.clock.Add(1)
		x.readers = append(x.readers, u)
		x.mu.Unlock()
		if err := conn.QueryRow(context.Background(), `select clock_timestamp(), posthaste.subscribe('q', $1, $2)`, u.name, "{"+strings.Join(options, ",")+"}").Scan(&u.madeAt, nil); err != nil {
			x.unexpected("subscribe", err)
			return
		}
		x.mu.Lock()
		u.ended, u.made = false, x.clock.Add(1)
		x.mu.Unlock()
		var wg sync.WaitGroup
		for i, read := range []func(*pgx.Conn, *rand.Rand, *reader){x.receiver, x.worker}[:1+min(x.workers, 1)] {
			wg.Add(1)
			seed := r.Uint64()
			go func() {
				defer wg.Done()
				c := x.connect()
				defer c.Close(context.Background())
				read(c, rand.New(rand.NewPCG(seed, uint64(i))), u)
			}()
		}
		x.stays(time.Duration(50+r.IntN(1500)) * time.Millisecond)
		if x.ctx.Err() == nil {
			x.leave(conn, u)
		}
		wg.Wait()
	}
}

func (x *interleaving) leave(conn *pgx.Conn, u *reader) {
	x.mu.Lock()
	u.ended = true
	x.mu.Unlock()
	u.gone.Store(true)
	if _, err := conn.Exec(context.Background(), `select posthaste.unsubscribe('q', $1)`, u.name); err != nil {
		x.fault("error: unsubscribe %s: %v", u.name, err)
	}
}

// purger empties the queue from time to time.
func (x *interleaving) purger(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		pause(r, 100, 1000)
		p := purge{begun: x.clock.Add(1)}
		rows, err := conn.Query(context.Background(), `select subscription, purged, clock_timestamp() from posthaste.purge('q')`)
		if err != nil {
			x.unexpected("purge", err)
			return
		}
		var name string
		var n int
		x.mu.Lock()
		_, err = pgx.ForEachRow(rows, []any{&name, &n, &p.at}, func() error { x.purged[name] += n; return nil })
		p.done = x.clock.Add(1)
		x.purges = append(x.purges, p)
		x.mu.Unlock()
		if err != nil {
			x.unexpected("purge", err)
		}
	}
}

// checkPurged compares the messages that the subscriptions without a filter never got with the
// numbers that purging returned. Under the mutex.
func (x *interleaving) checkPurged(conn *pgx.Conn) {
	for _, u := range x.fixed[:2] {
		// A purged message may have been reported as cancelled later.
		cancelled := map[int64]bool{}
		rows, err := conn.Query(context.Background(), `select message_id from posthaste.actions where action = 'cancel' and (details -> 'subscriptions' ? $1 or details -> 'running' ? $1)`, u.name)
		if err == nil {
			var ids []int64
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			for _, id := range ids {
				cancelled[id] = true
			}
		}
		if err != nil {
			x.found("error: actions: %v", err)
			return
		}
		missing, late := 0, 0
		for id := range x.committed {
			k := [2]int64{int64(u.n), id}
			if x.done[k] == 0 && !cancelled[id] {
				missing++
				if x.late[k] {
					late++
				}
			}
		}
		if n := x.purged[u.name]; n > missing || n < missing-late {
			x.found("%d messages never came to subscription %s (of %d of them the done came late), and %d were purged, it was said", missing, u.name, late, n)
		}
	}
}

// checkKeys checks that of two messages with one dedupe key the later one was sent after the
// window of the earlier one, whichever of them that was: the one that began first may have waited
// for the other. Under the mutex.
func (x *crew) checkKeys() {
	for key, all := range x.dedupeKeys {
		slices.SortFunc(all, func(a, b *sent) int { return a.before.Compare(b.before) })
		for i, m := range all[min(1, len(all)):] {
			if first := all[i]; m.after.Before(first.before.Add(first.window)) && first.after.Before(m.before.Add(m.window)) {
				x.found("twice: message %d was sent with %q at %s, within the window of message %d, %s from %s on", m.id, key, m.after, first.id, first.window, first.before)
			}
		}
	}
}

// heldRounds is the number of rounds of upkeep through which something may stay held before it is
// a fault, and heldFor the least time that this takes: upkeep counts once a second.
const (
	heldRounds = 500
	heldFor    = 5 * time.Second
)

// letsGo turns the ring once all messages have ended: nothing may be held any more or counted as
// waiting, and the history must be complete. Only rounds of upkeep count that run when no
// transaction is older than the turn of the ring, because those of other databases hold slots as
// well.
func (x *interleaving) letsGo(conn *pgx.Conn) {
	exec := func(sql string, args ...any) {
		if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
			x.fault("error: %s: %v", sql, err)
		}
	}
	for _, u := range x.readers {
		if u.from != "" && !u.ended {
			x.leave(conn, u)
		}
	}
	// Once: otherwise each carried cursor would turn the ring again.
	exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	var before, epoch int64
	var turned time.Time
	for rounds := 0; ; testrun.Pause(10 * time.Millisecond) {
		if err := conn.QueryRow(context.Background(), `select last_value >> 22 from posthaste.positions`).Scan(&epoch); err != nil {
			x.fault("error: %v", err)
		}
		if before == 0 {
			before = epoch
		} else if epoch != before && turned.IsZero() {
			exec(`update posthaste.settings set slot_rows = $1`, never)
			turned = time.Now()
		}
		exec(`select posthaste.maintain()`)
		// Transactions of other databases count as possible writers, too.
		exec(`update posthaste.slots set left_before = pg_current_xact_id() where live and left_before is null and slot <> (select (last_value >> 22) & 15 from posthaste.positions)`)
		held, older := x.stillHeld(conn, epoch == before)
		if held == "" || x.faulty() {
			break
		}
		if older { // nothing can be reclaimed before that transaction ends
			testrun.Pause(100 * time.Millisecond)
		} else {
			rounds++
		}
		if rounds >= heldRounds && !turned.IsZero() && time.Since(turned) > heldFor {
			x.fault("held, though all has ended: %s", held)
			return
		}
		if epoch == before && rounds >= 10*heldRounds {
			x.fault("the ring does not turn")
			return
		}
	}
	if x.retention {
		x.remembers(conn)
	}
}

// stillHeld describes the slots that are held though all messages have ended, "" if there are none,
// and reports whether a transaction is older than a slot that the sequence has left.
func (x *interleaving) stillHeld(conn *pgx.Conn, turning bool) (held string, older bool) {
	err := conn.QueryRow(context.Background(), `
		select coalesce(
			case when $1 then 'the ring does not turn' end,
			(select format('slot %s: %s', s.slot, coalesce(posthaste.slot_blocker(s.slot::int), 'not truncated yet')) from posthaste.slots s, posthaste.positions p
			  where s.live and s.slot <> (p.last_value >> 22) & 15 order by s.epoch limit 1),
			(select format('%s withdrawn entries are kept', count(*)) from posthaste.cancelled, posthaste.positions where (pos >> 22) & 15 <> (last_value >> 22) & 15 having count(*) > 0),
			(select format('%s claims are held', count(*)) from posthaste.held_claims having count(*) > 0),
			(select format('subscription %s: %s wait and %s run, it is said, and the log has %s entries', subscription, depth, in_flight, (select count(*) from posthaste.entries)) from posthaste.queues q
			  where in_flight > 0 or depth > 0 and not exists (select from posthaste.subscriptions s where s.name = q.subscription and s.filter is not null) limit 1),
			''),
			exists (select from posthaste.slots where live and left_before >= pg_snapshot_xmin(pg_current_snapshot()))`, turning).Scan(&held, &older)
	if err != nil {
		x.fault("error: %v", err)
	}
	return held, older
}

// remembers checks that ended messages are reported with their state, though their slot is gone.
func (x *interleaving) remembers(conn *pgx.Conn) {
	asked := 0
	for id := range x.committed {
		for _, u := range x.fixed {
			k := [2]int64{int64(u.n), id}
			want := "done"
			if x.once {
				want = "handed_out"
			}
			if x.done[k] == 0 || asked == 300 {
				continue
			}
			asked++
			var state string
			if err := conn.QueryRow(context.Background(), `select state from posthaste.message($1) where subscription = $2`, id, u.name).Scan(&state); err != nil || state != want {
				x.fault("message %d is %s for subscription %s, and is told as %q (%v)", id, want, u.name, state, err)
			}
		}
	}
}
