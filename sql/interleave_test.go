package ledger_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// The random interleavings: senders, receivers, workers, rescuers and a turning ring, all at once
// on a real server, with subscriptions that come and go and all other features of a queue. Each
// actor records its results; check compares them afterwards, and asks the ledger only about
// messages whose end no actor can have seen.
type interleaving struct {
	shape
	features
	crew
	clock     atomic.Int64         // orders what happens in the test itself
	fixed     []*reader            // subscriptions that exist all the time
	readers   []*reader            // the lives of all subscriptions
	committed map[int64]*sent      // by message id
	undone    map[int64]bool       // sent and rolled back
	handed    map[handing]int      // times handed out and not released
	seen      map[handing]bool     // ever handed out
	waits     map[[2]int64]waiting // (reader, message) that were retried → since when
	done      map[[2]int64]int     // (reader, message) → settled as done
	late      map[[2]int64]bool    // (reader, message) whose success came too late: it may have ended the new attempt
	cancelled map[[2]int64]moment  // (reader, message) → when it was cancelled
	moved     map[int64]bool       // messages that may have been rescheduled
	purges    []purge
	purged    map[string]int    // by the name of the subscription, as returned
	resolved  map[[2]int64]bool // (reader, message) that have ended according to the ledger
	ids       []int64           // committed, in order
}

type sent struct {
	id   int64
	due  time.Time
	kind string
	// By the test's clock, before its commit and after it; 0 until that is known.
	begun, acked int64
	// With a dedupe key: the times before and after its send, by the database's clock.
	key           string
	before, after time.Time
	window        time.Duration
}

// handing is one attempt of a message, for one reader.
type handing struct {
	reader, message int64
	attempt         int
}

// waiting is an attempt that cannot have been handed out yet, and since when.
type waiting struct {
	attempt int
	since   int64
}

type purge struct {
	begun, done int64     // by the test's clock
	at          time.Time // by the database's, while it held the readers
}

// run starts all actors for the duration, then waits until every committed message is done for both
// subscriptions, or until none has ended for still, and drains the rest. Lost messages are known
// only after that.
func (x *interleaving) run(duration, still time.Duration) {
	x.committed, x.undone, x.dedupeKeys = map[int64]*sent{}, map[int64]bool{}, map[string][]*sent{}
	x.handed, x.seen, x.waits = map[handing]int{}, map[handing]bool{}, map[[2]int64]waiting{}
	x.done, x.late, x.resolved = map[[2]int64]int{}, map[[2]int64]bool{}, map[[2]int64]bool{}
	x.cancelled, x.moved, x.purged = map[[2]int64]moment{}, map[int64]bool{}, map[string]int{}
	x.readers = []*reader{{name: "default"}, {n: 1, name: "second"}, {n: 2, name: "third", kind: "x"}}
	x.fixed = slices.Clone(x.readers)
	admin := x.gather(x.rows, x.spare)
	x.must(admin, `select posthaste.create_queue('q', $1)`, x.options())
	x.must(admin, `select posthaste.subscribe('q', 'second'), posthaste.subscribe('q', 'third', '{"filter": {"kind": "x"}}')`)
	x.start(&x.writers, x.senders, x.sender)
	x.start(&x.writers, x.preparers, x.prepares)
	for _, u := range x.fixed {
		x.start(&x.others, x.receivers, func(c *pgx.Conn, r *rand.Rand) { x.receiver(c, r, u) })
		x.start(&x.others, x.workers, func(c *pgx.Conn, r *rand.Rand) { x.worker(c, r, u) })
	}
	if x.guests {
		x.start(&x.others, 2, x.guest)
	}
	if x.purging {
		x.start(&x.writers, 1, x.purger)
	}
	x.start(&x.others, 1, x.janitor)
	x.start(&x.others, 1, x.runsOn)
	x.start(&x.others, 1, x.withdrawer)
	x.sendFor(duration, func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.committed)
	})
	if !x.finish(still, 0, func() (int, bool) { return x.ended(), x.finished(admin) }) && !x.faulty() {
		x.drain(admin)
	}
	x.check(admin)
	if !x.faulty() {
		x.letsGo(admin)
	}
}

// ended counts the messages that are done, once for each reader.
func (x *interleaving) ended() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.done)
	for _, ended := range x.resolved {
		if ended {
			n++
		}
	}
	return n
}

// open lists under the mutex the messages that have not ended, as far as the actors know.
func (x *interleaving) open() (open [][2]int64) {
	for id, m := range x.committed {
		for s, u := range x.readers {
			k := [2]int64{int64(s), id}
			if _, cancelled := x.cancelled[k]; u.must(m) && x.done[k] == 0 && !cancelled {
				open = append(open, k)
			}
		}
	}
	return open
}

// finished asks the ledger only about messages whose end no actor saw: those whose success came too
// late, and those that a purge may have withdrawn.
func (x *interleaving) finished(conn *pgx.Conn) bool {
	x.mu.Lock()
	open := slices.DeleteFunc(x.open(), func(k [2]int64) bool { return x.resolved[k] })
	for _, k := range open {
		if !x.late[k] && !x.maybePurged(k[1]) {
			x.mu.Unlock()
			return false
		}
	}
	x.mu.Unlock()
	waits := x.waitsStill(conn, open)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range open {
		x.resolved[k] = !waits[k]
	}
	return len(waits) == 0
}

// waitsStill returns the messages that the ledger knows and that have not ended according to it. The
// others ended without a reply to an actor, or long enough ago that their space was reclaimed.
func (x *interleaving) waitsStill(conn *pgx.Conn, open [][2]int64) map[[2]int64]bool {
	asked := map[[2]int64]bool{}
	var ids []int64
	for _, k := range open {
		asked[k] = true
		ids = append(ids, k[1])
	}
	slices.Sort(ids)
	x.mu.Lock()
	readers := map[string]int64{}
	for _, u := range x.readers {
		readers[u.name] = int64(u.n)
	}
	x.mu.Unlock()
	waits := map[[2]int64]bool{}
	for some := range slices.Chunk(slices.Compact(ids), 200) {
		rows, err := conn.Query(context.Background(), `select m.message_id, m.subscription_name, m.state
			from posthaste.message_rows(array(select e.head from posthaste.entries e where e.pos = any ($1) and e.message_id is null)
				|| array(select h from posthaste.later_heads($1) h), $1) m where m.state not in ('done', 'cancelled')`, some)
		var id int64
		var name, state string
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&id, &name, &state}, func() error {
				if k := [2]int64{readers[name], id}; asked[k] {
					waits[k] = true
				}
				return nil
			})
		}
		if err != nil {
			x.unexpected("message", err)
		}
	}
	return waits
}

func (x *interleaving) check(conn *pgx.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.checkKeys()
	if len(x.faults) == 0 {
		x.checkPurged(conn)
	}
	x.t.Logf("%s, seed %d, with %s: %d messages committed, %d rolled back, %d handings, %d cancelled, %d purged, %d readers, %d late, faults: %d",
		x.name, x.seed, x.features, len(x.committed), len(x.undone), len(x.handed), len(x.cancelled), x.purged["default"], len(x.readers), len(x.late), len(x.faults))
}
