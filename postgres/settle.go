package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

var settleStatement = statement{
	name: "posthaste_settle",
	sql:  "select delivery_id, settled, outcome, due_at, field, refused from posthaste.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
	oids: []uint32{pgtype.Int8ArrayOID, pgtype.VarbitArrayOID, pgtype.Int8ArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID,
		pgtype.Float8ArrayOID, pgtype.TextArrayOID, pgtype.Float4ArrayOID, pgtype.BoolOID, pgtype.TextArrayOID},
}

// Settle implements [posthaste.Engine] in one statement. Deliveries that are done and have
// nothing else to record are passed as bits, and all others in arrays.
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
		// Not writeError: settling again is safe and returns the result.
		return nil, readError(err)
	}
	return results.inOrder(settlements), nil
}

// settleResults are the results of a call. It returns none for a delivery that became done as
// requested.
type settleResults struct {
	returned map[posthaste.DeliveryID]posthaste.SettleResult
	repeated bool // a delivery occurs more than once in the request
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
			r.Err = posthaste.Invalidf(string(v[4]), "%s", v[5])
		}
		if results.returned == nil {
			results.returned = make(map[posthaste.DeliveryID]posthaste.SettleResult)
		}
		results.returned[r.Delivery] = r
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
		if result, ok := r.returned[id]; ok {
			out[i] = result
		} else {
			out[i] = posthaste.SettleResult{Delivery: id, Settled: true, Outcome: posthaste.OutcomeDone}
		}
	}
	return out
}

// settleParams returns the parameters of settleStatement. They are sorted by delivery, because
// all transactions lock claims in ascending order. If a delivery occurs more than once, its
// first settlement is used, and the result of the others is that they are not settled.
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
	var claims, bits [][]byte
	var claim int64 // the claim whose bits are being set
	var done []byte // its bits, of which the first length are valid
	length := 0
	endClaim := func() {
		if length > 0 {
			claims = append(claims, int8Param(claim))
			bits = append(bits, bitsParam(length, done))
		}
		done, length = nil, 0
	}
	others := sorted[:0] // at most as long as the part of sorted that was read
	var last posthaste.DeliveryID
	for _, s := range sorted {
		if s.Delivery == last {
			results.repeated = true
			continue
		}
		last = s.Delivery
		if s.Outcome != posthaste.OutcomeDone || len(s.Receipt) > 0 || len(s.Terms) > 0 {
			others = append(others, s)
			continue
		}
		if c := int64(s.Delivery) >> 12; c != claim {
			endClaim()
			claim = c
		}
		place := int(s.Delivery & (posthaste.MaxPlaces - 1))
		for len(done) <= place/8 {
			done = append(done, 0)
		}
		done[place/8] |= 0x80 >> (place % 8)
		length = max(length, place+1)
	}
	endClaim()
	params := make([][]byte, 0, len(settleStatement.oids))
	params = append(params, arrayParam(pgtype.Int8OID, claims), arrayParam(pgtype.VarbitOID, bits))
	params, err := appendOthers(params, others, strict)
	return params, results, err
}

// appendOthers appends the parameters that have an element for each settlement, and strict.
func appendOthers(params [][]byte, others []*posthaste.Settlement, strict bool) ([][]byte, error) {
	n := len(others)
	cells := make([][]byte, 7*n)
	column := func(c int) [][]byte { return cells[c*n : (c+1)*n] }
	ids, outcomes, errs, waits, receipts, durations, terms := column(0), column(1), column(2), column(3), column(4), column(5), column(6)
	for i, s := range others {
		switch s.Outcome {
		case posthaste.OutcomeDone, posthaste.OutcomeReleased, posthaste.OutcomeSetAside:
		case posthaste.OutcomeRetried, posthaste.OutcomeDead:
			errs[i] = []byte(posthaste.ErrorText(s.Error))
		default:
			return nil, posthaste.Invalidf("outcome", "a delivery cannot be settled as %q", s.Outcome)
		}
		if s.RetryAfter > 0 {
			waits[i] = float8(s.RetryAfter.Seconds())
		}
		if len(s.Receipt) > 0 {
			receipts[i] = bytes.ToValidUTF8(s.Receipt, []byte("\uFFFD"))
			if jsoncheck.Check("receipt", receipts[i]) != nil {
				receipts[i] = []byte("no JSON") // the store then rejects this settlement only
			}
		}
		ids[i] = int8Param(int64(s.Delivery))
		outcomes[i] = []byte(s.Outcome)
		terms[i] = jsonOf(s.Terms)
		durations[i] = float4(float32(float64(s.Duration) / float64(time.Millisecond)))
	}
	return append(params,
		arrayParam(pgtype.Int8OID, ids), arrayParam(pgtype.TextOID, outcomes), arrayParam(pgtype.TextOID, errs), arrayParam(pgtype.Float8OID, waits),
		arrayParam(pgtype.TextOID, receipts), arrayParam(pgtype.Float4OID, durations), boolParam(strict), arrayParam(pgtype.TextOID, terms)), nil
}

// jsonOf returns terms as a JSON array, or nil if there are none.
func jsonOf(terms []string) []byte {
	if len(terms) == 0 {
		return nil
	}
	return []byte(termsJSON(terms))
}
