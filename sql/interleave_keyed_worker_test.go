package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// Receivers and workers in the random interleavings of a keyed queue.

func (x *keyedRun) done(d *keyedDelivery, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		d.m.done = done
	}
}

// tells records an event of a delivery.
func (x *keyedRun) tells(d *keyedDelivery, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		d.m.story = append(d.m.story, fmt.Sprintf("%d: %s", x.clock.Add(1), what))
	}
}

func (x *keyedRun) settled(conn *pgx.Conn, what, sql string, d *keyedDelivery) bool {
	var settled bool
	if err := conn.QueryRow(context.Background(), sql, d.delivery).Scan(&settled); err != nil {
		if x.ctx.Err() == nil {
			x.refusedFor(d.subscription, what, err)
		}
		return false
	}
	return settled
}

// isDone marks deliveries of an at-most-once queue as done, because they are as they are handed out.
func (x *keyedRun) isDone(got []keyedDelivery) {
	for i := range got {
		x.begins(&got[i])
		x.gives(&got[i])
		x.done(&got[i], true)
	}
}

func (x *keyedRun) receiver(conn *pgx.Conn, r *rand.Rand, subscription string) {
	count, end := x.inRounds()
	defer end()
	for x.ctx.Err() == nil && !x.gone(subscription) {
		count()
		// The test releases abandoned ones only when the lease is surely over.
		lease := "1 hour"
		abandon := !x.once && r.IntN(10) == 0
		if abandon {
			lease = "1 millisecond"
		}
		asked := x.asking()
		rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt from posthaste.receive('q', $1, $2::text::interval, jsonb_build_object('subscription', $3::text))`, 1+r.IntN(12), lease, subscription)
		if err != nil {
			x.refusedFor(subscription, "receive", err)
			return
		}
		got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (keyedDelivery, error) {
			d := keyedDelivery{keyedID: keyedID{subscription: subscription}, asked: asked}
			return d, row.Scan(&d.delivery, &d.message, &d.attempt)
		})
		if err != nil {
			x.refusedFor(subscription, "receive", err)
			return
		}
		x.answered(asked, got)
		if x.once {
			x.isDone(got)
			continue
		}
		if abandon {
			for i := range got {
				x.mu.Lock()
				got[i].m = x.entry(got[i].keyedID)
				x.mu.Unlock()
				x.tells(&got[i], fmt.Sprint("abandoned ", got[i].delivery))
			}
			continue
		}
		for i := range got {
			x.begins(&got[i])
		}
		for i := range got {
			d := &got[i]
			x.gives(d) // before the reply, because the next delivery may be faster
			x.tells(d, "settling")
			switch k := r.IntN(10); {
			case k == 0:
				x.settled(conn, "fail", `select settled from posthaste.fail($1, 'again', '{"retry_after": "5 milliseconds"}')`, d)
			case k == 1:
				x.settled(conn, "release", `select settled from posthaste.release(array[$1::bigint])`, d)
			case x.dies(r):
				x.deceases(d, func() bool {
					return x.settled(conn, "fail", `select settled from posthaste.fail($1, 'never', '{"permanent": true}')`, d)
				})
			default:
				x.done(d, true)
				if !x.settled(conn, "ack", `select settled from posthaste.ack(array[$1::bigint])`, d) && x.ctx.Err() == nil && !x.gone(subscription) {
					x.fault("an ack within the lease was refused")
				}
			}
		}
		if len(got) == 0 {
			pause(r, 0, 5)
		}
	}
}

func (x *keyedRun) worker(conn *pgx.Conn, r *rand.Rand, subscription string) {
	count, end := x.inRounds()
	defer end()
	for x.ctx.Err() == nil && !x.gone(subscription) {
		var id int64
		if err := conn.QueryRow(context.Background(), `select posthaste.worker_register('w', 'test', '1 hour')`).Scan(&id); err != nil {
			x.fault("error: register: %v", err)
			return
		}
		for number := int64(1); x.ctx.Err() == nil && !x.gone(subscription); number++ {
			count()
			asked := x.asking()
			rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt from posthaste.claim($1, $2, 'q', $4, $3, false, true, true, false, 1000) where delivery_id is not null`,
				id, number, 1+r.IntN(20), subscription)
			if err != nil {
				x.refusedFor(subscription, "claim", err)
				return
			}
			got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (keyedDelivery, error) {
				d := keyedDelivery{keyedID: keyedID{subscription: subscription}, asked: asked}
				return d, row.Scan(&d.delivery, &d.message, &d.attempt)
			})
			if err != nil {
				x.refusedFor(subscription, "claim", err)
				return
			}
			x.answered(asked, got)
			if len(got) == 0 {
				pause(r, 0, 5)
			}
			dies := r.IntN(20) == 0
			stopped := map[string]bool{}
			if x.once {
				x.isDone(got)
				got = nil
			}
			for i := range got {
				d := &got[i]
				if dies && i == len(got)/2 {
					break
				}
				key := x.keyOf(d.keyedID)
				if stopped[key] {
					x.settle(conn, d, "released")
					continue
				}
				x.begins(d)
				x.gives(d)
				if r.IntN(10) == 0 {
					stopped[key] = true
					x.settle(conn, d, "retried")
					continue
				}
				if x.dies(r) {
					stopped[key] = true
					x.deceases(d, func() bool { return x.settle(conn, d, "dead") })
					continue
				}
				x.done(d, true)
				if !x.settle(conn, d, "done") && x.ctx.Err() == nil && !x.gone(subscription) {
					x.fault("a settle of a living worker was refused")
				}
			}
			if dies {
				x.exec(conn, `update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where id = $1`, id)
				break
			}
		}
	}
}

func (x *keyedRun) keyOf(id keyedID) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.messages[id]; m != nil {
		return m.key.key
	}
	return ""
}

func (x *keyedRun) settle(conn *pgx.Conn, d *keyedDelivery, outcome string) bool {
	var settled *bool
	err := conn.QueryRow(context.Background(), `select settled from posthaste.settle('{}', '{}', array[$1::bigint], array[$2::text], array['again'], array[0.005::float8], array[null::text], array[null::real])`,
		d.delivery, outcome).Scan(&settled)
	if errors.Is(err, pgx.ErrNoRows) {
		return true
	}
	if err != nil {
		if x.ctx.Err() == nil {
			x.refusedFor(d.subscription, "settle "+outcome, err)
		}
		return false
	}
	return settled == nil || *settled
}
