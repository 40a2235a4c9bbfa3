package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// crew is the set of concurrent actors in a random interleaving, each on a connection of its own,
// and the faults that they found.
type crew struct {
	t    testing.TB
	url  string
	ctx  context.Context
	end  context.CancelFunc
	seed uint64

	actors   uint64
	writers  sync.WaitGroup
	others   sync.WaitGroup
	stopSend chan struct{} // closed when sending ends

	mu     sync.Mutex
	faults []string               // descriptions of faults
	rounds map[*atomic.Int64]bool // of each actor that works in rounds

	dedupeKeys map[string][]*sent // committed messages with a dedupe key
}

func (x *crew) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found(format, args...)
}

// found records a fault under the mutex.
func (x *crew) found(format string, args ...any) {
	if len(x.faults) < 50 {
		x.faults = append(x.faults, fmt.Sprintf(format, args...))
	}
}

func (x *crew) faulty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.faults) > 0
}

func (x *crew) connect() *pgx.Conn {
	conn, err := pgx.Connect(context.Background(), x.url) // also at the very end
	if err != nil {
		x.t.Fatal(err)
	}
	return conn
}

func (x *crew) must(conn *pgx.Conn, sql string, args ...any) {
	if _, err := conn.Exec(x.ctx, sql, args...); err != nil {
		x.t.Fatalf("%s: %v", sql, err)
	}
}

// exec runs a statement that must succeed; once the test is over anything may fail.
func (x *crew) exec(conn *pgx.Conn, sql string, args ...any) bool {
	_, err := conn.Exec(context.Background(), sql, args...)
	if err != nil {
		x.unexpected(sql, err)
	}
	return err == nil
}

// maintains runs a round of upkeep. If it gives up waiting for a lock just as it gets it, and
// waits for the next one at once, the server reports a cancellation.
func (x *crew) maintains(conn *pgx.Conn) {
	_, err := conn.Exec(context.Background(), "select posthaste.maintain()")
	var pg *pgconn.PgError
	if err != nil && !(errors.As(err, &pg) && pg.Code == "57014") {
		x.unexpected("maintain", err)
	}
	x.cursors(conn)
}

// cursors looks for two cursors of one reader, which means that a session wrote one without its
// lock.
func (x *crew) cursors(conn *pgx.Conn) {
	rows, err := conn.Query(context.Background(), `select reader, seq, count(*) from posthaste.claims group by 1, 2 having count(*) > 1`)
	var reader, seq, n int64
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&reader, &seq, &n}, func() error {
			x.fault("twice: reader %d came to its claim %d, %d times", reader, seq, n)
			return nil
		})
	}
	if err != nil {
		x.unexpected("claims", err)
	}
}

func (x *crew) unexpected(what string, err error) {
	if x.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		var pg *pgconn.PgError
		detail := ""
		if errors.As(err, &pg) && pg.Detail != "" {
			detail = " (" + pg.Detail + " " + pg.Where + ")"
		}
		x.fault("error: %s: %v%s", what, err, detail)
	}
}

// gather begins a run on a ring with slots of the given number of rows.
func (x *crew) gather(rows, spare int) *pgx.Conn {
	x.ctx, x.end = context.WithCancel(context.Background())
	x.stopSend = make(chan struct{})
	admin := x.connect()
	x.must(admin, `alter table posthaste.settings drop constraint settings_slot_rows_check`)
	x.must(admin, `update posthaste.settings set slot_rows = $1, spare_slots = $2, carry_after = '200 milliseconds'`, rows, spare)
	// Many sessions wait here for holders that pause: how long does not matter.
	x.must(admin, fmt.Sprintf(waitsFor, "5s", "61s"))
	return admin
}

// start starts n actors of a kind.
func (x *crew) start(wg *sync.WaitGroup, n int, f func(*pgx.Conn, *rand.Rand)) {
	for range n {
		x.actors++
		r := rand.New(rand.NewPCG(x.seed, x.actors))
		wg.Go(func() {
			conn := x.connect()
			defer conn.Close(context.Background())
			f(conn, r)
		})
	}
}

func (x *crew) sending() bool {
	select {
	case <-x.stopSend:
		return false
	default:
		return true
	}
}

// stays waits for a while, in which a guest reads. If sending ends before, it stays until the end
// of the run, because it still gets the last messages.
func (x *crew) stays(while time.Duration) {
	select {
	case <-x.ctx.Done():
	case <-time.After(while):
		if !x.sending() {
			<-x.ctx.Done()
		}
	}
}

// pause lets others be faster, for a random number of milliseconds from least to below most.
func pause(r *rand.Rand, least, most int) {
	time.Sleep(time.Duration(least+r.IntN(most-least)) * time.Millisecond) // chance decides how actors meet
}

// enough is the least number of messages for a meaningful run.
const enough = 20

// sendFor lets the writers run for the duration, or longer on a machine on which they have not
// sent enough by then, or until a fault is found, and stops them.
func (x *crew) sendFor(duration time.Duration, sent func() int) {
	begun := time.Now()
	testrun.Happens(duration+patience, func() bool {
		return x.faulty() || time.Since(begun) > duration && sent() >= enough
	})
	close(x.stopSend)
	x.writers.Wait()
}

// inRounds counts the rounds of an actor that works in rounds, by the function returned, until it
// ends.
func (x *crew) inRounds() (count, end func()) {
	n := &atomic.Int64{}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rounds == nil {
		x.rounds = map[*atomic.Int64]bool{}
	}
	x.rounds[n] = true
	return func() { n.Add(1) }, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.rounds, n)
	}
}

// fewest is the least number of rounds since the counts were reset.
func (x *crew) fewest() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	least := int64(math.MaxInt64)
	for n := range x.rounds {
		least = min(least, n.Load())
	}
	return least
}

func (x *crew) countAnew() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := range x.rounds {
		n.Store(0)
	}
}

// finish waits until all messages have ended, or a fault is found, or none has ended for still
// and through the given rounds of each actor that works in rounds, and ends the run. A stalled
// machine does not count as quiet because there are no rounds meanwhile. progress returns how
// many have ended, and whether those are all. finish reports whether all have.
func (x *crew) finish(still time.Duration, rounds int64, progress func() (ended int, all bool)) (all bool) {
	before, since := -1, time.Now()
	testrun.Happens(math.MaxInt64, func() bool {
		if x.faulty() || all || time.Since(since) >= still && x.fewest() >= rounds {
			return true
		}
		var ended int
		if ended, all = progress(); ended != before {
			x.countAnew()
			before, since = ended, time.Now()
		}
		if time.Since(since) > 10*patience {
			x.fault("nothing has ended for %s, and some actor is stuck", 10*patience)
		}
		return false
	})
	x.end()
	x.others.Wait()
	return all
}
