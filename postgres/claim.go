package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

// dueInterval is how often a busy reader looks at what falls due: far below
// the second within which it must start, and seldom enough to cost nothing.
const dueInterval = 5 * time.Millisecond

var (
	claimStatement = statement{
		name: "posthaste_claim",
		sql: "select handed, wants_idle, next_due, timeout, delivery_id, message_id, attempt, key, kind, headers, payload, content_type, reference, created_at, due_at, story, alone, trace, at_most_once, rules" +
			" from posthaste.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		oids: []uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID, pgtype.Int4OID, pgtype.BoolOID, pgtype.BoolOID, pgtype.BoolOID, pgtype.BoolOID, pgtype.Int4OID},
	}
	heartbeatStatement = statement{
		name: "posthaste_heartbeat",
		sql:  "select posthaste.worker_heartbeat($1)",
		oids: []uint32{pgtype.Int8OID},
	}
	lookStatement = statement{
		name: "posthaste_look",
		sql:  "select coalesce(ready, false), next_due, maintain, rescue, (select posthaste.tick_in()), (select posthaste.rescue_in($1)) from posthaste.worker_look($1, $2, $3)",
		oids: []uint32{pgtype.Int8OID, pgtype.TextArrayOID, pgtype.TextArrayOID},
	}
	probeStatement = statement{
		name: "posthaste_probe",
		sql:  "select coalesce(ready, true) from posthaste.worker_look(null, $1, $2)",
		oids: []uint32{pgtype.TextArrayOID, pgtype.TextArrayOID},
	}
	fetchStatement = statement{
		name: "posthaste_fetch",
		sql: "select numbered_from + ordinality, message_id, attempt, key, kind, headers, payload, content_type, reference, created_at, due_at, story, alone, trace" +
			" from posthaste.fetch($1, $2) with ordinality",
		oids: []uint32{pgtype.Int8OID, pgtype.Int8OID},
	}
)

// Register implements [posthaste.Claims].
func (e *Engine) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	e.warmUp(ctx)
	var id posthaste.WorkerID
	err := e.pool.QueryRow(ctx, "select posthaste.worker_register($1, $2, make_interval(secs => $3::float8), nullif($4, ''))",
		info.Name, info.Version, info.Lease.Seconds(), e.environment).Scan((*int64)(&id))
	// A registration whose answer got lost is a worker without claims.
	return id, readError(err)
}

const (
	warmSessions = 4 // as many as a worker's claims, settles and upkeep need at once
	warmTimeout  = time.Second
)

// warmUp opens some sessions and lets them make their plans, once in an
// engine's life. Otherwise the first claim in each, some time later, would take
// as long as fifty others. What goes wrong only means that it does.
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
		// Held until all are there, so that each is another one.
		defer conn.Release()
		sessions.Go(func() {
			if _, err := conn.Exec(ctx, "select posthaste.warm_up()"); err != nil {
				e.log.Debug("a session was not warmed up", "error", err)
			}
		})
	}
	sessions.Wait()
}

// Unregister implements [posthaste.Claims].
func (e *Engine) Unregister(ctx context.Context, worker posthaste.WorkerID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := e.pool.Exec(ctx, "select posthaste.worker_unregister($1)", int64(worker))
	e.forget(worker)
	return readError(err)
}

// forget drops what is remembered of a worker that claims no more: its id is
// never given again, and the store refuses every claim by it.
func (e *Engine) forget(worker posthaste.WorkerID) {
	e.numbers.Delete(worker)
	e.paces.Range(func(key, _ any) bool {
		if key.(paceKey).worker == worker {
			e.paces.Delete(key)
		}
		return true
	})
}

// forgetLost does so where err says that the worker was declared lost, after
// which nobody unregisters it. It returns err.
func (e *Engine) forgetLost(worker posthaste.WorkerID, err error) error {
	if posthaste.CodeOf(err) == posthaste.WorkerLost {
		e.forget(worker)
	}
	return err
}

