package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

var settleStatement = statement{
	name: "posthaste_settle",
	sql:  "select delivery_id, settled, outcome, due_at, refused from posthaste.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
	oids: []uint32{pgtype.Int8ArrayOID, pgtype.VarbitArrayOID, pgtype.Int8ArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID,
		pgtype.Float8ArrayOID, pgtype.TextArrayOID, pgtype.Float4ArrayOID, pgtype.BoolOID, pgtype.TextArrayOID},
}

// Settle implements [posthaste.Claims] by one statement: bits for what is
// plainly done, arrays for what has something to say.
func (e *Engine) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	params, results, err := settleParams(settlements, false)
	if err != nil {
		return nil, err
	}
	err = e.call(ctx, settleRow(results), bound{statement: &settleStatement, params: params})
	if err != nil {
		// Settling again is safe and tells, so an unknown result is no danger.
		return nil, readError(err)
	}
	return results.inOrder(settlements), nil
}

// settleResults are the answers so far, keyed by delivery: whoever is not told
// otherwise was plainly done.
type settleResults struct {
	told     map[posthaste.DeliveryID]posthaste.SettleResult
	repeated bool // some delivery was named more than once
}

func settleRow(results *settleResults) func(int, [][]byte) error {
	return func(_ int, v [][]byte) error {
		r := posthaste.SettleResult{
			Delivery: posthaste.DeliveryID(readInt8(v[0])),
			Settled:  readBool(v[1]),
			Outcome:  posthaste.Outcome(v[2]),
			DueAt:    readTime(v[3]),
		}
		if v[4] != nil {
			field, _, _ := strings.Cut(string(v[4]), " ")
			r.Err = posthaste.Invalidf(field, "%s", v[4])
		}
		if results.told == nil {
			results.told = make(map[posthaste.DeliveryID]posthaste.SettleResult)
		}
		results.told[r.Delivery] = r
		return nil
	}
}

func (r *settleResults) inOrder(settlements []posthaste.Settlement) []posthaste.SettleResult {
	out := make([]posthaste.SettleResult, len(settlements))
	var seen map[posthaste.DeliveryID]bool
	if r.repeated {
		seen = make(map[posthaste.DeliveryID]bool, len(settlements))
	}
	for i := range settlements {
		id := settlements[i].Delivery
		if seen[id] {
			out[i] = posthaste.SettleResult{Delivery: id}
			continue
		}
		if seen != nil {
			seen[id] = true
		}
		if told, ok := r.told[id]; ok {
			out[i] = told
		} else {
			out[i] = posthaste.SettleResult{Delivery: id, Settled: true, Outcome: posthaste.Done}
		}
	}
	return out
}

// settleParams groups settlements by claim, in ascending order as everybody
// settles. Of a delivery that is named twice the first settlement counts, and
// the rest are answered as not settled.
func settleParams(settlements []posthaste.Settlement, strict bool) ([][]byte, *settleResults, error) {
	sorted := make([]*posthaste.Settlement, len(settlements))
	ascending := true
	for i := range settlements {
		s := &settlements[i]
		if s.Delivery <= 0 {
			return nil, nil, posthaste.Invalidf("id", "delivery id must be positive, got %d", s.Delivery)
		}
		sorted[i] = s
		ascending = ascending && (i == 0 || settlements[i-1].Delivery <= s.Delivery)
	}
	if !ascending {
		slices.SortStableFunc(sorted, func(a, b *posthaste.Settlement) int { return cmp.Compare(a.Delivery, b.Delivery) })
	}
	results := &settleResults{}
	var claims, bits, ids, outcomes, errs, waits, receipts, durations, terms [][]byte
	var one []byte
	var claim int64
	length := 0
	flush := func() {
		if length > 0 {
			claims = append(claims, int8Param(claim))
			bits = append(bits, bitsParam(length, one))
		}
		one, length = nil, 0
	}
	for i, s := range sorted {
		if i > 0 && sorted[i-1].Delivery == s.Delivery {
			results.repeated = true
			continue
		}
		if s.Outcome == posthaste.Done && len(s.Receipt) == 0 && len(s.Terms) == 0 {
			if c := int64(s.Delivery) >> 12; c != claim {
				flush()
				claim = c
			}
			place := int(s.Delivery & (posthaste.MaxPlaces - 1))
			for len(one) <= place/8 {
				one = append(one, 0)
			}
			one[place/8] |= 0x80 >> (place % 8)
			length = max(length, place+1)
			continue
		}
		outcome, text, wait, err := said(s)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, int8Param(int64(s.Delivery)))
		outcomes = append(outcomes, []byte(outcome))
		errs = append(errs, text)
		waits = append(waits, wait)
		var receipt []byte
		if len(s.Receipt) > 0 {
			receipt = bytes.ToValidUTF8(s.Receipt, []byte("\uFFFD"))
			if jsoncheck.Check("receipt", receipt) != nil {
				receipt = []byte("no JSON") // so that this settlement alone is refused
			}
		}
		receipts = append(receipts, receipt)
		terms = append(terms, jsonOf(s.Terms))
		durations = append(durations, float4(float32(float64(s.Duration)/float64(time.Millisecond))))
	}
	flush()
	return [][]byte{
		arrayParam(pgtype.Int8OID, claims), arrayParam(pgtype.VarbitOID, bits), arrayParam(pgtype.Int8OID, ids),
		arrayParam(pgtype.TextOID, outcomes), arrayParam(pgtype.TextOID, errs), arrayParam(pgtype.Float8OID, waits),
		arrayParam(pgtype.TextOID, receipts), arrayParam(pgtype.Float4OID, durations), boolParam(strict),
		arrayParam(pgtype.TextOID, terms),
	}, results, nil
}

