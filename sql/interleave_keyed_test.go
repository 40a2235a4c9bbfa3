package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// The random interleavings of a keyed queue: senders of every shape, two subscriptions, one of
// which has a filter, receivers, workers that die, rescue, cancelling, operators and a turning
// ring. Each actor records its results; the ledger is asked only which messages a purge may have
// withdrawn.
type keyedRun struct {
	crew
	keyedFeatures
	options string
	ordered bool
	cap     int // of unsettled messages of a key, 0 for no bound
	all     int // of unsettled messages of a subscription, 0 for no bound
	rate    float64
	burst   float64 // handed out at once at most
	perKey  float64 // the rate of each key, with its burst
	spare   float64
	workers int
	keys    int

	clock    atomic.Int64 // orders what happens
	left     atomic.Int64 // committed and not ended, recently
	messages map[keyedID]*keyedMessage
	byKey    map[keyedKey][]*keyedMessage
	running  map[keyedKey]int // handed out and not given back
	sent     []int64          // and committed
	out      map[string]int   // handed out and not given back, by subscription
	handed   map[string]int   // handed out since then
	ofKey    map[keyedKey]int // likewise
	paused   map[string]int64 // keys, and when the pause was recorded
	since    time.Time
	asks     map[int64]bool // claims on their way, by when they began
	died     []*keyedMessage
	// disordered are pairs of messages that came in the wrong order.
	disordered []*keyedMessage
	operated   keyedKey // whose dead letters an operator is processing
	purges     []purge
	purged     map[string]int         // by subscription, as returned
	visitors   map[string]*keyedGuest // by name
	allOver    int64                  // when all known messages had ended
}

type keyedID struct {
	subscription string
	message      int64
}

type keyedKey struct{ subscription, key string }

// keyedSubscriptions and the kind that each wants, "" for all.
var keyedSubscriptions = map[string]string{"default": "", "xs": "x"}

// keyedMessage is a message as one subscription has it.
type keyedMessage struct {
	id         int64
	kind       string
	key        keyedKey
	begun      int64 // before its send
	committed  int64 // after its commit, 0 if not known yet
	done       bool
	cancelled  bool
	cancelling bool // an actor tries, so it may be cancelled already
	asked      bool // it was cancelled while it ran, so it may be cancelled already
	rolledBack bool
	taken      bool // was ever handed out
	discarded  bool
	purged     bool  // according to the ledger
	deaths     int   // settled as dead
	replays    int   // of those, as returned
	again      int   // handed out after it was dead
	diedAt     int64 // when that was recorded, the last time
	revived    int64 // when its replay was recorded
	moved      bool  // an actor rescheduled it, or tried
	movedAt    int64 // when that was recorded, the last time
	notBefore  time.Time
	noted      int64    // when it came, if it was sent before the subscription was created
	story      []string // its events in the log of the test
}

// dead reports whether it waits for an operator.
func (m *keyedMessage) dead() bool { return !m.discarded && m.deaths > max(m.replays, m.again) }

// over reports whether it must not be handed out again.
func (m *keyedMessage) over() bool { return m.done || m.cancelled || m.discarded || m.purged }

// quietKeyedRounds is the number of rounds of all actors in a row that must end no message before
// the remaining ones count as lost.
const quietKeyedRounds = 100

func (x *keyedRun) run(duration time.Duration) {
	x.asks, x.purged, x.dedupeKeys = map[int64]bool{}, map[string]int{}, map[string][]*sent{}
	x.messages, x.byKey, x.running = map[keyedID]*keyedMessage{}, map[keyedKey][]*keyedMessage{}, map[keyedKey]int{}
	x.out, x.handed, x.since = map[string]int{}, map[string]int{}, time.Now()
	x.ofKey, x.paused, x.visitors = map[keyedKey]int{}, map[string]int64{}, map[string]*keyedGuest{}
	admin := x.gather(300, 15)
	x.must(admin, `select posthaste.create_queue('q', $1)`, x.options)
	x.must(admin, `select posthaste.subscribe('q', 'xs', '{"filter": {"kind": "x"}}')`)
	x.start(&x.writers, 4, x.sender)
	for name := range keyedSubscriptions {
		if x.workers == 0 {
			x.start(&x.others, 2, func(c *pgx.Conn, r *rand.Rand) { x.receiver(c, r, name) })
		}
		x.start(&x.others, x.workers, func(c *pgx.Conn, r *rand.Rand) { x.worker(c, r, name) })
	}
	x.start(&x.others, 1, x.canceller)
	if x.pauses {
		x.start(&x.writers, 1, x.pauser)
	}
	if x.purging {
		x.start(&x.writers, 1, x.purger)
	}
	if x.dying {
		x.start(&x.others, 1, x.operator)
	}
	if x.guests {
		x.start(&x.others, 1, x.guest)
	}
	if x.moves {
		x.start(&x.writers, 1, x.mover)
	}
	x.start(&x.others, 1, func(c *pgx.Conn, r *rand.Rand) {
		count, end := x.inRounds()
		defer end()
		for n := 0; x.ctx.Err() == nil; n++ {
			count()
			x.maintains(c)
			pause(r, 0, 20)
			if n%10 == 0 {
				_, left := x.ended()
				x.left.Store(int64(left))
			}
		}
	})
	x.sendFor(duration, func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.messages)
	})
	// Only a lost message takes so long; a busy machine may be late by seconds.
	x.finish(4*quiet, quietKeyedRounds, func() (int, bool) { done, _ := x.ended(); return done, x.finished(admin) })
	x.check(admin)
}

