package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// steadySlots is the number of slots that hold rows in a ring that has run for long: all
	// except for those that the ledger keeps free.
	steadySlots = 10
	// turnover is the time that a slot is in use at full speed, and maxSlotRows its maximum of
	// rows.
	turnover    = 7 * time.Second
	maxSlotRows = 1 << 21
	// replanning is the time after a truncation within which claims count as affected by it.
	replanning = 200 * time.Millisecond
)

// steadyFlow is flow through a ring whose slots turn over. After each truncation the sessions
// plan their statements again.
func steadyFlow(ctx context.Context, r *run) (err error) {
	if err := r.server.steady(ctx, r); err != nil {
		return err
	}
	url, err := r.server.database(ctx, "steady")
	if err != nil {
		return err
	}
	filler, err := postgres.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer filler.Close(context.WithoutCancel(ctx))
	t, timed, err := timedTraffic(ctx, r, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop(), timed.conn.Close(context.WithoutCancel(ctx))) }()
	if err := fillRing(ctx, r, t, filler); err != nil {
		return err
	}
	r.begin()
	if err := t.warm(ctx); err != nil {
		return err
	}
	r.phase("flow while slots turn over")
	timed.forget()
	own := cost{meter: r.server.meter}
	var s stretch
	err = r.profiled(true, func() error {
		end := own.span()
		s, err = t.batches(ctx, r.part(1-warming), r.o.Batch, outstanding(r.o.Batch), true)
		end(s.messages)
		return err
	})
	if err != nil {
		return err
	}
	t.audit(r, s.complete)
	if err := timed.failure(); err != nil {
		return err
	}
	res := r.result
	res.SteadyResult = timed.result()
	res.PerSecond, res.Batch, res.Senders, res.Messages = known(rate(s.messages, s.whole)), r.o.Batch, r.o.Senders, s.messages
	own.into(res)
	if res.Truncations == 0 {
		r.invalid("no slot was truncated in %s: set a longer duration", r.part(1-warming).Round(time.Second))
	}
	return nil
}

// timedTraffic returns traffic whose claims and upkeep are timed.
func timedTraffic(ctx context.Context, r *run, url string) (*traffic, *timedClaims, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	t, err := newTraffic(ctx, r, home{URL: url}, "steady", posthaste.QueueOptions{})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(ctx))
	}
	timed := &timedClaims{Store: t.engine, conn: conn}
	t.settled.Store = timed
	if err := t.work(ctx); err != nil {
		return nil, nil, errors.Join(err, t.stop(), conn.Close(ctx))
	}
	return t, timed, nil
}

// fillRing fills as many slots as hold rows in a ring that has run for long. Each slot gets the
// rows of seven seconds, as at full speed. After half of the duration the remaining slots get
// few rows each.
func fillRing(ctx context.Context, r *run, t *traffic, conn *pgx.Conn) error {
	set := func(rows int64) error {
		if _, err := conn.Exec(ctx, "update posthaste.settings set slot_rows = $1", rows); err != nil {
			return fmt.Errorf("the size of slots cannot be set: %w", err)
		}
		return nil
	}
	flow := func(during time.Duration) (stretch, error) {
		return t.batches(ctx, during, r.o.Batch, outstanding(r.o.Batch), false)
	}
	r.phase("filling slots of the ring")
	begun := time.Now()
	first, err := flow(min(2*time.Second, r.part(warming)))
	if err != nil {
		return err
	}
	rows := max(1, int64(rate(first.messages, first.sending)*min(turnover, r.part(warming)).Seconds()))
	rows = min(rows, maxSlotRows)
	if err := set(rows); err != nil {
		return err
	}
	for {
		var live int
		if err := conn.QueryRow(ctx, "select count(*) from posthaste.slots where live").Scan(&live); err != nil {
			return fmt.Errorf("the live slots cannot be counted: %w", err)
		}
		if live >= steadySlots {
			break
		}
		during := time.Second
		if time.Since(begun) > r.during/2 {
			during = time.Millisecond
			if err := set(1); err != nil {
				return err
			}
			if _, err := t.engine.Maintain(ctx, posthaste.UpkeepSpace); err != nil {
				return err
			}
		}
		if _, err := flow(during); err != nil {
			return err
		}
	}
	return set(rows)
}

