package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// worker claims as workers do, settles by bits from two connections at once, and sometimes dies in
// the middle of it.
func (x *interleaving) worker(conn *pgx.Conn, r *rand.Rand, u *reader) {
	other := x.connect()
	defer other.Close(context.Background())
	third := x.connect()
	defer third.Close(context.Background())
	for x.ctx.Err() == nil && !u.gone.Load() {
		var id int64
		if err := conn.QueryRow(context.Background(), "select posthaste.worker_register('w', 'test', '1 hour')").Scan(&id); err != nil {
			x.unexpected("register", err)
			return
		}
		for number := 1; number < 1+r.IntN(12); number++ {
			got := x.claim(conn, r, id, number, u)
			if len(got) == 0 {
				pause(r, 0, 10)
				continue
			}
			if x.once {
				if r.IntN(3) == 0 {
					break // dead, with all that it had
				}
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

// claim claims and records the deliveries; sometimes it repeats the request, as if the first reply
// had been lost.
func (x *interleaving) claim(conn *pgx.Conn, r *rand.Rand, id int64, number int, u *reader) []received {
	most := 1 + r.IntN(30)
	got := x.ask(conn, r, id, number, u, most, r.IntN(2) == 0)
	x.handedOut(got)
	if len(got) == 0 || r.IntN(8) != 0 {
		return got
	}
	again := x.ask(conn, r, id, number, u, most, true)
	switch {
	case x.once:
		x.handedOut(again) // the first answer's are gone, and these are others
	case again != nil && !slices.EqualFunc(got, again, func(a, b received) bool { return a.delivery == b.delivery && a.message == b.message }):
		x.fault("claim %d of worker %d was handed %d deliveries, and then %d by the same number", number, id, len(got), len(again))
	}
	return got
}

func (x *interleaving) ask(conn *pgx.Conn, r *rand.Rand, id int64, number int, u *reader, most int, again bool) []received {
	scan := func(row pgx.CollectableRow) (received, error) {
		v := received{reader: u}
		return v, row.Scan(&v.delivery, &v.message, &v.attempt, &v.at, &v.written)
	}
	// Rows that the claim returns itself, or rows fetched.
	inline := r.IntN(2) * 30
	rows, err := conn.Query(context.Background(), `select coalesce(delivery_id, -handed), coalesce(message_id, 0), coalesce(attempt, 0), clock_timestamp(), `+written+`
		from posthaste.claim($1, $2, 'q', $3, $4, false, true, $5, $6, $7)`, id, number, u.name, most, r.IntN(2) == 0, again, inline)
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
		x.unexpectedOf(u, "claim", err)
		return nil
	}
	if handed := -got[0].delivery; handed >= 0 {
		if handed > 0 && inline > 0 {
			x.unexpected("claim", fmt.Errorf("it handed out %d and returned none", handed))
		}
		at := got[0].moment // of the claim, for a fetch may be any time later
		rows, err := conn.Query(context.Background(), "select numbered_from + ordinality, message_id, attempt, $3::timestamptz, $4::int8 from posthaste.fetch($1, $2) with ordinality", id, number, at.at, at.written)
		if err == nil {
			got, err = pgx.CollectRows(rows, scan)
		}
		if err != nil {
			x.unexpectedOf(u, "fetch", err)
			return nil
		}
	}
	if len(got) > most {
		x.fault("%d were handed out, and %d wanted", len(got), most)
	}
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
		} else {
			x.late[v.of()] = true
		}
	}
}