func (x *keyedRun) check(admin *pgx.Conn) {
	n, left := x.ended()
	defer x.endsAsItBegan(admin)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.messages {
		if m.noted > x.allOver && x.allOver != 0 {
			continue // it came as the run ended
		}
		if m.committed != 0 && !m.over() && len(x.faults) < 5 {
			x.found("lost: message %d of key %s never ended (it is dead: %v): %v; the ledger has %s", m.id, m.key, m.dead(), m.story, ledgerHas(admin, m))
		}
	}
	for _, m := range x.disordered {
		x.t.Logf("message %d: committed %d, sent from %d on, %v; the ledger has %s", m.id, m.committed, m.begun, m.story, ledgerHas(admin, m))
	}
	x.checkKeys()
	if len(x.faults) == 0 {
		x.checkPurged()
	}
	x.t.Logf("seed %d, with %s: %d ended, %d left, %d died, %d purges took back %d, %d guests, faults: %d", x.seed, x.keyedFeatures, n, left, len(x.died), len(x.purges), x.purged["default"], len(x.visitors), len(x.faults))
}

// endsAsItBegan checks that once all messages have ended and the guests left, nothing is parked,
// no key is open and nothing is dead.
func (x *keyedRun) endsAsItBegan(admin *pgx.Conn) {
	if x.faulty() {
		return
	}
	// Upkeep removes messages parked for guests that ended before, but not those parked for guests
	// that end here.
	x.exec(admin, `select posthaste.maintain() from generate_series(1, 20)`)
	for _, g := range x.visitors {
		if !g.gone && g.made != 0 {
			x.leave(admin, g)
		}
	}
	// The message that was cancelled last leaves its key to the next claim.
	for range 10 * quietKeyedRounds {
		var blocked bool
		if err := admin.QueryRow(context.Background(), `select exists (select from posthaste.keys where blocked)`).Scan(&blocked); err != nil || !blocked {
			break
		}
		for name := range keyedSubscriptions {
			x.exec(admin, `select from posthaste.receive('q', 10, '1 hour', jsonb_build_object('subscription', $1::text))`, name)
		}
		testrun.Pause(20 * time.Millisecond)
	}
	for what, sql := range map[string]string{
		"parked": `select count(*) from posthaste.parked`,
		"open":   `select count(*) from posthaste.keys where blocked or stopped_by is not null`,
		"dead":   `select count(*) from posthaste.dead_letter_entries d join posthaste.subscriptions u on u.queue_id = d.queue_id and u.number = d.subscription and u.dropped_at is null`,
	} {
		var n int
		if err := admin.QueryRow(context.Background(), sql).Scan(&n); err != nil || n != 0 {
			x.fault("%d are %s at the end (%v)", n, what, err)
		}
	}
}

// mostLeft is the number of waiting messages at which senders pause: a long run must meet many
// events at once, and must not end with hours of remaining work.
const mostLeft = 2000

// wanted returns a message as each subscription that wants it has it.
func (x *keyedRun) wanted(id int64, key, kind string, begun int64) (out []*keyedMessage) {
	for name, wanted := range keyedSubscriptions {
		if wanted == "" || wanted == kind {
			out = append(out, &keyedMessage{id: id, kind: kind, key: keyedKey{name, key}, begun: begun})
		}
	}
	return out
}