// Heartbeat implements [posthaste.Claims] by two statements in one round trip:
// the first keeps the worker alive, and has done so before the second looks.
func (e *Engine) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	queues := make([][]byte, len(beat.Queues))
	subscriptions := make([][]byte, len(beat.Queues))
	for i, q := range beat.Queues {
		queues[i], subscriptions[i] = textParam(q.Queue), textParam(q.Subscription)
	}
	var reply posthaste.HeartbeatReply
	beaten := false
	err := e.call(ctx, func(i int, v [][]byte) error {
		if i == 0 {
			beaten = true
			return nil
		}
		look := posthaste.LookReply{Found: readBool(v[0]), NextDue: readDue(v[1])}
		reply.Maintain, reply.Rescue, reply.TickIn = readBool(v[2]), readBool(v[3]), tickIn(readDue(v[4]))
		if first := readDue(v[5]); first >= 0 {
			reply.RescueIn = max(1, first) // what ended since the look did, is found at once
		}
		reply.Looks = append(reply.Looks, look)
		return nil
	},
		bound{statement: &heartbeatStatement, params: [][]byte{int8Param(int64(beat.Worker))}},
		bound{statement: &lookStatement, params: [][]byte{int8Param(int64(beat.Worker)), arrayParam(pgtype.TextOID, queues), arrayParam(pgtype.TextOID, subscriptions)}})
	if err != nil && beaten {
		// The beat is committed: the worker lives. The next one looks again.
		// Of a worker that ends, nothing failed.
		if !errors.Is(ctx.Err(), context.Canceled) {
			e.log.Warn("a worker's look at its queues failed", "worker", beat.Worker, "error", err)
		}
		return posthaste.HeartbeatReply{Blind: true}, nil
	}
	reply.Looks = reply.Looks[:min(len(reply.Looks), len(beat.Queues))]
	return reply, e.forgetLost(beat.Worker, readError(err))
}

// probe looks at subscriptions for nobody in particular, by one statement. One that was
// not looked at, because it is gone or there were too many, counts as ready.
func (e *Engine) probe(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error) {
	queues := make([][]byte, len(refs))
	subscriptions := make([][]byte, len(refs))
	for i, ref := range refs {
		queues[i], subscriptions[i] = textParam(ref.Queue), textParam(ref.Subscription)
	}
	ready := make([]bool, 0, len(refs))
	err := e.call(ctx, func(_ int, v [][]byte) error {
		ready = append(ready, readBool(v[0]))
		return nil
	}, bound{statement: &probeStatement, params: [][]byte{arrayParam(pgtype.TextOID, queues), arrayParam(pgtype.TextOID, subscriptions)}})
	return ready[:min(len(ready), len(refs))], readError(err)
}

// inlineRows is up to how many deliveries a claim answers by itself. Larger
// ones are read by a second statement, outside the readers' locks.
const inlineRows = 128

