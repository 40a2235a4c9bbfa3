package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

// The columns of receiveStatement after the delivery's. Only its last row has values in them,
// which posthaste.receive_rows leaves in settings, and no delivery.
const (
	receiveNextDue = deliveryWidth + iota
	receiveAtLimit
)

var receiveStatement = statement{
	name: "posthaste_receive",
	sql: "select delivery_id, message_id, attempt::smallint, key, kind, headers, payload, content_type, reference, created_at, due_at, story, false, null::text, null::float8, null::boolean" +
		" from posthaste.receive_rows($1, $2::int, $3::bigint * interval '1 microsecond', $4)" +
		" union all select null, null, null, null, null, null, null, null, null, null, null, null, null, null," +
		" nullif(current_setting('posthaste.next_due', true), '')::float8, coalesce(current_setting('posthaste.at_limit', true), '') = 'yes'",
	oids: []uint32{pgtype.TextOID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TextOID},
}

// Receive implements [posthaste.Engine].
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	subscription := req.Normal().Subscription
	reply := posthaste.ReceiveReply{NextDue: -1}
	e.pacer.Served(req.QueueRef)
	var texts shared
	err := e.call(ctx, func(_ int, v [][]byte) error {
		if v[deliveryID] == nil {
			reply.NextDue, reply.AtLimit = readDue(v[receiveNextDue]), readBool(v[receiveAtLimit])
			return nil
		}
		d, err := readDelivery(v, &texts)
		d.Queue, d.Subscription = req.Queue, subscription
		d.Timeout = req.Lease
		reply.Deliveries = append(reply.Deliveries, d)
		return err
	}, bound{statement: &receiveStatement, params: [][]byte{textParam(req.Queue), int4Param(int32(min(max(req.Max, -1), 1<<30))), int8Param(req.Lease.Microseconds()),
		textParam(subscription)}})
	if err != nil {
		return posthaste.ReceiveReply{}, writeError(err)
	}
	return reply, nil
}

// Extend implements [posthaste.Engine].
func (e *Engine) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if req.Notes != nil {
		return e.note(ctx, req)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ids := make([]int64, len(req.Deliveries))
	for i, d := range req.Deliveries {
		ids[i] = int64(d)
	}
	rows, err := e.pool.Query(ctx, "select delivery_id, settled, cancelled from posthaste.extend($1::bigint[], $2::bigint * interval '1 microsecond')", ids, req.Lease.Microseconds())
	if err != nil {
		return nil, writeError(err)
	}
	defer rows.Close()
	answers := make(map[posthaste.DeliveryID]posthaste.SettleResult, len(ids))
	for rows.Next() {
		var r posthaste.SettleResult
		if err := rows.Scan((*int64)(&r.Delivery), &r.Settled, &r.Cancelled); err != nil {
			return nil, readError(err)
		}
		answers[r.Delivery] = r
	}
	if err := rows.Err(); err != nil {
		return nil, writeError(err)
	}
	out := make([]posthaste.SettleResult, len(req.Deliveries))
	for i, d := range req.Deliveries {
		out[i] = answers[d]
	}
	return out, nil
}