func (x *keyedRun) sender(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		if x.left.Load() > mostLeft {
			testrun.Happens(math.MaxInt64, func() bool { return !x.sending() || x.left.Load() <= mostLeft })
			continue
		}
		level := ""
		if r.IntN(3) == 0 {
			level = " isolation level repeatable read"
		}
		x.exec(conn, "begin"+level)
		if r.IntN(2) == 0 {
			x.exec(conn, "select pg_current_xact_id()") // early
		}
		once := x.dedupe && level == "" // one dedupe key in a transaction, or two would deadlock
		var deduped *sent
		var sent []*keyedMessage // one for each subscription that wants it
		var ids []int64
		for n := 1 + r.IntN(4); n > 0; n-- {
			if r.IntN(4) == 0 {
				pause(r, 0, 30)
			}
			key, kind, begun := fmt.Sprint("k", r.IntN(x.keys)), []string{"x", "y"}[r.IntN(2)], x.clock.Add(1)
			var told []int64
			var err error
			if r.IntN(2) == 0 { // together, of one key or several
				keys := []string{key}
				for r.IntN(2) == 0 {
					keys = append(keys, fmt.Sprint("k", r.IntN(x.keys)))
				}
				told, err = sendKeyed(context.Background(), conn, kind, keys...)
				for i := range told {
					sent = append(sent, x.wanted(told[i], keys[i], kind, begun)...)
				}
			} else if once && r.IntN(2) == 0 {
				once = false
				if deduped, err = x.sendOnce(conn, r, key, kind); err == nil {
					told = []int64{deduped.id}
					sent = append(sent, x.wanted(deduped.id, key, kind, begun)...)
				}
			} else {
				told = []int64{0}
				err = conn.QueryRow(context.Background(), `select posthaste.send('q', '1', jsonb_build_object('key', $1::text, 'kind', $2::text))`, key, kind).Scan(&told[0])
				sent = append(sent, x.wanted(told[0], key, kind, begun)...)
			}
			if err != nil {
				x.fault("error: send: %v", err)
				break
			}
			ids = append(ids, told...)
		}
		commit := r.IntN(5) != 0
		x.mu.Lock()
		if deduped != nil && x.messages[keyedID{"default", deduped.id}] != nil {
			// It returned the first message of its dedupe key, and sent nothing.
			sent = slices.DeleteFunc(sent, func(m *keyedMessage) bool { return m.id == deduped.id })
			deduped = nil
		}
		if commit {
			sent = append(sent, x.copies(sent)...)
		}
		for _, m := range sent {
			m.rolledBack = !commit
			x.messages[keyedID{m.key.subscription, m.id}] = m
			x.byKey[m.key] = append(x.byKey[m.key], m)
		}
		x.mu.Unlock()
		if !commit {
			x.exec(conn, "rollback")
			continue
		}
		if x.exec(conn, "commit") {
			x.mu.Lock()
			at := x.clock.Add(1)
			for _, m := range sent {
				m.committed = at
			}
			x.sent = append(x.sent, ids...)
			if deduped != nil {
				x.dedupeKeys[deduped.key] = append(x.dedupeKeys[deduped.key], deduped)
			}
			x.mu.Unlock()
		}
	}
}

type keyedDelivery struct {
	keyedID
	delivery int64
	attempt  int
	asked    int64 // when its claim began
	m        *keyedMessage
}

// canceller cancels messages that were sent recently.
func (x *keyedRun) canceller(conn *pgx.Conn, r *rand.Rand) {
	count, end := x.inRounds()
	defer end()
	var asked []int64
	for x.ctx.Err() == nil {
		count()
		pause(r, 5, 35)
		id, ok := x.recent(conn, r)
		if n := len(asked); n > 0 && (!ok || r.IntN(2) == 0) { // those that ran may have ended
			id, asked = asked[0], asked[1:]
		} else if !ok {
			continue
		}
		x.mu.Lock()
		x.cancelling(id, true)
		x.mu.Unlock()
		rows, err := conn.Query(context.Background(), `select subscription, requested from posthaste.cancel($1) where state = 'cancelled' or requested`, id)
		if err != nil {
			x.unexpected("cancel", err)
			return
		}
		type told struct {
			name      string
			requested bool
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t told, err error) { return t, row.Scan(&t.name, &t.requested) })
		var pg *pgconn.PgError
		switch errors.As(err, &pg); {
		case pg != nil && pg.Code == "PH404": // settled, and reclaimed
			x.reclaimed(id)
		case pg != nil && pg.Code == "PH503" && strings.Contains(pg.Message, "settles delivery"):
			asked = append(asked, id)
		case err != nil:
			x.unexpected("cancel", err)
		}
		if slices.ContainsFunc(all, func(t told) bool { return t.requested }) {
			asked = append(asked, id)
		}
		x.mu.Lock()
		for _, t := range all {
			name := t.name
			if x.isGone(name) {
				continue
			}
			if m := x.entry(keyedID{name, id}); m == nil {
				x.found("message %d was cancelled for subscription %s, which it is not for", id, name)
			} else if t.requested {
				m.asked = true
			} else {
				m.cancelled = true
				if m.done || m.discarded {
					x.found("message %d was cancelled for subscription %s after it was done or discarded", id, name)
				}
			}
		}
		x.cancelling(id, false)
		x.mu.Unlock()
	}
}

