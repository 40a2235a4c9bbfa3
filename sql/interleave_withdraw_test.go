package ledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// withdrawer cancels and reschedules messages that were just sent, or retried, and records the
// results.
func (x *interleaving) withdrawer(conn *pgx.Conn, r *rand.Rand) {
	for x.ctx.Err() == nil {
		pause(r, 0, 20)
		x.mu.Lock()
		n := len(x.ids)
		if n == 0 {
			x.mu.Unlock()
			continue
		}
		id := x.ids[n-1-r.IntN(min(n, 20))]
		move := r.IntN(3) == 0
		if move {
			x.moved[id] = true // before: its receiver may be faster than the reply
		}
		x.mu.Unlock()
		if move {
			x.reschedule(conn, r, id)
		} else {
			x.cancel(conn, id)
		}
	}
}

func (x *interleaving) cancel(conn *pgx.Conn, id int64) {
	rows, err := conn.Query(context.Background(), `select subscription, cancelled, requested, clock_timestamp(), `+written+` from posthaste.cancel($1)`, id)
	if err != nil {
		x.refused("cancel", err)
		return
	}
	defer rows.Close()
	told, running := map[string]moment{}, map[string]bool{}
	for rows.Next() {
		var name string
		var cancelled, requested bool
		var at moment
		if err := rows.Scan(&name, &cancelled, &requested, &at.at, &at.written); err != nil {
			x.unexpected("cancel", err)
			return
		}
		if cancelled || requested { // which is not handed out again either
			told[name], running[name] = at, requested
		}
	}
	if err := rows.Err(); err != nil {
		x.refused("cancel", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, at := range told {
		s := int64(slices.IndexFunc(x.readers, func(u *reader) bool { return u.name == name }))
		if _, again := x.cancelled[[2]int64{s, id}]; again {
			continue
		}
		x.cancelled[[2]int64{s, id}] = at
		if x.done[[2]int64{s, id}] > 0 && !running[name] {
			x.found("message %d was cancelled for subscription %s, and is done", id, name)
		}
	}
}

func (x *interleaving) reschedule(conn *pgx.Conn, r *rand.Rand, id int64) {
	if _, err := conn.Exec(context.Background(), `select from posthaste.reschedule($1, clock_timestamp() + make_interval(secs => $2))`, id, float64(r.IntN(60))/1000); err != nil {
		x.refused("reschedule", err)
	}
}

// refused ignores that a message does not exist any more, or not yet, and that its delivery was
// being settled for too long.
func (x *interleaving) refused(what string, err error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "PH404" || pg.Code == "PH503" && strings.Contains(pg.Message, "settles delivery")) {
		return
	}
	x.unexpected(what, err)
}