// jsonOf is a settlement's terms as an array of JSON, nil for none.
func jsonOf(terms []string) []byte {
	if len(terms) == 0 {
		return nil
	}
	return []byte(termsJSON(terms))
}

// said checks a settlement that is not plainly done.
func said(s *posthaste.Settlement) (outcome posthaste.Outcome, text, wait []byte, err error) {
	switch s.Outcome {
	case posthaste.Done, posthaste.Released:
	case posthaste.Retried, posthaste.Dead:
		text = []byte(posthaste.ErrorText(s.Error))
	default:
		return "", nil, nil, posthaste.Invalidf("outcome", "a delivery cannot be settled as %q", s.Outcome)
	}
	if s.RetryAfter > 0 {
		wait = float8(s.RetryAfter.Seconds())
	}
	return s.Outcome, text, wait, nil
}

// Extend implements [posthaste.Claims].
func (e *Engine) Extend(ctx context.Context, deliveries []posthaste.DeliveryID, lease time.Duration) ([]posthaste.SettleResult, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ids := make([]int64, len(deliveries))
	for i, d := range deliveries {
		ids[i] = int64(d)
	}
	rows, err := e.pool.Query(ctx, "select delivery_id, settled from posthaste.extend($1, $2::bigint * interval '1 microsecond')", ids, lease.Microseconds())
	if err != nil {
		return nil, writeError(err)
	}
	defer rows.Close()
	held := make(map[posthaste.DeliveryID]bool, len(ids))
	for rows.Next() {
		var id int64
		var ok bool
		if err := rows.Scan(&id, &ok); err != nil {
			return nil, readError(err)
		}
		held[posthaste.DeliveryID(id)] = ok
	}
	if err := rows.Err(); err != nil {
		return nil, writeError(err)
	}
	out := make([]posthaste.SettleResult, len(deliveries))
	for i, d := range deliveries {
		out[i] = posthaste.SettleResult{Delivery: d, Settled: held[d]}
	}
	return out, nil
}

// Rescue implements [posthaste.Engine].
func (e *Engine) Rescue(ctx context.Context) (int, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var lost int
	err := e.pool.QueryRow(ctx, "select posthaste.rescue()").Scan(&lost)
	return lost, readError(err)
}

// Maintain implements [posthaste.Engine].
func (e *Engine) Maintain(ctx context.Context) (posthaste.MaintainReply, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var reply posthaste.MaintainReply
	rows, err := e.pool.Query(ctx, "select task, coalesce(detail, '') from posthaste.maintain()")
	if err != nil {
		return reply, readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var task, detail string
		if err := rows.Scan(&task, &detail); err != nil {
			return reply, readError(err)
		}
		switch task {
		case "ticked", "rescued", "marked", "copied", "cleared", "reclaimed":
			reply.More = true
		}
		switch task {
		case "counted":
			reply.Flowed = true
		case "rescued":
			if _, err := fmt.Sscanf(detail, "%d deliveries", &reply.Rescued); err != nil {
				return reply, fmt.Errorf("posthaste.maintain told of a rescue as %q: %w", detail, err)
			}
		case "clock":
			reply.ClockSetBack = true
			e.log.Warn(detail+": until it is again where it was, delays that end before that moment count as over, and lost workers and ended leases are noticed later", "task", task)
		default:
			e.log.Debug("maintenance", "task", task, "detail", detail)
		}
	}
	return reply, readError(rows.Err())
}