// reclaimed marks a message that ended everywhere as cancelled where it was asked to be.
func (x *keyedRun) reclaimed(id int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.everywhere(id) {
		m.cancelled = m.cancelled || m.asked
	}
}

// cancelling needs x.mu.
func (x *keyedRun) cancelling(id int64, now bool) {
	for _, m := range x.everywhere(id) {
		m.cancelling = now
	}
}

// begins records that a message was handed out and would be handled now.
func (x *keyedRun) begins(d *keyedDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isGone(d.subscription) {
		return
	}
	m := x.entry(d.keyedID)
	d.m = m
	if m == nil || m.rolledBack {
		x.found("message %d was handed out to %s, and was never committed or is not for it", d.message, d.subscription)
		return
	}
	if m.done || m.cancelled && !m.asked || m.discarded {
		x.found("twice: message %d was handed out after it was done, cancelled or discarded", d.message)
	}
	if m.dead() {
		m.again++
		if x.operated != m.key {
			x.found("twice: message %d was handed out while it was dead: %v", d.message, m.story)
		}
	}
	x.running[m.key]++
	x.out[d.subscription]++
	if x.all > 0 && x.out[d.subscription] > x.all {
		x.found("%d are out, at most %d may be", x.out[d.subscription], x.all)
	}
	x.handed[d.subscription]++
	if most := x.rate*time.Since(x.since).Seconds() + x.burst; x.rate > 0 && float64(x.handed[d.subscription]) > most {
		x.found("%d were handed out, at most %.0f may be by now", x.handed[d.subscription], most)
	}
	x.ofKey[m.key]++
	if most := x.perKey*time.Since(x.since).Seconds() + x.spare; x.perKey > 0 && float64(x.ofKey[m.key]) > most {
		x.found("%d of key %s were handed out, at most %.0f may be by now", x.ofKey[m.key], m.key, most)
	}
	if at := x.paused[m.key.key]; at != 0 && d.asked > at {
		x.found("message %d was handed out while its key %s was paused: %v", m.id, m.key, m.story)
	}
	m.story = append(m.story, fmt.Sprintf("%d: handed out as %d", x.clock.Add(1), d.delivery))
	if x.cap > 0 && x.running[m.key] > x.cap {
		x.found("key %s: %d of its messages are out, at most %d may be", m.key, x.running[m.key], x.cap)
	}
	if !x.ordered {
		return
	}
	for _, o := range x.byKey[m.key] {
		if x.stop && o != m && o.dead() && d.asked > o.diedAt && x.operated != m.key {
			x.found("message %d of key %s was handed out while that was stopped by %d: %v, %v", m.id, m.key, o.id, m.story, o.story)
		}
		if o.committed != 0 && o.committed < m.begun && !o.over() && !o.cancelling && !o.asked && !o.dead() && d.asked > o.revived && !x.perhapsPurged(o) {
			x.found("order: message %d of key %s came before %d, which was committed before it was sent: %v, %v", m.id, m.key, o.id, m.story, o.story)
			x.disordered = append(x.disordered, o, m)
		}
	}
}

func (x *keyedRun) gives(d *keyedDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		x.running[d.m.key]--
		x.out[d.subscription]--
	}
}

// pauser pauses keys for a while, until sending ends.
func (x *keyedRun) pauser(conn *pgx.Conn, r *rand.Rand) {
	for {
		key := fmt.Sprint("k", r.IntN(x.keys))
		x.exec(conn, `select posthaste.pause_key('q', $1)`, key)
		x.mu.Lock()
		x.paused[key] = x.clock.Add(1)
		x.mu.Unlock()
		pause(r, 0, 100)
		x.mu.Lock()
		delete(x.paused, key)
		x.mu.Unlock()
		x.exec(conn, `select posthaste.resume_key('q', $1)`, key)
		select {
		case <-x.stopSend:
			return
		case <-time.After(time.Duration(r.IntN(100)) * time.Millisecond):
		}
	}
}
