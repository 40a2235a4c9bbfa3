package ledger_test

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// quietRounds is the number of rounds in a row that must hand out nothing before a run counts as
// drained. A round walks over 32,768 entries of each reader, which is more than a run sends, and
// upkeep runs one task a call.
const quietRounds = 10

// drain hands out and settles the remaining messages after all actors have ended, and then
// reports lost messages. It does not depend on durations: first all due times and leases pass by
// the database's clock, and then upkeep and claims, one after the other, find nothing in
// quietRounds rounds. A stalled machine delays that and causes no fault.
func (x *interleaving) drain(conn *pgx.Conn) {
	// From here on errors count again: no actor is left whose connection could be cut.
	x.ctx, x.end = context.WithCancel(context.Background())
	defer x.end()
	x.exec(conn, `update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where ended_at is null`)
	for quiet := 0; quiet < quietRounds && !x.faulty(); {
		x.exec(conn, `select posthaste.maintain() from generate_series(1, 5)`)
		x.exec(conn, `select posthaste.rescue()`)
		handed := 0
		for _, u := range x.readers {
			if !u.ended {
				handed += x.receiveRest(conn, u)
			}
		}
		var pending bool
		err := conn.QueryRow(x.ctx, `select exists (select from posthaste.leases where until > clock_timestamp())
			or exists (select from posthaste.entries where due_at > clock_timestamp())`).Scan(&pending)
		if err != nil {
			x.unexpected("drain", err)
		}
		if quiet++; handed > 0 || pending {
			quiet = 0
		}
	}
	if !x.faulty() {
		x.findLost(conn)
	}
}

// receiveRest receives and settles all messages that a reader can get now.
func (x *interleaving) receiveRest(conn *pgx.Conn, u *reader) int {
	rows, err := conn.Query(x.ctx, `select delivery_id, message_id, attempt, clock_timestamp(), `+written+`
		from posthaste.receive('q', 1000, '2 seconds', jsonb_build_object('subscription', $1::text))`, u.name)
	var got []received
	if err == nil {
		got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (received, error) {
			v := received{reader: u}
			return v, row.Scan(&v.delivery, &v.message, &v.attempt, &v.at, &v.written)
		})
	}
	if err != nil {
		x.unexpected("receive", err)
		return 0
	}
	x.handedOut(got)
	if x.once {
		return len(got)
	}
	for _, v := range got {
		x.one(conn, v, "done", "select settled from posthaste.ack(array[$1::bigint])")
	}
	return len(got)
}

// findLost reports the messages that have not ended once a run is drained: those that the ledger
// has and does not hand out, and those that are gone from it without an end.
func (x *interleaving) findLost(conn *pgx.Conn) {
	x.mu.Lock()
	open := x.open()
	x.mu.Unlock()
	waits := x.waitsStill(conn, open)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range open {
		name := x.readers[k[0]].name
		switch {
		case waits[k]:
			x.found("lost: message %d waits for subscription %s and is never handed out", k[1], name)
		case x.late[k] || x.maybePurged(k[1]):
			x.resolved[k] = true
		default:
			x.found("lost: message %d is gone, and never ended for subscription %s", k[1], name)
		}
	}
}

// maybePurged reports under the mutex whether a purge may have withdrawn a message.
func (x *interleaving) maybePurged(id int64) bool {
	return slices.ContainsFunc(x.purges, func(p purge) bool { return p.done > x.committed[id].begun })
}
