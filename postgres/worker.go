package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

var (
	heartbeatStatement = statement{
		name: "posthaste_heartbeat",
		sql:  "select posthaste.worker_heartbeat($1, $2)",
		oids: []uint32{pgtype.Int8OID, pgtype.JSONBOID},
	}
	lookStatement = statement{
		name: "posthaste_look",
		sql:  "select coalesce(ready, false), next_due, maintain, rescue, (select posthaste.tick_in()), (select posthaste.rescue_in($1)) from posthaste.worker_look($1, $2, $3)",
		oids: []uint32{pgtype.Int8OID, pgtype.TextArrayOID, pgtype.TextArrayOID},
	}
)

const (
	warmSessions = 4 // the number that a worker's claims, settlements and upkeep use at once
	warmTimeout  = time.Second
)

// Register implements [posthaste.Engine].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	e.warmUp(ctx)
	var id posthaste.WorkerID
	err := e.pool.QueryRow(ctx, "select posthaste.worker_register($1, $2, make_interval(secs => $3::float8), nullif($4, ''), nullif($5, '')::jsonb, nullif($6, '')::jsonb)",
		info.Name, info.Version, info.Lease.Seconds(), e.environment, kindsOf(info), sinksOf(info)).Scan((*int64)(&id))
	// If the response was lost, the registration is a worker without claims.
	return id, readError(err)
}

// kindsOf returns the kinds of a worker as posthaste.worker_register takes them, or "" if it
// handles all.
func kindsOf(info posthaste.WorkerInfo) string {
	if len(info.Kinds) == 0 {
		return ""
	}
	kinds := map[string]map[string][]string{}
	for ref, names := range info.Kinds {
		ref = ref.Normal()
		if kinds[ref.Queue] == nil {
			kinds[ref.Queue] = map[string][]string{}
		}
		kinds[ref.Queue][ref.Subscription] = append([]string{}, names...)
	}
	text, _ := json.Marshal(kinds) // strings always encode
	return string(text)
}

// sinksOf returns the sinks of a worker as posthaste.worker_register takes them, or "" without any.
func sinksOf(info posthaste.WorkerInfo) string {
	if len(info.Sinks) == 0 {
		return ""
	}
	text, _ := json.Marshal(info.Sinks) // strings always encode
	return string(text)
}

// warmUp opens some sessions and has them plan their statements, once per engine. Otherwise
// the first claim in each session would take as long as fifty others. Errors have no other
// effect.
func (e *Engine) warmUp(ctx context.Context) {
	if e.polling || e.warm.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	var sessions sync.WaitGroup
	for range min(warmSessions, e.pool.Config().MaxConns) {
		conn, err := e.pool.Acquire(ctx)
		if err != nil {
			break
		}
		// Released at the end, so that each Acquire returns another session.
		defer conn.Release()
		sessions.Go(func() {
			if _, err := conn.Exec(ctx, "select posthaste.warm_up()"); err != nil {
				e.log.Debug("warming up a session failed", "error", err)
			}
		})
	}
	sessions.Wait()
}

// Unregister implements [posthaste.Engine].
func (e *Engine) Unregister(ctx context.Context, worker posthaste.WorkerID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := e.pool.Exec(ctx, "select posthaste.worker_unregister($1)", int64(worker))
	e.forget(worker)
	return readError(err)
}

// forget drops the state of a worker that does not claim any more. Ids of workers are never
// reused, and the store rejects claims of ended ones.
func (e *Engine) forget(worker posthaste.WorkerID) {
	e.numbers.Delete(worker)
	e.paces.Range(func(key, _ any) bool {
		if key.(paceKey).worker == worker {
			e.paces.Delete(key)
		}
		return true
	})
}

// forgetLost calls forget if err says that the worker was declared lost, since a lost worker
// is not unregistered. It returns err.
func (e *Engine) forgetLost(worker posthaste.WorkerID, err error) error {
	if posthaste.CodeOf(err) == posthaste.CodeWorkerLost {
		e.forget(worker)
	}
	return err
}

// Heartbeat implements [posthaste.Engine] with two statements in one round trip. The first
// keeps the worker alive and commits before the second looks at the queues.
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	queues := make([][]byte, len(beat.Queues))
	subscriptions := make([][]byte, len(beat.Queues))
	for i, q := range beat.Queues {
		queues[i], subscriptions[i] = textParam(q.Queue), textParam(q.Subscription)
	}
	load, err := json.Marshal(beat.State)
	if err != nil {
		return posthaste.HeartbeatReply{}, err
	}
	var reply posthaste.HeartbeatReply
	beaten := false
	err = e.call(ctx, func(i int, v [][]byte) error {
		if i == 0 {
			beaten = true
			for _, d := range readInt8Array(v[0]) {
				reply.Cancelled = append(reply.Cancelled, posthaste.DeliveryID(d))
			}
			return nil
		}
		look := posthaste.LookReply{Found: readBool(v[0]), NextDue: readDue(v[1])}
		reply.Maintain, reply.Rescue, reply.TickIn = readBool(v[2]), readBool(v[3]), tickIn(readDue(v[4]))
		if first := readDue(v[5]); first >= 0 {
			reply.RescueIn = max(1, first) // Zero would mean that there is no lease
		}
		reply.Looks = append(reply.Looks, look)
		return nil
	},
		bound{statement: &heartbeatStatement, params: [][]byte{int8Param(int64(beat.Worker)), jsonParam(load)}},
		bound{statement: &lookStatement, params: [][]byte{int8Param(int64(beat.Worker)), arrayParam(pgtype.TextOID, queues), arrayParam(pgtype.TextOID, subscriptions)}})
	if err != nil && beaten {
		// The heartbeat is committed, and the next one looks again. A cancelled context is
		// no failure: the worker stops.
		if !errors.Is(ctx.Err(), context.Canceled) {
			e.log.Warn("looking at the queues of a worker failed", "worker", beat.Worker, "error", err)
		}
		return posthaste.HeartbeatReply{QueuesUnknown: true, Cancelled: reply.Cancelled}, nil
	}
	reply.Looks = reply.Looks[:min(len(reply.Looks), len(beat.Queues))]
	return reply, e.forgetLost(beat.Worker, readError(err))
}

// Unsettled implements [posthaste.Engine].
func (e *Engine) Unsettled(ctx context.Context, worker posthaste.WorkerID, upTo int64) ([]posthaste.DeliveryID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, "select posthaste.worker_unsettled($1, $2)", int64(worker), upTo)
	if err != nil {
		return nil, readError(err)
	}
	defer rows.Close()
	var ids []posthaste.DeliveryID
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, readError(err)
		}
		ids = append(ids, posthaste.DeliveryID(id))
	}
	return ids, readError(rows.Err())
}
