package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// keyedFeatures are the options and events of a run of a keyed queue besides the plain flow.
type keyedFeatures struct {
	pauses  bool // keys are paused and resumed
	dying   bool // messages die, and are replayed and discarded
	stop    bool // of an ordered queue: a dead one stops its key
	purging bool
	dedupe  bool
	guests  bool // subscriptions come and go
	moves   bool // messages are rescheduled, which an ordered queue does not support
	once    bool // an at-most-once queue
}

// drawnKeyed returns random features.
func drawnKeyed(r *rand.Rand) keyedFeatures {
	lot := func() bool { return r.IntN(2) == 0 }
	return keyedFeatures{dying: lot(), stop: lot(), purging: lot(), dedupe: lot(), moves: lot(), once: r.IntN(3) == 0}
}

func (f keyedFeatures) String() string {
	var names []string
	for _, n := range []struct {
		name string
		on   bool
	}{{"dead letters", f.dying}, {"keys that stop", f.stop}, {"purging", f.purging}, {"dedupe keys", f.dedupe}, {"guests", f.guests}, {"moving", f.moves}, {"at most once", f.once}} {
		if n.on {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "nothing else"
	}
	return strings.Join(names, ", ")
}

// sendOnce sends with a dedupe key.
func (x *keyedRun) sendOnce(conn *pgx.Conn, r *rand.Rand, key, kind string) (*sent, error) {
	m := &sent{key: fmt.Sprint("once ", r.IntN(6)), window: time.Duration(1+r.IntN(400)) * time.Millisecond}
	return m, conn.QueryRow(context.Background(), `
		select clock_timestamp(), posthaste.send('q', '1', jsonb_build_object('key', $1::text, 'kind', $2::text, 'dedupe_key', $3::text, 'dedupe_window', $4::text)), clock_timestamp()`,
		key, kind, m.key, fmt.Sprintf("%d milliseconds", m.window.Milliseconds())).Scan(&m.before, &m.id, &m.after)
}

// asking records that a claim begins.
func (x *keyedRun) asking() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.clock.Add(1)
	x.asks[at] = true
	return at
}

// answered checks the deliveries of a claim: none of them only waited when the queue was purged
// before.
func (x *keyedRun) answered(asked int64, got []keyedDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.asks, asked)
	for i := range got {
		m := x.entry(got[i].keyedID)
		if m == nil {
			continue // begins reports it
		}
		if m.isEarly(asked) {
			x.found("early: message %d of key %s was handed out before %s: %v", m.id, m.key, m.notBefore, m.story)
		}
		if !m.taken && m.committed != 0 {
			for _, p := range x.purges {
				if m.committed < p.begun && p.done != 0 && p.done < asked && !x.askedBefore(p.done) {
					x.found("message %d of key %s had waited when the queue was purged, and was handed out afterwards: %v", m.id, m.key, m.story)
					break
				}
			}
		}
		m.taken = true
	}
}

// askedBefore reports whether a claim is in flight that began before a time, and may have handed
// out messages that are not recorded yet.
func (x *keyedRun) askedBefore(at int64) bool {
	for asked := range x.asks {
		if asked < at {
			return true
		}
	}
	return false
}

// dies reports whether a message must die now. After sending has ended none does, so that all end.
func (x *keyedRun) dies(r *rand.Rand) bool {
	return x.dying && r.IntN(4) == 0 && x.sending()
}

// deceases settles a delivery as dead.
func (x *keyedRun) deceases(d *keyedDelivery, settle func() bool) {
	x.mu.Lock()
	if d.m != nil && !x.isGone(d.subscription) {
		d.m.deaths++
		d.m.diedAt = math.MaxInt64
		x.died = append(x.died, d.m)
	}
	x.mu.Unlock()
	if !settle() && x.ctx.Err() == nil && !x.gone(d.subscription) {
		x.fault("a failure within the lease was refused")
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		d.m.diedAt = x.clock.Add(1)
		d.m.story = append(d.m.story, fmt.Sprintf("%d: dead", d.m.diedAt))
	}
}