// Claim implements [posthaste.Claims]: it claims and reads what was claimed in
// one round trip, but for the first large claim after small ones, which takes two.
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	var reply posthaste.ClaimReply
	e.pacer.Served(req.QueueRef)
	subscription := req.Subscription
	if subscription == "" {
		subscription = posthaste.DefaultSubscription
	}
	var handed int
	var claimed, atMostOnce bool
	var timeout time.Duration
	var trace string
	deliver := func(v [][]byte) error {
		d, err := readDelivery(v, &trace)
		if err != nil {
			return err
		}
		d.Queue, d.Subscription, d.Timeout, d.AtMostOnce = req.Queue, subscription, timeout, atMostOnce
		if reply.Deliveries == nil {
			reply.Deliveries = make([]posthaste.RawDelivery, 0, handed)
		}
		reply.Deliveries = append(reply.Deliveries, d)
		return nil
	}
	fetch := bound{statement: &fetchStatement, params: [][]byte{int8Param(int64(req.Worker)), int8Param(req.Number)}}
	pace := e.pace(req)
	due := pace.looksDue()
	rows := inlineRows
	if pace.large.Load() {
		rows = 0
	}
	calls := []bound{{statement: &claimStatement, params: [][]byte{int8Param(int64(req.Worker)), int8Param(req.Number), textParam(req.Queue),
		textParam(subscription), int4Param(int32(req.Max)), boolParam(req.Single), boolParam(req.Idle), boolParam(due), boolParam(e.usedBefore(req)), int4Param(int32(rows))}}}
	if rows == 0 {
		calls = append(calls, fetch)
	}
	err := e.call(ctx, func(i int, v [][]byte) error {
		if i > 0 {
			return deliver(v)
		}
		claimed = true
		handed, reply.WantsIdle, reply.NextDue = readInt4(v[0]), readBool(v[1]), readDue(v[2])
		timeout = time.Duration(readFloat8(v[3]) * float64(time.Second))
		rules := readInt2(v[19])
		reply.InOrder, reply.Limits, reply.AtLimit, reply.FreedBySettle = rules&1 != 0, rules&2 != 0, rules&4 != 0, rules&8 != 0
		if v[4] == nil {
			return nil
		}
		atMostOnce = readBool(v[18])
		return deliver(v[4:18])
	}, calls...)
	if err == nil && !claimed {
		claimed, err = true, errors.New("posthaste.claim answered nothing")
	}
	// What is handed out at most once has come with the claim.
	if err == nil && handed > rows && rows > 0 && !atMostOnce {
		err = e.call(ctx, func(_ int, v [][]byte) error { return deliver(v) }, fetch)
	}
	if err == nil && len(reply.Deliveries) != handed {
		err = fmt.Errorf("claim %d of worker %d handed out %d deliveries, and %d were read", req.Number, req.Worker, handed, len(reply.Deliveries))
	}
	if err != nil && claimed {
		// It is committed: whatever came in the way, it must be asked for again.
		return posthaste.ClaimReply{}, &posthaste.Error{Code: posthaste.OutcomeUnsure, Message: "what a claim handed out could not be read",
			Hint: "claim again with the same number", Cause: err}
	}
	if err != nil {
		return posthaste.ClaimReply{}, e.forgetLost(req.Worker, writeError(err))
	}
	pace.large.Store(handed > inlineRows)
	pace.saw(due, reply.Deliveries)
	return reply, nil
}

// pace is what the last claims of a worker's reader tell about the next: how
// much to read at once and how often to look at the due track. It decides about
// cost alone.
type pace struct {
	large atomic.Bool
	// due is when to look at the due track, in nanoseconds since the process
	// began; afterFind: from the next find on.
	due atomic.Int64
}

const afterFind = math.MaxInt64

var began = time.Now()

func (e *Engine) pace(req posthaste.ClaimRequest) *pace {
	v, ok := e.paces.Load(paceKey{req.Worker, req.QueueRef})
	if !ok {
		v, _ = e.paces.LoadOrStore(paceKey{req.Worker, req.QueueRef}, new(pace))
	}
	return v.(*pace)
}

// looksDue decides whether a claim looks at the due track also where something
// is fresh: now and then while a reader is busy, always after it found something
// due, and not right after it found nothing, for then the due track was looked
// at, too.
func (p *pace) looksDue() bool { return int64(time.Since(began)) >= p.due.Load() }

func (p *pace) saw(looked bool, deliveries []posthaste.RawDelivery) {
	switch {
	case len(deliveries) == 0:
		p.due.Store(afterFind)
	case !deliveries[0].DueAt.IsZero() || !deliveries[len(deliveries)-1].DueAt.IsZero():
		p.due.Store(0)
	case looked || p.due.Load() == afterFind:
		p.due.Store(int64(time.Since(began) + dueInterval))
	}
}

