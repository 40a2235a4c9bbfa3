package ledger_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// A shape is the mixture of actors of a run: no single mixture meets every race often.
type shape struct {
	name       string
	senders    int
	preparers  int
	receivers  int // for each subscription
	workers    int // for each subscription
	longest    int // pause of a transaction, in milliseconds
	holding    int // of ten receivers' transactions, the number that pause before they end
	held       int // and how long at most, in milliseconds
	delay      int // longest, of scheduled messages, in milliseconds
	abandoned  int // one of this number of deliveries is left to its lease
	rows       int // of a slot, when maintenance moves the sequence on
	spare      int // slots that maintenance keeps free
	idle       int // longest between two rounds of maintenance, in milliseconds
	gap        int // longest between two times that the sequence runs on, in milliseconds
	near       int // how near to the end of its slot it is taken
	revolution bool
}

var (
	// Long and short transactions, and slots reclaimed as soon as they can be.
	crowd = shape{name: "crowd", senders: 6, preparers: 1, receivers: 2, workers: 1, longest: 800, holding: 1, held: 10, delay: 600, abandoned: 20,
		rows: 200, spare: 15, idle: 5, gap: 250, near: 60, revolution: true}
	// A ring that is short of slots, where no transaction holds on to one for long, and the
	// sequence reaches a slot's end just while maintenance moves it.
	narrow = shape{name: "narrow", senders: 3, receivers: 1, longest: 5, holding: 1, held: 10, delay: 50, abandoned: 500,
		rows: 200, spare: 1, idle: 5, gap: 20, near: 40}
	// One whose sequence is never moved: it continues from slot to slot, also into the one that
	// is being reclaimed.
	runaway = shape{name: "runaway", senders: 3, receivers: 1, longest: 5, holding: 5, held: 40, delay: 50, abandoned: 500,
		rows: never, spare: 1, idle: 5, gap: 60, near: 6}
	// The same, faster, so that a slot is often entered just while it is being reclaimed.
	hurried = shape{name: "hurried", senders: 3, receivers: 1, longest: 5, holding: 1, held: 10, delay: 50, abandoned: 500,
		rows: never, spare: 1, idle: 2, gap: 15, near: 3}
)

// never is more rows than any slot has.
const never = 1 << 30

// pause lets others be faster, for at most the given number of milliseconds.
func (x *interleaving) pause(r *rand.Rand, most int) {
	pause(r, 0, min(most, x.longest))
}

// janitor turns the ring and rescues.
func (x *interleaving) janitor(conn *pgx.Conn, r *rand.Rand) {
	for x.ctx.Err() == nil {
		x.maintains(conn)
		pause(r, 0, x.idle)
	}
}

// runsOn takes the sequence to the end of its slot, as in a ledger whose maintenance does not run:
// it continues into the next slot, in use or not.
func (x *interleaving) runsOn(conn *pgx.Conn, r *rand.Rand) {
	// Never back, though others take positions between the look and the step: the end of a slot is
	// far away, or a whole revolution is added.
	from := "((last_value >> 22) << 22)"
	if x.revolution {
		from = "posthaste.slot_start(last_value, ((last_value >> 22) & 15)::int)"
	}
	for x.ctx.Err() == nil {
		pause(r, 0, x.gap)
		x.exec(conn, "begin")
		if x.rows < never {
			// Nor during maintenance, which may move it.
			x.exec(conn, "select pg_advisory_xact_lock(posthaste.lock_key(6, 0))")
		}
		x.exec(conn, fmt.Sprintf("select setval('posthaste.positions', %s + 4194304 - %d) from posthaste.positions where (last_value & 4194303) < 2097152", from, 1+r.IntN(x.near)))
		x.exec(conn, "commit")
	}
}