// span is a time span on the process's monotonic clock.
type span struct{ begun, ended time.Duration }

// timedClaims is an engine that times its claims and its rounds of upkeep.
type timedClaims struct {
	posthaste.Store
	conn    *pgx.Conn  // only for Maintain, to detect truncations
	reading sync.Mutex // of conn

	mu          sync.Mutex
	files       string // of the ring's tables, after the last round
	claims      []span
	truncations []span // the rounds of upkeep that truncated a slot
	upkeep      []span // the other rounds of upkeep
	fault       error
}

// Claim implements [posthaste.Engine]. A claim that hands out nothing is not counted.
func (c *timedClaims) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	begun := time.Since(epoch)
	reply, err := c.Store.Claim(ctx, req)
	if len(reply.Deliveries) > 0 {
		c.mu.Lock()
		c.claims = append(c.claims, span{begun, time.Since(epoch)})
		c.mu.Unlock()
	}
	return reply, err
}

// Maintain implements [posthaste.Engine]. A table that was truncated has another file.
func (c *timedClaims) Maintain(ctx context.Context, what posthaste.Upkeep) (posthaste.MaintainReply, error) {
	if what != posthaste.UpkeepSpace {
		return c.Store.Maintain(ctx, what)
	}
	begun := time.Since(epoch)
	reply, err := c.Store.Maintain(ctx, what)
	round := span{begun, time.Since(epoch)}
	var files string
	c.reading.Lock() // a worker can do upkeep from more than one goroutine
	fault := c.conn.QueryRow(ctx, `
		select pg_catalog.string_agg(c.relfilenode::text, ' ' order by c.oid)
		  from pg_catalog.pg_class c join pg_catalog.pg_inherits i on i.inhrelid = c.oid where i.inhparent = 'posthaste.entries_plain'::regclass`).Scan(&files)
	c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case fault != nil && ctx.Err() == nil:
		c.fault = errors.Join(c.fault, fmt.Errorf("the slots' files cannot be read: %w", fault))
	case c.files != "" && files != c.files:
		c.truncations = append(c.truncations, round)
	default:
		c.upkeep = append(c.upkeep, round)
	}
	c.files = files
	return reply, err
}

// forget drops all spans so far.
func (c *timedClaims) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims, c.truncations, c.upkeep = nil, nil, nil
}

func (c *timedClaims) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *timedClaims) result() *SteadyResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := &SteadyResult{LiveSlots: steadySlots, Truncations: len(c.truncations), Claims: claimTimes(c.claims)}
	var after, beside []span
	for _, claim := range c.claims {
		switch {
		case claim.near(c.truncations):
			after = append(after, claim)
		case claim.near(c.upkeep):
			beside = append(beside, claim)
		}
	}
	result.AfterTruncation, result.AfterUpkeep = claimTimes(after), claimTimes(beside)
	for _, round := range c.truncations {
		worst := time.Duration(0)
		for _, claim := range after {
			if claim.near([]span{round}) {
				worst = max(worst, claim.ended-claim.begun)
			}
		}
		result.WorstOfEach = append(result.WorstOfEach, milliseconds(worst))
	}
	return result
}

// near reports whether a claim ran between the start of one of the rounds and 200 ms after its
// end. Claims that wait for the lock of a truncation begin before it.
func (s span) near(rounds []span) bool {
	return slices.ContainsFunc(rounds, func(r span) bool { return s.ended >= r.begun && s.begun <= r.ended+replanning })
}

func claimTimes(claims []span) ClaimTimes {
	took := make([]time.Duration, len(claims))
	for i, c := range claims {
		took[i] = c.ended - c.begun
	}
	slices.Sort(took)
	at := func(q float64) float64 { return milliseconds(percentile(took, q)) }
	return ClaimTimes{Claims: len(claims), P50: at(0.5), P99: at(0.99), Max: at(1)}
}