// operator replays and discards dead letters of a key.
func (x *keyedRun) operator(conn *pgx.Conn, r *rand.Rand) {
	count, end := x.inRounds()
	defer end()
	for x.ctx.Err() == nil {
		count()
		pause(r, 5, 65)
		x.mu.Lock()
		var m *keyedMessage
		if n := len(x.died); n > 0 {
			m = x.died[r.IntN(n)]
		}
		if m == nil || !m.dead() {
			i := slices.IndexFunc(x.died, (*keyedMessage).dead) // one that waits for long
			if i < 0 {
				x.mu.Unlock()
				continue
			}
			m = x.died[i]
		}
		x.operated = m.key
		x.mu.Unlock()
		what := "replay"
		if r.IntN(4) == 0 {
			what = "discard"
		}
		rows, err := conn.Query(context.Background(), `select posthaste.`+what+`(filter => jsonb_build_object('queue', 'q', 'subscription', $1::text, 'key', $2::text))`, m.key.subscription, m.key.key)
		var ids []int64
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil && x.ctx.Err() == nil {
			x.refusedFor(m.key.subscription, what, err)
		}
		x.mu.Lock()
		x.operated = keyedKey{}
		at := x.clock.Add(1)
		for _, id := range ids {
			if x.isGone(m.key.subscription) {
				break
			}
			o := x.entry(keyedID{m.key.subscription, id})
			if o == nil || o.deaths <= o.replays || o.discarded {
				x.found("%s returned message %d of key %s, which was not dead", what, id, m.key)
				continue
			}
			o.story = append(o.story, fmt.Sprintf("%d: %s", at, what))
			if what == "discard" {
				o.discarded = true
			} else {
				o.replays++
				o.revived = at
			}
		}
		x.mu.Unlock()
	}
}

// purger empties the queue from time to time.
func (x *keyedRun) purger(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		pause(r, 200, 1000)
		x.mu.Lock()
		n := len(x.purges)
		x.purges = append(x.purges, purge{begun: x.clock.Add(1)})
		x.mu.Unlock()
		told := map[string]int{}
		rows, err := conn.Query(context.Background(), `select subscription, purged from posthaste.purge('q')`)
		if err == nil {
			var name string
			var some int
			_, err = pgx.ForEachRow(rows, []any{&name, &some}, func() error { told[name] += some; return nil })
		}
		if err != nil {
			x.unexpected("purge", err)
		}
		x.mu.Lock()
		x.purges[n].done = x.clock.Add(1)
		for name, some := range told {
			x.purged[name] += some
		}
		x.mu.Unlock()
	}
}

// perhapsPurged reports under the mutex whether a purge may have withdrawn a message.
func (x *keyedRun) perhapsPurged(m *keyedMessage) bool {
	if len(x.purges) == 0 {
		return false
	}
	last := x.purges[len(x.purges)-1]
	return last.done == 0 || m.begun < last.done
}

// finished asks the ledger only about messages that a purge may have withdrawn.
func (x *keyedRun) finished(conn *pgx.Conn) bool {
	x.mu.Lock()
	at := x.clock.Add(1)
	var open []*keyedMessage
	for _, m := range x.messages {
		if m.committed == 0 || m.over() {
			continue
		}
		if !x.perhapsPurged(m) || m.dead() || m.cancelling {
			x.mu.Unlock()
			return false
		}
		open = append(open, m)
	}
	x.mu.Unlock()
	for _, m := range open {
		var state string
		err := conn.QueryRow(context.Background(), `select state from posthaste.message($1) where subscription = $2`, m.id, m.key.subscription).Scan(&state)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "PH404", errors.Is(err, pgx.ErrNoRows): // and reclaimed since
		case err != nil:
			x.unexpected("message", err)
			return false
		case state != "cancelled":
			return false
		}
		x.mu.Lock()
		m.purged = !m.over() // it may have ended meanwhile
		x.mu.Unlock()
	}
	x.allOver = at
	return true
}

// checkPurged compares the messages that never came with the numbers that purging returned. Under
// the mutex.
func (x *keyedRun) checkPurged() {
	missing, cancelled := 0, 0
	for id, m := range x.messages {
		switch {
		case id.subscription != "default":
		case m.cancelled: // perhaps only afterwards, or just when it was looked at
			cancelled++
		case m.purged:
			missing++
		}
	}
	if n := x.purged["default"]; n < missing || n > missing+cancelled {
		x.found("%d messages never came, %d were cancelled, and %d were purged, it was said", missing, cancelled, n)
	}
}

// ledgerHas returns what the ledger has of a message, to explain a fault.
func ledgerHas(conn *pgx.Conn, m *keyedMessage) (text string) {
	err := conn.QueryRow(context.Background(), `select jsonb_build_object(
		'actions', (select jsonb_agg(to_jsonb(a)) from posthaste.action_records a where a.message_id = $1),
		'entries', (select jsonb_agg(to_jsonb(e) - 'payload') from posthaste.entries_other e where coalesce(e.message_id, e.pos) = $1),
		'parked', (select jsonb_agg(to_jsonb(p) - 'payload') from posthaste.parked p where p.message_id = $1),
		'keys', (select jsonb_agg(to_jsonb(k)) from posthaste.keys k where k.key = $2))::text`, m.id, m.key.key).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// ended counts the messages that ended, and those that were sent and have not.
func (x *keyedRun) ended() (done, left int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.messages {
		switch {
		case m.over():
			done++
		case m.committed != 0 && !x.perhapsPurged(m):
			left++
		}
	}
	return done, left
}
