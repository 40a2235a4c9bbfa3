package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

// The columns of claimStatement after the delivery's.
const (
	claimHanded = deliveryWidth + iota
	claimWantsIdle
	claimNextDue
	claimTimeout
	claimAtMostOnce
	claimRules
	claimKinds
)

// The bits of the column rules.
const (
	ruleInOrder = 1 << iota
	ruleLimits
	ruleAtLimit
	ruleFreedBySettle
)

var (
	claimStatement = statement{
		name: "posthaste_claim",
		sql: "select delivery_id, " + deliveryColumns + ", handed, wants_idle, next_due, timeout, at_most_once, rules, kind_options" +
			" from posthaste.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		oids: []uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID, pgtype.Int4OID, pgtype.BoolOID, pgtype.BoolOID, pgtype.BoolOID, pgtype.BoolOID, pgtype.Int4OID},
	}
	fetchStatement = statement{
		name: "posthaste_fetch",
		sql:  "select numbered_from + ordinality, " + deliveryColumns + " from posthaste.fetch($1, $2) with ordinality",
		oids: []uint32{pgtype.Int8OID, pgtype.Int8OID},
	}
)

// inlineRows is the largest number of deliveries that a claim returns itself. More are read
// by a second statement, which does not hold the locks of the claim.
const inlineRows = 128

// Claim implements [posthaste.Engine]. It claims and reads the deliveries in one round trip,
// except for the first large claim after small ones, which takes two.
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	e.pacer.Served(req.QueueRef)
	r := claimReader{queue: req.Queue, subscription: req.Normal().Subscription}
	fetch := bound{statement: &fetchStatement, params: [][]byte{int8Param(int64(req.Worker)), int8Param(req.Number)}}
	pace := e.pace(req)
	due := pace.looksDue()
	rows := inlineRows
	if pace.large.Load() {
		rows = 0
	}
	calls := []bound{{statement: &claimStatement, params: [][]byte{int8Param(int64(req.Worker)), int8Param(req.Number), textParam(req.Queue),
		textParam(r.subscription), int4Param(int32(req.Max)), boolParam(req.Single), boolParam(req.AllowAlone), boolParam(due), boolParam(e.usedBefore(req)), int4Param(int32(rows))}}}
	if rows == 0 {
		calls = append(calls, fetch)
	}
	err := e.call(ctx, r.read, calls...)
	if err == nil && !r.claimed {
		r.claimed, err = true, errors.New("posthaste.claim returned no row")
	}
	// The claim itself returns all deliveries of an at-most-once queue.
	if err == nil && r.handed > rows && rows > 0 && !r.atMostOnce {
		err = e.call(ctx, func(_ int, v [][]byte) error { return r.deliver(v) }, fetch)
	}
	if err == nil && len(r.reply.Deliveries) != r.handed {
		err = fmt.Errorf("claim %d of worker %d handed out %d deliveries, but %d were read", req.Number, req.Worker, r.handed, len(r.reply.Deliveries))
	}
	if err != nil && r.claimed {
		// The claim is committed: only a claim with the same number returns its deliveries.
		return posthaste.ClaimReply{}, &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the deliveries of a claim could not be read",
			Hint: "claim again with the same number", Cause: err}
	}
	if err != nil {
		return posthaste.ClaimReply{}, e.forgetLost(req.Worker, writeError(err))
	}
	pace.large.Store(r.handed > inlineRows)
	pace.saw(due, r.reply.Deliveries)
	return r.reply, nil
}

// claimReader reads the rows of a claim.
type claimReader struct {
	queue, subscription string

	reply      posthaste.ClaimReply
	claimed    bool // the claim returned a row, so it is committed
	handed     int  // the number of deliveries
	timeout    time.Duration
	kinds      map[string]attemptOptions // nil if no kind has options
	atMostOnce bool
	texts      shared
}

// read reads a row of claimStatement, which is transaction 0, or of fetchStatement.
func (r *claimReader) read(transaction int, v [][]byte) error {
	if transaction > 0 {
		return r.deliver(v)
	}
	r.claimed = true
	r.handed, r.timeout = readInt4(v[claimHanded]), time.Duration(readFloat8(v[claimTimeout])*float64(time.Second))
	r.reply.AloneWaiting, r.reply.NextDue = readBool(v[claimWantsIdle]), readDue(v[claimNextDue])
	if kinds := v[claimKinds]; kinds != nil {
		if err := json.Unmarshal(readJSON(kinds), &r.kinds); err != nil {
			return fmt.Errorf("reading the options of kinds of queue %s: %w", r.queue, err)
		}
	}
	rules := readInt2(v[claimRules])
	r.reply.InOrder, r.reply.Limits = rules&ruleInOrder != 0, rules&ruleLimits != 0
	r.reply.AtLimit, r.reply.FreedBySettle = rules&ruleAtLimit != 0, rules&ruleFreedBySettle != 0
	if v[deliveryID] == nil {
		return nil
	}
	r.atMostOnce = readBool(v[claimAtMostOnce])
	return r.deliver(v)
}

func (r *claimReader) deliver(v [][]byte) error {
	d, err := readDelivery(v, &r.texts)
	if err != nil {
		return err
	}
	d.Queue, d.Subscription, d.AtMostOnce = r.queue, r.subscription, r.atMostOnce
	if r.kinds != nil {
		d.Timeout = cmp.Or(d.Timeout, seconds(r.kinds[d.Kind].Timeout))
	}
	d.Timeout = cmp.Or(d.Timeout, r.timeout)
	if r.reply.Deliveries == nil {
		r.reply.Deliveries = make([]posthaste.RawDelivery, 0, r.handed)
	}
	r.reply.Deliveries = append(r.reply.Deliveries, d)
	return nil
}

// dueInterval is the interval at which a busy worker looks for due messages. A due message
// must start within a second, and a look every 5 ms costs next to nothing.
const dueInterval = 5 * time.Millisecond

// pace is the state of a worker's claims on one subscription that decides how the next claim
// is made. It affects cost only.
type pace struct {
	// large says that the last claim handed out more than inlineRows.
	large atomic.Bool
	// due is the time from which a claim looks for due messages, in nanoseconds since
	// began, or afterFind: not before a claim found a message.
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

// looksDue reports whether a claim looks for due messages even if there are new ones. It does
// so every dueInterval while the worker is busy, and always after a claim found due messages.
// It does not right after a claim that found nothing, because that one looked for them.
func (p *pace) looksDue() bool { return int64(time.Since(began)) >= p.due.Load() }

// saw records the result of a claim; looked is what looksDue returned for it.
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

// usedBefore reports whether an earlier attempt may have used the claim's number, with any
// outcome. A number above all that this process used is new, and the store need not look for
// its claim.
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