// usedBefore reports whether the number may have been used by an earlier try,
// whatever became of that: only a number above all others this process has used
// is certainly new, and saves the store a look at what it has already.
func (e *Engine) usedBefore(req posthaste.ClaimRequest) bool {
	v, _ := e.numbers.LoadOrStore(req.Worker, new(atomic.Int64))
	highest := v.(*atomic.Int64)
	for {
		h := highest.Load()
		if req.Number <= h {
			return true
		}
		if highest.CompareAndSwap(h, req.Number) {
			return false
		}
	}
}

type paceKey struct {
	worker posthaste.WorkerID
	queue  posthaste.QueueRef
}

// readDue reads how many seconds are left; null is -1, for nothing is due.
func readDue(v []byte) time.Duration {
	if v == nil {
		return -1
	}
	// What falls due in 300 years is later than any Duration.
	return time.Duration(min(readFloat8(v), 9e9) * float64(time.Second))
}

// readDelivery reads a row of posthaste.fetch. The values are only lent. trace is
// that of the row before: messages that were sent together share its text.
func readDelivery(v [][]byte, trace *string) (posthaste.RawDelivery, error) {
	d := posthaste.RawDelivery{
		ID:          posthaste.DeliveryID(readInt8(v[0])),
		MessageID:   posthaste.MessageID(readInt8(v[1])),
		Attempt:     readInt2(v[2]),
		Key:         string(v[3]),
		Kind:        string(v[4]),
		Payload:     append(make([]byte, 0, len(v[6])), v[6]...),
		ContentType: posthaste.ContentTypeJSON,
		Reference:   string(v[8]),
		CreatedAt:   readTime(v[9]),
		DueAt:       readTime(v[10]),
		Alone:       readBool(v[12]),
	}
	if v[7] != nil {
		d.ContentType = contentType(v[7])
	}
	if v[5] != nil {
		if err := json.Unmarshal(readJSON(v[5]), &d.Headers); err != nil {
			return d, fmt.Errorf("headers of message %d: %w", d.MessageID, err)
		}
	}
	if v[13] != nil {
		if d.Headers == nil {
			d.Headers = make(map[string]string, 1)
		}
		if string(v[13]) != *trace {
			*trace = string(v[13])
		}
		d.Headers[posthaste.HeaderTraceParent] = *trace // the map is the handler's own
	}
	if v[11] != nil {
		if err := json.Unmarshal(readJSON(v[11]), &d.Story); err != nil {
			return d, fmt.Errorf("story of message %d: %w", d.MessageID, err)
		}
	}
	return d, nil
}

// contentType saves an allocation for the most common one.
func contentType(v []byte) string {
	if string(v) == posthaste.ContentTypeBytes {
		return posthaste.ContentTypeBytes
	}
	return string(v)
}

// Unsettled implements [posthaste.Claims].
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

// Receive implements [posthaste.Claims].
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	subscription := req.Subscription
	if subscription == "" {
		subscription = posthaste.DefaultSubscription
	}
	reply := posthaste.ReceiveReply{NextDue: -1}
	e.pacer.Served(req.QueueRef)
	var trace string
	err := e.call(ctx, func(_ int, v [][]byte) error {
		if v[0] == nil {
			reply.NextDue, reply.AtLimit = readDue(v[14]), readBool(v[15])
			return nil
		}
		d, err := readDelivery(v, &trace)
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

// receiveStatement's last row has what posthaste.receive leaves in settings.
var receiveStatement = statement{
	name: "posthaste_receive",
	sql: "select delivery_id, message_id, attempt::smallint, key, kind, headers, payload, content_type, reference, created_at, due_at, story, false, null::text, null::float8, null::boolean" +
		" from posthaste.receive($1, $2, $3::bigint * interval '1 microsecond', pg_catalog.jsonb_build_object('subscription', $4::text))" +
		" union all select null, null, null, null, null, null, null, null, null, null, null, null, null, null," +
		" nullif(current_setting('posthaste.next_due', true), '')::float8, coalesce(current_setting('posthaste.at_limit', true), '') = 'yes'",
	oids: []uint32{pgtype.TextOID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TextOID},
}
