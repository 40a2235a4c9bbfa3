package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tally counts the handler's calls.
type tally struct {
	count atomic.Int64
	timed bool // messages contain the time of sending

	mu      sync.Mutex
	samples []int64
}

// encoded counts a message that the product delivers in JSON. Decoding it is part of the
// handler's work and not of the latency.
func (t *tally) encoded(message []byte) {
	now := t.now()
	if t.timed {
		var f fields
		if json.Unmarshal(message, &f) == nil {
			t.sample(now - f.Sent)
		}
	}
	t.count.Add(1)
}

// decoded counts a message that the product has decoded.
func (t *tally) decoded(f fields) {
	if t.timed {
		t.sample(t.now() - f.Sent)
	}
	t.count.Add(1)
}

func (t *tally) now() int64 {
	if !t.timed {
		return 0
	}
	return monotonic()
}

func (t *tally) sample(took int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples = append(t.samples, took)
}

// take returns the samples since the last call.
func (t *tally) take() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.samples
	t.samples = nil
	return all
}

// traffic sends the messages of a scenario.
type traffic struct {
	order  order
	sender sender
	pool   *pgxpool.Pool // for the transactions; nil in other scenarios
	bodies []body

	mu      sync.Mutex
	room    sync.Cond // signaled when handled has grown
	handled int64
	begun   int64 // messages whose sending has started
}

func newTraffic(ctx context.Context, o order, s sender) (t *traffic, err error) {
	t = &traffic{order: o, sender: s, bodies: make([]body, o.Batch)}
	t.room.L = &t.mu
	for i := range t.bodies {
		t.bodies[i] = newBody(o.Text, 0)
	}
	if o.Scenario == transactional {
		t.pool, err = openPool(ctx, o.URL, o.Senders)
	}
	return t, err
}

func (t *traffic) close() {
	if t.pool != nil {
		t.pool.Close()
	}
}

func openPool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(connections) //nolint:gosec // a few dozen
	return pgxpool.NewWithConfig(ctx, c)
}

// heard records the number of handled messages.
func (t *traffic) heard(handled int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if handled > t.handled {
		t.handled = handled
		t.room.Broadcast()
	}
}

// run sends for a while and returns the number of messages sent.
func (t *traffic) run(ctx context.Context, during time.Duration) (int64, error) {
	switch t.order.Scenario {
	case flow:
		return t.loops(ctx, during, t.sendBatch)
	case single:
		return t.loops(ctx, during, func(ctx context.Context, _ time.Time) (int64, error) {
			return 1, t.sender.one(ctx, t.bodies[0])
		})
	case transactional:
		return t.loops(ctx, during, t.transaction)
	case latency:
		return t.atRandom(ctx, during)
	}
	return 0, fmt.Errorf("scenario %q has no sender", t.order.Scenario)
}

// loops lets all senders call once repeatedly, until the time is over or a call fails.
func (t *traffic) loops(ctx context.Context, during time.Duration, once func(context.Context, time.Time) (int64, error)) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sent atomic.Int64
	var wait sync.WaitGroup
	until := time.Now().Add(during)
	wake := time.AfterFunc(during, func() {
		t.mu.Lock() // not between a sender's check of the clock and its wait
		defer t.mu.Unlock()
		t.room.Broadcast()
	})
	defer wake.Stop()
	for range t.order.Senders {
		wait.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				n, err := once(ctx, until)
				if err != nil {
					cancel(fmt.Errorf("sending failed: %w", err))
					return
				}
				sent.Add(n)
			}
		})
	}
	wait.Wait()
	return sent.Load(), context.Cause(ctx)
}

// sendBatch sends the next batch when there is room for it.
func (t *traffic) sendBatch(ctx context.Context, until time.Time) (int64, error) {
	n := int64(len(t.bodies))
	t.mu.Lock()
	for t.begun-t.handled > t.order.Limit-n {
		if !time.Now().Before(until) {
			t.mu.Unlock()
			return 0, nil
		}
		t.room.Wait()
	}
	t.begun += n
	t.mu.Unlock()
	return n, t.sender.batch(ctx, t.bodies)
}

// insertBusiness is the transaction's own statement besides sending.
const insertBusiness = "insert into public.peers_business (body) values ($1)"

// transaction commits one business row and one message.
func (t *traffic) transaction(ctx context.Context, _ time.Time) (int64, error) {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertBusiness, t.order.Text); err != nil {
			return err
		}
		return t.sender.within(ctx, tx, t.bodies[0])
	})
	return 1, err
}

// atRandom sends at random times, each message from its own goroutine, so that a slow call
// does not delay the others.
func (t *traffic) atRandom(ctx context.Context, during time.Duration) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gap := float64(time.Second) / t.order.Rate
	var wait sync.WaitGroup
	sent := int64(0)
	for next, until := time.Now(), time.Now().Add(during); ; sent++ {
		next = next.Add(time.Duration(gap * 2 * rand.Float64()))
		if next.After(until) {
			break
		}
		time.Sleep(time.Until(next))
		wait.Go(func() {
			if err := t.sender.one(ctx, newBody(t.order.Text, monotonic())); err != nil {
				cancel(fmt.Errorf("sending failed: %w", err))
			}
		})
	}
	wait.Wait()
	return sent, context.Cause(ctx)
}
